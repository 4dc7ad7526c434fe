//! Replies, and what is told without being asked.
//!
//! Invariant: a request gets one reply, because what answers is consumed; dropped without, it answers EIO.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use zerocopy::{Immutable, IntoBytes};

use super::abi::{InvalInodeOut, NOTIFY_INVAL_INODE, OutHeader};
use crate::server::Reply;

/// From where on pages are dropped: all, or, with an offset below 0, none.
pub(super) const ALL_PAGES: i64 = 0;
pub(super) const ONLY_ATTRIBUTES: i64 = -1;

/// How to speak to the kernel.
#[derive(Clone)]
pub(super) struct Channel(pub Arc<OwnedFd>);

impl Channel {
    /// Makes the kernel ask for the attributes of `nodeid` again, if it knows it, and write back and drop its pages from
    /// byte `pages` on. Returns once they are written back, for which the kernel needs answers: call it from the pool.
    pub fn make_old(&self, nodeid: u64, pages: i64) {
        let what = InvalInodeOut { ino: nodeid, off: pages, len: 0 };
        // Who no longer knows it has nothing old.
        let _ = self.send(0, NOTIFY_INVAL_INODE, what.as_bytes());
    }

    fn send(&self, unique: u64, error: i32, body: &[u8]) -> rustix::io::Result<()> {
        let whole = size_of::<OutHeader>().saturating_add(body.len());
        let header = OutHeader { len: u32::try_from(whole).unwrap_or(u32::MAX), error, unique };
        rustix::io::writev(&*self.0, &[IoSlice::new(header.as_bytes()), IoSlice::new(body)]).map(drop)
    }
}

/// The right, and the duty, to answer a request.
pub(super) struct Pending {
    channel: Channel,
    unique: u64,
    is_answered: bool,
}

impl Pending {
    /// Of the request `unique`.
    pub fn new(channel: Channel, unique: u64) -> Self {
        Self { channel, unique, is_answered: false }
    }

    /// Answers: the body, or an error.
    pub fn answer(mut self, body: Reply<&[u8]>) {
        self.is_answered = true;
        let sent = match body {
            Ok(body) => self.channel.send(self.unique, 0, body),
            Err(error) => self.channel.send(self.unique, -error.0, &[]),
        };
        match sent {
            // Who asked was interrupted and is gone.
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(error) => tracing::debug!(%error, "a reply did not arrive"),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.is_answered {
            let _ = self.channel.send(self.unique, -libc::EIO, &[]);
        }
    }
}

/// The body of a reply while it is put together.
#[derive(Default)]
pub(super) struct Body {
    bytes: Vec<u8>,
    len: usize,
}

impl Body {
    /// Nothing, with the room that it had.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// What it holds.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Adds a structure.
    pub fn push<T: IntoBytes + Immutable>(&mut self, value: &T) {
        self.extend(value.as_bytes());
    }

    /// Adds bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.len = self.len.saturating_add(bytes.len());
    }

    /// Adds as many bytes as `fill` says that it has put into `len` bytes of room, which hold anything.
    pub fn fill(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> Reply<usize>) -> Reply<()> {
        let filled = fill(self.room(len))?;
        self.len = self.len.saturating_add(filled.min(len));
        Ok(())
    }

    fn room(&mut self, len: usize) -> &mut [u8] {
        let end = self.len.saturating_add(len);
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes.get_mut(self.len..end).unwrap_or_default()
    }
}
