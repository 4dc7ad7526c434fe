//! The destination of a copy: a directory of the host or of an image.

use obento_base::{DeviceNumber, Error, FileKind, Name};
use obento_host::tree::{LinkKey, Loss, Report, TreeWriter, Written};
use obento_host::{DataSink, HostError, Metadata, SinkError};

use super::image::ImageWriter;
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

/// A tree that is written. It has a current directory and creates entries there.
pub(super) trait Tree {
    /// Sets the metadata that the root gets at the end.
    fn set_root(&mut self, meta: &Metadata<'_>);
    /// Enters the directory `name`, and creates it if it does not exist.
    fn enter(&mut self, name: &Name, meta: &Metadata<'_>) -> Result<(), ProblemReason>;
    /// Sets the metadata of the current directory and leaves it.
    fn leave(&mut self) -> Result<(), ProblemReason>;
    /// Creates a regular file.
    fn file(&mut self, name: &Name, meta: &Metadata<'_>, fill: &mut Fill<'_>) -> Result<Written, FileError>;
    /// Creates a regular file of `bytes` in a batch with others, and reports its errors later. Returns false
    /// if the file must be created by itself.
    fn file_later(&mut self, _: &Name, _: &Metadata<'_>, _: &[u8]) -> Result<bool, ProblemReason> {
        Ok(false)
    }
    /// Counts a property of `name` that is lost.
    fn lose(&mut self, loss: Loss, name: &Name);
    /// Creates a symbolic link.
    fn symlink(&mut self, name: &Name, meta: &Metadata<'_>, target: &[u8]) -> Result<Written, ProblemReason>;
    /// Creates a device node, FIFO or socket.
    fn node(
        &mut self,
        name: &Name,
        meta: &Metadata<'_>,
        kind: FileKind,
        rdev: DeviceNumber,
    ) -> Result<Written, ProblemReason>;
    /// Records that `name` has the inode `key` in the source, with `more` names expected.
    fn remember(&mut self, key: LinkKey, name: &Name, more: u32) -> Result<(), ProblemReason>;
    /// Makes `name` a hard link to a recorded file. Returns `None` if that is not possible.
    fn link(
        &mut self,
        name: &Name,
        meta: &Metadata<'_>,
        key: LinkKey,
    ) -> Result<Option<Written>, ProblemReason>;
    /// Returns the files that were created but could not be written, if that is noticed later.
    fn late_problems(&mut self) -> Vec<Problem>;
    /// Waits until the errors of all files are known.
    fn settle(&mut self);
    /// Leaves all directories.
    fn finish(self) -> Result<Report, CopyError>;
}

impl Tree for TreeWriter {
    fn set_root(&mut self, meta: &Metadata<'_>) {
        Self::set_root(self, meta);
    }
    fn enter(&mut self, name: &Name, meta: &Metadata<'_>) -> Result<(), ProblemReason> {
        Ok(Self::enter(self, name, meta)?)
    }
    fn leave(&mut self) -> Result<(), ProblemReason> {
        Ok(Self::leave(self)?)
    }
    fn file(&mut self, name: &Name, meta: &Metadata<'_>, fill: &mut Fill<'_>) -> Result<Written, FileError> {
        Self::file(self, name, meta, |sink| fill(sink).map_err(FileError::from))
    }
    fn lose(&mut self, loss: Loss, name: &Name) {
        Self::lose(self, loss, name);
    }
    fn symlink(&mut self, name: &Name, meta: &Metadata<'_>, target: &[u8]) -> Result<Written, ProblemReason> {
        Ok(Self::symlink(self, name, meta, target)?)
    }
    fn node(
        &mut self,
        name: &Name,
        meta: &Metadata<'_>,
        kind: FileKind,
        rdev: DeviceNumber,
    ) -> Result<Written, ProblemReason> {
        Ok(Self::node(self, name, meta, kind, rdev)?)
    }
    fn remember(&mut self, key: LinkKey, name: &Name, more: u32) -> Result<(), ProblemReason> {
        match Self::remember(self, key, name, more) {
            // The node was dropped or stays unchanged: there is nothing to link to.
            Err(error) if error.errno().is_some() => Ok(()),
            other => Ok(other?),
        }
    }
    fn link(
        &mut self,
        name: &Name,
        meta: &Metadata<'_>,
        key: LinkKey,
    ) -> Result<Option<Written>, ProblemReason> {
        Ok(Self::link(self, name, meta, key)?)
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

impl Tree for ImageWriter {
    fn set_root(&mut self, meta: &Metadata<'_>) {
        Self::set_root(self, meta);
    }
    fn enter(&mut self, name: &Name, meta: &Metadata<'_>) -> Result<(), ProblemReason> {
        Self::enter(self, name, meta)
    }
    fn leave(&mut self) -> Result<(), ProblemReason> {
        Self::leave(self)
    }
    fn file(&mut self, name: &Name, meta: &Metadata<'_>, fill: &mut Fill<'_>) -> Result<Written, FileError> {
        Self::file(self, name, meta, fill)
    }
    fn file_later(&mut self, name: &Name, meta: &Metadata<'_>, bytes: &[u8]) -> Result<bool, ProblemReason> {
        Self::file_later(self, name, meta, bytes)
    }
    fn lose(&mut self, loss: Loss, name: &Name) {
        Self::lose(self, loss, name);
    }
    fn symlink(&mut self, name: &Name, meta: &Metadata<'_>, target: &[u8]) -> Result<Written, ProblemReason> {
        Self::symlink(self, name, meta, target)
    }
    fn node(
        &mut self,
        name: &Name,
        meta: &Metadata<'_>,
        kind: FileKind,
        rdev: DeviceNumber,
    ) -> Result<Written, ProblemReason> {
        Self::node(self, name, meta, kind, rdev)
    }
    fn remember(&mut self, key: LinkKey, name: &Name, more: u32) -> Result<(), ProblemReason> {
        Self::remember(self, key, name, more)
    }
    fn link(
        &mut self,
        name: &Name,
        meta: &Metadata<'_>,
        key: LinkKey,
    ) -> Result<Option<Written>, ProblemReason> {
        Self::link(self, name, meta, key)
    }
    fn late_problems(&mut self) -> Vec<Problem> {
        Self::late_problems(self)
    }
    fn settle(&mut self) {
        self.make_waiting();
    }
    fn finish(self) -> Result<Report, CopyError> {
        Self::finish(self)
    }
}
