//! State that every mounted volume has, whatever its format.
//!
//! Locking: the locks of the numbers, the chains and the free count are leaves. Each chain has a lock of its own,
//! under which the FAT is read. A new chain may read a FAT under the lock of the chains, if the volume is only read.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hashbrown::HashMap;
use obento_base::wire::{FromBytes, to_usize};
use obento_base::{Error, Ino, Result};
use obento_block::{BlockDevice, Cache};
use obento_driver::Notice;
use obento_env::sync::{Mutex, RwLock, RwLockReadGuard};

use crate::chain::Chain;
use crate::numbers::Numbers;
use crate::unit::Slot;

/// Maximum number of stored chains. If more chains are stored, chains without users are dropped.
const MAX_CHAINS: usize = 4096;

/// The metadata cache of a volume, and state derived from it. `E` is the attributes of a directory entry.
pub struct MountState<E> {
    /// The metadata cache.
    pub cache: Cache,
    pub(crate) numbers: RwLock<Numbers<E>>,
    /// Notices for the user.
    pub notices: Vec<Notice>,
    chains: Mutex<HashMap<Ino, Arc<Mutex<Chain>>>>,
    /// Number of free clusters, once they were counted.
    free: Mutex<Option<u32>>,
}

impl<E> MountState<E> {
    /// Creates the state of a volume with sectors of `sector_size` bytes. `cache` is the maximum size of the metadata
    /// cache.
    pub fn new(device: Arc<dyn BlockDevice>, sector_size: u32, cache: usize) -> Self {
        Self {
            cache: Cache::new(device, sector_size, cache),
            numbers: RwLock::new(Numbers::default()),
            notices: Vec::new(),
            chains: Mutex::default(),
            free: Mutex::default(),
        }
    }

    /// Returns the inode numbers.
    pub fn numbers(&self) -> RwLockReadGuard<'_, Numbers<E>> {
        self.numbers.read()
    }

    /// Returns the directory entry at `slot`, from the cache or the disk. Fails with `Stale` if no entry can be
    /// there, or if the device fails.
    pub fn entry<T: FromBytes>(&self, slot: Slot) -> Result<T> {
        let size = u64::from(self.cache.block_size());
        let block = self.cache.get(slot.offset().checked_div(size).unwrap_or(0))?;
        let within = to_usize(slot.offset().checked_rem(size).unwrap_or(0));
        let bytes = block.get(within..).unwrap_or_default();
        T::read_from_prefix(bytes).map(|(raw, _)| raw).map_err(|_| Error::Stale)
    }

    /// Returns the known part of the chain of a file. If nothing is known, `start` returns a new chain. Fails with
    /// the errors of `start`.
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

    /// Drops the state of `ino`.
    pub fn forget(&self, ino: Ino) {
        self.chains.lock().remove(&ino);
    }

    /// Returns the number of free clusters. `count` is called only once. Fails with the errors of `count`.
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

/// The mark of the volume before the first process opened it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FirstMark {
    /// The volume was marked as in use. The mark stays.
    InUse,
    /// The volume was not marked.
    Unused,
}
