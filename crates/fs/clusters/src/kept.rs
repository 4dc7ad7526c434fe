//! What every mounted volume keeps, whatever its format.
//!
//! Locking: the numbers, the chains and the count are leaves; a chain has a lock of its own, under which the FAT is read.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hashbrown::HashMap;
use obento_base::wire::{FromBytes, to_usize};
use obento_base::{Error, Ino, Result};
use obento_block::{BlockDevice, Cache};
use obento_driver::Notice;
use obento_env::sync::{Mutex, RwLock};

use crate::chain::Chain;
use crate::numbers::Numbers;
use crate::unit::Slot;

/// How many chains are kept at most: what is not forgotten by its users is dropped then.
const MAX_CHAINS: usize = 4096;

/// The metadata of a volume, and what was learnt of it, where entries of directories are `E`.
pub struct Kept<E> {
    /// The metadata.
    pub cache: Cache,
    /// The numbers of inodes.
    pub numbers: RwLock<Numbers<E>>,
    /// What a person should know.
    pub notices: Vec<Notice>,
    chains: Mutex<HashMap<Ino, Arc<Mutex<Chain>>>>,
    /// Free clusters, once they were counted.
    free: Mutex<Option<u32>>,
}

impl<E> Kept<E> {
    /// Nothing is known yet of a volume with sectors of this size, of which `cache` bytes may be held.
    pub fn new(device: Arc<dyn BlockDevice>, sector_size: u32, cache: usize) -> Self {
        Self {
            cache: Cache::new(device, sector_size, cache),
            numbers: RwLock::new(Numbers::default()),
            notices: Vec::new(),
            chains: Mutex::default(),
            free: Mutex::default(),
        }
    }

    /// The entry of a directory at `slot`, as it is on the disk. Fails with `Stale` where none can be, or if the
    /// device fails.
    pub fn entry<T: FromBytes>(&self, slot: Slot) -> Result<T> {
        let size = u64::from(self.cache.block_size());
        let block = self.cache.get(slot.offset().checked_div(size).unwrap_or(0))?;
        let within = to_usize(slot.offset().checked_rem(size).unwrap_or(0));
        let bytes = block.get(within..).unwrap_or_default();
        T::read_from_prefix(bytes).map(|(raw, _)| raw).map_err(|_| Error::Stale)
    }

    /// What is known of the chain of a file; `start` says where one begins of which nothing is. Fails with the errors
    /// of `start`.
    pub fn chain<X>(
        &self,
        ino: Ino,
        start: impl FnOnce() -> core::result::Result<Chain, X>,
    ) -> core::result::Result<Arc<Mutex<Chain>>, X> {
        let mut chains = self.chains.lock();
        if let Some(chain) = chains.get(&ino) {
            return Ok(chain.clone());
        }
        if chains.len() >= MAX_CHAINS {
            chains.clear();
        }
        let chain = Arc::new(Mutex::new(start()?));
        chains.insert(ino, chain.clone());
        Ok(chain)
    }

    /// Drops what is kept for `ino` alone.
    pub fn forget(&self, ino: Ino) {
        self.chains.lock().remove(&ino);
    }

    /// Returns how many clusters are free, counted once. Fails with the errors of `count`.
    pub fn free(&self, count: impl FnOnce() -> Result<u32>) -> Result<u32> {
        let mut free = self.free.lock();
        if let Some(free) = *free {
            return Ok(free);
        }
        let counted = count()?;
        *free = Some(counted);
        Ok(counted)
    }
}
