//! Signals that end a server: a thread waits for them, and unmounts.

use std::io;

/// The signals that end a server in an orderly way: `kill`, Ctrl-C, a closed terminal.
const ENDING: [libc::c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];

fn ending() -> libc::sigset_t {
    // SAFETY: `sigset_t` consists of integers; the calls write only to the set, and the signal numbers are valid.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in ENDING {
            libc::sigaddset(&raw mut set, signal);
        }
        set
    }
}

/// Blocks the ending signals in this thread and in the threads that it starts. Call it before any thread is started.
pub fn hold() -> io::Result<()> {
    let set = ending();
    // SAFETY: the set is initialised, and the old set is not requested.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Waits for an ending signal, and returns its number.
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
