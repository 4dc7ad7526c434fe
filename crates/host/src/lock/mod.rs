//! Locks on images, so that nobody changes one under the feet of another.
//!
//! Who changes an image holds an exclusive lock on all of it, and who reads it a shared lock on one byte far behind its
//! end: several read at once, and one changes it while nobody reads. They are open file description locks: they belong to
//! the open file and not to the process, so threads and two opens of one process exclude each other too, and they are
//! gone when the last descriptor is closed, however the process ends. A block device is opened with `O_EXCL` besides, which the
//! kernel refuses while it is mounted or part of another device.
//!
//! The byte of the readers lies behind the end because QEMU locks bytes from 100 and 200 on, shared, and takes any lock
//! there for another user: a reader that locked all of the image would keep a virtual machine from starting, and one
//! that locks a far byte does not. Who changes an image does keep it from starting, and is kept out by it.
//!
//! Not everybody locks: the kernel itself does not when an image is attached to a loop device, so those are looked for
//! in sysfs, and an image that is attached while it is being changed is not protected.
//! Source: fcntl_locking(2), "Open file description locks"; QEMU `block/file-posix.c`, `RAW_LOCK_PERM_BASE`,
//! `RAW_LOCK_SHARED_BASE`, and `include/block/block-common.h`, `BLK_PERM_WRITE`.

mod kernel;
mod process;
#[cfg(test)]
mod tests;

use std::ffi::CStr;
use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;

use self::kernel::Use;
use crate::{FileId, HostError, PathText};

/// What an image is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Reading it, beside others who do.
    Read,
    /// Changing it, alone.
    Change,
}

/// Who has an image open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum User {
    /// This process, by another open.
    Ourselves,
    /// A process, and how it was called: `obento find`.
    Process {
        /// Its number.
        pid: u32,
        /// Its program and subcommand, as it says itself.
        name: String,
    },
    /// A loop device of the kernel, and where it or a partition of it is mounted.
    Loop {
        /// Its node.
        device: PathBuf,
        /// A mount point.
        mount: Option<PathBuf>,
    },
    /// The kernel has the block device, or a partition of it, mounted here.
    Mount(PathBuf),
    /// Another block device is made of this one.
    Device(PathBuf),
    /// Somebody who cannot be seen from here.
    Unknown,
}

/// What a person should know about an image that could be opened all the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LockNotice {
    /// The file system that it lies on has no locks.
    NoLocks(Errno),
    /// Somebody may be changing it while it is read.
    Unprotected(User),
}

/// The byte that readers lock. No file reaches so far: ext4, XFS and Btrfs end at 2^60 and 2^63.
const READERS: Range<i64> = (1 << 62)..(1 << 62) + 1;
/// All of a file, whatever its length.
const ALL: Range<i64> = 0..0;
/// The byte on which QEMU has a lock while it may write to an image.
const QEMU_WRITES: Range<i64> = 101..102;

/// How often, and how long after, a lock is tried for again.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(10);

/// What a server calls its first thread while it brings its last changes to stable storage: who wants the image waits
/// for it.
pub const ENDING: &CStr = c"obento-ending";
/// How often, and how long after, a lock of such a server is tried for again: ten seconds.
const PATIENCE: u32 = 200;
const LONG_PAUSE: Duration = Duration::from_millis(50);
/// How often of these nobody may be seen to have it.
const UNSEEN: u32 = 5;

/// Locks an open file or block device for `purpose`, for as long as it is open. Errors: InUse.
pub(crate) fn claim(
    file: impl AsFd,
    path: &Path,
    id: FileId,
    purpose: Purpose,
) -> Result<Vec<LockNotice>, HostError> {
    let (kind, range) = match purpose {
        Purpose::Read => (libc::F_RDLCK, READERS),
        Purpose::Change => (libc::F_WRLCK, ALL),
    };
    let mut notices = Vec::new();
    let locked = outlast(
        || set_lock(&file, kind, &range),
        || process::locking(id).map(|user| process::is_ending(&user)),
    );
    match locked {
        Ok(()) => {}
        Err(Errno::AGAIN | Errno::ACCESS) => {
            let user = holder(&file, kind, &range, id);
            return Err(HostError::InUse { path: path.into(), purpose, user });
        }
        // Better unprotected than not at all: file systems without locks are the exception, and nobody's fault.
        Err(errno) => notices.push(LockNotice::NoLocks(errno)),
    }
    match (kernel::user_of(id), purpose) {
        (Some(Use { user, .. }), Purpose::Change) => {
            return Err(HostError::InUse { path: path.into(), purpose, user });
        }
        (Some(Use { user, changes: true }), Purpose::Read) => notices.push(LockNotice::Unprotected(user)),
        (None | Some(Use { changes: false, .. }), _) => {}
    }
    if purpose == Purpose::Read && would_block(&file, libc::F_WRLCK, &QEMU_WRITES).is_some() {
        let user = holder(&file, libc::F_WRLCK, &QEMU_WRITES, id);
        notices.push(LockNotice::Unprotected(user));
    }
    Ok(notices)
}

/// Who keeps the block device at `path` from being opened with `O_EXCL`.
pub(crate) fn exclusive_user(path: &Path) -> User {
    let Some(id) = FileId::of_path(path) else { return User::Unknown };
    let somebody = || kernel::family_of(id).into_iter().find_map(process::using);
    kernel::user_of(id).map(|found| found.user).or_else(somebody).unwrap_or(User::Unknown)
}

/// Who holds a lock that keeps us from taking one of `kind` on `range`.
fn holder(file: impl AsFd, kind: libc::c_int, range: &Range<i64>, id: FileId) -> User {
    if let Some(user) = process::locking(id) {
        return user;
    }
    // A lock of the older kind belongs to a process, and says to which.
    match would_block(file, kind, range).and_then(|pid| u32::try_from(pid).ok()).filter(|&pid| pid > 0) {
        Some(pid) => process::user(pid),
        None => User::Unknown,
    }
}

/// Tries again for a moment before it believes in another user: a program that is just being started has all that its
/// parent has open, locks included, until it runs.
pub(crate) fn patiently<T>(attempt: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    for _ in 0..TRIES {
        match attempt() {
            Err(Errno::AGAIN | Errno::ACCESS | Errno::BUSY) => std::thread::sleep(PAUSE),
            result => return result,
        }
    }
    attempt()
}

/// Tries again while whoever has the lock is about to end, which `is_ending` tells if anybody is seen to have it. A process
/// that ends loses its descriptors before its locks, so for a moment there may be nobody to be seen.
fn outlast(
    attempt: impl Fn() -> Result<(), Errno>,
    is_ending: impl Fn() -> Option<bool>,
) -> Result<(), Errno> {
    let mut locked = patiently(&attempt);
    let mut unseen = 0;
    for _ in 0..PATIENCE {
        if !matches!(locked, Err(Errno::AGAIN | Errno::ACCESS)) {
            break;
        }
        match is_ending() {
            Some(true) => unseen = 0,
            None if unseen < UNSEEN => unseen += 1,
            _ => break,
        }
        std::thread::sleep(LONG_PAUSE);
        locked = attempt();
    }
    locked
}

fn flock(kind: libc::c_int, range: &Range<i64>) -> libc::flock {
    // SAFETY: `struct flock` is integers only, for which zeros are a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = range.start;
    lock.l_len = range.end.saturating_sub(range.start);
    lock
}

fn set_lock(file: impl AsFd, kind: libc::c_int, range: &Range<i64>) -> Result<(), Errno> {
    let lock = flock(kind, range);
    // SAFETY: the descriptor is open for as long as `file` is borrowed, and the kernel only reads `lock`.
    let result = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

/// The process of a lock that excludes one of `kind` on `range`; -1 if it belongs to an open file.
fn would_block(file: impl AsFd, kind: libc::c_int, range: &Range<i64>) -> Option<libc::pid_t> {
    let mut lock = flock(kind, range);
    // SAFETY: as above, and the kernel writes no more than a `struct flock` to `lock`.
    let result = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    (result == 0 && i32::from(lock.l_type) != libc::F_UNLCK).then_some(lock.l_pid)
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ourselves => f.write_str("this process itself"),
            Self::Process { pid, name } => write!(f, "pid {pid} ({name})"),
            Self::Loop { device, mount: None } => write!(f, "the loop device {}", PathText(device)),
            Self::Loop { device, mount: Some(mount) } => {
                write!(f, "the loop device {}, mounted at {}", PathText(device), PathText(mount))
            }
            Self::Mount(mount) => write!(f, "the kernel, mounted at {}", PathText(mount)),
            Self::Device(device) => write!(f, "the device {}, which is made of it", PathText(device)),
            Self::Unknown => f.write_str("a process that cannot be seen from here"),
        }
    }
}

impl User {
    /// What ends the use.
    pub(crate) fn advice(&self) -> Advice<'_> {
        Advice(self)
    }
}

/// What to do about a user.
pub(crate) struct Advice<'a>(&'a User);

impl fmt::Display for Advice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            User::Loop { device, mount: None } => write!(f, "detach it: losetup -d {}", PathText(device)),
            User::Loop { device, mount: Some(mount) } => {
                write!(f, "unmount it: umount {}; losetup -d {}", PathText(mount), PathText(device))
            }
            User::Mount(mount) => write!(f, "unmount it: umount {}", PathText(mount)),
            User::Device(_) => f.write_str("take that one apart first"),
            User::Ourselves => f.write_str("close it first"),
            User::Process { .. } | User::Unknown => f.write_str("try again when it has ended"),
        }
    }
}

impl fmt::Display for LockNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLocks(errno) => {
                let reason = crate::error::Reason(*errno);
                write!(
                    f,
                    "it cannot be locked where it lies ({reason}): see to it that nobody else changes it"
                )
            }
            Self::Unprotected(user) => {
                write!(f, "in use by {user}: what is read may be old, new or a mixture of both")
            }
        }
    }
}
