//! Modification of cached blocks: an edit builds a new version of a block, and then replaces the old version.

use alloc::boxed::Box;
use core::fmt;
use core::ops::{Deref, DerefMut};

use obento_base::Result;
use obento_env::sync::atomic::Ordering;

use super::shard::Start;
use super::{Block, Cache, Changed, Seal};

/// The next version of a block. No other thread sees this version before it is published. Dropping an edit
/// without publishing it cancels the edit: the block does not change.
pub struct Edit<'c> {
    cache: &'c Cache,
    number: u64,
    bytes: Box<[u8]>,
    verified: bool,
    seal: Option<Seal>,
    published: bool,
}

impl Edit<'_> {
    /// Replaces the old version of the block with the new version, and records `mark` as the mark of the
    /// change. Returns whether this is the first change with `mark`.
    pub fn publish(mut self, mark: u32) -> Changed {
        self.publish_once(mark)
    }

    /// [Publishes](Edit::publish) the edit without consuming it, for a context such as `Drop`. Only the first call
    /// has an effect.
    pub fn publish_once(&mut self, mark: u32) -> Changed {
        if self.published {
            return Changed::Again;
        }
        self.published = true;
        let cell = self.cache.shard(self.number);
        let bytes = core::mem::take(&mut self.bytes);
        let block = Block::owing(self.number, bytes, self.verified, self.seal, &cell.spares);
        let (changed, old) = cell.lock.lock().publish(block, mark);
        cell.published.notify_all();
        // Drop the old version without holding the lock.
        drop(old);
        changed
    }

    /// Returns the block number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Records that the checksum of the new version is correct.
    pub fn set_verified(&mut self) {
        (self.verified, self.seal) = (true, None);
    }

    /// Defers the checksum of the new version: [`Cache::seal`] computes it later. Until then, readers treat the block
    /// as verified.
    pub fn seal_later(&mut self, seal: Seal) {
        (self.verified, self.seal) = (true, Some(seal));
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
    /// Starts a change of a block from its newest published version, and pins the block. `base` is the
    /// version that the caller read. If the cache has evicted the block since then, the block is unchanged on
    /// the device, and the change starts from `base`.
    ///
    /// The new version inherits two properties from the version that the change starts from: whether its checksum is
    /// verified ([`Block::is_verified`]), and the deferred checksum. A caller that changes bytes must therefore store
    /// the correct checksum or defer the checksum, if the block has a checksum.
    ///
    /// Waits while another thread edits the block. The calling thread must not have an [`Edit`] of the block already;
    /// otherwise, it waits forever.
    pub fn edit(&self, base: &Block) -> Edit<'_> {
        let newest = self.start(base);
        let bytes = self.shard(base.number()).spares.copy(&newest);
        let (number, verified, seal) = (newest.number(), newest.is_verified(), newest.0.seal);
        Edit { cache: self, number, bytes, verified, seal, published: false }
    }

    /// Starts a change as [`Cache::edit`] does, with `bytes` as the contents. `bytes` must have the length of a
    /// block. The new version is not verified and has no deferred checksum.
    pub fn edit_as(&self, base: &Block, bytes: &[u8]) -> Edit<'_> {
        let number = self.start(base).number();
        let bytes = self.shard(number).spares.copy(bytes);
        Edit { cache: self, number, bytes, verified: false, seal: None, published: false }
    }

    /// Replaces the contents of the block `number` by `bytes`, as an [`Edit`] with the mark `mark` does. Does not read
    /// the block. `bytes` must have the length of a block. Waits like [`Cache::edit`].
    pub fn overwrite(&self, number: u64, bytes: &[u8], mark: u32) -> Changed {
        let cell = self.shard(number);
        let mut block = Block::new(number, cell.spares.copy(bytes), false, &cell.spares);
        let mut shard = cell.lock.lock();
        let done = loop {
            match shard.overwrite(block, mark) {
                Ok(done) => break done,
                Err(given_back) => block = given_back,
            }
            shard = cell.published.wait(&cell.lock, shard);
        };
        drop(shard);
        if !done.was_pinned {
            self.pinned.fetch_add(1, Ordering::Relaxed);
        }
        // Without the lock, as after an edit.
        drop(done.old);
        done.changed
    }

    /// Returns whether the block `number` is pinned, and the length of a run of blocks. A block is pinned if it differs
    /// from the device, or if an [`Edit`] of the block exists. The run starts at `number` and has at most `count`
    /// blocks. Either all of its blocks are pinned, or all of its blocks are not pinned.
    pub fn is_pinned(&self, number: u64, count: u64) -> (bool, u64) {
        if self.pinned() == 0 {
            return (false, count);
        }
        let is_pinned = |number: u64| self.shard(number).lock.lock().is_pinned(number);
        let first = is_pinned(number);
        let mut same = 1_u64;
        while same < count && is_pinned(number.saturating_add(same)) == first {
            same = same.saturating_add(1);
        }
        (first, same)
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

    /// Replaces the cached block `number` with a block of zeros, for a newly allocated block. Does not pin
    /// the block: the zeros reach the device only if the caller then [edits](Cache::edit) the block and
    /// writes it. Exception: a block that is already pinned stays pinned, and keeps its mark. The zeros then replace
    /// the version with this mark, and the caller writes the zeros in its place.
    ///
    /// # Errors
    ///
    /// - `NoMemory`: memory is exhausted.
    pub fn renew(&self, number: u64) -> Result<Block> {
        let cell = self.shard(number);
        let block = Block::new(number, cell.spares.zeroed()?, true, &cell.spares);
        let old = cell.lock.lock().replace(block.clone());
        drop(old);
        Ok(block)
    }

    /// Returns the newest version of the block `number`, with its checksum, if this version has the mark `mark`. If
    /// the checksum was deferred ([`Edit::seal_later`]), computes the checksum first. The caller must ensure that no
    /// other thread changes the block during the call.
    pub fn seal(&self, number: u64, mark: u32) -> Option<Block> {
        let block = self.changed_by(number, mark)?;
        let Some(seal) = block.0.seal else { return Some(block) };
        let mut edit = self.edit(&block);
        (seal.apply)(&mut edit, seal.seed);
        edit.set_verified();
        edit.publish(mark);
        self.changed_by(number, mark)
    }

    /// Returns the newest version of the block `number`, if it has the mark `mark`.
    pub fn changed_by(&self, number: u64, mark: u32) -> Option<Block> {
        self.shard(number).lock.lock().changed_by(number, mark)
    }

    /// Unpins the block `number`, after the caller has written the version with the mark `mark` to the device. Has no
    /// effect if the newest version has another mark. If an [`Edit`] of the block exists, the block stays pinned until
    /// the edit ends. A cancelled edit then unpins the block; a published edit pins its own version.
    pub fn unpin(&self, number: u64, mark: u32) {
        let cell = self.shard(number);
        self.outdate();
        let unpinned = cell.lock.lock().unpin(number, mark);
        self.count_unpinned(unpinned);
    }

    /// Drops the block `number` from the cache, even if it is pinned, because its contents are no longer
    /// needed. If an [`Edit`] of the block exists, the block stays pinned until the edit ends, and other edits wait. If
    /// the edit is published, the cache contains the new version.
    pub fn forget(&self, number: u64) {
        let cell = self.shard(number);
        self.outdate();
        let unpinned = cell.lock.lock().forget(number);
        self.count_unpinned(unpinned);
    }

    /// Returns the number of pinned blocks.
    pub fn pinned(&self) -> usize {
        self.pinned.load(Ordering::Relaxed)
    }

    pub(super) fn count_unpinned(&self, unpinned: bool) {
        if unpinned {
            self.pinned.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockDevice, MemDevice};
    use alloc::sync::Arc;

    fn cache() -> Cache {
        let bytes = (0..=255).flat_map(|n| [n; 512]).collect();
        Cache::new(Arc::new(MemDevice::new(bytes)), 512, 0)
    }

    fn change(cache: &Cache, number: u64, byte: u8, mark: u32) -> Changed {
        let mut edit = cache.edit(&cache.get(number).unwrap());
        edit.fill(byte);
        edit.publish(mark)
    }

    /// Reads enough blocks to evict all that are not pinned.
    fn flood(cache: &Cache) {
        (0..256).for_each(|number| drop(cache.get(number).unwrap()));
    }

    #[test]
    fn a_changed_block_stays_until_the_device_has_its_last_version() {
        let cache = cache();
        assert_eq!(change(&cache, 3, 0xa1, 7), Changed::First);
        assert_eq!(change(&cache, 3, 0xa2, 7), Changed::Again);
        flood(&cache);
        let captured = cache.changed_by(3, 7).unwrap();
        assert_eq!(change(&cache, 3, 0xa3, 8), Changed::First);
        assert_eq!((captured[0], cache.get(3).unwrap()[0], cache.pinned()), (0xa2, 0xa3, 1));
        assert!(cache.changed_by(3, 7).is_none());
        cache.unpin(3, 7);
        flood(&cache);
        assert_eq!((cache.get(3).unwrap()[0], cache.pinned()), (0xa3, 1));
        cache.unpin(3, 8);
        flood(&cache);
        assert_eq!((cache.get(3).unwrap()[0], cache.pinned()), (3, 0));
    }

    #[test]
    fn readers_see_the_old_version_until_the_new_one_is_published() {
        let cache = cache();
        let mut edit = cache.edit(&cache.get(3).unwrap());
        edit[0] = 0xa1;
        assert_eq!((cache.get(3).unwrap()[0], cache.pinned()), (3, 1));
        drop(edit);
        assert_eq!((cache.get(3).unwrap()[0], cache.pinned()), (3, 0));
    }

    #[test]
    fn a_replaced_block_contains_the_given_bytes() {
        let cache = cache();
        let base = cache.get(3).unwrap();
        base.set_verified();
        cache.edit_as(&base, &[0xa1; 512]).publish(7);
        let now = cache.get(3).unwrap();
        assert_eq!((&now[..], now.is_verified(), cache.pinned()), (&[0xa1; 512][..], false, 1));
        assert!(cache.changed_by(3, 7).is_some());
    }

    #[test]
    fn an_overwritten_block_is_not_read_and_is_pinned_until_it_is_written() {
        let cache = cache();
        for (mark, number, changed) in
            [(7, 3, Changed::First), (7, 3, Changed::Again), (8, 3, Changed::First), (8, 4, Changed::First)]
        {
            cache.get(4).unwrap();
            assert_eq!(cache.overwrite(number, &[0xa1; 512], mark), changed);
        }
        flood(&cache);
        let found = [cache.get(3).unwrap()[0], cache.get(4).unwrap()[0], cache.get(5).unwrap()[0]];
        assert_eq!((found, cache.pinned()), ([0xa1, 0xa1, 5], 2));
        assert_eq!((cache.is_pinned(3, 9), cache.is_pinned(4, 1)), ((true, 2), (true, 1)));
        assert_eq!(cache.is_pinned(1, 9), (false, 2));
        for number in [3, 4] {
            cache.unpin(number, 8);
        }
        assert_eq!((cache.pinned(), cache.is_pinned(1, 9)), (0, (false, 9)));
        flood(&cache);
        assert_eq!(cache.get(3).unwrap()[0], 3);
    }

    #[test]
    fn an_overwrite_waits_for_an_edit_of_the_block() {
        let cache = cache();
        let mut edit = cache.edit(&cache.get(3).unwrap());
        std::thread::scope(|scope| {
            let overwrite = scope.spawn(|| cache.overwrite(3, &[0xa2; 512], 1));
            edit.fill(0xa1);
            edit.publish(1);
            assert_eq!(overwrite.join().unwrap(), Changed::Again);
        });
        assert_eq!((cache.get(3).unwrap()[0], cache.pinned()), (0xa2, 1));
    }

    #[test]
    fn a_block_that_was_evicted_meanwhile_is_changed_from_the_version_that_was_read() {
        let cache = cache();
        let base = cache.get(3).unwrap();
        flood(&cache);
        let mut edit = cache.edit(&base);
        edit[0] = 0xa1;
        edit.publish(1);
        assert_eq!(cache.get(3).unwrap()[..2], [0xa1, 3]);
    }

    #[test]
    fn a_forgotten_block_is_read_again_and_a_renewed_one_holds_zeros() {
        let cache = cache();
        change(&cache, 3, 0xa1, 1);
        cache.forget(3);
        assert_eq!((cache.get(3).unwrap()[0], cache.pinned()), (3, 0));
        assert_eq!(cache.renew(3).unwrap()[0], 0);
        assert_eq!(cache.get(3).unwrap()[0], 0);
    }

    #[test]
    fn a_block_that_is_forgotten_during_an_edit_stays_counted_until_the_edit_ends() {
        let cache = cache();
        change(&cache, 3, 0xa1, 7);
        let base = cache.get(3).unwrap();
        let mut edit = cache.edit(&base);
        edit.fill(0xa2);
        cache.forget(3);
        assert_eq!((cache.pinned(), cache.peek(3).is_some()), (1, false));
        assert!(matches!(cache.shard(3).lock.lock().start(&base), Start::Wait), "one edit at a time");
        assert_eq!(cache.get(3).unwrap()[0], 3, "the device has the old contents");
        assert_eq!(edit.publish(8), Changed::First);
        assert_eq!((cache.pinned(), cache.get(3).unwrap()[0]), (1, 0xa2));
        cache.unpin(3, 7);
        assert_eq!(cache.pinned(), 1);
        cache.unpin(3, 8);
        assert_eq!(cache.pinned(), 0);
        // A cancelled edit leaves nothing, and one after a read leaves what was read.
        for is_read in [false, true] {
            let edit = cache.edit(&base);
            cache.forget(3);
            assert_eq!(cache.pinned(), 1);
            assert!(!is_read || cache.get(3).unwrap()[0] == 3);
            drop(edit);
            assert_eq!((cache.pinned(), cache.peek(3).is_some()), (0, is_read));
        }
    }

    #[test]
    fn bytes_read_before_a_writeback_are_not_cached() {
        /// A device on which block 3 is changed, written back and evicted while it is being read.
        struct Slow(MemDevice);
        static CACHE: obento_env::sync::RwLock<Option<Arc<Cache>>> = obento_env::sync::RwLock::new(None);
        impl BlockDevice for Slow {
            fn len(&self) -> u64 {
                self.0.len()
            }
            fn is_read_only(&self) -> bool {
                false
            }
            fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
                self.0.read_at(offset, buf)?;
                let cache = CACHE.write().take();
                if let Some(cache) = cache {
                    change(&cache, 3, 0xa1, 1);
                    self.0.write_at(offset, &[0xa1; 512])?;
                    cache.unpin(3, 1);
                    flood(&cache);
                }
                Ok(())
            }
            fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
                self.0.write_at(offset, buf)
            }
            fn flush(&self) -> Result<()> {
                Ok(())
            }
        }
        let bytes = (0..=255).flat_map(|n| [n; 512]).collect();
        let cache = Arc::new(Cache::new(Arc::new(Slow(MemDevice::new(bytes))), 512, 0));
        *CACHE.write() = Some(Arc::clone(&cache));
        assert_eq!(cache.get(3).unwrap()[0], 3);
        assert_eq!(cache.get(3).unwrap()[0], 0xa1);
    }

    #[test]
    fn threads_that_change_one_block_take_turns() {
        let cache = cache();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let mut edit = cache.edit(&cache.get(3).unwrap());
                        let count = u64::from_be_bytes(edit[8..16].try_into().unwrap()).wrapping_add(1);
                        edit[8..16].copy_from_slice(&count.to_be_bytes());
                        edit.publish(1);
                    }
                });
            }
        });
        let start = u64::from_be_bytes([3; 8]);
        assert_eq!(u64::from_be_bytes(cache.get(3).unwrap()[8..16].try_into().unwrap()), start + 2000);
    }
}
