//! Mounting and unmounting.
//!
//! Root calls mount(2) and umount(2). Other users run `fusermount3`, which is set-user-ID root. Source: Linux
//! Documentation/filesystems/fuse/fuse.rst, "Mount options"; fs/fuse/inode.c.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::fusermount;
use crate::options::{AccessTimes, MountOptions};

/// An attribute of the root that is a request to the server: when to update access times.
pub(crate) const ACCESS_TIMES: &str = "trusted.obento.access_times";

/// The reason why mounting or unmounting failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel has no FUSE.
    #[error("cannot open '/dev/fuse': {0}\n  help: load the kernel module with 'modprobe fuse'")]
    NoDevice(io::Error),
    /// The mount point is not a directory, or is not accessible.
    #[error("{0}")]
    NoDirectory(io::Error),
    /// The system call failed.
    #[error("{}", io::Error::from(*.0))]
    Refused(Errno),
    /// A process has a file of the mount open, or has its working directory there.
    #[error("a process uses the mount")]
    Busy,
    /// The helper program cannot be started.
    #[error("cannot start '{program}': {error}\n  help: install the package fuse3, or run as root")]
    NoHelper {
        /// The name of the program.
        program: &'static str,
        /// The reason.
        error: io::Error,
    },
    /// The helper program failed, with this message.
    #[error("{}", .0.trim_end())]
    Helper(String),
}

/// A mounted connection to the kernel.
#[derive(Debug)]
pub struct Mounted {
    /// The open file of `/dev/fuse`.
    pub device: OwnedFd,
    /// The mount point: an absolute path without symbolic links.
    pub path: PathBuf,
}

/// Mounts at `path`. `source` is the name that mount(8) shows.
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

/// Changes the flags of the mount at `path`.
pub fn remount(path: &Path, options: &MountOptions) -> Result<(), MountError> {
    match rustix::mount::mount_remount(path, options.flags(), c"") {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(MountError::Busy),
        Err(errno) => Err(MountError::Refused(errno)),
    }
}

/// Changes when the server of the mount at `path` updates access times. Only root may set this attribute. Fails with
/// `INVAL` if the server cannot change to `times`.
pub fn set_access_times(path: &Path, times: AccessTimes) -> rustix::io::Result<()> {
    rustix::fs::setxattr(path, ACCESS_TIMES, times.name().as_bytes(), XattrFlags::empty())
}

/// The options of an unmount.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unmounter {
    /// Detach the mount now; the server ends when no process uses the mount.
    pub lazy: bool,
    /// Unmount even if the server does not respond.
    pub force: bool,
}

/// Unmounts the file system at `path`.
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
