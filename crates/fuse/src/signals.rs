//! Signals that end a server: they are waited for by a thread, and unmount.

use std::io;

/// What ends a server in good order: `kill`, Ctrl-C, a closed terminal.
const ENDING: [libc::c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];

fn ending() -> libc::sigset_t {
    // SAFETY: `sigset_t` is integers only; the calls write to it alone and take numbers that exist.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in ENDING {
            libc::sigaddset(&raw mut set, signal);
        }
        set
    }
}

/// Holds the ending signals back in this thread and in those it starts: call it before any thread is started.
pub fn hold() -> io::Result<()> {
    let set = ending();
    // SAFETY: the set is initialised, and nothing is asked for in return.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Waits for one of them; answers which.
pub fn wait() -> i32 {
    let set = ending();
    let mut signal = 0;
    loop {
        // SAFETY: the set is initialised, and the call writes one number.
        if unsafe { libc::sigwait(&raw const set, &raw mut signal) } == 0 {
            return signal;
        }
    }
}
