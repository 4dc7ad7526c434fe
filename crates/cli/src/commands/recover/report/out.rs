//! The output of the list.

use std::fs::File;
use std::io::{self, Write};

use obento::host::FileId;

use crate::context::Context;
use crate::output::Output;
use crate::replaced::OutputFile;
use crate::report::Report;

/// The output of the list.
pub enum Out {
    Standard(Output),
    File(File),
}

impl Out {
    /// Returns the emptied file, or standard output. Fails as [`OutputFile::emptied`] does.
    pub fn new(file: Option<OutputFile>, spared: &[FileId], context: &Context) -> Result<Self, Report> {
        Ok(match file {
            Some(file) => Self::File(file.emptied(spared, context)?),
            None => Self::Standard(Output::stdout()),
        })
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Standard(out) => out.write(bytes),
            Self::File(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Standard(out) => out.flush(),
            Self::File(file) => file.flush(),
        }
    }
}
