//! Putting a connection at a mount point, and taking it away.
//!
//! Root does it by mount(2) and umount(2); others through `fusermount3`, which has that right. Source: Linux
//! Documentation/filesystems/fuse/fuse.rst, "Mount options"; fs/fuse/inode.c.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::fusermount;
use crate::options::MountOptions;

/// Why nothing was mounted, or unmounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel has no FUSE.
    #[error("cannot open /dev/fuse: {0}; load it with `modprobe fuse`")]
    NoDevice(io::Error),
    /// What is to be covered is no directory, or cannot be seen.
    #[error("cannot use the mount point: {0}")]
    NoDirectory(io::Error),
    /// The kernel refused.
    #[error("the kernel refuses: {}", io::Error::from(*.0))]
    Refused(Errno),
    /// Somebody has a file open, or is in a directory.
    #[error("somebody uses it")]
    Busy,
    /// There is no helper to do it.
    #[error("cannot start {program}: {error}; install the package fuse3, or be root")]
    NoHelper {
        /// Its name.
        program: &'static str,
        /// Why not.
        error: io::Error,
    },
    /// The helper could not do it.
    #[error("{}", .0.trim_end())]
    Helper(String),
}

/// A connection to the kernel that is mounted.
#[derive(Debug)]
pub struct Mounted {
    /// The open `/dev/fuse`.
    pub device: OwnedFd,
    /// Where, an absolute path without links.
    pub path: PathBuf,
}

/// Mounts `source`, a name for people, at `path`.
pub fn mount(path: &Path, source: &OsStr, options: &MountOptions) -> Result<Mounted, MountError> {
    let path = path.canonicalize().map_err(MountError::NoDirectory)?;
    let device = match rustix::process::geteuid().is_root() {
        true => mount_directly(&path, source, options)?,
        false => fusermount::mount(&path, source, options)?,
    };
    Ok(Mounted { device, path })
}

fn mount_directly(path: &Path, source: &OsStr, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let metadata = path.metadata().map_err(MountError::NoDirectory)?;
    if !metadata.is_dir() {
        return Err(MountError::NoDirectory(io::Error::from(io::ErrorKind::NotADirectory)));
    }
    let device = File::options().read(true).write(true).open("/dev/fuse").map_err(MountError::NoDevice)?;
    let user = rustix::process::getuid().as_raw();
    let group = rustix::process::getgid().as_raw();
    let mode = metadata.mode() & 0o170_000;
    let data = format!(
        "fd={},rootmode={mode:o},user_id={user},group_id={group},default_permissions{}",
        device.as_raw_fd(),
        if options.allow_other { ",allow_other" } else { "" },
    );
    let source = CString::new(source.as_bytes()).unwrap_or_default();
    let data = CString::new(data).unwrap_or_default();
    let fs_type = options.fs_type();
    rustix::mount::mount(source.as_c_str(), path, fs_type.as_str(), options.flags(), data.as_c_str())
        .map_err(MountError::Refused)?;
    Ok(device.into())
}

/// How to unmount.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unmounter {
    /// Take it out of sight now, and end when nobody uses it any more.
    pub lazy: bool,
    /// Even if the server no longer answers.
    pub force: bool,
}

/// Unmounts what is at `path`.
pub fn unmount(path: &Path, how: Unmounter) -> Result<(), MountError> {
    if !rustix::process::geteuid().is_root() {
        return fusermount::unmount(path, how.lazy);
    }
    let mut flags = UnmountFlags::NOFOLLOW;
    flags.set(UnmountFlags::DETACH, how.lazy);
    flags.set(UnmountFlags::FORCE, how.force);
    match rustix::mount::unmount(path, flags) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(MountError::Busy),
        Err(errno) => Err(MountError::Refused(errno)),
    }
}
