//! Mounting and unmounting.
//!
//! Root calls mount(2) and umount(2). Other users run `fusermount3`, which is set-user-ID root. Source: Linux
//! Documentation/filesystems/fuse/fuse.rst, "Mount options"; fs/fuse/inode.c.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::copies::Copies;
use crate::fusermount;
use crate::mountinfo::{MountPoint, find_mount, mount_id, mount_of, mount_with_id};
use crate::options::{AccessTimes, MountOptions};

/// An attribute of the root that is a request to the server: when to update access times.
pub(crate) const ACCESS_TIMES: &str = "trusted.obento.access_times";

/// An attribute that no file has. A server that changes nothing refuses to remove it.
const NO_ATTRIBUTE: &str = "user.obento.none";

/// The folders of all connections. Source: Documentation/filesystems/fuse/fuse.rst, "Control filesystem".
pub(crate) const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// The reason why mounting or unmounting failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel has no FUSE.
    #[error("cannot open '/dev/fuse': {0}")]
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
    /// Another file system is at the path of the mount point now.
    #[error("the mount point has moved")]
    Moved,
    /// The helper program cannot be started.
    #[error("cannot start '{program}': {error}")]
    NoHelper {
        /// The name of the program.
        program: &'static str,
        /// The reason.
        error: io::Error,
    },
    /// The helper program failed, with this message.
    #[error("{}", of_helper(.0))]
    Helper(String),
}

/// Returns the reason in a message of `fusermount3`.
fn of_helper(said: &str) -> String {
    let line = said.trim_end().lines().last().unwrap_or_default();
    let line = line.strip_prefix("fusermount3: ").unwrap_or(line);
    if line.contains("user_allow_other") {
        return "only root can use allow_other on this system".to_owned();
    }
    if line.starts_with("failed to access mountpoint") {
        return "the user cannot enter the directory".to_owned();
    }
    if line.starts_with("user has no write access to mountpoint") {
        return "the user cannot write to the directory".to_owned();
    }
    if line.starts_with("entry for ") {
        return "the user has mounted nothing at the directory".to_owned();
    }
    match line {
        "" => "fusermount3 failed without a message".to_owned(),
        line => format!("fusermount3 reports: {line}"),
    }
}

/// A mounted connection to the kernel.
#[derive(Debug)]
pub struct Mounted {
    /// The open file of `/dev/fuse`.
    pub device: OwnedFd,
    /// The place of the mount.
    pub place: MountPlace,
}

/// Mounts at an open directory, whose path may change meanwhile. `source` is the name that mount(8) shows.
///
/// # Errors
///
/// `Moved` also if another user mounts at the directory at the same time, or if `fusermount3`, which needs a path,
/// mounted at another directory of this path.
pub fn mount(
    directory: BorrowedFd<'_>,
    source: &OsStr,
    options: &MountOptions,
) -> Result<Mounted, MountError> {
    let open = path_of(directory);
    let device = match rustix::process::geteuid().is_root() {
        true => mount_directly(&open, source, options)?,
        false => {
            let path = open.read_link().map_err(MountError::NoDirectory)?;
            fusermount::mount(&path, source, options)?
        }
    };
    Ok(Mounted { device, place: MountPlace::at(directory)? })
}

/// Returns a path that leads to an open directory. Source: proc_pid_fd(5).
fn path_of(directory: BorrowedFd<'_>) -> PathBuf {
    Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string())
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
        "fd={},rootmode={mode:o},user_id={user},group_id={group}{}{}",
        device.as_raw_fd(),
        if options.fakeroot { "" } else { ",default_permissions" },
        if options.allow_other { ",allow_other" } else { "" },
    );
    let source = CString::new(source.as_bytes()).unwrap_or_default();
    let data = CString::new(data).unwrap_or_default();
    let fs_type = options.fs_type();
    rustix::mount::mount(source.as_c_str(), path, fs_type.as_str(), options.flags(), data.as_c_str())
        .map_err(MountError::Refused)?;
    Ok(device.into())
}

/// A mount point that is found again if its path changes. Users can rename and exchange the directories above a mount
/// point.
#[derive(Debug)]
pub struct MountPlace {
    mount: MountPoint,
    /// The directory that contains the mount point.
    parent: OwnedFd,
    /// The name of the mount point in `parent`. Linux refuses to rename a mount point.
    name: OsString,
}

/// The flags of a handle of a directory, which does not ask the server of a mount.
const HANDLE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The flags of a handle of a mount point, which can be a regular file.
const ROOT: OFlags = HANDLE.difference(OFlags::DIRECTORY);

/// The number of times that a path is read again because the directories above it were renamed.
const RENAMED_MAX: usize = 100;

impl MountPlace {
    /// Returns the place of the mount that this user has mounted at the open directory. Fails with `Moved` if there is
    /// none.
    fn at(directory: BorrowedFd<'_>) -> Result<Self, MountError> {
        let parent =
            rustix::fs::openat(directory, "..", HANDLE, Mode::empty()).map_err(MountError::Refused)?;
        let path = path_of(directory).read_link().map_err(MountError::NoDirectory)?;
        let name = path.file_name().ok_or(MountError::Moved)?.to_owned();
        let root = rustix::fs::openat(&parent, &name, HANDLE, Mode::empty()).map_err(MountError::Refused)?;
        let mount = mount_of(&root).map_err(|_| MountError::Moved)?;
        let user = rustix::process::getuid().as_raw();
        match mount.is_fuse() && mount.owner() == Some(user) {
            true => Ok(Self { mount, parent, name }),
            false => Err(MountError::Moved),
        }
    }

    /// Opens the directory that contains the mount point of `mount`.
    ///
    /// # Errors
    ///
    /// `Moved` if the mount has ended or another file system is mounted over it; `Refused` if the directory cannot be
    /// opened.
    pub fn open(mount: MountPoint) -> Result<Self, MountError> {
        let mut present = mount;
        for _ in 0..RENAMED_MAX {
            let (above, name) =
                present.path.parent().zip(present.path.file_name()).ok_or(MountError::Moved)?;
            let flags = HANDLE.difference(OFlags::NOFOLLOW);
            let parent = rustix::fs::open(above, flags, Mode::empty());
            let place = parent.map(|parent| Self { name: name.to_owned(), parent, mount: present.clone() });
            let error = match place.map_err(MountError::Refused).and_then(|place| place.root().map(|_| place))
            {
                Ok(place) => return Ok(place),
                Err(error) => error,
            };
            // Another user may have renamed a directory above since the path was read.
            match mount_with_id(present.id) {
                Some(moved) if moved.device == present.device && moved.path != present.path => {
                    present = moved
                }
                _ => return Err(error),
            }
        }
        Err(MountError::Moved)
    }

    /// Opens the place of the mount at `path`, as [`open`](Self::open) does. Fails with `Moved` if nothing is mounted
    /// there.
    pub fn find(path: &Path) -> Result<Self, MountError> {
        Self::open(find_mount(path).ok_or(MountError::Moved)?)
    }

    /// Opens the mount point `name` in the directory `parent`, if it has this number. Fails with `Moved` otherwise.
    pub fn in_directory(parent: OwnedFd, name: &OsStr, id: u64) -> Result<Self, MountError> {
        let mount = mount_with_id(id).ok_or(MountError::Moved)?;
        let place = Self { mount, parent, name: name.to_owned() };
        place.root().map(|_| place)
    }

    /// Returns the mount, with its path at the time when the place was opened.
    pub fn mount(&self) -> &MountPoint {
        &self.mount
    }

    /// Returns the directory that contains the mount point, and the name of the mount point in it.
    pub fn entry(&self) -> (BorrowedFd<'_>, &OsStr) {
        (self.parent.as_fd(), &self.name)
    }

    /// Opens the root of the mount. The mount cannot be unmounted until it is dropped. Fails with `Moved` if the mount
    /// has ended or another file system is mounted over it.
    pub fn root(&self) -> Result<MountRoot, MountError> {
        let root = rustix::fs::openat(&self.parent, &self.name, ROOT, Mode::empty());
        let root = root.map_err(MountError::Refused)?;
        match mount_id(&root) {
            Ok(id) if id == self.mount.id => Ok(MountRoot(root)),
            _ => Err(MountError::Moved),
        }
    }

    /// Returns the means to end copies of this mount in other mount namespaces, for after the unmount. Returns `None` if
    /// the mount is not found, or if this process cannot end them.
    pub fn copies(&self) -> Option<Copies> {
        // The number of the device cannot change while the root is open.
        let _root = self.root().ok()?;
        Copies::of(&self.mount.device)
    }

    /// Returns a path that leads to the mount point by way of the open directory. Fails as [`root`](Self::root) does.
    fn path(&self) -> Result<PathBuf, MountError> {
        self.root()?;
        Ok(path_of(self.parent.as_fd()).join(&self.name))
    }

    /// Returns the present path of the mount point. Fails as [`root`](Self::root) does.
    fn present_path(&self) -> Result<PathBuf, MountError> {
        self.root()?;
        let above = path_of(self.parent.as_fd()).read_link().map_err(MountError::NoDirectory)?;
        Ok(above.join(&self.name))
    }

    /// Unmounts the file system. With `force`, the connection to the server is aborted first: calls of programs that use
    /// the mount fail, and a mount in use is detached.
    ///
    /// # Errors
    ///
    /// - `Busy`: a process uses the mount. Not with `lazy` or `force`.
    /// - `Moved`: another file system is mounted at this place now.
    /// - `Refused`, `NoHelper`, `Helper`: the kernel or the helper refused.
    pub fn unmount(&self, how: Unmounter) -> Result<Unmounted, MountError> {
        let is_root = rustix::process::geteuid().is_root();
        // umount(2) aborts the connection itself.
        let is_aborted = how.force && (is_root || self.abort().is_ok());
        let ended = if is_aborted && !how.lazy { Unmounted::Ended } else { Unmounted::Detached };
        match self.unmount_once(how) {
            Ok(()) if how.lazy => Ok(Unmounted::Detached),
            Ok(()) => Ok(Unmounted::Ended),
            Err(MountError::Busy) if how.force => {
                self.unmount_once(Unmounter { lazy: true, force: false }).map(|()| ended)
            }
            Err(error) => Err(error),
        }
    }

    fn unmount_once(&self, how: Unmounter) -> Result<(), MountError> {
        if !rustix::process::geteuid().is_root() {
            return fusermount::unmount(&self.present_path()?, how.lazy);
        }
        let mut flags = UnmountFlags::NOFOLLOW;
        flags.set(UnmountFlags::DETACH, how.lazy);
        flags.set(UnmountFlags::FORCE, how.force);
        match rustix::mount::unmount(self.path()?, flags) {
            Ok(()) => Ok(()),
            Err(Errno::BUSY) => Err(MountError::Busy),
            Err(errno) => Err(MountError::Refused(errno)),
        }
    }

    /// Returns the file that aborts the connection. Its owner is the user who mounted the file system.
    fn abort_file(&self) -> Option<PathBuf> {
        let minor = self.mount.device.strip_prefix("0:")?;
        Some(Path::new(CONNECTIONS).join(minor).join("abort"))
    }

    /// Aborts the connection. Fails with the errors of open(2) and write(2).
    fn abort(&self) -> io::Result<()> {
        let file = self.abort_file().ok_or(io::ErrorKind::NotFound)?;
        std::fs::write(file, "1")
    }

    /// Returns whether this process can abort the connection to the server. Otherwise the process would wait for a server
    /// that does not respond.
    pub fn can_abort(&self) -> bool {
        rustix::process::geteuid().is_root()
            || self.abort_file().is_some_and(|file| rustix::fs::access(file, Access::WRITE_OK).is_ok())
    }

    /// Passes written data from the cache of the kernel to the server. If the server is stopped, the process cannot end
    /// before the server continues, even if the connection is aborted.
    ///
    /// # Errors
    ///
    /// Those of open(2) and syncfs(2), and those of [`root`](Self::root).
    pub fn sync(&self) -> Result<(), MountError> {
        let root = File::open(self.path()?).map_err(MountError::NoDirectory)?;
        rustix::fs::syncfs(root).map_err(MountError::Refused)
    }
}

/// The open root of a mount. No other mount can take its place.
#[derive(Debug)]
pub struct MountRoot(OwnedFd);

impl AsFd for MountRoot {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl MountRoot {
    fn path(&self) -> PathBuf {
        path_of(self.0.as_fd())
    }

    /// Changes the flags of the mount.
    ///
    /// # Errors
    ///
    /// `Busy`: a file is open for writing, and the mount should become read-only. `Refused`: the kernel refused.
    pub fn remount(&self, options: &MountOptions) -> Result<(), MountError> {
        match rustix::mount::mount_remount(self.path(), options.flags(), c"") {
            Ok(()) => Ok(()),
            Err(Errno::BUSY) => Err(MountError::Busy),
            Err(errno) => Err(MountError::Refused(errno)),
        }
    }

    /// Changes when the server updates access times. Only root may set this attribute. Fails with `INVAL` if the server
    /// cannot change to `times`.
    pub fn set_access_times(&self, times: AccessTimes) -> rustix::io::Result<()> {
        rustix::fs::setxattr(self.path(), ACCESS_TIMES, times.name().as_bytes(), XattrFlags::empty())
    }

    /// Returns whether the kernel and the server accept changes.
    pub fn can_be_written(&self) -> bool {
        rustix::fs::removexattr(self.path(), NO_ATTRIBUTE) != Err(Errno::ROFS)
    }

    /// Opens the root directory for reading. Fails with the errors of open(2).
    pub fn to_readable(&self) -> io::Result<File> {
        File::open(self.path())
    }
}

/// The options of an unmount.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unmounter {
    /// Detach the mount now; the server ends when no process uses the mount.
    pub lazy: bool,
    /// Abort the connection to the server, which may not respond, and detach the mount if a process uses it.
    pub force: bool,
}

/// The state of a mount that was unmounted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmounted {
    /// The connection to the server has ended.
    Ended,
    /// The mount has no path. The connection ends when no process uses the mount.
    Detached,
}
