//! The messages with which the kernel sets up its disk.
//!
//! Source: docs/interop/vhost-user.rst of QEMU, whose names are used here.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, RecvMsg, ReturnFlags, recvmsg};

/// The longest accepted payload in bytes: `SET_MEM_TABLE` with eight regions.
const PAYLOAD_MAX: usize = 512;
/// The most descriptors of a message: one for each memory region.
const DESCRIPTORS_MAX: usize = 8;
/// Bytes before the payload.
const HEADER: usize = 12;
/// The flags of a reply: version 1, and the bit for a reply.
const REPLY: u32 = 1 | 1 << 2;

/// Requests of the front end, by number.
pub mod request {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const GET_QUEUE_NUM: u32 = 17;
    pub const SET_BACKEND_REQ_FD: u32 = 21;
    pub const GET_CONFIG: u32 = 24;
}

/// A message with its descriptors.
pub struct Message {
    /// The number of the request.
    pub request: u32,
    /// The payload.
    pub payload: Vec<u8>,
    /// The descriptors.
    pub files: Vec<OwnedFd>,
}

impl Message {
    /// Reads the next message. Fails if the other side has ended, or the message is not supported.
    pub fn receive(socket: &UnixStream) -> io::Result<Self> {
        let mut header = [0; HEADER];
        let files = receive_all(socket, &mut header)?;
        let word =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let len = usize::try_from(word(8)).unwrap_or(usize::MAX);
        if len > PAYLOAD_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut payload = vec![0; len];
        let more = receive_all(socket, &mut payload)?;
        Ok(Self { request: word(0), payload, files: files.into_iter().chain(more).collect() })
    }

    /// Returns the number at byte `at` of the payload.
    pub fn u64(&self, at: usize) -> io::Result<u64> {
        let bytes = self.payload.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map(|bytes| u64::from_le_bytes(*bytes)).ok_or(io::ErrorKind::InvalidData.into())
    }

    /// Returns the number at byte `at` of the payload.
    pub fn u32(&self, at: usize) -> io::Result<u32> {
        let bytes = self.payload.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map(|bytes| u32::from_le_bytes(*bytes)).ok_or(io::ErrorKind::InvalidData.into())
    }

    /// Replies to this message with `payload`.
    pub fn answer(&self, socket: &UnixStream, payload: &[u8]) -> io::Result<()> {
        let len = u32::try_from(payload.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let head = [self.request, REPLY, len].map(u32::to_le_bytes).concat();
        io::Write::write_all(&mut &*socket, &[&head, payload].concat())
    }
}

/// Fills `buf`, and takes the descriptors of the message. Fails if this process cannot open more descriptors, or
/// there are too many.
pub(crate) fn receive_all(socket: &UnixStream, buf: &mut [u8]) -> io::Result<Vec<OwnedFd>> {
    let (mut done, mut files) = (0, Vec::new());
    while done < buf.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [io::IoSliceMut::new(&mut buf[done..])];
        let RecvMsg { bytes, flags, .. } =
            match recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => continue,
                received => received?,
            };
        if bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        done += bytes;
        if flags.contains(ReturnFlags::CTRUNC) {
            return Err(rustix::io::Errno::MFILE.into());
        }
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                files.extend(received);
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

    use super::*;

    #[test]
    fn a_message_of_whose_descriptors_some_are_lost_is_an_error() {
        // The space is counted in words, so that one or two more descriptors may fit.
        const MORE: usize = DESCRIPTORS_MAX + 8;
        let (ours, theirs) = UnixStream::pair().unwrap();
        for (count, expected) in [(DESCRIPTORS_MAX, Some(DESCRIPTORS_MAX)), (MORE, None)] {
            let files = vec![theirs.as_fd(); count];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MORE))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
            sendmsg(&theirs, &[io::IoSlice::new(b"x")], &mut control, SendFlags::empty()).unwrap();
            let received = receive_all(&ours, &mut [0]);
            assert_eq!(received.ok().map(|files| files.len()), expected);
        }
    }
}
