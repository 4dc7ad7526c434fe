//! Handles faults of mapped pages: the file became shorter, or the medium fails.
//!
//! The kernel sends `SIGBUS` to the reading thread. The handler finds the watched mapping that contains the
//! address, marks it, and maps a page of zeros there, so that the access continues. The caller checks the mark
//! afterwards. A fault outside all watched mappings is passed to the previous handler, which by default ends
//! the process.
//! Invariant: the mark is set before the zeros can be read.
//! Source: sigaction(2), `SA_SIGINFO`; mmap(2) on accesses past the end of a file.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

/// The most watched mappings.
const SLOTS: usize = 256;

struct Slot {
    taken: AtomicBool,
    /// 0: unused.
    start: AtomicUsize,
    len: AtomicUsize,
    /// The protection of the pages of zeros.
    protection: AtomicI32,
    faulted: AtomicBool,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        protection: AtomicI32::new(libc::PROT_READ),
        faulted: AtomicBool::new(false),
    }
}; SLOTS];
static PAGE: AtomicUsize = AtomicUsize::new(4096);
/// The previous handler: `SIG_DFL`, `SIG_IGN` or an address, and whether it takes three arguments.
static BEFORE: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static BEFORE_INFO: AtomicBool = AtomicBool::new(false);

/// The pages of zeros that replace pages that cannot be accessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Substitute {
    /// For a mapping that is only read.
    ReadOnly,
    /// For a mapping that is also written to. The written bytes are lost.
    Writable,
}

/// A watched mapping.
pub(super) struct Watch(&'static Slot);

impl Watch {
    /// Watches the `len` bytes at `start`. Returns `None` if too many mappings are watched.
    pub(super) fn new(start: usize, len: usize, substitute: Substitute) -> Option<Self> {
        install();
        let free = |slot: &&Slot| {
            slot.taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let slot = TABLE.iter().find(free)?;
        slot.faulted.store(false, Ordering::Relaxed);
        slot.len.store(len, Ordering::Relaxed);
        let protection = match substitute {
            Substitute::ReadOnly => libc::PROT_READ,
            Substitute::Writable => libc::PROT_READ | libc::PROT_WRITE,
        };
        slot.protection.store(protection, Ordering::Relaxed);
        slot.start.store(start, Ordering::Release);
        Some(Self(slot))
    }

    /// Returns whether a page could not be accessed.
    pub(super) fn has_faulted(&self) -> bool {
        self.0.faulted.load(Ordering::SeqCst)
    }

    /// Ends watching.
    pub(super) fn end(&mut self) {
        self.0.start.store(0, Ordering::Release);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
        self.0.taken.store(false, Ordering::Release);
    }
}

fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: the call only returns a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        PAGE.store(usize::try_from(page).unwrap_or(4096), Ordering::Relaxed);
        // SAFETY: `struct sigaction` consists of integers, for which zeros are valid. The handler has the
        // signature that SA_SIGINFO requires, and makes only calls that are allowed in a handler.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_bus_error as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            let mut before: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(libc::SIGBUS, &raw const action, &raw mut before) == 0 {
                BEFORE_INFO.store(before.sa_flags & libc::SA_SIGINFO != 0, Ordering::Relaxed);
                BEFORE.store(before.sa_sigaction, Ordering::Release);
            }
        }
    });
}

/// Uses only atomics and one system call, and preserves `errno`.
extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid `siginfo_t` to a handler with SA_SIGINFO, and for SIGBUS it contains
    // an address.
    let address = unsafe { (*info).si_addr() } as usize;
    let within = |slot: &&Slot| {
        let start = slot.start.load(Ordering::Acquire);
        start != 0 && address >= start && address - start < slot.len.load(Ordering::Relaxed)
    };
    if let Some(slot) = TABLE.iter().find(within) {
        slot.faulted.store(true, Ordering::SeqCst);
        let page = PAGE.load(Ordering::Relaxed);
        let protection = slot.protection.load(Ordering::Relaxed);
        // SAFETY: the page is in a watched mapping without references to it, and becomes a page of zeros.
        // `errno` is local to the thread.
        let mapped = unsafe {
            let errno = *libc::__errno_location();
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            let at = (address - address % page) as *mut libc::c_void;
            let mapped = libc::mmap(at, page, protection, flags, -1, 0);
            *libc::__errno_location() = errno;
            mapped
        };
        if mapped != libc::MAP_FAILED {
            return;
        }
    }
    match BEFORE.load(Ordering::Acquire) {
        // The same access, without a handler, ends the process as usual.
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: setting the default disposition is allowed in a handler.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        // SAFETY: this is the previous handler, called as its flags require.
        handler => unsafe {
            if BEFORE_INFO.load(Ordering::Relaxed) {
                let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(handler);
                handler(signal, info, context);
            } else {
                let handler: extern "C" fn(libc::c_int) = std::mem::transmute(handler);
                handler(signal);
            }
        },
    }
}
