//! Ctrl-C as a wish instead of an end.
//!
//! A process that is killed in the midst of a change leaves a journal to replay. A prompt that outlives its commands lets
//! the one that runs end early instead: while a [`Caught`] lives, the signal sets a mark that long work looks at between
//! two steps. So does the end of the terminal. Asked once more, the process ends as it would have. Programs that are started meanwhile get the signal as always.
//!
//! A handler only touches an atomic and makes calls that are allowed there. System calls that wait are woken, since a read of the
//! terminal would otherwise go on.
//! Source: sigaction(2), signal-safety(7).

use std::sync::atomic::{AtomicBool, Ordering};

/// The signals: `SIGINT` of Ctrl-C, `SIGHUP` of a terminal that is closed, and `SIGALRM`, by which a call is woken that began to wait
/// just after the mark was looked at.
const SIGNALS: [(libc::c_int, extern "C" fn(libc::c_int)); 3] =
    [(libc::SIGINT, mark), (libc::SIGHUP, mark), (libc::SIGALRM, wake_again)];
/// Seconds until then.
const AGAIN: libc::c_uint = 1;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// As long as this lives, Ctrl-C ends no process; see [`is_requested`]. Afterwards the signals do what they did before.
#[derive(Debug)]
pub struct Caught {
    /// What each signal did, if that could be changed.
    before: [Option<libc::sighandler_t>; SIGNALS.len()],
}

impl Caught {
    /// Catches the signals; none was seen so far.
    pub fn new() -> Self {
        REQUESTED.store(false, Ordering::SeqCst);
        let install = |(signal, handler)| handle(signal, handler as *const () as libc::sighandler_t);
        Self { before: SIGNALS.map(install) }
    }
}

impl Default for Caught {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Caught {
    fn drop(&mut self) {
        // SAFETY: the call takes a number and has no other effect than to take back the alarm.
        unsafe { libc::alarm(0) };
        for ((signal, _), before) in SIGNALS.into_iter().zip(self.before) {
            before.and_then(|before| handle(signal, before));
        }
        REQUESTED.store(false, Ordering::SeqCst);
    }
}

/// As long as this lives, Ctrl-C and Ctrl-\\ of a terminal do not end this process: they are meant for the program that it
/// waits for, which handles them as it likes. Source: system(3), `SIGINT` and `SIGQUIT` of the caller.
#[derive(Debug)]
pub struct Deferred([Option<libc::sighandler_t>; TERMINAL.len()]);

/// The signals that keys of a terminal send to all processes in the foreground.
const TERMINAL: [libc::c_int; 2] = [libc::SIGINT, libc::SIGQUIT];

impl Deferred {
    /// Leaves the signals to the program that is started next. A handler, unlike `SIG_IGN`, does not pass to that program.
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

/// Whether the work that runs is to end early.
pub fn is_requested() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}

extern "C" fn mark(signal: libc::c_int) {
    if REQUESTED.swap(true, Ordering::SeqCst) {
        // SAFETY: both calls are allowed in a handler; the signal comes again when this one returns.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
    wake_again(signal);
}

extern "C" fn wake_again(_signal: libc::c_int) {
    // SAFETY: the call is allowed in a handler, and what it asks for is handled for as long as this is a handler.
    unsafe { libc::alarm(AGAIN) };
}

/// Sets what `signal` does, without restarting what it wakes; answers what it did before.
fn handle(signal: libc::c_int, handler: libc::sighandler_t) -> Option<libc::sighandler_t> {
    // SAFETY: a `struct sigaction` is integers and a pointer, for which zeros are a value; the handler is one of those
    // above, or what was installed before.
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
        let caught = Caught::new();
        assert!(!is_requested());
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::INT).unwrap();
        // A signal to this process may be handled by another of its threads.
        while !is_requested() {
            std::thread::yield_now();
        }
        drop(caught);
        assert!(!is_requested());
    }
}
