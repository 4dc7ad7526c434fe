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
    SendFlags, recvmsg, sendmsg,
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
        match self.receive(longest)? {
            Message { kind: Kind::Cannot, fields, .. } => {
                Err(ConnectionError::Refused(String::from_utf8_lossy(&fields).into_owned()))
            }
            message if message.kind == kind => Ok(message),
            message => Err(ConnectionError::Unexpected(message.kind)),
        }
    }

    /// Receives the next message, of any kind. `longest` is the time without progress.
    pub fn receive(&self, longest: Option<Duration>) -> Result<Message, ConnectionError> {
        let mut descriptors = Vec::new();
        let mut bytes = vec![0; HEAD];
        self.fill(&mut bytes, &mut descriptors, longest)?;
        let head = bytes.first_chunk().ok_or(FrameError::Head)?;
        let Head { kind, len } = Head::decode(head)?;
        // The memory grows with the bytes that arrive, not with the length that the other side states.
        let mut left = len.saturating_add(TAIL);
        while left > 0 {
            let (start, part) = (bytes.len(), left.min(PART));
            bytes.resize(start.saturating_add(part), 0);
            let part_of = bytes.get_mut(start..).unwrap_or_default();
            self.fill(part_of, &mut descriptors, longest)?;
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
        longest: Option<Duration>,
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
                Err(Errno::AGAIN) => self.wait(PollFlags::IN, longest)?,
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

/// The most bytes that are received at once.
const PART: usize = 1 << 20;
