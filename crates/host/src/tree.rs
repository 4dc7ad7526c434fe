//! Writing a directory tree from hostile input.

use std::path::{Path, PathBuf};

use obento_base::{DeviceNumber, FileKind, Name};
use rustix::io::Errno;

use crate::{DataSink, HostError, Metadata};

/// What to do where the target has the name already. Directories are merged, whatever this says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Existing {
    /// An error for that name.
    Fail,
    /// The old one is removed first.
    #[default]
    Replace,
    /// The old one stays.
    Keep,
    /// The old one stays unless it is older.
    Update,
}

/// How far the image is believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Trust {
    /// As far as permissions go.
    #[default]
    Full,
    /// No set-user-ID and set-group-ID bits, no `security.*` and `trusted.*` attributes, no device nodes.
    Untrusted,
}

bitflags::bitflags! {
    /// What of the metadata to set; the rest is as if the files were made by hand.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Keep: u8 {
        /// Owner and group.
        const OWNER = 1;
        /// Permission bits without regard to the umask.
        const MODE = 2;
        /// Access and modification times.
        const TIMES = 4;
        /// Extended attributes and ACLs.
        const XATTRS = 8;
    }
}

/// How to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeOptions {
    /// Names that are taken.
    pub existing: Existing,
    /// How far the image is believed.
    pub trust: Trust,
    /// What of the metadata to set.
    pub keep: Keep,
    /// The most bytes of data to write; holes are free.
    pub max_bytes: u64,
}

/// What became of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// It is there now.
    Created,
    /// What was there stays, as [`Existing`] asks.
    Kept,
    /// It could not be made; the report counts it.
    Dropped,
}

/// What could not be kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Loss {
    /// Owner or group.
    Owner,
    /// A set-user-ID or set-group-ID bit.
    SpecialBits,
    /// An extended attribute.
    Xattr,
    /// An ACL.
    Acl,
    /// A time.
    Times,
    /// A device node.
    Device,
    /// A FIFO or socket.
    Special,
    /// Permission bits.
    Mode,
}

/// How often something could not be kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lost {
    /// How many entries.
    pub count: u64,
    /// The first few, with the reason; none where [`Trust::Untrusted`] was the reason.
    pub examples: Vec<(PathBuf, Option<Errno>)>,
}

/// What was written.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Regular files made.
    pub files: u64,
    /// Directories made.
    pub directories: u64,
    /// Other entries made: symbolic links, nodes, further hard links.
    pub others: u64,
    /// Bytes of data written.
    pub bytes: u64,
    /// What could not be kept.
    pub lost: std::collections::BTreeMap<Loss, Lost>,
}

/// Writes a tree: a cursor that stands in one directory and creates entries there.
pub struct TreeWriter {
    _private: (),
}

impl TreeWriter {
    /// Starts in the existing directory `root`.
    pub fn open(_root: &Path, _options: TreeOptions) -> Result<Self, HostError> {
        todo!()
    }

    /// Sets the metadata of the root directory when the writer finishes.
    pub fn set_root(&mut self, _meta: &Metadata<'_>) {
        todo!()
    }

    /// A second cursor in the same directory, for another thread. It cannot leave the directory it starts in, and
    /// must be finished before this one leaves it.
    pub fn fork(&self) -> Result<Self, HostError> {
        todo!()
    }

    /// Makes the directory `name`, unless there is one, and steps into it. Its metadata is set when it is left.
    pub fn enter(&mut self, _name: &Name, _meta: &Metadata<'_>) -> Result<(), HostError> {
        todo!()
    }

    /// Sets the metadata of the directory it stands in and steps out of it.
    pub fn leave(&mut self) -> Result<(), HostError> {
        todo!()
    }

    /// Makes a regular file; `fill` hands over its bytes. If `fill` fails, the file is removed again.
    pub fn file<E: From<HostError>>(
        &mut self,
        _name: &Name,
        _meta: &Metadata<'_>,
        _fill: impl FnOnce(&mut dyn DataSink) -> Result<(), E>,
    ) -> Result<Written, E> {
        todo!()
    }

    /// Makes a symbolic link.
    pub fn symlink(
        &mut self,
        _name: &Name,
        _meta: &Metadata<'_>,
        _target: &[u8],
    ) -> Result<Written, HostError> {
        todo!()
    }

    /// Makes a device node, FIFO or socket.
    pub fn node(
        &mut self,
        _name: &Name,
        _meta: &Metadata<'_>,
        _kind: FileKind,
        _rdev: DeviceNumber,
    ) -> Result<Written, HostError> {
        todo!()
    }

    /// Notes that `name`, just made here, has the inode `key` in the source, for [`TreeWriter::link`].
    pub fn remember(&mut self, _key: u64, _name: &Name) -> Result<(), HostError> {
        todo!()
    }

    /// Makes `name` a hard link to what was remembered as `key`. `None`: nothing was, or it cannot be linked to; make
    /// a file.
    pub fn link(&mut self, _name: &Name, _key: u64) -> Result<Option<Written>, HostError> {
        todo!()
    }

    /// Leaves all directories and answers what was written, by this cursor and its forks so far.
    pub fn finish(self) -> Result<Report, HostError> {
        todo!()
    }
}
