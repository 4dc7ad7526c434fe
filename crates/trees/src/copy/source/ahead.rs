//! Reads ahead: a thread reads items while earlier items are written.
//!
//! Invariant: at most [`BATCHES`] batches wait. Without its last item, a batch has at most [`ITEMS`] items, [`BYTES`]
//! bytes and [`FILES`] open files. Memory and descriptors are therefore bounded for any tree.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::vec::IntoIter;

use super::{Body, Item, Items, Reader};
use crate::copy::Problem;

/// Maximum number of bytes of the small files in a batch, without the last file.
pub(super) const BYTES: usize = 1 << 20;

const BATCHES: usize = 4;
const ITEMS: usize = 128;
const FILES: usize = 4;

/// Items, and the bytes of the small files among them.
#[derive(Default)]
struct Batch {
    items: Vec<Result<Item, Problem>>,
    bytes: Vec<u8>,
}

/// Items that another thread reads.
pub(in crate::copy) struct Ahead {
    items: IntoIter<Result<Item, Problem>>,
    bytes: Vec<u8>,
    from: From,
}

enum From {
    /// `None` after the thread was asked to end.
    Thread(Option<Threaded>, Option<JoinHandle<()>>),
    /// No thread could be started: items are read on request.
    Here(Box<dyn Reader>),
}

struct Threaded {
    batches: Receiver<Batch>,
    /// Returns buffers to the thread, so that it does not allocate one for each batch.
    spare: SyncSender<Vec<u8>>,
}

impl Ahead {
    pub fn new(items: Box<dyn Reader>) -> Self {
        let (sender, batches) = sync_channel(BATCHES);
        let (spare, spares) = sync_channel(BATCHES);
        // Both threads can reach the items, in case the new thread cannot start.
        let items = std::sync::Arc::new(std::sync::Mutex::new(Some(items)));
        let taken = std::sync::Arc::clone(&items);
        let take = move || taken.lock().ok().and_then(|mut items| items.take());
        let read = move || {
            if let Some(items) = take() {
                run(items, &sender, &spares);
            }
        };
        let from = match Builder::new().name("copy-reader".into()).spawn(read) {
            Ok(thread) => From::Thread(Some(Threaded { batches, spare }), Some(thread)),
            Err(_) => match items.lock().ok().and_then(|mut items| items.take()) {
                Some(items) => From::Here(items),
                None => From::Thread(None, None),
            },
        };
        Self { items: Vec::new().into_iter(), bytes: Vec::new(), from }
    }
}

fn run(mut items: Box<dyn Reader>, sender: &SyncSender<Batch>, spares: &Receiver<Vec<u8>>) {
    loop {
        let batch = gather(&mut *items, spares.try_recv().unwrap_or_default());
        // No receiver waits any more, or no items remain.
        if batch.items.is_empty() || sender.send(batch).is_err() {
            return;
        }
    }
}

fn gather(items: &mut dyn Reader, spare: Vec<u8>) -> Batch {
    items.take_bytes(spare);
    let (mut batch, mut bytes, mut files) = (Vec::with_capacity(ITEMS), 0, 0);
    while batch.len() < ITEMS && bytes < BYTES && files < FILES {
        let Some(item) = items.next() else { break };
        if let Ok(item) = &item {
            match &item.body {
                Body::Bytes(read) => bytes = bytes.max(read.end),
                Body::Host(_) => files += 1,
                _ => {}
            }
            bytes += item.xattrs.iter().map(|xattr| xattr.value.len()).sum::<usize>();
        }
        batch.push(item);
    }
    Batch { items: batch, bytes: items.take_bytes(Vec::new()) }
}

impl Items for Ahead {
    fn bytes(&self) -> &[u8] {
        match &self.from {
            From::Here(items) => items.bytes(),
            From::Thread(..) => &self.bytes,
        }
    }
}

impl Iterator for Ahead {
    type Item = Result<Item, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(item) = self.items.next() {
            return Some(item);
        }
        match &mut self.from {
            From::Here(items) => items.next(),
            From::Thread(threaded, _) => {
                let threaded = threaded.as_ref()?;
                let mut bytes = std::mem::take(&mut self.bytes);
                bytes.clear();
                // If enough buffers wait, this one is freed.
                let _ = threaded.spare.try_send(bytes);
                let batch = threaded.batches.recv().ok()?;
                (self.items, self.bytes) = (batch.items.into_iter(), batch.bytes);
                self.items.next()
            }
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if let From::Thread(threaded, thread) = &mut self.from {
            // Without the receiver, the next send of the thread fails, and the thread ends.
            drop(threaded.take());
            if let Some(thread) = thread.take() {
                let _ = thread.join();
            }
        }
    }
}
