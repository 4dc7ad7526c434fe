//! Turns Ctrl-C into a request to stop.
//!
//! A process that is killed during a change leaves a journal to replay. An interactive prompt instead lets
//! the current command end early. While a [`SignalGuard`] exists, the signal sets a flag that long work checks
//! between two steps. The end of the terminal has the same effect. A second signal ends the process as usual.
//! Programs that are started meanwhile receive the signal as always.
//!
//! The handler only touches an atomic and makes calls that are allowed in a handler. It interrupts system
//! calls that wait, because a read of the terminal would otherwise continue.
//! Source: sigaction(2), signal-safety(7).

use std::sync::atomic::{AtomicBool, Ordering};

/// The signals: `SIGINT` of Ctrl-C, `SIGHUP` of a closed terminal, and `SIGALRM`. The last one interrupts a call that
/// began to wait just after the flag was checked.
const SIGNALS: [(libc::c_int, extern "C" fn(libc::c_int)); 3] =
    [(libc::SIGINT, mark), (libc::SIGHUP, mark), (libc::SIGALRM, wake_again)];
/// The delay of `SIGALRM` in seconds.
const AGAIN: libc::c_uint = 1;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Catches the signals while it exists; see [`is_requested`]. Restores the previous handlers when it is
/// dropped.
#[derive(Debug)]
pub struct SignalGuard {
    /// The previous handler of each signal, if it was replaced.
    before: [Option<libc::sighandler_t>; SIGNALS.len()],
}

impl SignalGuard {
    /// Catches the signals and clears the flag.
    pub fn new() -> Self {
        REQUESTED.store(false, Ordering::SeqCst);
        let install = |(signal, handler)| handle(signal, handler as *const () as libc::sighandler_t);
        Self { before: SIGNALS.map(install) }
    }
}

impl Default for SignalGuard {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for SignalGuard {
    fn drop(&mut self) {
        // SAFETY: the call takes a number and only cancels the alarm.
        unsafe { libc::alarm(0) };
        for ((signal, _), before) in SIGNALS.into_iter().zip(self.before) {
            before.and_then(|before| handle(signal, before));
        }
        REQUESTED.store(false, Ordering::SeqCst);
    }
}

/// Ignores Ctrl-C and Ctrl-\\ of a terminal in this process while it exists. They are meant for the program
/// that the process waits for. Source: system(3), `SIGINT` and `SIGQUIT` of the caller.
#[derive(Debug)]
pub struct Deferred([Option<libc::sighandler_t>; TERMINAL.len()]);

/// The signals that keys of a terminal send to all processes in the foreground.
const TERMINAL: [libc::c_int; 2] = [libc::SIGINT, libc::SIGQUIT];

impl Deferred {
    /// Leaves the signals to the program that is started next. Unlike `SIG_IGN`, a handler is not inherited
    /// by that program.
    pub fn new() -> Self {
        Self(TERMINAL.map(|signal| handle(signal, pass as *const () as libc::sighandler_t)))
    }
}

impl Default for Deferred {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        for (signal, before) in TERMINAL.into_iter().zip(self.0) {
            before.and_then(|before| handle(signal, before));
        }
    }
}

extern "C" fn pass(_signal: libc::c_int) {}

/// Returns whether the current work should end early.
pub fn is_requested() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}

extern "C" fn mark(signal: libc::c_int) {
    if REQUESTED.swap(true, Ordering::SeqCst) {
        // SAFETY: both calls are allowed in a handler; the signal is delivered again when this handler
        // returns.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
    wake_again(signal);
}

extern "C" fn wake_again(_signal: libc::c_int) {
    // SAFETY: the call is allowed in a handler, and the alarm is handled while this is a handler.
    unsafe { libc::alarm(AGAIN) };
}

/// Sets the handler of `signal` without restarting interrupted calls. Returns the previous handler.
fn handle(signal: libc::c_int, handler: libc::sighandler_t) -> Option<libc::sighandler_t> {
    // SAFETY: a `struct sigaction` consists of integers and a pointer, for which zeros are valid; the handler
    // is one of those above, or the previous one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        let mut before: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, &raw const action, &raw mut before) == 0).then_some(before.sa_sigaction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_a_mark_while_it_is_caught_and_no_longer() {
        let caught = SignalGuard::new();
        assert!(!is_requested());
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::INT).unwrap();
        // Another thread of this process may handle the signal.
        while !is_requested() {
            std::thread::yield_now();
        }
        drop(caught);
        assert!(!is_requested());
    }
}
