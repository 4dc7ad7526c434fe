//! Turns Ctrl-C into a request to stop.
//!
//! A process that is killed during a change leaves a journal to replay. An interactive prompt instead lets
//! the current command end early. While a [`SignalGuard`] exists, the signal sets a flag that long work checks
//! between two steps. The end of the terminal has the same effect. A second signal ends the process as usual.
//! Programs that are started meanwhile receive the signal as always.
//!
//! A process that ends after one command ([`SignalGuard::of_process`]) also catches `SIGTERM`. It removes what is
//! incomplete, closes its images, and then ends by the signal ([`SignalGuard::end_process`]).
//!
//! The handler only touches atomics and makes calls that are allowed in a handler. It interrupts system
//! calls that wait, because a read of the terminal would otherwise continue.
//! Source: sigaction(2), signal-safety(7).

use std::io::{self, ErrorKind, Read};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// A signal and its handler.
type Caught = (libc::c_int, extern "C" fn(libc::c_int));

/// `SIGALRM` interrupts a call that began to wait just after the flag was checked.
const WAKING: Caught = (libc::SIGALRM, wake_again);
/// The signals at a prompt: `SIGINT` of Ctrl-C, and `SIGHUP` of a closed terminal.
const AT_A_PROMPT: &[Caught] = &[(libc::SIGINT, mark), (libc::SIGHUP, mark), WAKING];
/// The signals that end a process and can be handled.
const OF_A_PROCESS: &[Caught] = &[(libc::SIGINT, mark), (libc::SIGHUP, mark), (libc::SIGTERM, mark), WAKING];
/// The delay of `SIGALRM` in seconds.
const AGAIN: libc::c_uint = 1;

/// The signal that was caught, or 0.
static REQUESTED: AtomicI32 = AtomicI32::new(0);
/// Whether a guard exists.
static CAUGHT: AtomicBool = AtomicBool::new(false);
/// Whether `SIGALRM` is handled.
static WAKES: AtomicBool = AtomicBool::new(false);

/// Catches the signals while it exists; see [`is_requested`]. Restores the previous handlers when it is
/// dropped.
#[derive(Debug)]
pub struct SignalGuard {
    /// The previous handler of each signal that was replaced.
    before: Vec<(libc::c_int, libc::sighandler_t)>,
}

impl SignalGuard {
    /// Catches the signals of a terminal and clears the flag.
    pub fn new() -> Self {
        Self::catch(AT_A_PROMPT)
    }

    /// Catches the signals that end a process and clears the flag. A signal that the process ignores stays ignored,
    /// as nohup(1) and background jobs require.
    pub fn of_process() -> Self {
        let mut guard = Self::catch(OF_A_PROCESS);
        let is_ignored = |before: libc::sighandler_t| before == libc::SIG_IGN;
        for (signal, before) in guard.before.extract_if(.., |(_, before)| is_ignored(*before)) {
            handle(signal, before);
        }
        guard
    }

    fn catch(signals: &[Caught]) -> Self {
        REQUESTED.store(0, Ordering::SeqCst);
        CAUGHT.store(true, Ordering::SeqCst);
        let install = |&(signal, handler): &Caught| {
            Some((signal, handle(signal, handler as *const () as libc::sighandler_t)?))
        };
        let guard = Self { before: signals.iter().filter_map(install).collect() };
        WAKES.store(true, Ordering::SeqCst);
        guard
    }

    /// Restores the previous handlers. If a signal was caught, ends the process by that signal, so that the parent sees
    /// its cause. Returns the signal if the process survives it, as the first process of a PID namespace does.
    pub fn end_process(mut self) -> Option<libc::c_int> {
        let signal = self.restore();
        if signal == 0 {
            return None;
        }
        // SAFETY: the call takes a number.
        unsafe { libc::raise(signal) };
        Some(signal)
    }

    /// Restores the previous handlers. Returns the signal that was caught until then, or 0.
    fn restore(&mut self) -> libc::c_int {
        if WAKES.swap(false, Ordering::SeqCst) {
            // SAFETY: the call takes a number and only cancels the alarm.
            unsafe { libc::alarm(0) };
        }
        for (signal, before) in self.before.drain(..) {
            handle(signal, without_a_late_alarm(signal, before));
        }
        CAUGHT.store(false, Ordering::SeqCst);
        REQUESTED.swap(0, Ordering::SeqCst)
    }
}

impl Default for SignalGuard {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for SignalGuard {
    fn drop(&mut self) {
        self.restore();
    }
}

/// Returns what handles `signal` from now on. A handler that still runs in another thread can set the alarm again, which
/// would end the process by default. Unlike `SIG_IGN`, a handler is not inherited by programs that are started.
fn without_a_late_alarm(signal: libc::c_int, before: libc::sighandler_t) -> libc::sighandler_t {
    if signal == libc::SIGALRM && before == libc::SIG_DFL {
        return pass as *const () as libc::sighandler_t;
    }
    before
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

/// Returns whether a [`SignalGuard`] exists.
pub fn is_caught() -> bool {
    CAUGHT.load(Ordering::SeqCst)
}

/// Returns whether the current work should end early.
pub fn is_requested() -> bool {
    REQUESTED.load(Ordering::SeqCst) != 0
}

/// The error of a call that ends because of a signal.
#[derive(Debug, thiserror::Error)]
#[error("stopped")]
struct Stopped;

/// Returns the error of a call that ends because of a signal. It is not `Interrupted`, which means to try again.
pub fn stopped() -> io::Error {
    io::Error::other(Stopped)
}

/// Returns whether `error` is that of [`stopped`].
pub fn is_stop(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Stopped>())
}

/// Appends the next line of `input`, with its end, to `line`. Returns the number of bytes, which is 0 at the end of the
/// input. Reads no byte after the line, so that `input` needs a buffer.
///
/// # Errors
///
/// A signal was caught, also while the call waits; those of `input`.
pub fn read_line(mut input: impl Read, line: &mut Vec<u8>) -> io::Result<usize> {
    let (before, mut byte) = (line.len(), [0]);
    while line.len() == before || line.last() != Some(&b'\n') {
        match input.read(&mut byte) {
            _ if is_requested() => return Err(stopped()),
            Ok(0) => break,
            Ok(_) => line.extend(byte),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(line.len() - before)
}

extern "C" fn mark(signal: libc::c_int) {
    if REQUESTED.swap(signal, Ordering::SeqCst) != 0 {
        // SAFETY: both calls are allowed in a handler; the signal is delivered again when this handler
        // returns.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
    if WAKES.load(Ordering::SeqCst) {
        wake_again(signal);
    }
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

    /// The flag and the handlers belong to the process, so that one test at a time uses them.
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

    #[test]
    fn a_process_that_survives_its_signal_receives_it() {
        let _alone = ALONE.lock();
        // As the first process of a PID namespace, whose default is to ignore signals.
        let before = handle(libc::SIGTERM, pass as *const () as libc::sighandler_t).unwrap();
        assert_eq!(SignalGuard::of_process().end_process(), None);
        let caught = SignalGuard::of_process();
        // The signal arrives after the last check of the work.
        mark(libc::SIGTERM);
        assert_eq!(caught.end_process(), Some(libc::SIGTERM));
        assert!(!is_requested() && !is_caught());
        handle(libc::SIGTERM, before);
    }

    #[test]
    fn a_line_ends_before_the_next_one_or_at_a_signal() {
        let _alone = ALONE.lock();
        let mut input = &b"one\ntwo"[..];
        let mut line = Vec::new();
        assert_eq!(read_line(&mut input, &mut line).unwrap(), 4);
        assert_eq!(read_line(&mut input, &mut line).unwrap(), 3);
        assert_eq!((read_line(&mut input, &mut line).unwrap(), &line[..]), (0, &b"one\ntwo"[..]));
        let caught = SignalGuard::of_process();
        mark(libc::SIGTERM);
        let error = read_line(&b"three\n"[..], &mut line).unwrap_err();
        assert_eq!(error.to_string(), "stopped");
        drop(caught);
    }

    #[test]
    fn a_signal_is_a_mark_while_it_is_caught_and_no_longer() {
        let _alone = ALONE.lock();
        let caught = SignalGuard::new();
        assert!(!is_requested());
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::INT).unwrap();
        // Another thread of this process may handle the signal.
        while !is_requested() {
            std::thread::yield_now();
        }
        drop(caught);
        assert!(!is_requested());
        // The handler of another thread may set the alarm after the guard has gone.
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::ALARM).unwrap();
        assert!(!is_requested());
    }
}
