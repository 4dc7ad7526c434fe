//! Names of incomplete files that are removed when the process ends, on file systems without unnamed files.
//!
//! A signal that ends the process removes the files first, and then ends the process as usual. A file that
//! `SIGKILL` leaves is removed by the next process that creates such a file in the directory.
//! Invariant: a slot is empty or holds a name whose memory is never freed, so that a handler can read it at
//! any time.
//! Locking: the creator of a file holds a lock on it until it is closed, so a file without a lock has no
//! owner.
//! Source: sigaction(2), signal-safety(7), flock(2).

use std::ffi::CString;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};

use crate::HostDir;

/// The signals that end a process and can be handled.
const SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
/// The most incomplete files. A build that is verified has two.
const SLOTS: usize = 4;

/// The prefix of the names of incomplete files.
pub(super) const UNFINISHED: &str = ".obento-unfinished-";

static NAMES: [AtomicPtr<libc::c_char>; SLOTS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; SLOTS];
static INSTALL: Once = Once::new();

/// Removes its file if a signal ends the process while this value exists.
#[derive(Debug)]
pub(super) struct RemoveOnSignal {
    slot: Option<usize>,
}

impl RemoveOnSignal {
    /// Registers the file `path`, which is absolute or relative to a directory that the process does not
    /// leave.
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

impl Drop for RemoveOnSignal {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.and_then(|slot| NAMES.get(slot)) {
            slot.store(std::ptr::null_mut(), Ordering::SeqCst);
        }
    }
}

/// Locks `file`, which was just created. Returns whether the file still has its name and no other process
/// locked it.
pub(super) fn claim(file: impl AsFd) -> bool {
    let is_ours = match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => true,
        // On a file system without locks, an unlocked file is never treated as abandoned.
        Err(errno) => errno != rustix::io::Errno::WOULDBLOCK,
    };
    is_ours && rustix::fs::fstat(&file).is_ok_and(|stat| stat.st_nlink > 0)
}

/// Removes the incomplete files in `folder` that no process has locked. Ignores errors.
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

/// Handles the signals that are neither ignored nor handled.
fn install() {
    for signal in SIGNALS {
        // SAFETY: a `struct sigaction` consists of integers and a pointer, for which zeros are valid; the
        // handler is the one below.
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
            // SAFETY: the call is allowed in a handler, and the name is a string whose memory is never freed.
            unsafe { libc::unlink(name) };
        }
    }
    // SAFETY: both calls are allowed in a handler; the signal is delivered again when this handler returns.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftover_files_without_an_owner_are_removed_and_the_rest_stays() {
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
