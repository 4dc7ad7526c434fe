//! Which files had blocks moved by a transaction that is not durable yet.
//!
//! Until it is, a power cut brings the old map back, and what was written to a moved block meanwhile would show up where
//! that block used to be: so writing to one waits. Linux does not wait; there the old place may show the new bytes.
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
    /// Whether there is anything in it: writes look here first.
    any: AtomicBool,
}

impl MovedTable {
    /// Notes that transaction `tid` moved blocks of `ino`. All up to `durable` are forgotten.
    pub fn note(&self, ino: Ino, tid: Tid, durable: Tid) {
        let mut files = self.files.lock();
        files.retain(|_, tid| tid.is_after(durable));
        files.insert(ino, tid);
        self.any.store(true, Ordering::Relaxed);
    }

    /// The transaction to wait for before blocks of `ino` are written to; asked under the inode's lock.
    pub fn waits_for(&self, ino: Ino) -> Option<Tid> {
        if self.any.load(Ordering::Relaxed) { self.files.lock().get(&ino).copied() } else { None }
    }

    /// What moved blocks of `ino` is durable.
    pub fn end(&self, ino: Ino) {
        let mut files = self.files.lock();
        files.remove(&ino);
        self.any.store(!files.is_empty(), Ordering::Relaxed);
    }
}
