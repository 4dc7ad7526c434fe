//! The interface between a host and a layer that records which process uses which file.
//!
//! Such a layer wraps an open volume. The layer asks [`Who`] for the process of a change. A host that can identify the
//! process of an open file reports opens, reads, writes and closes through [`OpenRecorder`].

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

    /// Records that `actor` read `range` of a file. If exactly one process has the file open, the read belongs to this
    /// process, even if `actor` is another process: a kernel reads ahead on behalf of no process. If `actor` does not
    /// have the file open and the number of processes that have it open is not one, the call has no effect.
    fn was_read(&self, actor: Actor, ino: Ino, range: &Range<u64>);

    /// Records that `range` of a file was written. The write belongs to the first of these processes:
    ///
    /// 1. `current`, if this process has the file open for writing;
    /// 2. the last process that opened the file for writing or created it, if this process is known;
    /// 3. `current`. If `current` is `None`, the write belongs to [`Actor::default`].
    fn wrote(&self, current: Option<Actor>, ino: Ino, range: &Range<u64>);

    /// Records that `actor` closed a regular file.
    fn closed(&self, actor: Actor, ino: Ino);

    /// Returns the open files, for the process that receives the volume.
    fn open_files(&self) -> Vec<OpenFile>;

    /// Adds the open files of the process that passed on the volume.
    fn adopt_open_files(&self, files: Vec<OpenFile>);
}
