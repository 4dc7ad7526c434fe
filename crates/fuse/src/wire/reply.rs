//! Replies and notifications.
//!
//! Invariant: a request gets exactly one reply: [`Pending::answer`] consumes the value, and dropping it answers EIO.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use zerocopy::{Immutable, IntoBytes};

use super::abi::{InvalInodeOut, NOTIFY_INVAL_INODE, NOTIFY_RESEND, NOTIFY_STORE, OutHeader};
use super::request::Request;
use crate::rings::Entry;
use crate::server::Reply;

/// Offsets from which cached pages are dropped: all pages, or none for a negative offset.
pub(super) const ALL_PAGES: i64 = 0;
pub(super) const ONLY_ATTRIBUTES: i64 = -1;

/// The channel to the kernel.
#[derive(Clone)]
pub(super) struct Channel(pub Arc<OwnedFd>);

impl Channel {
    /// Invalidates the kernel's cached attributes of `nodeid`, and causes the kernel to write back and drop its pages from
    /// byte `pages` on. Returns after the pages are written back. The kernel needs replies for that, so only
    /// a notifier may call this.
    pub fn make_old(&self, nodeid: u64, pages: i64) {
        let what = InvalInodeOut { ino: nodeid, off: pages, len: 0 };
        // If the kernel has forgotten the inode, it caches nothing.
        let _ = self.send(0, NOTIFY_INVAL_INODE, what.as_bytes());
    }

    /// Has the kernel cache data of a file. `body` is a [`StoreOut`](super::abi::StoreOut) and the data. Overwrites cached
    /// pages, also changed ones, and waits for pages that another request reads. Returns whether the kernel has cached
    /// all bytes.
    pub fn store(&self, body: &[u8]) -> bool {
        self.send(0, NOTIFY_STORE, body).is_ok()
    }

    /// Has the kernel send all requests again that were read and are not answered.
    pub fn request_again(&self) {
        if let Err(error) = self.send(0, NOTIFY_RESEND, &[]) {
            tracing::warn!(%error, "requests of the failed server cannot be answered");
        }
    }

    /// Returns whether a request can be read.
    pub fn has_request(&self) -> bool {
        let mut device = [PollFd::new(&*self.0, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut device, Some(&at_once)).is_ok_and(|ready| ready > 0)
    }

    fn send(&self, unique: u64, error: i32, body: &[u8]) -> rustix::io::Result<()> {
        let header = OutHeader { len: reply_len(body), error, unique };
        rustix::io::writev(&*self.0, &[IoSlice::new(header.as_bytes()), IoSlice::new(body)]).map(drop)
    }
}

/// The transport of a reply.
enum Way {
    /// A write to `/dev/fuse`.
    Device(Channel),
    /// The ring through which the request arrived. `None` after the reply.
    Ring(Option<Entry>),
}

/// A request that must be answered.
pub(super) struct Pending {
    way: Way,
    unique: u64,
    is_answered: bool,
}

impl Pending {
    /// Returns the pending reply to the request `unique`.
    pub fn new(channel: Channel, unique: u64) -> Self {
        Self { way: Way::Device(channel), unique, is_answered: false }
    }

    /// Returns the pending reply to the request in `entry`.
    pub fn in_ring(entry: Entry) -> Self {
        let unique = entry.commit_id();
        Self { way: Way::Ring(Some(entry)), unique, is_answered: false }
    }

    /// Returns the request, if it arrived through a ring and is valid.
    pub fn request(&self) -> Option<Request<'_>> {
        match &self.way {
            Way::Ring(Some(entry)) => {
                let (header, first, rest) = entry.request()?;
                Request::join(header, first, rest)
            }
            _ => None,
        }
    }

    /// Sends a body or an error.
    pub fn answer(mut self, body: Reply<&[u8]>) {
        match body {
            Ok(body) => self.send(0, body),
            Err(error) => self.send(-error.0, &[]),
        }
    }

    /// Sends no reply, because the kernel expects none.
    pub fn ignore(mut self) {
        self.is_answered = true;
    }

    fn send(&mut self, error: i32, body: &[u8]) {
        self.is_answered = true;
        match &mut self.way {
            Way::Device(channel) => match channel.send(self.unique, error, body) {
                // The requesting process was interrupted.
                Ok(()) | Err(rustix::io::Errno::NOENT) => {}
                Err(error) => tracing::debug!(%error, "a reply was not delivered"),
            },
            Way::Ring(entry) => {
                if let Some(entry) = entry.take() {
                    let header = OutHeader { len: reply_len(body), error, unique: self.unique };
                    entry.reply(header.as_bytes(), body);
                }
            }
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.is_answered {
            self.send(-libc::EIO, &[]);
        }
    }
}

/// Returns the length of a reply with this body.
fn reply_len(body: &[u8]) -> u32 {
    let whole = size_of::<OutHeader>().saturating_add(body.len());
    u32::try_from(whole).unwrap_or(u32::MAX)
}

/// A buffer in which the body of a reply is built.
#[derive(Default)]
pub(super) struct ReplyBody {
    bytes: Vec<u8>,
    len: usize,
}

impl ReplyBody {
    /// Empties the buffer, and retains its memory.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Returns the bytes of the body.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Appends a structure.
    pub fn push<T: IntoBytes + Immutable>(&mut self, value: &T) {
        self.extend(value.as_bytes());
    }

    /// Appends bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.len = self.len.saturating_add(bytes.len());
    }

    /// Appends bytes that `fill` writes into `len` bytes of room with arbitrary contents. `fill` returns their number.
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
