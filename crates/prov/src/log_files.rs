//! The files of a log at one moment, for a reader of a volume that is in use.

use alloc::string::String;
use alloc::vec::Vec;

use obento_base::Result;
use obento_vfs::Node;

use crate::files::{Files, SEGMENT_MAX};

/// The names and contents of the files of a log at one moment. A file that the log removes meanwhile stays readable.
#[derive(Debug, Default)]
pub struct LogFiles {
    /// The segment to which the log appends.
    pub(crate) current: Option<(String, Vec<u8>)>,
    /// The other files, which never change.
    pub(crate) complete: Vec<(String, Node)>,
}

impl Iterator for LogFiles {
    type Item = Result<(String, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.complete.pop() {
            Some((name, file)) => Some(Files::read(&file, SEGMENT_MAX).map(|bytes| (name, bytes))),
            None => self.current.take().map(Ok),
        }
    }
}
