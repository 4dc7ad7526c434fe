//! A connection between two servers: whole messages, with descriptors, and a time limit for each.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, Shutdown, recvmsg, sendmsg, shutdown,
};

use super::message::{self, FrameError, HEAD, Head, Kind, Message, TAIL};
use super::{SILENCE, StateError};

/// The most descriptors of a message: the limit of the kernel is 253.
const DESCRIPTORS: usize = 80;

/// Why a message was not sent or received. The text describes the other side.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The other side has ended, or has closed the connection.
    #[error("the process has ended")]
    Ended,
    /// The other side was silent for too long.
    #[error("the process did not respond within {} seconds", SILENCE.as_secs())]
    Silent,
    /// The other side refuses, for this reason.
    #[error("{0}")]
    Refused(String),
    /// The other side sent a message that is not due now.
    #[error("the process sent an unexpected message of kind {0:?}")]
    Unexpected(Kind),
    /// The other side sent no claim to the mount.
    #[error("the process sent no claim to the mount")]
    NoClaim,
    /// The other side has taken the claim to the mount.
    #[error("the old server continued after its time limit")]
    Claimed,
    /// The bytes are not a message.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The fields of a message are invalid.
    #[error(transparent)]
    State(#[from] StateError),
    /// The socket failed.
    #[error("the connection to the process failed: {0}")]
    System(Errno),
}

impl From<Errno> for ConnectionError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::PIPE | Errno::CONNRESET => Self::Ended,
            errno => Self::System(errno),
        }
    }
}

/// A connection between two servers of a mount.
#[derive(Debug)]
pub struct Connection(OwnedFd);

impl Connection {
    /// Uses a connected stream, which does not block.
    pub fn new(stream: OwnedFd) -> Self {
        Self(stream)
    }

    /// Uses a connected stream. Fails if the stream cannot be made non-blocking.
    pub fn of_stream(stream: UnixStream) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self(stream.into()))
    }

    /// Sends a message with descriptors. Waits for the other side to read, for at most [`SILENCE`] without progress.
    pub fn send(
        &self,
        kind: Kind,
        fields: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), ConnectionError> {
        let bytes = message::encode(kind, fields);
        let (mut rest, mut descriptors) = (&bytes[..], descriptors);
        while !rest.is_empty() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
                return Err(ConnectionError::System(Errno::MSGSIZE));
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg(&self.0, &[IoSlice::new(rest)], &mut ancillary, flags) {
                Ok(sent) => {
                    rest = rest.get(sent..).unwrap_or_default();
                    descriptors = &[];
                }
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, Some(SILENCE))?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Sends a refusal. The message may be lost.
    pub fn refuse(&self, why: &str) {
        let _ = self.send(Kind::Cannot, why.as_bytes(), &[]);
    }

    /// Receives the next message, which must be of `kind` and arrive within [`SILENCE`].
    pub fn expect(&self, kind: Kind) -> Result<Message, ConnectionError> {
        self.expect_within(kind, Some(SILENCE))
    }

    /// Like [`expect`](Self::expect), but waits as long as the other side exists.
    pub fn expect_at_last(&self, kind: Kind) -> Result<Message, ConnectionError> {
        self.expect_within(kind, None)
    }

    /// Like [`expect`](Self::expect), with another limit of the time without progress, or none.
    pub fn expect_within(&self, kind: Kind, longest: Option<Duration>) -> Result<Message, ConnectionError> {
        expected(kind, self.receive_of(Some(kind), longest, None)?)
    }

    /// Like [`expect`](Self::expect), but the whole message arrives before `end`, and its fields have at most `most` bytes.
    /// The other side can belong to another user.
    pub fn expect_before(&self, kind: Kind, end: Instant, most: usize) -> Result<Message, ConnectionError> {
        expected(kind, self.receive_of(Some(kind), Some(SILENCE), Some((end, most)))?)
    }

    /// Receives the next message, of any kind, within `longest`. The message must be short.
    pub fn receive(&self, longest: Option<Duration>) -> Result<Message, ConnectionError> {
        self.receive_of(None, longest, None)
    }

    /// Receives the next message, which is refused before its fields arrive if it has neither the kind `expected` nor is a
    /// refusal. If a message with the state or the history of a mount is expected, `longest` is the time without progress, and
    /// `bounds` contains the end of the time and the length for the whole message. Other messages are short: their sender can
    /// belong to another user.
    fn receive_of(
        &self,
        expected: Option<Kind>,
        longest: Option<Duration>,
        bounds: Option<(Instant, usize)>,
    ) -> Result<Message, ConnectionError> {
        let mut descriptors = Vec::new();
        let mut bytes = vec![0; HEAD];
        let mut limit = Limit { longest, end: longest.map(|longest| Instant::now() + longest) };
        self.fill(&mut bytes, &mut descriptors, limit)?;
        let head = bytes.first_chunk().ok_or(FrameError::Head)?;
        let Head { kind, len } = Head::decode(head)?;
        match expected {
            Some(expected) if kind != expected && kind != Kind::Cannot => {
                return Err(ConnectionError::Unexpected(kind));
            }
            Some(Kind::State | Kind::Guard | Kind::Records) if kind != Kind::Cannot => {
                if bounds.is_some_and(|(_, most)| len > most) {
                    return Err(FrameError::Head.into());
                }
                limit.end = bounds.map(|(end, _)| end);
            }
            _ if len > SHORT => return Err(FrameError::Head.into()),
            _ => {}
        }
        // The memory grows with the bytes that arrive, not with the length that the other side states.
        let mut left = len.saturating_add(TAIL);
        while left > 0 {
            let (start, part) = (bytes.len(), left.min(PART));
            bytes.resize(start.saturating_add(part), 0);
            let part_of = bytes.get_mut(start..).unwrap_or_default();
            self.fill(part_of, &mut descriptors, limit)?;
            left = left.saturating_sub(part);
        }
        let fields = message::fields_of(&bytes)?.to_vec();
        Ok(Message { kind, fields, descriptors })
    }

    /// Fills `buffer`, and collects descriptors that arrive with its bytes.
    fn fill(
        &self,
        mut buffer: &mut [u8],
        descriptors: &mut Vec<OwnedFd>,
        limit: Limit,
    ) -> Result<(), ConnectionError> {
        while !buffer.is_empty() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            let received = recvmsg(&self.0, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags);
            match received {
                Ok(received) if received.bytes == 0 => return Err(ConnectionError::Ended),
                Ok(received) => {
                    for message in ancillary.drain() {
                        if let RecvAncillaryMessage::ScmRights(rights) = message {
                            descriptors.extend(rights);
                        }
                    }
                    buffer = buffer.get_mut(received.bytes..).unwrap_or_default();
                }
                Err(Errno::AGAIN) => self.wait(PollFlags::IN, limit.left())?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Waits until the socket is ready, or its other side has ended.
    fn wait(&self, flags: PollFlags, longest: Option<Duration>) -> Result<(), ConnectionError> {
        let end = longest.map(|longest| Instant::now() + longest);
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut [PollFd::from_borrowed_fd(self.0.as_fd(), flags)], left.as_ref()) {
                Ok(0) => return Err(ConnectionError::Silent),
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Drop for Connection {
    /// Ends the connection, also if a program that another thread starts has a copy of the socket until its execve(2).
    /// That program may also have a file of the mount open, and closing this file needs the server that waits for the
    /// end of the connection.
    fn drop(&mut self) {
        let _ = shutdown(&self.0, Shutdown::Both);
    }
}

/// Returns a message of `kind`, or the error that another message means.
fn expected(kind: Kind, message: Message) -> Result<Message, ConnectionError> {
    match message {
        Message { kind: Kind::Cannot, fields, .. } => {
            Err(ConnectionError::Refused(String::from_utf8_lossy(&fields).into_owned()))
        }
        message if message.kind == kind => Ok(message),
        message => Err(ConnectionError::Unexpected(message.kind)),
    }
}

/// The most bytes that are received at once.
const PART: usize = 1 << 20;
/// The most bytes of a message without the state of a mount.
const SHORT: usize = 64 << 10;

/// How long to wait for bytes.
#[derive(Clone, Copy)]
struct Limit {
    /// The longest time without progress.
    longest: Option<Duration>,
    /// The end of the time for the whole message.
    end: Option<Instant>,
}

impl Limit {
    fn left(self) -> Option<Duration> {
        let left = self.end.map(|end| end.saturating_duration_since(Instant::now()));
        left.into_iter().chain(self.longest).min()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_long_message_without_a_state_is_refused_before_its_fields_arrive() {
        let (one, mut other) = UnixStream::pair().unwrap();
        let connection = Connection::of_stream(one).unwrap();
        let bytes = message::encode(Kind::Offer, &vec![0; SHORT + 1]);
        other.write_all(&bytes[..HEAD]).unwrap();
        let refused = connection.receive(Some(SILENCE)).unwrap_err();
        assert_eq!(refused, ConnectionError::Frame(FrameError::Head));
    }

    #[test]
    fn a_state_that_is_not_expected_is_refused_before_its_fields_arrive() {
        for expected in [Some(Kind::Report), None] {
            let (one, mut other) = UnixStream::pair().unwrap();
            let connection = Connection::of_stream(one).unwrap();
            let bytes = message::encode(Kind::State, &vec![0; SHORT + 1]);
            other.write_all(&bytes[..HEAD]).unwrap();
            let refused = connection.receive_of(expected, Some(SILENCE), None).unwrap_err();
            let why = match expected {
                Some(_) => ConnectionError::Unexpected(Kind::State),
                None => ConnectionError::Frame(FrameError::Head),
            };
            assert_eq!(refused, why);
        }
    }

    #[test]
    fn a_dropped_connection_has_ended_although_a_copy_of_its_socket_is_open() {
        let (one, other) = UnixStream::pair().unwrap();
        let copy = one.try_clone().unwrap();
        drop(Connection::of_stream(one).unwrap());
        let other = Connection::of_stream(other).unwrap();
        assert_eq!(other.receive(Some(SILENCE)).unwrap_err(), ConnectionError::Ended);
        drop(copy);
    }

    #[test]
    fn a_message_that_arrives_byte_by_byte_has_one_time_limit() {
        let (one, mut other) = UnixStream::pair().unwrap();
        let connection = Connection::of_stream(one).unwrap();
        let bytes = message::encode(Kind::Report, &[0; 1000]);
        other.write_all(&bytes[..HEAD + 10]).unwrap();
        let longest = Duration::from_millis(50);
        let began = Instant::now();
        let sender = std::thread::spawn(move || {
            // Ends when the other side has given up.
            bytes[HEAD + 10..].iter().all(|byte| {
                std::thread::sleep(Duration::from_millis(5));
                other.write_all(&[*byte]).is_ok()
            })
        });
        assert_eq!(connection.receive(Some(longest)).unwrap_err(), ConnectionError::Silent);
        assert!(began.elapsed() < Duration::from_secs(2));
        drop(connection);
        assert!(!sender.join().unwrap());
    }

    #[test]
    fn a_message_that_is_longer_than_its_bound_is_refused_before_its_fields_arrive() {
        let (one, mut other) = UnixStream::pair().unwrap();
        let connection = Connection::of_stream(one).unwrap();
        let bytes = message::encode(Kind::Records, &[0; 100]);
        other.write_all(&bytes[..HEAD]).unwrap();
        let refused = connection.expect_before(Kind::Records, Instant::now() + SILENCE, 99).unwrap_err();
        assert_eq!(refused, ConnectionError::Frame(FrameError::Head));
    }
}
