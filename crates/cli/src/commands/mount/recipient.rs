//! The process that receives the signals of a keeper.
//!
//! Invariant: a server is identified by a descriptor (pidfd_open(2)). The number of a process that has ended can belong to
//! any other process.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use obento_fuse::signals;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::janitor::Janitor;

/// The receiver of the next signal.
enum Current {
    /// A server, which may have ended.
    Server(OwnedFd),
    /// No server runs any more. The process can unmount the dead mount, if there is one.
    None(Option<Janitor>),
}

struct Signals {
    current: Current,
    /// Whether a signal arrived when no server ran. The next server gets it.
    is_pending: bool,
}

/// The process that receives the signals of a keeper: the current server.
#[derive(Clone)]
pub struct Recipient(Arc<Mutex<Signals>>);

/// Opens a process that was not waited for yet.
fn open(server: &Child) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(server.id().cast_signed()).ok_or(io::ErrorKind::NotFound)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

impl Recipient {
    /// The first server. Fails with the errors of pidfd_open(2).
    pub fn new(server: &Child) -> io::Result<Self> {
        let signals = Signals { current: Current::Server(open(server)?), is_pending: false };
        Ok(Self(Arc::new(Mutex::new(signals))))
    }

    fn lock(&self) -> MutexGuard<'_, Signals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the server by the next one. Fails with the errors of pidfd_open(2).
    pub fn replace(&self, server: &Child) -> io::Result<()> {
        let mut signals = self.lock();
        signals.current = Current::Server(open(server)?);
        if std::mem::take(&mut signals.is_pending) {
            signals.pass();
        }
        Ok(())
    }

    /// From now on, no server runs: a signal lets `janitor` unmount, or ends this process.
    pub fn give_up(&self, janitor: Option<Janitor>) {
        let mut signals = self.lock();
        signals.current = Current::None(janitor);
        if std::mem::take(&mut signals.is_pending) {
            signals.pass();
        }
    }

    /// Starts a thread that passes the signals that end a server to the recipient.
    pub fn pass_signals_on(&self) -> io::Result<()> {
        let recipient = self.clone();
        let pass = move || loop {
            signals::wait();
            recipient.lock().pass();
        };
        std::thread::Builder::new().name("signals".into()).spawn(pass).map(drop)
    }
}

impl Signals {
    fn pass(&mut self) {
        match &mut self.current {
            Current::Server(server) => self.is_pending = pidfd_send_signal(server, Signal::TERM).is_err(),
            Current::None(janitor) => {
                let unmounted = janitor.as_mut().map(Janitor::unmount);
                if !matches!(unmounted, Some(Ok(()))) {
                    // The mount stays, as after the death of a server without a keeper.
                    std::process::exit(1);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, Stdio};

    use super::*;

    fn server() -> Child {
        Command::new("cat").stdin(Stdio::piped()).spawn().unwrap()
    }

    #[test]
    fn a_signal_after_the_end_of_a_server_reaches_the_next_server() {
        let mut first = server();
        let recipient = Recipient::new(&first).unwrap();
        drop(first.stdin.take());
        assert!(first.wait().unwrap().success());
        recipient.lock().pass();
        let mut second = server();
        recipient.replace(&second).unwrap();
        assert_eq!(second.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
        // The signal was passed on once.
        let mut third = server();
        recipient.replace(&third).unwrap();
        drop(third.stdin.take());
        assert!(third.wait().unwrap().success());
    }
}
