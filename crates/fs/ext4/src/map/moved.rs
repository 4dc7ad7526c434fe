//! Files whose blocks were moved by a transaction that is not durable.
//!
//! Until it is durable, a power cut restores the old map. Data that was written to a moved block would then appear at
//! the block's old place. Writes to such a file therefore wait. Linux does not wait; there the old place may show the
//! new data.
//! Locking: a leaf lock.

use hashbrown::HashMap;
use obento_base::Ino;
use obento_env::sync::Mutex;
use obento_env::sync::atomic::{AtomicBool, Ordering};
use obento_journal::Tid;

/// The last transaction that moved blocks of each file.
#[derive(Debug, Default)]
pub(crate) struct MovedTable {
    files: Mutex<HashMap<Ino, Tid>>,
    /// Whether there are any entries: writes test this first.
    any: AtomicBool,
}

impl MovedTable {
    /// Records that transaction `tid` moved blocks of `ino`. Removes the entries of transactions up to `durable`.
    pub fn note(&self, ino: Ino, tid: Tid, durable: Tid) {
        let mut files = self.files.lock();
        files.retain(|_, tid| tid.is_after(durable));
        files.insert(ino, tid);
        self.any.store(true, Ordering::Relaxed);
    }

    /// Returns the transaction that a write to `ino` must wait for. The caller holds the inode's lock.
    pub fn waits_for(&self, ino: Ino) -> Option<Tid> {
        if self.any.load(Ordering::Relaxed) { self.files.lock().get(&ino).copied() } else { None }
    }

    /// Removes the entry of `ino`, whose transaction is durable.
    pub fn end(&self, ino: Ino) {
        let mut files = self.files.lock();
        files.remove(&ino);
        self.any.store(!files.is_empty(), Ordering::Relaxed);
    }
}
