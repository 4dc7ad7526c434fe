//! Which inode of the source was written where, for its further names.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

use obento_base::{Name, NameBuf};
use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;

use super::dir::open_at;
use crate::FileId;

/// Where an inode of the source was written.
#[derive(Clone)]
pub(super) struct Original {
    /// Names from the root of the tree to its directory.
    pub directory: Vec<NameBuf>,
    pub name: NameBuf,
    /// What was written, so that a swapped file is not linked to.
    pub id: FileId,
}

/// The inodes that have more names, by their number in the source.
#[derive(Default)]
pub(super) struct Links(HashMap<u64, Original>);

impl Links {
    pub fn insert(&mut self, key: u64, original: Original) {
        self.0.insert(key, original);
    }

    pub fn get(&self, key: u64) -> Option<Original> {
        self.0.get(&key).cloned()
    }
}

impl Original {
    /// Opens its directory, from the root of the tree on.
    pub fn open_directory(&self, root: impl AsFd) -> Result<OwnedFd, Errno> {
        let mut dir = rustix::io::fcntl_dupfd_cloexec(root, 0)?;
        for name in &self.directory {
            dir = open_at(&dir, name, OFlags::PATH | OFlags::DIRECTORY, 0)?;
        }
        Ok(dir)
    }
}

/// What `name` in `dir` is.
pub(super) fn identify(dir: impl AsFd, name: &Name) -> Result<FileId, Errno> {
    let stat = rustix::fs::statat(dir, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileId::of(&stat))
}
