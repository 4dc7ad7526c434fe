//! The segments in a volume that is not recorded at the moment, for reading.

use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_base::{Error, Name, Result};
use obento_driver::{Cookie, DirEntry};
use obento_vfs::{Node, Vfs};

use crate::recorded::DIRECTORY;
use crate::segment::{segment_name, segment_number};

/// Longest segment that is read. A longer file is damaged or hostile.
const SEGMENT_MAX: u64 = 1 << 28;

/// The segments of the log of a volume.
#[derive(Debug)]
pub struct Segments {
    dir: Node,
    /// The numbers in ascending order; 0 contains the compacted edges of removed segments.
    numbers: Vec<u32>,
}

impl Segments {
    /// Returns the segments of the log in the root of a volume, or `None` if the volume has no log.
    ///
    /// # Errors
    ///
    /// 1. `NotDirectory`: a file has the name of the directory of the log.
    /// 2. The errors of the volume.
    pub fn of(vfs: &Vfs) -> Result<Option<Self>> {
        let name = Name::new(DIRECTORY.as_bytes()).map_err(|_| Error::Invalid)?;
        let dir = match vfs.root().lookup(name) {
            Err(Error::NotFound) => return Ok(None),
            found => found?,
        };
        let mut numbers = Vec::new();
        dir.read_dir(Cookie::START, &mut |entry: Result<DirEntry<'_>>| {
            numbers.extend(entry.ok().and_then(|entry| segment_number(entry.name.as_bytes())));
            core::ops::ControlFlow::Continue(())
        })?;
        numbers.sort_unstable();
        numbers.dedup();
        Ok(Some(Self { dir, numbers }))
    }

    /// Returns the numbers of the segments in ascending order. Segment 0 contains the compacted edges of removed
    /// segments.
    pub fn numbers(&self) -> &[u32] {
        &self.numbers
    }

    /// Returns the bytes of a segment.
    ///
    /// # Errors
    ///
    /// 1. `FileTooBig`: the file is longer than any segment.
    /// 2. `NoMemory`.
    /// 3. The errors of the volume.
    pub fn read(&self, number: u32) -> Result<Vec<u8>> {
        let name = segment_name(number);
        let file = self.dir.lookup(Name::new(name.as_bytes()).map_err(|_| Error::Invalid)?)?;
        let size = file.attr()?.size;
        if size > SEGMENT_MAX {
            return Err(Error::FileTooBig);
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(to_usize(size)).map_err(|_| Error::NoMemory)?;
        bytes.resize(to_usize(size), 0);
        let len = file.read_at(0, &mut bytes)?;
        bytes.truncate(len);
        Ok(bytes)
    }
}
