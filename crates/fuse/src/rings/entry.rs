//! The buffers of one request in a ring.
//!
//! Source: Linux include/uapi/linux/fuse.h `struct fuse_uring_req_header`, `struct fuse_uring_ent_in_out`.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::wire::MAX_IO;

/// The header of a request and of its reply, and the first structure of the body.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Headers {
    in_out: [u8; 128],
    first: [u8; 128],
    flags: u64,
    commit_id: u64,
    payload_len: u32,
    padding: u32,
    reserved: u64,
}

/// The location of an entry.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    /// The index in the ring.
    pub index: usize,
    /// The number of the kernel's queue.
    pub queue: u16,
}

/// A request, and the buffers for its reply. The kernel accesses the buffers only while the ring has the entry.
pub(crate) struct Entry {
    slot: Slot,
    headers: Box<Headers>,
    payload: Vec<u8>,
    outbox: Arc<Outbox>,
}

impl Entry {
    /// Allocates an entry. Pages of its payload that no request uses take no memory.
    pub(super) fn new(slot: Slot, outbox: Arc<Outbox>) -> Self {
        Self { slot, headers: Box::new(Headers::new_zeroed()), payload: vec![0; MAX_IO as usize], outbox }
    }

    pub(super) fn slot(&self) -> Slot {
        self.slot
    }

    /// Returns the number that the kernel expects with the reply.
    pub(crate) fn commit_id(&self) -> u64 {
        self.headers.commit_id
    }

    /// Returns the header, the buffer of the first structure and the rest of the request. Returns `None` if a length is
    /// invalid.
    pub(crate) fn request(&self) -> Option<(&[u8], &[u8], &[u8])> {
        let len = usize::try_from(self.headers.payload_len).ok()?;
        Some((&self.headers.in_out, &self.headers.first, self.payload.get(..len)?))
    }

    /// Returns the reply to the ring.
    pub(crate) fn reply(mut self, header: &[u8], body: &[u8]) {
        if let (Some(out), Some(room)) =
            (self.headers.in_out.get_mut(..header.len()), self.payload.get_mut(..body.len()))
        {
            out.copy_from_slice(header);
            room.copy_from_slice(body);
            // The payload is no longer than `MAX_IO`.
            self.headers.payload_len = body.len() as u32;
        }
        let outbox = Arc::clone(&self.outbox);
        outbox.put(self);
    }

    /// Returns the two buffers, which stay where they are for the life of the entry.
    pub(super) fn buffers(&mut self) -> [&mut [u8]; 2] {
        [self.headers.as_mut_bytes(), &mut self.payload]
    }
}

/// Entries with replies, which wait for the thread of the ring.
///
/// Invariant: a sleeping thread is woken when an entry arrives.
pub(super) struct Outbox {
    state: Mutex<State>,
    sleeps: AtomicBool,
    /// The event that wakes the thread.
    event: OwnedFd,
}

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    is_closed: bool,
}

impl Outbox {
    pub(super) fn new(event: OwnedFd) -> Self {
        Self { state: Mutex::default(), sleeps: AtomicBool::default(), event }
    }

    pub(super) fn event(&self) -> &OwnedFd {
        &self.event
    }

    fn put(&self, entry: Entry) {
        let mut state = self.state.lock();
        // An entry refers to the outbox, so it is dropped when no thread will take it.
        if !state.is_closed {
            state.entries.push(entry);
        }
        drop(state);
        if self.sleeps.swap(false, Ordering::SeqCst) {
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    /// Moves all entries to `out`, which is empty.
    pub(super) fn take(&self, out: &mut Vec<Entry>) {
        std::mem::swap(&mut self.state.lock().entries, out);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().entries.is_empty()
    }

    /// Notes that the thread is going to sleep. Returns whether it may: no entry waits.
    pub(super) fn may_sleep(&self) -> bool {
        self.sleeps.store(true, Ordering::SeqCst);
        self.is_empty() || self.wake()
    }

    #[cfg(test)]
    pub(super) fn sleeps(&self) -> bool {
        self.sleeps.load(Ordering::SeqCst)
    }

    /// Notes that the thread does not sleep. Returns `false`.
    pub(super) fn wake(&self) -> bool {
        self.sleeps.store(false, Ordering::SeqCst);
        false
    }

    /// Drops all entries from now on.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let entries = std::mem::take(&mut state.entries);
        drop(state);
        drop(entries);
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    fn entry() -> (Entry, Arc<Outbox>) {
        let outbox = Arc::new(Outbox::new(eventfd(0, EventfdFlags::NONBLOCK).unwrap()));
        (Entry::new(Slot { index: 3, queue: 1 }, Arc::clone(&outbox)), outbox)
    }

    fn is_woken(outbox: &Outbox) -> bool {
        rustix::io::read(outbox.event(), &mut [0; 8]).is_ok()
    }

    #[test]
    fn a_reply_replaces_the_request_in_its_buffers() {
        let (mut entry, outbox) = entry();
        let [headers, payload] = entry.buffers();
        assert_eq!((headers.len(), payload.len()), (288, 1 << 20));
        headers[264..272].copy_from_slice(&7_u64.to_ne_bytes());
        headers[272..276].copy_from_slice(&3_u32.to_ne_bytes());
        payload[..3].copy_from_slice(b"abc");
        assert_eq!((entry.commit_id(), entry.request().unwrap().2), (7, &b"abc"[..]));
        entry.reply(&[5; 16], b"de");
        let mut out = Vec::new();
        outbox.take(&mut out);
        let entry = &mut out[0];
        assert_eq!((entry.slot().index, entry.request().unwrap().2), (3, &b"de"[..]));
        assert_eq!(entry.buffers()[0][..17], [&[5; 16][..], &[0]].concat());
    }

    #[test]
    fn a_request_with_an_invalid_length_is_not_read() {
        let (mut entry, _) = entry();
        entry.buffers()[0][272..276].copy_from_slice(&(MAX_IO + 1).to_ne_bytes());
        assert!(entry.request().is_none());
    }

    #[test]
    fn only_sleeping_threads_are_woken_and_no_thread_sleeps_while_an_entry_waits() {
        let (first, outbox) = entry();
        first.reply(&[], &[]);
        assert!(!is_woken(&outbox));
        assert!(!outbox.may_sleep());
        outbox.take(&mut Vec::new());
        assert!(outbox.may_sleep());
        Entry::new(Slot { index: 0, queue: 0 }, Arc::clone(&outbox)).reply(&[], &[]);
        assert!(is_woken(&outbox));
        outbox.close();
        assert!(outbox.may_sleep());
    }
}
