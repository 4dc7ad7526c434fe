//! Reading ahead: a thread reads items while those before them are written.
//!
//! Invariant: at most [`BATCHES`] batches wait, each of at most [`ITEMS`] items, [`BYTES`] bytes and [`FILES`] open files
//! (and what the last item brings), so that memory and descriptors are bounded whatever the tree.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::vec::IntoIter;

use super::{Body, Item, Items};
use crate::copy::Problem;

const BATCHES: usize = 4;
const ITEMS: usize = 128;
const BYTES: usize = 1 << 20;
const FILES: usize = 4;

type Batch = Vec<Result<Item, Problem>>;

/// Items that another thread reads.
pub(in crate::copy) struct Ahead {
    batch: IntoIter<Result<Item, Problem>>,
    from: From,
}

enum From {
    /// `None` once it is to end.
    Thread(Option<Receiver<Batch>>, Option<JoinHandle<()>>),
    /// No thread can be had: the items are read as they are asked for.
    Here(Box<dyn Items + Send>),
}

impl Ahead {
    pub fn new(items: impl Items + Send + 'static) -> Self {
        let (sender, receiver) = sync_channel(BATCHES);
        // Kept where both can reach it, for the case that the thread cannot start.
        let items =
            std::sync::Arc::new(std::sync::Mutex::new(Some(Box::new(items) as Box<dyn Items + Send>)));
        let taken = std::sync::Arc::clone(&items);
        let take = move || taken.lock().ok().and_then(|mut items| items.take());
        let read = move || {
            if let Some(items) = take() {
                run(items, &sender);
            }
        };
        let from = match Builder::new().name("copy-reader".into()).spawn(read) {
            Ok(thread) => From::Thread(Some(receiver), Some(thread)),
            Err(_) => match items.lock().ok().and_then(|mut items| items.take()) {
                Some(items) => From::Here(items),
                None => From::Thread(None, None),
            },
        };
        Self { batch: Vec::new().into_iter(), from }
    }
}

fn run(mut items: Box<dyn Items + Send>, sender: &SyncSender<Batch>) {
    loop {
        let batch = gather(&mut *items);
        // Nobody waits any more, or nothing is left.
        if batch.is_empty() || sender.send(batch).is_err() {
            return;
        }
    }
}

fn gather(items: &mut dyn Items) -> Batch {
    let (mut batch, mut bytes, mut files) = (Vec::with_capacity(ITEMS), 0, 0);
    while batch.len() < ITEMS && bytes < BYTES && files < FILES {
        let Some(item) = items.next() else { break };
        if let Ok(item) = &item {
            match &item.body {
                Body::Bytes(read) => bytes += read.len(),
                Body::Host(_) => files += 1,
                _ => {}
            }
            bytes += item.xattrs.iter().map(|xattr| xattr.value.len()).sum::<usize>();
        }
        batch.push(item);
    }
    batch
}

impl Items for Ahead {}

impl Iterator for Ahead {
    type Item = Result<Item, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(item) = self.batch.next() {
            return Some(item);
        }
        match &mut self.from {
            From::Here(items) => items.next(),
            From::Thread(receiver, _) => {
                self.batch = receiver.as_ref()?.recv().ok()?.into_iter();
                self.batch.next()
            }
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if let From::Thread(receiver, thread) = &mut self.from {
            // Without it the thread's next message fails, and the thread ends.
            drop(receiver.take());
            if let Some(thread) = thread.take() {
                let _ = thread.join();
            }
        }
    }
}
