//! The interface between a host and a layer that records which process uses which file.
//!
//! Such a layer wraps an open volume. It asks [`Who`] for the process of a change. A host that knows which process has a
//! file open reports opens, reads and writes to the layer through [`OpenRecorder`].

mod actor;
mod numbers;
mod transferred;

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::Ino;

pub use actor::{Actor, FixedWho, Who};
pub use transferred::Transferred;

/// The mode in which a file was opened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct OpenMode {
    /// The file was opened for reading.
    pub read: bool,
    /// The file was opened for writing.
    pub write: bool,
}

/// A process that has a file open, once or several times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenFile {
    /// The file.
    pub ino: Ino,
    /// The process.
    pub actor: Actor,
    /// The number of times that the process has the file open.
    pub count: u32,
    /// The union of the modes of all opens.
    pub mode: OpenMode,
    /// The bytes that were read.
    pub read: Transferred,
    /// The bytes that were written.
    pub written: Transferred,
}

/// A layer that records which process has which file open.
pub trait OpenRecorder: Send + Sync {
    /// Records that `actor` opened a regular file.
    fn opened(&self, actor: Actor, ino: Ino, mode: OpenMode);

    /// Adds a range to the bytes that `actor` read through its open file.
    fn was_read(&self, actor: Actor, ino: Ino, range: &Range<u64>);

    /// Records that `range` of a file was written. The write belongs to `current` if this process has the
    /// file open for writing. Otherwise, the write belongs to the last process that opened or created the
    /// file for writing. If no such process is known, the write belongs to `current`.
    fn wrote(&self, current: Option<Actor>, ino: Ino, range: &Range<u64>);

    /// Records that `actor` closed a regular file.
    fn closed(&self, actor: Actor, ino: Ino);

    /// Returns the open files, for a process to which the volume is passed on.
    fn open_files(&self) -> Vec<OpenFile>;

    /// Continues with the open files of the process that passed the volume on.
    fn adopt_open_files(&self, files: Vec<OpenFile>);
}
