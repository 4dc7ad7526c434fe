//! One request and its reply.
//!
//! Invariant: one request is under way at a time. A reply counts only with the number of the request, so that a late
//! reply is never taken for another one.
//! Locking: the lock of the socket is held from the request to the reply, and no other lock is taken meanwhile.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use obento_base::{Error, Result};
use obento_fuse_abi::{InHeader, OutHeader, opcode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use zerocopy::IntoBytes as _;

use crate::error::{ENDED, HUNG, NONSENSE, of_errno};
use crate::wire::take;

/// The most bytes of data in a reply. With its header, it fits into the buffer of a socket.
pub const DATA_MAX: u32 = 128 << 10;
/// Room for a reply.
const REPLY_MAX: usize = 128 * 1024 + 4096;

/// How long a server may take to end.
const FAREWELL: Duration = Duration::from_secs(2);

/// The kernel's end of the connection.
pub struct Connection {
    socket: Mutex<Exchange>,
    /// Whether the server gets no further requests.
    is_broken: AtomicBool,
    deadline: Duration,
}

struct Exchange {
    socket: OwnedFd,
    unique: u64,
    reply: Vec<u8>,
}

impl Connection {
    /// Creates a connection over a socket that keeps the bounds of messages. Requests fail after `deadline`.
    pub fn new(socket: OwnedFd, deadline: Duration) -> Self {
        let exchange = Exchange { socket, unique: 0, reply: vec![0; REPLY_MAX] };
        Self { socket: Mutex::new(exchange), is_broken: AtomicBool::new(false), deadline }
    }

    /// Returns how long a request may take.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Sends a request about `node`, and passes the body of the reply to `f`.
    ///
    /// # Errors
    ///
    /// 1. `Device`: the server ended, did not answer in time, or sent nonsense; now or earlier.
    /// 2. The error that the server returned.
    pub fn ask<T>(
        &self,
        opcode: u32,
        node: u64,
        body: &[&[u8]],
        f: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Result<T> {
        match self.exchange(opcode, node, body, self.deadline, f)? {
            Ok(reply) => Ok(reply),
            Err(errno) => Err(of_errno(errno)),
        }
    }

    /// As [`ask`](Self::ask), with the number of the error that the server returned.
    pub fn exchange<T>(
        &self,
        opcode: u32,
        node: u64,
        body: &[&[u8]],
        deadline: Duration,
        f: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Result<Result<T, i32>> {
        let mut exchange = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_broken.load(Ordering::Relaxed) {
            return Err(ENDED);
        }
        let until = Instant::now() + deadline;
        let done =
            exchange.send(opcode, node, body, until).and_then(|unique| exchange.receive(unique, until));
        let done = done.and_then(|reply| match reply {
            Err(errno) => Ok(Err(errno)),
            Ok(len) => f(&exchange.reply[size_of::<OutHeader>()..len]).map(Ok).ok_or(NONSENSE),
        });
        if done.is_err() {
            self.is_broken.store(true, Ordering::Relaxed);
        }
        done
    }

    /// Sends the last request. A server that replies to it has completed all earlier requests.
    pub fn destroy(&self) {
        let _ = self.exchange(opcode::DESTROY, 0, &[], FAREWELL, |_| Some(()));
    }

    /// Sends a request that has no reply.
    pub fn notify(&self, opcode: u32, node: u64, body: &[&[u8]]) {
        let mut exchange = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_broken.load(Ordering::Relaxed) {
            let until = Instant::now() + self.deadline;
            if exchange.send(opcode, node, body, until).is_err() {
                self.is_broken.store(true, Ordering::Relaxed);
            }
        }
    }
}

impl Exchange {
    fn send(&mut self, opcode: u32, node: u64, body: &[&[u8]], until: Instant) -> Result<u64> {
        self.unique += 2;
        let len = size_of::<InHeader>() + body.iter().map(|part| part.len()).sum::<usize>();
        let header = InHeader {
            len: u32::try_from(len).map_err(|_| Error::OutOfRange)?,
            opcode,
            unique: self.unique,
            nodeid: node,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            pid: std::process::id(),
            total_extlen: 0,
            padding: 0,
        };
        let message = [&[header.as_bytes()], body].concat().concat();
        self.wait(PollFlags::OUT, until)?;
        // The socket does not block, and takes a message whole or not at all. A server that has ended raises no SIGPIPE,
        // which would end a program that does not ignore this signal.
        match send(&self.socket, &message, SendFlags::NOSIGNAL) {
            Ok(sent) if sent == message.len() => Ok(self.unique),
            Ok(_) => Err(NONSENSE),
            Err(_) => Err(ENDED),
        }
    }

    /// Receives the reply to `unique`. Returns its length, or the error of the server. Notices and late replies are
    /// ignored.
    fn receive(&mut self, unique: u64, until: Instant) -> Result<Result<usize, i32>> {
        loop {
            let mut len = self.read(0, until)?;
            let (header, _) = take::<OutHeader>(&self.reply[..len]).ok_or(NONSENSE)?;
            let expected = usize::try_from(header.len).map_err(|_| NONSENSE)?;
            if expected > REPLY_MAX || expected < len {
                return Err(NONSENSE);
            }
            // libfuse moves data of files with splice(2), which sends a message for each part.
            while len < expected {
                len += self.read(len, until)?;
            }
            if len != expected {
                return Err(NONSENSE);
            }
            if header.unique != unique {
                continue;
            }
            return match header.error {
                0 => Ok(Ok(len)),
                error @ -511..0 => Ok(Err(-error)),
                _ => Err(NONSENSE),
            };
        }
    }

    /// Reads a message to `start` of the reply, and returns its length.
    fn read(&mut self, start: usize, until: Instant) -> Result<usize> {
        loop {
            self.wait(PollFlags::IN, until)?;
            match rustix::io::read(&self.socket, &mut self.reply[start..]) {
                Ok(0) => return Err(ENDED),
                Ok(len) => return Ok(len),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => return Err(ENDED),
            }
        }
    }

    fn wait(&self, flags: PollFlags, until: Instant) -> Result<()> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(HUNG);
            }
            let timeout = Timespec::try_from(left).map_err(|_| Error::Invalid)?;
            let mut fds = [PollFd::from_borrowed_fd(self.socket.as_fd(), flags)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => {
                    tracing::debug!("{}", io::Error::from(errno));
                    return Err(ENDED);
                }
            }
        }
    }
}
