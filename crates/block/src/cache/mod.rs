//! The cache of a volume's metadata blocks. File data does not pass through it.
//!
//! Invariant: it holds at most as many blocks as its budget allows, plus those that callers still hold and those that
//! are pinned because they were changed.
//! Invariant: a block's bytes never change while it is held; a changed block is another `Block`.
//! Invariant: a block that is not sealed has been changed, so that it is pinned; readers find it verified.
//! Invariant: what was read before a block was written or dropped is not kept after it, or old bytes would come back.
//! Locking: one leaf lock a shard, never held during I/O. Two threads that miss one block both read it; the first to
//! come back is kept.

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

/// Enough that threads seldom meet, few enough that each has a useful size.
const SHARDS: u64 = 16;
/// Below this a cache would evict what the very next step needs: a path through a tree and its neighbours.
const MIN_BLOCKS_PER_SHARD: usize = 8;
/// The longest read-ahead in bytes: one large request of a disk.
const MAX_AHEAD: u64 = 256 * 1024;

/// A block of the volume, shared and unchanging. Holding one keeps it in memory.
#[derive(Clone)]
pub struct Block(Arc<Buffer>);

struct Buffer {
    number: u64,
    bytes: Box<[u8]>,
    verified: AtomicBool,
    seal: Option<Seal>,
    /// Where the bytes go in the end.
    spares: Arc<Spares>,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.spares.put(core::mem::take(&mut self.bytes));
    }
}

/// How the bytes of a changed block get what is owed to them, before they leave memory.
#[derive(Clone, Copy)]
pub struct Seal {
    /// Puts the checksum in, which goes on from `seed`.
    pub apply: fn(bytes: &mut [u8], seed: u32),
    /// What the checksum goes on from.
    pub seed: u32,
}

impl Block {
    fn new(number: u64, bytes: Box<[u8]>, verified: bool, spares: &Arc<Spares>) -> Self {
        Self::owing(number, bytes, verified, None, spares)
    }

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

    /// Its number on the volume.
    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// Whether [`Block::set_verified`] was called on this copy.
    pub fn is_verified(&self) -> bool {
        self.0.verified.load(Ordering::Relaxed)
    }

    /// Notes that the checksum was right, so that it is computed once for as long as the block stays in memory.
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

/// A bounded cache over a device, by blocks of one size.
pub struct Cache {
    device: Arc<dyn BlockDevice>,
    block_size: u32,
    /// The first, and the others.
    shards: (Cell, Vec<Cell>),
    pinned: AtomicUsize,
    /// Counts what was written back or dropped, so that a reader sees whether its bytes may be outdated.
    outdated: AtomicU64,
}

/// A shard and those who wait for one of its blocks. On cache lines of its own, or threads at different shards would
/// wait for each other.
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

impl Cache {
    /// A cache of about `budget` bytes with blocks of `block_size` bytes, a power of two.
    pub fn new(device: Arc<dyn BlockDevice>, block_size: u32, budget: usize) -> Self {
        let blocks = to_u64(budget).checked_div(u64::from(block_size)).unwrap_or(0) / SHARDS;
        let capacity = to_usize(blocks).max(MIN_BLOCKS_PER_SHARD);
        let cell = || Cell::new(capacity, block_size);
        let shards = (cell(), (1..SHARDS).map(|_| cell()).collect());
        Self { device, block_size, shards, pinned: AtomicUsize::new(0), outdated: AtomicU64::new(0) }
    }

    /// The device below.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Bytes a block.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Block `number`, from memory or from the device. Errors: those of the device; `NoMemory`.
    pub fn get(&self, number: u64) -> Result<Block> {
        match self.find(number) {
            Some(block) => Ok(block),
            None => self.load(number, 1),
        }
    }

    /// Like [`Cache::get`]; on a miss it also brings in the rest of `around`, the neighbours that will be asked for
    /// next. What of them cannot be read is not an error here.
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

    /// Block `number`, if it is in memory.
    pub fn peek(&self, number: u64) -> Option<Block> {
        self.find(number)
    }

    /// Whether `block` is what a reader would be given under its number, without a look at the device.
    pub fn is_current(&self, block: &Block) -> bool {
        self.peek(block.number()).is_some_and(|held| Arc::ptr_eq(&held.0, &block.0))
    }

    /// Forgets every block that is not pinned, for a device that was changed from outside.
    pub fn clear(&self) {
        self.outdate();
        self.cells().for_each(|cell| cell.lock.lock().clear());
    }

    fn cells(&self) -> impl Iterator<Item = &Cell> {
        let (first, others) = &self.shards;
        core::iter::once(first).chain(others)
    }

    fn shard(&self, number: u64) -> &Cell {
        // Neighbouring blocks in one shard would meet under read-ahead; their low bits spread them.
        let (first, others) = &self.shards;
        to_usize(number % SHARDS).checked_sub(1).and_then(|at| others.get(at)).unwrap_or(first)
    }

    fn find(&self, number: u64) -> Option<Block> {
        self.shard(number).lock.lock().find(number)
    }

    fn outdate(&self) {
        self.outdated.fetch_add(1, Ordering::SeqCst);
    }

    /// Keeps a block that was read when `outdated` was `since`.
    fn keep(&self, block: Block, since: u64) -> Block {
        let mut shard = self.shard(block.number()).lock.lock();
        if self.outdated.load(Ordering::SeqCst) == since {
            shard.keep(block)
        } else {
            shard.find(block.number()).unwrap_or(block)
        }
    }

    /// Reads `count` blocks from `number` on with one request and keeps them; answers the first.
    fn load(&self, number: u64, count: u64) -> Result<Block> {
        let size = u64::from(self.block_size);
        let out_of_bounds =
            DeviceError::OutOfBounds { offset: u64::MAX, len: size, device_len: self.device.len() };
        let offset = number.checked_mul(size).ok_or(out_of_bounds)?;
        let len = count.saturating_mul(size);
        // Before the buffer is made: a hostile volume asks for what is not there again and again.
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
    fn a_full_cache_evicts_what_was_not_used_and_never_what_is_held() {
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
    fn reading_ahead_past_the_end_still_answers_the_block_that_was_asked_for() {
        let cache = cache(10, 1 << 20);
        assert_eq!(cache.get_ahead(8, 8..40).unwrap()[0], 8);
        assert!(cache.get(10).is_err() && cache.get(u64::MAX).is_err());
        cache.get_ahead(2, 2..6).unwrap();
        cache.device().write_at(5 * 512, &[99]).unwrap();
        assert_eq!(cache.get(5).unwrap()[0], 5);
    }
}
