//! The identity and the kind of a host file.

use std::os::fd::AsFd;
use std::path::Path;

use obento_base::FileKind;
use rustix::fs::{AtFlags, CWD, StatxFlags, makedev};

use crate::HostError;

/// The identity of a host file. Two paths to one file, and two nodes of one block device, have the same
/// identity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId {
    /// The number of the file system.
    pub dev: u64,
    /// The inode number. It is 0 for a block device, whose own number is in `dev`.
    pub ino: u64,
}

impl FileId {
    /// Returns the identity of an open file. Fails with `System`.
    pub fn of_file(file: impl AsFd, path: &Path) -> Result<Self, HostError> {
        let stat = rustix::fs::fstat(file).map_err(|errno| HostError::system("examine", path, errno))?;
        Ok(Self::of(&stat))
    }

    /// Returns the identity of the file that `path` leads to, or `None` after an error.
    pub fn of_path(path: &Path) -> Option<Self> {
        rustix::fs::stat(path).ok().map(|stat| Self::of(&stat))
    }

    /// Returns the identity of the file that `link` in `/proc/PID/fd` refers to, or `None` after an error. The call asks no
    /// server of a file system, which might never respond.
    /// Source: statx(2), AT_STATX_DONT_SYNC; Linux fs/fuse/dir.c `fuse_update_get_attr`.
    pub(crate) fn of_open_file(link: &Path) -> Option<Self> {
        let (flags, mask) = (AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE | StatxFlags::INO);
        let stat = rustix::fs::statx(CWD, link, flags, mask).ok()?;
        Some(match FileKind::from_mode(stat.stx_mode) {
            Some(FileKind::BlockDevice) => {
                Self { dev: makedev(stat.stx_rdev_major, stat.stx_rdev_minor), ino: 0 }
            }
            _ => Self { dev: makedev(stat.stx_dev_major, stat.stx_dev_minor), ino: stat.stx_ino },
        })
    }

    /// Returns the identity of the file with this status.
    pub fn of(stat: &rustix::fs::Stat) -> Self {
        match kind_of(stat) {
            Some(FileKind::BlockDevice) => Self { dev: stat.st_rdev, ino: 0 },
            _ => Self { dev: stat.st_dev, ino: stat.st_ino },
        }
    }
}

/// Returns the kind in a `struct stat`.
pub(crate) fn kind_of(stat: &rustix::fs::Stat) -> Option<FileKind> {
    // The kind and the permission bits are the low 16 bits of `st_mode`.
    FileKind::from_mode((stat.st_mode & 0xffff) as u16)
}
