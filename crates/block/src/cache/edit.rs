//! Changing blocks: a new version is made beside the old one and put in its place.
//!
//! A changed block is pinned: it is not evicted until [`Cache::unpin`] says that the device holds it. Every change
//! bears a mark, the transaction that made it, so that writing an old version never unpins a newer one.
//! Locking: while an [`Edit`] lives, others that want to change the same block wait; readers never do.

use alloc::boxed::Box;
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering;

use obento_base::Result;

use super::shard::Start;
use super::{Block, Cache, Changed};

/// The next version of a block, not seen by anybody until it is published.
pub struct Edit<'c> {
    cache: &'c Cache,
    number: u64,
    bytes: Box<[u8]>,
    verified: bool,
    published: bool,
}

impl Edit<'_> {
    /// Puts the new version in the place of the old one; `mark` changed it.
    pub fn publish(mut self, mark: u32) -> Changed {
        self.publish_once(mark)
    }

    /// [`Edit::publish`] for a place that cannot give up the edit, such as `Drop`. Only the first call counts.
    pub fn publish_once(&mut self, mark: u32) -> Changed {
        if self.published {
            return Changed::Again;
        }
        self.published = true;
        let cell = self.cache.shard(self.number);
        let bytes = core::mem::take(&mut self.bytes);
        let block = Block::new(self.number, bytes, self.verified, &cell.spares);
        let (changed, old) = cell.lock.lock().publish(block, mark);
        cell.published.notify_all();
        // Without the lock.
        drop(old);
        changed
    }

    /// The block's number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Notes that the checksum of the new version is right.
    pub fn set_verified(&mut self) {
        self.verified = true;
    }
}

impl Deref for Edit<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Edit<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Edit<'_> {
    fn drop(&mut self) {
        if self.published {
            return;
        }
        let cell = self.cache.shard(self.number);
        let unpinned = cell.lock.lock().cancel(self.number);
        cell.published.notify_all();
        self.cache.count_unpinned(unpinned);
    }
}

impl fmt::Debug for Edit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Edit({})", self.number)
    }
}

impl Cache {
    /// Begins a change of a block, from its newest version on, and pins it. `base` is the version that the caller
    /// last saw; it counts only if the cache has dropped the block since, which it does only to what is as on the
    /// device. Waits while somebody else changes the block: a caller that holds an [`Edit`] of it waits for ever.
    pub fn edit(&self, base: &Block) -> Edit<'_> {
        let newest = self.start(base);
        let bytes = self.shard(base.number()).spares.copy(&newest);
        let (number, verified) = (newest.number(), newest.is_verified());
        Edit { cache: self, number, bytes, verified, published: false }
    }

    fn start(&self, base: &Block) -> Block {
        let cell = self.shard(base.number());
        let mut shard = cell.lock.lock();
        loop {
            match shard.start(base) {
                Start::Wait => shard = cell.published.wait(&cell.lock, shard),
                Start::From(block) => return block,
                Start::Pinned(block) => {
                    self.pinned.fetch_add(1, Ordering::Relaxed);
                    return block;
                }
            }
        }
    }

    /// A block of zeros in the place of whatever is known under `number`, for one that is newly in use. Errors:
    /// NoMemory.
    pub fn renew(&self, number: u64) -> Result<Block> {
        let cell = self.shard(number);
        let block = Block::new(number, cell.spares.zeroed()?, true, &cell.spares);
        let old = cell.lock.lock().replace(block.clone());
        drop(old);
        Ok(block)
    }

    /// The newest version of block `number`, if `mark` made it.
    pub fn changed_by(&self, number: u64, mark: u32) -> Option<Block> {
        self.shard(number).lock.lock().changed_by(number, mark)
    }

    /// The device holds block `number` as `mark` left it. Nothing happens if it was changed since.
    pub fn unpin(&self, number: u64, mark: u32) {
        let cell = self.shard(number);
        self.outdate();
        let unpinned = cell.lock.lock().unpin(number, mark);
        self.count_unpinned(unpinned);
    }

    /// Drops block `number`, changed or not: nobody needs it any more.
    pub fn forget(&self, number: u64) {
        let cell = self.shard(number);
        self.outdate();
        let unpinned = cell.lock.lock().forget(number);
        self.count_unpinned(unpinned);
    }

    /// How many blocks are pinned.
    pub fn pinned(&self) -> usize {
        self.pinned.load(Ordering::Relaxed)
    }

    pub(super) fn count_unpinned(&self, unpinned: bool) {
        if unpinned {
            self.pinned.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
