//! The claim to a mount: one byte in a socket that two servers can receive from. One of them receives it.
//!
//! The end of a process does not show in time that it will never write: a process that is killed first closes its files,
//! and the close of a file of the mount waits for a server. Only then does its connection end.
//! Source: Linux fs/file.c `close_files` (flushes each file), kernel/exit.c `do_exit` (`exit_task_work` after
//! `exit_files` releases sockets), fs/fuse/file.c `fuse_flush`.

use std::io::{self, IoSliceMut, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, recvmsg};

use super::ConnectionError;

/// The claim to a mount, of which both servers have a copy.
#[derive(Debug)]
pub struct Claim(OwnedFd);

impl Claim {
    /// Creates a claim that no server has taken.
    ///
    /// # Errors
    ///
    /// The errors of the socket.
    pub fn new() -> io::Result<Self> {
        let (taking, mut giving) = UnixStream::pair()?;
        giving.write_all(&[0])?;
        Ok(Self(taking.into()))
    }

    /// Uses the claim among the descriptors of a message.
    ///
    /// # Errors
    ///
    /// `NoClaim`: the first descriptor is not a claim, or the claim has been taken.
    pub fn among(descriptors: Vec<OwnedFd>) -> Result<Self, ConnectionError> {
        let claim = descriptors.into_iter().next().map(Self);
        claim.filter(|claim| claim.receive(RecvFlags::PEEK)).ok_or(ConnectionError::NoClaim)
    }

    /// Takes the claim. Returns whether this server has it now: the other one never gets it.
    pub fn take(&self) -> bool {
        self.receive(RecvFlags::empty())
    }

    /// Receives the byte, if it is present.
    fn receive(&self, flags: RecvFlags) -> bool {
        loop {
            let (mut byte, mut ancillary) = ([0], RecvAncillaryBuffer::default());
            let flags = flags | RecvFlags::DONTWAIT;
            match recvmsg(&self.0, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags) {
                Err(Errno::INTR) => {}
                received => return received.is_ok_and(|received| received.bytes == 1),
            }
        }
    }
}

impl AsFd for Claim {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_two_servers_gets_a_claim_and_only_once() {
        let one = Claim::new().unwrap();
        let other = Claim::among(vec![one.as_fd().try_clone_to_owned().unwrap()]).unwrap();
        assert_eq!([other.take(), one.take(), other.take()], [true, false, false]);
        assert_eq!(Claim::among(vec![one.0]).unwrap_err(), ConnectionError::NoClaim);
    }

    #[test]
    fn a_message_without_a_claim_is_an_error() {
        assert_eq!(Claim::among(Vec::new()).unwrap_err(), ConnectionError::NoClaim);
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(Claim::among(vec![file.into()]).unwrap_err(), ConnectionError::NoClaim);
    }
}
