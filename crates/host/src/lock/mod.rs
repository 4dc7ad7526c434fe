//! Locks on images, so that two users never change an image at the same time.
//!
//! A process that changes an image holds an exclusive lock on the whole file. A process that reads it holds a
//! shared lock on one byte far past its end. Several processes read at once, and one process changes the
//! image while no other reads it. The locks are open file description locks: they belong to the open file and
//! not to the process. So threads and two opens of one process exclude each other, too. The locks end when the last
//! descriptor is closed, however the process ends. A block device is also opened with `O_EXCL`, which the kernel
//! refuses while it is mounted or part of another device.
//!
//! The byte of the readers is past the end because QEMU holds shared locks on bytes from 100 and 200 on. QEMU treats
//! any lock there as another user. A reader that locked the whole image would prevent a virtual machine from starting,
//! and a lock on a far byte does not. A process that changes an image does prevent a virtual machine from starting, and
//! the other way round.
//!
//! Not every user takes locks. The kernel does not when an image is attached to a loop device, so attached
//! images are looked up in sysfs. An image that is attached while it is being changed is not protected.
//! Source: fcntl_locking(2), "Open file description locks"; QEMU `block/file-posix.c`, `RAW_LOCK_PERM_BASE`,
//! `RAW_LOCK_SHARED_BASE`, and `include/block/block-common.h`, `BLK_PERM_WRITE`.

mod kernel;
mod process;
#[cfg(test)]
mod tests;
mod user;

use std::ffi::CStr;
use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use self::kernel::Use;
pub use self::user::{Purpose, User};
use crate::{FileId, HostError};

/// A notice for the user about an image that was opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LockNotice {
    /// The host file system does not support locks.
    NoLocks(Errno),
    /// Another user may change the image while it is read.
    Unprotected(User),
}

/// The byte that readers lock. No file reaches it: ext4, XFS and Btrfs files end at 2^60 and 2^63.
const READERS: Range<i64> = (1 << 62)..(1 << 62) + 1;
/// The whole file, whatever its length.
const ALL: Range<i64> = 0..0;
/// The byte on which QEMU holds a lock while it may write to an image.
const QEMU_WRITES: Range<i64> = 101..102;

/// The number of attempts to take a lock, and the delay between them.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(10);

/// The name of a server's first thread while the server brings its last changes to stable storage. Another
/// process that wants the image waits for it.
pub const ENDING: &CStr = c"obento-ending";
/// The number of attempts to take a lock of such a server, and the delay between them: ten seconds in total.
const PATIENCE: u32 = 200;
const LONG_PAUSE: Duration = Duration::from_millis(50);
/// How many of these attempts may find no visible holder.
const UNSEEN: u32 = 5;

/// Locks an open file or block device for `purpose`, for as long as it is open. Fails with `InUse`.
pub(crate) fn claim(
    file: impl AsFd,
    path: &Path,
    id: FileId,
    purpose: Purpose,
) -> Result<Vec<LockNotice>, HostError> {
    let (kind, range) = match purpose {
        Purpose::Read => (libc::F_RDLCK, READERS),
        Purpose::Change => (libc::F_WRLCK, ALL),
        // The descriptor may be read-only, and a lock for reading conflicts with a lock for changing.
        Purpose::Replace => (libc::F_RDLCK, ALL),
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
        // On a file system without locks, the image is opened without protection, because such file systems
        // are rare.
        Err(errno) => notices.push(LockNotice::NoLocks(errno)),
    }
    match (kernel::user_of(id), purpose) {
        (Some(Use { user, .. }), Purpose::Change | Purpose::Replace) => {
            return Err(HostError::InUse { path: path.into(), purpose, user });
        }
        (Some(Use { user, changes: true }), Purpose::Read) => notices.push(LockNotice::Unprotected(user)),
        (None | Some(Use { changes: false, .. }), _) => {}
    }
    if purpose != Purpose::Change && would_block(&file, libc::F_WRLCK, &QEMU_WRITES).is_some() {
        let user = holder(&file, libc::F_WRLCK, &QEMU_WRITES, id);
        if purpose == Purpose::Replace {
            return Err(HostError::InUse { path: path.into(), purpose, user });
        }
        notices.push(LockNotice::Unprotected(user));
    }
    Ok(notices)
}

/// The lock of a file that another file will replace. While it is held, no process can begin to change the file.
#[derive(Debug)]
pub struct ReplacedFile(#[expect(dead_code, reason = "the lock belongs to the open file")] OwnedFd);

impl ReplacedFile {
    /// Locks the file at `path`. Returns `None` if it is not a regular file, or cannot be opened. Errors: InUse.
    pub fn lock(path: &Path) -> Result<Option<Self>, HostError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else { return Ok(None) };
        let Ok(stat) = rustix::fs::fstat(&file) else { return Ok(None) };
        if !FileType::from_raw_mode(stat.st_mode).is_file() {
            return Ok(None);
        }
        claim(&file, path, FileId::of(&stat), Purpose::Replace)?;
        Ok(Some(Self(file)))
    }
}

/// Returns the user that prevents opening the block device at `path` with `O_EXCL`.
pub(crate) fn exclusive_user(path: &Path) -> User {
    let Some(id) = FileId::of_path(path) else { return User::Unknown };
    let other_process = || kernel::family_of(id).into_iter().find_map(process::using);
    kernel::user_of(id).map(|found| found.user).or_else(other_process).unwrap_or(User::Unknown)
}

/// Returns the holder of a lock that conflicts with one of `kind` on `range`.
fn holder(file: impl AsFd, kind: libc::c_int, range: &Range<i64>, id: FileId) -> User {
    if let Some(user) = process::locking(id) {
        return user;
    }
    // A traditional lock belongs to a process, and contains its number.
    match would_block(file, kind, range).and_then(|pid| u32::try_from(pid).ok()).filter(|&pid| pid > 0) {
        Some(pid) => process::user(pid),
        None => User::Unknown,
    }
}

/// Retries for a short time before reporting another user. A child process holds all open files of its parent,
/// including locks, until it executes its program.
pub(crate) fn patiently<T>(attempt: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    for _ in 0..TRIES {
        match attempt() {
            Err(Errno::AGAIN | Errno::ACCESS | Errno::BUSY) => std::thread::sleep(PAUSE),
            result => return result,
        }
    }
    attempt()
}

/// Retries while the holder of the lock is ending, which `is_ending` reports for a visible holder. A process
/// that ends loses its descriptors before its locks, so for a moment no holder may be visible.
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
            _ if crate::interrupt::is_requested() => break,
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
    // SAFETY: `struct flock` consists of integers, for which zeros are valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = range.start;
    lock.l_len = range.end.saturating_sub(range.start);
    lock
}

fn set_lock(file: impl AsFd, kind: libc::c_int, range: &Range<i64>) -> Result<(), Errno> {
    let lock = flock(kind, range);
    // SAFETY: the descriptor is open while `file` is borrowed, and the kernel only reads `lock`.
    let result = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

/// Returns the process of a lock that conflicts with one of `kind` on `range`, or -1 if the lock belongs to
/// an open file.
fn would_block(file: impl AsFd, kind: libc::c_int, range: &Range<i64>) -> Option<libc::pid_t> {
    let mut lock = flock(kind, range);
    // SAFETY: as above, and the kernel writes no more than a `struct flock` to `lock`.
    let result = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    (result == 0 && i32::from(lock.l_type) != libc::F_UNLCK).then_some(lock.l_pid)
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

impl fmt::Display for LockNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLocks(errno) => {
                let reason = crate::error::Reason(*errno);
                write!(f, "the image cannot be locked: {reason}; ensure that no other process changes it")
            }
            Self::Unprotected(user) => {
                write!(f, "in use by {user}: the data that is read may be old, new or a mixture of both")
            }
        }
    }
}
