//! Names that go with the process: of files that are not whole, where the file system knows no files without a name.
//!
//! A signal that ends the process removes them first, and then ends it as it would have; against `SIGKILL` there is nothing.
//! Invariant: a slot holds no name or one whose memory is never given back, so that a handler may read it at any moment.
//! Source: sigaction(2), signal-safety(7).

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

/// What ends a process and can be handled.
const SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
/// A build that is verified has two unfinished images.
const SLOTS: usize = 4;

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
