//! The writer of trees: to a directory of the host or of an image. Copies, imports of archives, and builds that fill a
//! volume use it.

use std::ops::Range;

use obento_base::{DeviceNumber, Error, FileKind, Name};
use obento_host::tree::{LinkKey, Loss, Report, TreeWriter, Written};
use obento_host::{DataSink, HostError, Metadata, SinkError};

use super::{CopyError, Problem, ProblemReason};

/// A function that passes the bytes of a file to the sink. The target calls it again if it has to start over.
pub(crate) type Fill<'f> = dyn FnMut(&mut dyn DataSink) -> Result<(), SinkError> + 'f;

/// The reason why a file was not written.
pub(crate) enum FileError {
    /// The source cannot be read. No part of the file remains.
    Source(Error),
    Trouble(ProblemReason),
}

impl From<ProblemReason> for FileError {
    fn from(trouble: ProblemReason) -> Self {
        Self::Trouble(trouble)
    }
}

impl From<HostError> for FileError {
    fn from(error: HostError) -> Self {
        Self::Trouble(ProblemReason::Host(error))
    }
}

impl From<SinkError> for FileError {
    fn from(error: SinkError) -> Self {
        match error {
            SinkError::Source(error) => Self::Source(error),
            SinkError::Sink(error) => Self::Trouble(ProblemReason::Host(error)),
        }
    }
}

impl From<FileError> for ProblemReason {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Source(error) => Self::Volume(error),
            FileError::Trouble(trouble) => trouble,
        }
    }
}

/// An entry that is not a directory.
pub(crate) enum NewEntry<'e> {
    /// A regular file with the bytes that the function passes.
    File(&'e mut Fill<'e>),
    /// A symbolic link with this target.
    Symlink(&'e [u8]),
    /// A device, FIFO or socket. Its number has no meaning if it is not a device.
    Node(FileKind, DeviceNumber),
}

/// A writer of a tree. It has a current directory and creates entries there.
///
/// The times of a directory are set when the writer leaves the directory, because each new entry changes them. A
/// property that cannot be stored is a loss, which the writer counts.
pub(crate) trait TreeSink {
    /// Sets the metadata that the root gets at the end.
    fn set_root(&mut self, meta: &Metadata<'_>);
    /// Enters the directory `name`, and creates it if it does not exist. Its metadata is set when the writer leaves it.
    fn enter(&mut self, name: &Name, meta: &Metadata<'_>) -> Result<(), ProblemReason>;
    /// Sets the metadata of the current directory and leaves it. Does nothing at the root.
    fn leave(&mut self) -> Result<(), ProblemReason>;
    /// Creates an entry that is not a directory. An incomplete file is removed. The entry is counted as a loss if the
    /// target does not support its kind.
    fn create(&mut self, name: &Name, meta: &Metadata<'_>, entry: NewEntry<'_>) -> Result<(), FileError> {
        self.create_or_drop(name, meta, entry).map(|_| ())
    }
    /// Creates an entry like [`create`](Self::create). Returns whether the target can store it.
    fn create_or_drop(
        &mut self,
        name: &Name,
        meta: &Metadata<'_>,
        entry: NewEntry<'_>,
    ) -> Result<Written, FileError>;
    /// Creates a regular file of `bytes` in a batch with later files, and reports its errors later. Returns false if
    /// the file must be created by itself.
    fn create_later(&mut self, _: &Name, _: &Metadata<'_>, _: &[u8]) -> Result<bool, ProblemReason> {
        Ok(false)
    }
    /// Creates a regular file of `bytes`, in a batch with later files if possible.
    fn create_short(&mut self, name: &Name, meta: &Metadata<'_>, bytes: &[u8]) -> Result<(), FileError> {
        match self.create_later(name, meta, bytes)? {
            true => Ok(()),
            false => self.create(name, meta, NewEntry::File(&mut |sink| Ok(sink.bytes(bytes)?))),
        }
    }
    /// Counts a property of `name` that is lost.
    fn lose(&mut self, loss: Loss, name: &Name);
    /// Records that `name`, which was just created in the current directory, is the copy of `key` in the source. The
    /// source has up to `more` further names of this file.
    fn remember(&mut self, key: LinkKey, name: &Name, more: u32) -> Result<(), ProblemReason>;
    /// Makes `name` a hard link to the recorded copy of `key`. Returns false if no copy is recorded or it cannot be
    /// linked to, which is counted. The caller then creates a file.
    fn link(&mut self, name: &Name, meta: &Metadata<'_>, key: LinkKey) -> Result<bool, ProblemReason>;
    /// Returns the files that were created but could not be written, if that is noticed later.
    fn late_problems(&mut self) -> Vec<Problem>;
    /// Waits until the errors of all files are known.
    fn settle(&mut self);
    /// Leaves all directories and returns the report.
    fn finish(self) -> Result<Report, CopyError>;
}

/// Passes a file of `size` bytes to `sink`: `read` fills a part of `buffer` with the bytes from an offset on. The parts
/// of the file outside of `ranges` are holes.
pub(crate) fn fill_ranges(
    sink: &mut dyn DataSink,
    (ranges, size): (&[Range<u64>], u64),
    buffer: &mut [u8],
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), SinkError>,
) -> Result<(), SinkError> {
    let mut at = 0;
    for range in ranges {
        sink.hole(range.start.saturating_sub(at))?;
        at = range.start;
        while at < range.end {
            let part = usize::try_from(range.end - at).unwrap_or(buffer.len()).min(buffer.len());
            let bytes = &mut buffer[..part];
            read(at, bytes)?;
            sink.bytes(bytes)?;
            at += part as u64;
        }
    }
    Ok(sink.hole(size.saturating_sub(at))?)
}

impl TreeSink for TreeWriter {
    fn set_root(&mut self, meta: &Metadata<'_>) {
        Self::set_root(self, meta);
    }
    fn enter(&mut self, name: &Name, meta: &Metadata<'_>) -> Result<(), ProblemReason> {
        Ok(Self::enter(self, name, meta)?)
    }
    fn leave(&mut self) -> Result<(), ProblemReason> {
        Ok(Self::leave(self)?)
    }
    fn create_or_drop(
        &mut self,
        name: &Name,
        meta: &Metadata<'_>,
        entry: NewEntry<'_>,
    ) -> Result<Written, FileError> {
        Ok(match entry {
            NewEntry::File(fill) => self.file(name, meta, |sink| fill(sink).map_err(FileError::from))?,
            NewEntry::Symlink(target) => self.symlink(name, meta, target)?,
            NewEntry::Node(kind, rdev) => self.node(name, meta, kind, rdev)?,
        })
    }
    fn lose(&mut self, loss: Loss, name: &Name) {
        Self::lose(self, loss, name);
    }
    fn remember(&mut self, key: LinkKey, name: &Name, more: u32) -> Result<(), ProblemReason> {
        match Self::remember(self, key, name, more) {
            // The node was dropped or stays unchanged: there is nothing to link to.
            Err(error) if error.errno().is_some() => Ok(()),
            other => Ok(other?),
        }
    }
    fn link(&mut self, name: &Name, meta: &Metadata<'_>, key: LinkKey) -> Result<bool, ProblemReason> {
        Ok(Self::link(self, name, meta, key)?.is_some())
    }
    fn late_problems(&mut self) -> Vec<Problem> {
        let errors = Self::late_errors(self).into_iter();
        let path = |error: &HostError| error.path().map(|path| path.as_os_str().as_encoded_bytes().to_vec());
        errors
            .map(|error| Problem {
                path: path(&error).unwrap_or_default(),
                trouble: ProblemReason::Host(error),
            })
            .collect()
    }
    fn settle(&mut self) {
        Self::settle(self);
    }
    fn finish(self) -> Result<Report, CopyError> {
        Ok(Self::finish(self)?)
    }
}
