//! The cache of the metadata blocks of a volume. File data bypasses the cache.
//!
//! The cache never writes to the device; the caller does. A block is changed through an [`Edit`], which
//! builds a new version of the block and then publishes it. A changed block is *pinned*: the cache does not
//! evict it. A caller that has written the block to the device calls [`Cache::unpin`]. Every change carries a
//! *mark*, a number that identifies its transaction. `unpin` has no effect if the newest version has another mark, so
//! a caller that has written the version of an earlier transaction never unpins a later version.
//!
//! A block that changes often can defer its checksum ([`Edit::seal_later`]). The caller must call
//! [`Cache::seal`] before it writes such a block.
//!
//! Invariant: the size of the cache is bounded ([`Cache::new`]). The bound includes neither pinned blocks, nor versions
//! that only callers use.
//! Invariant: the bytes of a `Block` never change. A change of a block creates a new `Block`.
//! Invariant: a block with a deferred checksum was changed, and is therefore pinned. Readers treat the block
//! as verified.
//! Invariant: bytes from the device are not cached if the block was written or dropped during the read, since they
//! may be stale.
//! Locking: while an [`Edit`] of a block exists, another thread that starts an edit of the same block waits.
//! Readers never wait for an edit. Inside, the cache has two locks per shard: the lock of the shard, and the
//! lock of its pool of buffers. A thread may acquire the second lock while it holds the first lock, and holds
//! neither during I/O. If two threads read the same block from the device at the same time, the cache stores the copy
//! that arrives first, and both threads use this copy.

mod edit;
mod shard;
mod spare;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::{Deref, Range};

use obento_base::wire::{to_u64, to_usize};
use obento_base::{DeviceError, Result};
use obento_env::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use obento_env::sync::{Condvar, Mutex};

use self::shard::Shard;
use self::spare::Spares;
use crate::{BlockDevice, check_range};

pub use self::edit::Edit;
pub use self::shard::Changed;

/// Number of shards: enough that threads seldom collide, few enough that each shard has a useful size.
const SHARDS: u64 = 16;
/// Minimum size of a shard. A smaller cache would evict the blocks of the next step: a path through a tree
/// and its neighbours.
const MIN_BLOCKS_PER_SHARD: usize = 8;
/// Maximum length of a read-ahead in bytes: one large request of a disk.
const MAX_AHEAD: u64 = 256 * 1024;

/// One version of a block of the volume. The bytes of a version never change. A version stays in memory while
/// a `Block` refers to it, and may be older than the version in the cache ([`Cache::is_current`]).
#[derive(Clone)]
pub struct Block(Arc<Buffer>);

struct Buffer {
    number: u64,
    bytes: Box<[u8]>,
    verified: AtomicBool,
    seal: Option<Seal>,
    /// The pool that receives the buffer when the block is dropped.
    spares: Arc<Spares>,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.spares.put(core::mem::take(&mut self.bytes));
    }
}

/// The function that computes a deferred checksum before a block is written.
#[derive(Clone, Copy)]
pub struct Seal {
    /// Writes the checksum, starting from `seed`, into the block.
    pub apply: fn(bytes: &mut [u8], seed: u32),
    /// Seed of the checksum.
    pub seed: u32,
}

impl Block {
    fn new(number: u64, bytes: Box<[u8]>, verified: bool, spares: &Arc<Spares>) -> Self {
        Self::owing(number, bytes, verified, None, spares)
    }

    // Allocates, and can therefore panic in a kernel module. Not inlined, so that this code exists only once.
    #[inline(never)]
    fn owing(
        number: u64,
        bytes: Box<[u8]>,
        verified: bool,
        seal: Option<Seal>,
        spares: &Arc<Spares>,
    ) -> Self {
        let (verified, spares) = (AtomicBool::new(verified), Arc::clone(spares));
        Self(Arc::new(Buffer { number, bytes, verified, seal, spares }))
    }

    /// Returns the block number.
    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// Returns whether [`Block::set_verified`] was called on this version.
    pub fn is_verified(&self) -> bool {
        self.0.verified.load(Ordering::Relaxed)
    }

    /// Records that the checksum of this version is correct. Later readers need not verify the checksum.
    pub fn set_verified(&self) {
        self.0.verified.store(true, Ordering::Relaxed);
    }
}

impl Deref for Block {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({}, {} bytes)", self.number(), self.len())
    }
}

/// A cache of bounded size for the blocks of a device. All blocks have the same size.
pub struct Cache {
    device: Arc<dyn BlockDevice>,
    block_size: u32,
    /// The first shard and the others.
    shards: (Cell, Vec<Cell>),
    pinned: AtomicUsize,
    /// Number of blocks that were written back or dropped. If the number changes during a read, the bytes may be
    /// stale.
    outdated: AtomicU64,
}

/// A shard and the threads that wait for one of its blocks. Aligned to cache lines, so that threads on
/// different shards do not contend.
#[repr(align(128))]
struct Cell {
    lock: Mutex<Shard>,
    published: Condvar,
    spares: Arc<Spares>,
}

impl Cell {
    fn new(capacity: usize, block_size: u32) -> Self {
        let spares = Arc::new(Spares::new(to_usize(block_size.into())));
        Self { lock: Mutex::new(Shard::new(capacity)), published: Condvar::new(), spares }
    }
}

/// The use of a [`Cache`], in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheUse {
    /// Maximum size of the unchanged blocks in the cache.
    pub limit: u64,
    /// Size of the unchanged blocks in the cache.
    pub unchanged: u64,
    /// Size of the pinned blocks: those that the device does not contain yet, and those that an [`Edit`] changes.
    /// [`limit`](Self::limit) does not include these blocks.
    pub changed: u64,
}

impl Cache {
    /// Creates a cache of about `budget` bytes, and of at least 128 blocks. `block_size` is the size of a block in
    /// bytes, a power of two.
    pub fn new(device: Arc<dyn BlockDevice>, block_size: u32, budget: usize) -> Self {
        let blocks = to_u64(budget).checked_div(u64::from(block_size)).unwrap_or(0) / SHARDS;
        let capacity = to_usize(blocks).max(MIN_BLOCKS_PER_SHARD);
        let cell = || Cell::new(capacity, block_size);
        let shards = (cell(), (1..SHARDS).map(|_| cell()).collect());
        Self { device, block_size, shards, pinned: AtomicUsize::new(0), outdated: AtomicU64::new(0) }
    }

    /// Returns the underlying device.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Returns the block size in bytes.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Returns the use of the cache. The numbers may belong to different moments if other threads use the cache.
    pub fn usage(&self) -> CacheUse {
        let (mut limit, mut unchanged) = (0_u64, 0_u64);
        for cell in self.cells() {
            let shard = cell.lock.lock();
            limit = limit.saturating_add(to_u64(shard.capacity()));
            unchanged = unchanged.saturating_add(to_u64(shard.clean()));
        }
        let bytes = |blocks: u64| blocks.saturating_mul(self.block_size.into());
        CacheUse { limit: bytes(limit), unchanged: bytes(unchanged), changed: bytes(to_u64(self.pinned())) }
    }

    /// Returns the newest published version of the block `number`, from memory or from the device.
    ///
    /// # Errors
    ///
    /// - `OutOfBounds`: the block is past the end of the device.
    /// - `Device`: the device failed.
    /// - `NoMemory`: memory is exhausted.
    pub fn get(&self, number: u64) -> Result<Block> {
        match self.find(number) {
            Some(block) => Ok(block),
            None => self.load(number, 1),
        }
    }

    /// Returns the block `number` as [`Cache::get`] does, for a caller that expects to need the following
    /// blocks next. If the block is not in memory, also reads the following blocks before the block number
    /// `around.end`, at most 256 KiB in total. An error of a following block is not reported. `around.start`
    /// has no effect.
    pub fn get_ahead(&self, number: u64, around: Range<u64>) -> Result<Block> {
        if let Some(block) = self.find(number) {
            return Ok(block);
        }
        let most = MAX_AHEAD.checked_div(u64::from(self.block_size)).unwrap_or(1).max(1);
        let count = around.end.saturating_sub(number).clamp(1, most);
        match self.load(number, count) {
            Err(_) if count > 1 => self.load(number, 1),
            result => result,
        }
    }

    /// Returns the newest published version of the block `number` if it is in memory.
    pub fn peek(&self, number: u64) -> Option<Block> {
        self.find(number)
    }

    /// Returns whether `block` is the version that [`Cache::get`] would return. Does not access the device.
    pub fn is_current(&self, block: &Block) -> bool {
        self.peek(block.number()).is_some_and(|held| Arc::ptr_eq(&held.0, &block.0))
    }

    /// Drops all blocks that are not pinned, for a caller that has written to the device without using this
    /// cache.
    pub fn clear(&self) {
        self.outdate();
        self.cells().for_each(|cell| cell.lock.lock().clear());
    }

    fn cells(&self) -> impl Iterator<Item = &Cell> {
        let (first, others) = &self.shards;
        core::iter::once(first).chain(others)
    }

    fn shard(&self, number: u64) -> &Cell {
        // Spreads neighbouring blocks over the shards by their low bits; read-ahead would otherwise fill
        // one shard.
        let (first, others) = &self.shards;
        to_usize(number % SHARDS).checked_sub(1).and_then(|at| others.get(at)).unwrap_or(first)
    }

    fn find(&self, number: u64) -> Option<Block> {
        self.shard(number).lock.lock().find(number)
    }

    fn outdate(&self) {
        self.outdated.fetch_add(1, Ordering::SeqCst);
    }

    /// Caches a block that was read when `outdated` was `since`.
    fn keep(&self, block: Block, since: u64) -> Block {
        let mut shard = self.shard(block.number()).lock.lock();
        if self.outdated.load(Ordering::SeqCst) == since {
            shard.keep(block)
        } else {
            shard.find(block.number()).unwrap_or(block)
        }
    }

    /// Reads and caches `count` blocks from `number` with one request. Returns the first one.
    fn load(&self, number: u64, count: u64) -> Result<Block> {
        let size = u64::from(self.block_size);
        let out_of_bounds =
            DeviceError::OutOfBounds { offset: u64::MAX, len: size, device_len: self.device.len() };
        let offset = number.checked_mul(size).ok_or(out_of_bounds)?;
        let len = count.saturating_mul(size);
        // Checked before the buffer is allocated, since a hostile volume can request missing blocks again
        // and again.
        check_range(self.device.len(), offset, len)?;
        let since = self.outdated.load(Ordering::SeqCst);
        if count == 1 {
            let cell = self.shard(number);
            let mut bytes = cell.spares.zeroed()?;
            self.device.read_at(offset, &mut bytes)?;
            return Ok(self.keep(Block::new(number, bytes, false, &cell.spares), since));
        }
        let mut bytes = zeroed(to_usize(len))?;
        self.device.read_at(offset, &mut bytes)?;
        let mut first = None;
        for (number, chunk) in (number..).zip(bytes.chunks_exact(to_usize(size))) {
            let spares = &self.shard(number).spares;
            let mut own = spares.zeroed()?;
            own.copy_from_slice(chunk);
            let kept = self.keep(Block::new(number, own, false, spares), since);
            first.get_or_insert(kept);
        }
        first.ok_or(out_of_bounds.into())
    }
}

fn zeroed(len: usize) -> Result<Box<[u8]>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len)?;
    bytes.resize(len, 0);
    Ok(bytes.into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemDevice;

    fn cache(blocks: u8, budget: usize) -> Cache {
        let bytes = (0..blocks).flat_map(|n| [n; 512]).collect();
        Cache::new(Arc::new(MemDevice::new(bytes)), 512, budget)
    }

    #[test]
    fn a_block_is_read_once_and_keeps_its_verified_mark() {
        let cache = cache(10, 1 << 20);
        cache.get(3).unwrap().set_verified();
        cache.device().write_at(3 * 512, &[99]).unwrap();
        let again = cache.get(3).unwrap();
        assert!(again.is_verified() && again[0] == 3);
        cache.clear();
        assert_eq!(cache.get(3).unwrap()[0], 99);
    }

    #[test]
    fn a_full_cache_evicts_unused_blocks_and_never_held_ones() {
        let cache = cache(250, 0);
        let held = cache.get(0).unwrap();
        for n in 0..250 {
            assert_eq!(usize::from(cache.get(n).unwrap()[0]), usize::try_from(n).unwrap());
        }
        assert_eq!(held[0], 0);
        let kept: usize = cache.cells().map(|s| s.lock.lock().clean()).sum();
        assert_eq!(kept, 16 * MIN_BLOCKS_PER_SHARD);
    }

    #[test]
    fn the_use_of_a_cache_counts_unchanged_and_changed_blocks() {
        let (cache, limit) = (cache(10, 1 << 20), 1 << 20);
        assert_eq!(cache.usage(), CacheUse { limit, unchanged: 0, changed: 0 });
        let block = cache.get(3).unwrap();
        cache.get(4).unwrap();
        assert_eq!(cache.usage(), CacheUse { limit, unchanged: 1024, changed: 0 });
        cache.edit(&block).publish(7);
        assert_eq!(cache.usage(), CacheUse { limit, unchanged: 512, changed: 512 });
        cache.unpin(3, 7);
        assert_eq!(cache.usage(), CacheUse { limit, unchanged: 1024, changed: 0 });
    }

    #[test]
    fn reading_ahead_past_the_end_still_answers_the_block_that_was_asked_for() {
        let cache = cache(10, 1 << 20);
        assert_eq!(cache.get_ahead(8, 8..40).unwrap()[0], 8);
        assert!(cache.get(10).is_err() && cache.get(u64::MAX).is_err());
        cache.get_ahead(2, 2..6).unwrap();
        cache.device().write_at(5 * 512, &[99]).unwrap();
        assert_eq!(cache.get(5).unwrap()[0], 5);
    }
}
