//! Names that go with the process: of files that are not whole, where the file system knows no files without a name.
//!
//! A signal that ends the process removes them first, and then ends it as it would have. What `SIGKILL` leaves, the next process
//! removes that makes such a file in the directory.
//! Invariant: a slot holds no name or one whose memory is never given back, so that a handler may read it at any moment.
//! Locking: whoever makes a file holds a lock on it until it is closed, so that one without a lock is nobody's.
//! Source: sigaction(2), signal-safety(7), flock(2).

use std::ffi::CString;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};

use crate::HostDir;

/// What ends a process and can be handled.
const SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
/// A build that is verified has two unfinished images.
const SLOTS: usize = 4;

/// How the names of unfinished files begin.
pub(super) const UNFINISHED: &str = ".obento-unfinished-";

static NAMES: [AtomicPtr<libc::c_char>; SLOTS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; SLOTS];
static INSTALL: Once = Once::new();

/// As long as this lives, its file goes when a signal ends the process.
#[derive(Debug)]
pub(super) struct Debris {
    slot: Option<usize>,
}

impl Debris {
    /// Of the file `path`, which has to be absolute or counted from a directory that the process does not leave.
    pub(super) fn new(path: &Path) -> Self {
        INSTALL.call_once(install);
        let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return Self { slot: None } };
        let name = name.into_raw();
        let free = |slot: &AtomicPtr<libc::c_char>| {
            let none = std::ptr::null_mut();
            slot.compare_exchange(none, name, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        Self { slot: NAMES.iter().position(free) }
    }
}

impl Drop for Debris {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.and_then(|slot| NAMES.get(slot)) {
            slot.store(std::ptr::null_mut(), Ordering::SeqCst);
        }
    }
}

/// Makes `file`, which has just been made, ours. Whether it still has its name and was nobody else's.
pub(super) fn claim(file: impl AsFd) -> bool {
    let is_ours = match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => true,
        // Not every file system has locks; there nobody finds a file without one.
        Err(errno) => errno != rustix::io::Errno::WOULDBLOCK,
    };
    is_ours && rustix::fs::fstat(&file).is_ok_and(|stat| stat.st_nlink > 0)
}

/// Removes the unfinished files in `folder` that nobody has. What cannot be removed stays.
pub(super) fn sweep(folder: &HostDir) {
    for name in folder.names().unwrap_or_default() {
        if !name.starts_with(UNFINISHED.as_bytes()) {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let Ok(file) = rustix::fs::openat(folder, &name[..], flags, Mode::empty()) else { continue };
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = rustix::fs::unlinkat(folder, &name[..], AtFlags::empty());
        }
    }
}

/// Handles the signals that nobody ignores or handles.
fn install() {
    for signal in SIGNALS {
        // SAFETY: a `struct sigaction` is integers and a pointer, for which zeros are a value; the handler is the one below.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            let known = libc::sigaction(signal, std::ptr::null(), &raw mut before) == 0;
            if known && before.sa_sigaction == libc::SIG_DFL {
                libc::signal(signal, remove as *const () as libc::sighandler_t);
            }
        }
    }
}

extern "C" fn remove(signal: libc::c_int) {
    for name in &NAMES {
        let name = name.load(Ordering::SeqCst);
        if !name.is_null() {
            // SAFETY: the call is allowed in a handler, and the name is a string whose memory stays.
            unsafe { libc::unlink(name) };
        }
    }
    // SAFETY: both calls are allowed in a handler; the signal comes again when this one returns.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_has_is_swept_away_and_the_rest_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let (left, held, other) =
            (path(".obento-unfinished-1-0"), path(".obento-unfinished-2-0"), path("image"));
        let files = [&left, &held, &other].map(|path| std::fs::File::create(path).unwrap());
        assert!(claim(&files[1]));
        sweep(&HostDir::open(dir.path()).unwrap());
        assert!(!left.exists() && held.exists() && other.exists());
        drop(files);
        sweep(&HostDir::open(dir.path()).unwrap());
        assert!(!held.exists() && other.exists());
    }

    #[test]
    fn a_file_that_was_swept_away_meanwhile_is_not_ours() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".obento-unfinished-1-0");
        let file = std::fs::File::create(&path).unwrap();
        sweep(&HostDir::open(dir.path()).unwrap());
        assert!(!claim(&file));
    }
}
