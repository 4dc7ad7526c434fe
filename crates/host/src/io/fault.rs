//! What happens when a page of a mapping cannot be had: the file is shorter than it was, or the medium fails.
//!
//! The kernel sends `SIGBUS` to the thread that reads. Our handler looks for the address among the mappings that are
//! watched, marks the one it is in, and puts a page of zeros there, so that the read goes on; whoever reads looks at the
//! mark afterwards. An address that is in none goes to whoever had the signal before, by default the end of the process.
//! Invariant: the mark is set before the zeros can be read.
//! Source: sigaction(2), `SA_SIGINFO`; mmap(2) on accesses past the end of a file.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Mappings that are watched at once.
const SLOTS: usize = 64;

struct Slot {
    taken: AtomicBool,
    /// 0: not watched.
    start: AtomicUsize,
    len: AtomicUsize,
    faulted: AtomicBool,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        faulted: AtomicBool::new(false),
    }
}; SLOTS];
static PAGE: AtomicUsize = AtomicUsize::new(4096);
/// The handler that was there before: `SIG_DFL`, `SIG_IGN` or an address, and whether it takes three arguments.
static BEFORE: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static BEFORE_INFO: AtomicBool = AtomicBool::new(false);

/// A mapping that is watched.
pub(super) struct Watch(&'static Slot);

impl Watch {
    /// Watches the `len` bytes at `start`. `None`: there are too many.
    pub(super) fn new(start: usize, len: usize) -> Option<Self> {
        install();
        let free = |slot: &&Slot| {
            slot.taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let slot = TABLE.iter().find(free)?;
        slot.faulted.store(false, Ordering::Relaxed);
        slot.len.store(len, Ordering::Relaxed);
        slot.start.store(start, Ordering::Release);
        Some(Self(slot))
    }

    /// Whether a page could not be had.
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
        // SAFETY: a question about a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        PAGE.store(usize::try_from(page).unwrap_or(4096), Ordering::Relaxed);
        // SAFETY: `struct sigaction` is integers, for which zeros are a value; the handler has the signature that SA_SIGINFO
        // asks for, and does only what a handler may.
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

/// Only atomics and one system call, which keeps `errno` as it was.
extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands a valid `siginfo_t` to a handler with SA_SIGINFO, and for SIGBUS it has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    let within = |slot: &&Slot| {
        let start = slot.start.load(Ordering::Acquire);
        start != 0 && address >= start && address - start < slot.len.load(Ordering::Relaxed)
    };
    if let Some(slot) = TABLE.iter().find(within) {
        slot.faulted.store(true, Ordering::SeqCst);
        let page = PAGE.load(Ordering::Relaxed);
        // SAFETY: the page lies in a mapping of ours, which nobody refers to, and becomes a page of zeros for reading; errno is
        // the thread's own.
        let mapped = unsafe {
            let errno = *libc::__errno_location();
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            let at = (address - address % page) as *mut libc::c_void;
            let mapped = libc::mmap(at, page, libc::PROT_READ, flags, -1, 0);
            *libc::__errno_location() = errno;
            mapped
        };
        if mapped != libc::MAP_FAILED {
            return;
        }
    }
    match BEFORE.load(Ordering::Acquire) {
        // The same access again, without a handler, ends the process as it would have.
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: setting the default disposition is allowed in a handler.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        // SAFETY: this is the handler that was installed before us, called as its flags say.
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
