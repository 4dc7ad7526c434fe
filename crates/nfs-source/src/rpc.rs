//! Remote calls (RFC 5531) over a connection: several calls are under way at a time.
//!
//! Invariant: a reply counts only with the number of a call that waits for it. A late reply is therefore never taken
//! for another one.
//! Invariant: while the socket accepts no bytes of a call, replies are received. So a server that waits until its replies
//! are received does not block the connection.
//! Locking: the lock of the channel is held while a caller sends calls and waits for replies.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use obento_base::{Error, Result};
use rustix::event::PollFlags;

use crate::error::{ENDED, HUNG, NONSENSE, REJECTED};
use crate::socket;
use crate::xdr::{Reader, Writer};

/// The most bytes of a reply: data of a read, and its header.
const REPLY_MAX: usize = (1 << 20) + 4096;
/// How often calls are sent again after the connection ended.
const TRIES: u32 = 10;
/// A repeated call has at least this part of the time of a call.
const REST: u32 = 4;
/// How long to wait before a connection is opened again.
const PAUSE: Duration = Duration::from_millis(300);
/// The most supplementary groups of a user.
const GROUPS_MAX: usize = 16;
/// Replies of at least this length use the buffers of earlier replies: new memory costs more than the copy into it.
const LARGE: usize = 64 << 10;
/// The most buffers of earlier replies.
const BUFFERS: usize = 5;
/// The end of the records of a message.
const LAST: u32 = 1 << 31;

/// A program and its version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Program(pub u32, pub u32);

/// A connection to a server.
pub struct Connection {
    /// Without an address, a connection that ends is not opened again.
    address: Option<SocketAddr>,
    program: Program,
    channel: Mutex<Channel>,
    /// Whether the server gets no further calls.
    is_broken: AtomicBool,
    deadline: Duration,
    /// The user of the process when it connected.
    user: User,
}

/// The credentials of a process (`AUTH_SYS`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups, at most 16 (RFC 5531, appendix A).
    groups: Vec<u32>,
}

impl User {
    fn this() -> Self {
        let groups = rustix::process::getgroups().unwrap_or_default();
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: groups.into_iter().take(GROUPS_MAX).map(|group| group.as_raw()).collect(),
        }
    }
}

/// The time after which a call is not repeated. It is set when the call is sent first.
#[derive(Debug, Default)]
pub struct Deadline(Option<Instant>);

/// The reply to a call.
#[derive(Debug)]
pub struct Reply {
    message: Vec<u8>,
    /// Bytes of the message before the results.
    start: usize,
    /// Whether the connection ended and the call was sent again. The server may have performed it twice.
    pub is_repeated: bool,
}

impl Reply {
    /// Returns the results of the call.
    pub fn results(&self) -> &[u8] {
        self.message.get(self.start..).unwrap_or_default()
    }
}

/// A call that is under way.
#[derive(Debug)]
pub struct Ticket(u32);

/// A call without a reply that was taken.
struct Call {
    number: u32,
    /// The message, with its record mark.
    message: Vec<u8>,
    reply: Option<Reply>,
    is_sent: bool,
    is_repeated: bool,
}

/// The socket and the calls of a connection.
struct Channel {
    socket: Option<OwnedFd>,
    calls: Vec<Call>,
    next: u32,
    /// Buffers of large replies that are no longer needed.
    buffers: Vec<Vec<u8>>,
}

impl Channel {
    fn has_replies(&self, tickets: &[Ticket]) -> bool {
        let mut calls = self.calls.iter();
        !calls.any(|call| call.reply.is_none() && tickets.iter().any(|ticket| ticket.0 == call.number))
    }

    fn take(&mut self, ticket: &Ticket) -> Option<Reply> {
        let index = self.calls.iter().position(|call| call.number == ticket.0 && call.reply.is_some())?;
        self.calls.remove(index).reply
    }

    /// Sends the calls that were not sent yet.
    fn send(&mut self, until: Instant) -> Result<(), Failure> {
        for index in 0..self.calls.len() {
            let Some(call) = self.calls.get_mut(index).filter(|call| !call.is_sent) else { continue };
            call.is_sent = true;
            let message = std::mem::take(&mut call.message);
            let sent = self.send_message(&message, until);
            if let Some(call) = self.calls.get_mut(index) {
                call.message = message;
            }
            sent?;
        }
        Ok(())
    }

    fn send_message(&mut self, mut message: &[u8], until: Instant) -> Result<(), Failure> {
        while !message.is_empty() {
            let socket = self.socket.as_ref().ok_or(Failure::Ended)?;
            match socket::write(socket, message)? {
                0 => {
                    // A server may not read calls until its replies are received.
                    let ready = socket::wait(socket, PollFlags::IN | PollFlags::OUT, until)?;
                    if !ready.contains(PollFlags::OUT) {
                        self.receive(until)?;
                    }
                }
                sent => message = message.get(sent..).unwrap_or_default(),
            }
        }
        Ok(())
    }

    /// Receives a message. A late reply to an earlier call is ignored.
    fn receive(&mut self, until: Instant) -> Result<(), Failure> {
        let socket = self.socket.as_ref().ok_or(Failure::Ended)?;
        let message = receive(socket, &mut self.buffers, until)?;
        let number = Reader(&message).u32().ok_or(Failure::Final(NONSENSE))?;
        let mut calls = self.calls.iter_mut();
        if let Some(call) = calls.find(|call| call.number == number && call.reply.is_none()) {
            let start = message.len() - results(&message).map_err(Failure::Final)?.len();
            call.reply = Some(Reply { message, start, is_repeated: call.is_repeated });
            // The call is not sent again.
            call.message = Vec::new();
        }
        Ok(())
    }

    /// Prepares to send the calls without a reply again.
    fn ended(&mut self) {
        self.socket = None;
        for call in self.calls.iter_mut().filter(|call| call.reply.is_none() && call.is_sent) {
            (call.is_sent, call.is_repeated) = (false, true);
        }
    }
}

/// Why a group of calls failed.
enum Failure {
    /// The connection ended; calls can be sent again.
    Ended,
    Final(Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        tracing::debug!(%error, "an NFS connection fails");
        if error.kind() == io::ErrorKind::TimedOut { Self::Final(HUNG) } else { Self::Ended }
    }
}

impl Connection {
    /// Connects to a server. Calls fail after `deadline`.
    ///
    /// # Errors
    ///
    /// Those of connecting.
    pub fn open(address: SocketAddr, program: Program, deadline: Duration) -> io::Result<Self> {
        let socket = socket::open(address, Instant::now() + deadline)?;
        Ok(Self::over(socket, Some(address), program, deadline))
    }

    /// Uses an open socket that does not block. Calls fail after `deadline`.
    pub fn over(socket: OwnedFd, address: Option<SocketAddr>, program: Program, deadline: Duration) -> Self {
        // Numbers differ between processes, as servers remember calls by them.
        let port = address.map_or(0, |address| address.port());
        let first = std::process::id().wrapping_mul(0x9e37_79b9) ^ u32::from(port);
        Self {
            address,
            program,
            channel: Mutex::new(Channel {
                socket: Some(socket),
                calls: Vec::new(),
                next: first,
                buffers: Vec::new(),
            }),
            is_broken: AtomicBool::new(false),
            deadline,
            user: User::this(),
        }
    }

    /// Returns the user for whom the server performs the calls.
    pub fn user(&self) -> &User {
        &self.user
    }

    /// Calls a procedure, and passes its results to `f`.
    ///
    /// # Errors
    ///
    /// `Device`: the server cannot be reached, did not answer in time, or sent nonsense; now or earlier. Afterwards,
    /// the server gets no further calls. Exception: a repeated call that was not sent again in time.
    pub fn call<T>(
        &self,
        procedure: u32,
        arguments: Writer,
        f: impl FnOnce(Reader<'_>) -> Option<T>,
    ) -> Result<T> {
        self.call_noting(procedure, arguments, &mut Deadline::default(), f).map(|(found, _)| found)
    }

    /// As [`call`](Self::call), until `deadline`. Also returns whether the call was sent again.
    ///
    /// # Errors
    ///
    /// As for [`Connection::call`].
    pub fn call_noting<T>(
        &self,
        procedure: u32,
        arguments: Writer,
        deadline: &mut Deadline,
        f: impl FnOnce(Reader<'_>) -> Option<T>,
    ) -> Result<(T, bool)> {
        let reply =
            self.calls(procedure, &[arguments], deadline)?.pop().ok_or_else(|| self.broken(NONSENSE))?;
        let found = f(Reader(reply.results())).ok_or_else(|| self.broken(NONSENSE))?;
        Ok((found, reply.is_repeated))
    }

    /// Calls a procedure several times at once, until `deadline`. Returns the replies in the order of the calls.
    ///
    /// # Errors
    ///
    /// As for [`Connection::call`].
    pub fn calls(&self, procedure: u32, arguments: &[Writer], deadline: &mut Deadline) -> Result<Vec<Reply>> {
        let mut channel = self.channel();
        // The server answered in time. Since then, other callers have used the channel.
        if deadline.0.is_some_and(|until| Instant::now() >= until) {
            return Err(HUNG);
        }
        let tickets: Vec<_> =
            arguments.iter().map(|arguments| self.add(&mut channel, procedure, arguments)).collect();
        self.exchange(&mut channel, &tickets, deadline)?;
        let replies: Vec<_> = tickets.iter().filter_map(|ticket| channel.take(ticket)).collect();
        if replies.len() == tickets.len() { Ok(replies) } else { Err(self.broken(NONSENSE)) }
    }

    /// Calls a procedure, and does not wait for the reply.
    ///
    /// # Errors
    ///
    /// As for [`Connection::call`].
    pub fn start(&self, procedure: u32, arguments: &Writer) -> Result<Ticket> {
        let mut channel = self.channel();
        let ticket = self.add(&mut channel, procedure, arguments);
        self.exchange(&mut channel, &[], &mut Deadline::default())?;
        Ok(ticket)
    }

    /// Waits for the reply to a call, until `deadline`.
    ///
    /// # Errors
    ///
    /// As for [`Connection::call`].
    pub fn finish(&self, ticket: Ticket, deadline: &mut Deadline) -> Result<Reply> {
        let mut channel = self.channel();
        let tickets = [ticket];
        self.exchange(&mut channel, &tickets, deadline)?;
        tickets.first().and_then(|ticket| channel.take(ticket)).ok_or_else(|| self.broken(NONSENSE))
    }

    /// Waits for `pause` before a call is repeated.
    ///
    /// # Errors
    ///
    /// `Device`: the call ends before, at `deadline`.
    pub fn pause(&self, pause: Duration, deadline: &Deadline) -> Result<()> {
        if deadline.0.is_some_and(|until| Instant::now() + pause >= until) {
            return Err(HUNG);
        }
        socket::pause(pause);
        Ok(())
    }

    /// Uses the memory of a reply for a later reply.
    pub fn recycle(&self, reply: Reply) {
        let mut channel = self.channel();
        if reply.message.len() >= LARGE && channel.buffers.len() < BUFFERS {
            channel.buffers.push(reply.message);
        }
    }

    /// Ignores the replies to calls.
    pub fn abandon(&self, tickets: impl IntoIterator<Item = Ticket>) {
        let mut channel = self.channel();
        for ticket in tickets {
            channel.calls.retain(|call| call.number != ticket.0);
        }
    }

    fn channel(&self) -> MutexGuard<'_, Channel> {
        self.channel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a call that [`exchange`](Self::exchange) sends.
    fn add(&self, channel: &mut Channel, procedure: u32, arguments: &Writer) -> Ticket {
        let number = channel.next;
        channel.next = number.wrapping_add(1);
        let message = self.message(number, procedure, arguments);
        channel.calls.push(Call { number, message, reply: None, is_sent: false, is_repeated: false });
        Ticket(number)
    }

    /// Sends the calls that were not sent yet, and receives replies until each call of `tickets` has one. If the
    /// connection ends, opens it again and sends the calls without a reply again.
    fn exchange(&self, channel: &mut Channel, tickets: &[Ticket], deadline: &mut Deadline) -> Result<()> {
        if self.is_broken.load(Ordering::Relaxed) {
            channel.calls.clear();
            return Err(ENDED);
        }
        let now = Instant::now();
        // A call that is repeated shortly before its deadline gets enough time for a reply.
        let until = (*deadline.0.get_or_insert(now + self.deadline)).max(now + self.deadline / REST);
        for attempt in 0..TRIES {
            match self.exchange_once(channel, tickets, until) {
                Ok(()) => return Ok(()),
                Err(Failure::Final(error)) => return Err(self.broken(error)),
                Err(Failure::Ended) => {
                    channel.ended();
                    if Instant::now() + PAUSE > until {
                        break;
                    }
                    // A server that still runs accepts a new connection at once.
                    if attempt > 0 {
                        socket::pause(PAUSE);
                    }
                }
            }
        }
        Err(self.broken(ENDED))
    }

    fn exchange_once(
        &self,
        channel: &mut Channel,
        tickets: &[Ticket],
        until: Instant,
    ) -> Result<(), Failure> {
        if channel.socket.is_none() {
            let address = self.address.ok_or(Failure::Final(ENDED))?;
            channel.socket = Some(socket::open(address, until)?);
        }
        channel.send(until)?;
        while !channel.has_replies(tickets) {
            channel.receive(until)?;
        }
        Ok(())
    }

    /// Records that the server gets no further calls.
    fn broken(&self, error: Error) -> Error {
        self.is_broken.store(true, Ordering::Relaxed);
        error
    }

    /// Returns the message of a call, with its record mark.
    fn message(&self, number: u32, procedure: u32, arguments: &Writer) -> Vec<u8> {
        let header = self.header(number, procedure).0;
        let len = header.len() + arguments.0.len();
        let mut message = Vec::with_capacity(len + 4);
        message.extend((LAST | u32::try_from(len).unwrap_or(0)).to_be_bytes());
        message.extend(header);
        message.extend(&arguments.0);
        message
    }

    /// Returns the header of a call with the credentials of the user (`AUTH_SYS`).
    fn header(&self, number: u32, procedure: u32) -> Writer {
        let User { uid, gid, groups } = &self.user;
        let count = u32::try_from(groups.len()).unwrap_or(0);
        let credentials = Writer::default().u32(0).bytes(b"obento").u32(*uid).u32(*gid).u32(count);
        let credentials = groups.iter().fold(credentials, |to, &group| to.u32(group));
        let Program(program, version) = self.program;
        let call = Writer::default().u32(number).u32(0).u32(2).u32(program).u32(version).u32(procedure);
        call.u32(1).bytes(&credentials.0).u32(0).u32(0)
    }
}

/// Receives a message, which may have several records. A large first record uses one of `buffers`.
fn receive(socket: &OwnedFd, buffers: &mut Vec<Vec<u8>>, until: Instant) -> Result<Vec<u8>, Failure> {
    let mut message = Vec::new();
    let mut start = 0;
    loop {
        let mut mark = [0; 4];
        socket::read_exact(socket, &mut mark, until)?;
        let mark = u32::from_be_bytes(mark);
        let len = usize::try_from(mark & !LAST).unwrap_or(usize::MAX);
        // A record without bytes that is not the last one could go on for ever.
        if len > REPLY_MAX - start || (len == 0 && mark & LAST == 0) {
            return Err(Failure::Final(NONSENSE));
        }
        if start == 0 && len >= LARGE {
            message = buffers.pop().unwrap_or_default();
        }
        message.resize(start + len, 0);
        socket::read_exact(socket, &mut message[start..], until)?;
        start += len;
        if mark & LAST != 0 {
            return Ok(message);
        }
    }
}

/// Returns the results of an accepted call.
fn results(message: &[u8]) -> Result<&[u8]> {
    let mut reader = Reader(message);
    let mut take = || reader.u32().ok_or(NONSENSE);
    // The number of the call.
    take()?;
    if take()? != 1 {
        return Err(NONSENSE);
    }
    if take()? != 0 {
        return Err(REJECTED);
    }
    take()?;
    reader.bytes(400).ok_or(NONSENSE)?;
    match reader.u32().ok_or(NONSENSE)? {
        0 => Ok(reader.0),
        _ => Err(REJECTED),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_call_that_is_repeated_too_late_is_not_sent_and_the_next_call_is() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        rustix::io::ioctl_fionbio(&ours, true).unwrap();
        let connection = Connection::over(ours.into(), None, Program(1, 1), Duration::from_secs(60));
        let served = std::thread::spawn(move || {
            let mut call = [0; 28];
            theirs.read_exact(&mut call).unwrap();
            let reply = [&[0x80, 0, 0, 24], &call[4..8], &[0, 0, 0, 1], &[0; 16]].concat();
            theirs.write_all(&reply).unwrap();
            call[27]
        });
        let mut late = Deadline(Some(Instant::now()));
        let call = |number, deadline: &mut Deadline| {
            let called = connection.call_noting(number, Writer::default(), deadline, |_| Some(()));
            called.map(|_| ())
        };
        assert_eq!(call(5, &mut late), Err(HUNG));
        assert_eq!(call(6, &mut Deadline::default()), Ok(()));
        assert_eq!(served.join().unwrap(), 6);
    }
}
