//! Names of incomplete files that are removed when the process ends, on file systems without unnamed files.
//!
//! A signal that ends the process removes the files first, and then ends the process as usual. A file that
//! `SIGKILL` leaves is removed by the next process that creates such a file in the directory.
//! Invariant: a slot is empty or holds an entry whose memory is never freed, so that a handler can read it at
//! any time. Another user may be able to change the path of the directory, so it stays open.
//! Locking: the creator of a file holds a lock on it until it is closed, so a file without a lock has no
//! owner.
//! Source: sigaction(2), signal-safety(7), flock(2).

use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, AsRawFd as _, RawFd};
use std::os::unix::ffi::OsStrExt as _;
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

/// A name in an open directory.
struct OpenName {
    folder: RawFd,
    name: CString,
}

static NAMES: [AtomicPtr<OpenName>; SLOTS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; SLOTS];
static INSTALL: Once = Once::new();

/// Removes its file if a signal ends the process while this value exists.
#[derive(Debug)]
pub(super) struct RemoveOnSignal {
    slot: Option<usize>,
    /// Keeps the descriptor open that the slot contains.
    _folder: HostDir,
}

impl RemoveOnSignal {
    /// Registers the file `name` in `folder`.
    pub(super) fn new(folder: &HostDir, name: &OsStr) -> Self {
        INSTALL.call_once(install);
        let Ok(name) = CString::new(name.as_bytes()) else {
            return Self { slot: None, _folder: folder.clone() };
        };
        let entry = Box::into_raw(Box::new(OpenName { folder: folder.as_fd().as_raw_fd(), name }));
        let free = |slot: &AtomicPtr<OpenName>| {
            let none = std::ptr::null_mut();
            slot.compare_exchange(none, entry, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        Self { slot: NAMES.iter().position(free), _folder: folder.clone() }
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

/// Removes the registered files. May be called by a handler.
fn remove_registered() {
    for slot in &NAMES {
        // SAFETY: the slot is empty or refers to an entry whose memory is never freed.
        if let Some(entry) = unsafe { slot.load(Ordering::SeqCst).as_ref() } {
            // SAFETY: the call is allowed in a handler, and the name ends with a zero.
            unsafe { libc::unlinkat(entry.folder, entry.name.as_ptr(), 0) };
        }
    }
}

extern "C" fn remove(signal: libc::c_int) {
    remove_registered();
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

    #[test]
    fn a_registered_file_is_found_in_its_directory_after_the_directory_was_exchanged() {
        let dir = tempfile::tempdir().unwrap();
        let [folder, moved] = ["folder", "moved"].map(|name| dir.path().join(name));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("new"), "").unwrap();
        let registered = RemoveOnSignal::new(&HostDir::open(&folder).unwrap(), OsStr::new("new"));
        std::fs::rename(&folder, &moved).unwrap();
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("new"), "other").unwrap();
        remove_registered();
        assert!(folder.join("new").exists() && !moved.join("new").exists());
        drop(registered);
    }
}
