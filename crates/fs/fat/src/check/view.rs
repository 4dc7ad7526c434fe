//! A volume as a check reads it: raw entries by their places.

use alloc::sync::Arc;
use core::cell::RefCell;

use obento_base::wire::to_usize;
use obento_base::{Error, Result};
use obento_block::{BlockDevice, Cache};
use obento_clusters::{Bits, Entry, Links as _};

use super::choices::{Choices, UndecidedEntries};
use crate::super_block::{SuperBlock, Width};
use crate::table::{self, COUNTED_32, Reader, decode};
use crate::unit::Cluster;

/// Size of the metadata cache.
const CACHE: usize = 4 << 20;

/// The volume.
pub struct View {
    /// The decoded boot sector.
    pub sb: SuperBlock,
    /// The cached sectors.
    pub cache: Cache,
    /// Whether all copies of the FAT are maintained.
    pub mirrored: bool,
    /// The choices where the copies of the FAT differ.
    pub choices: RefCell<Choices>,
}

impl View {
    /// Returns a view of the volume that `sb` describes.
    pub fn new(device: Arc<dyn BlockDevice>, sb: SuperBlock) -> Self {
        let mirrored = sb.active_fat.is_none();
        Self { cache: Cache::new(device, sb.sector_size, CACHE), sb, mirrored, choices: RefCell::default() }
    }

    /// Returns the device.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        self.cache.device()
    }

    /// Returns a reader of the copy of the FAT that is read.
    pub fn table(&self) -> Reader<'_> {
        Reader::new(&self.sb, &self.cache)
    }

    /// Returns a reader of a copy of the FAT.
    pub fn copy(&self, copy: u8) -> Reader<'_> {
        Reader::of_copy(&self.sb, &self.cache, copy)
    }

    /// Returns the clusters whose entries are not free, by the chosen values where the copies of the FAT differ. Fails
    /// with `NoMemory`, or if the device fails.
    pub fn used(&self) -> Result<Bits> {
        let (mut used, failed) = table::used(&**self.device(), &self.sb, self.sb.read_fat())?;
        if let Some(error) = failed {
            return Err(error);
        }
        for (cluster, value) in self.choices.borrow().values(UndecidedEntries::Decide) {
            match self.decode(value) {
                Entry::Free => used.unset(cluster)?,
                _ => used.set_run(cluster, 1)?,
            }
        }
        Ok(used)
    }

    /// Decodes an entry whose bits are `value`.
    pub fn decode(&self, value: u32) -> Entry {
        let value = if self.sb.width == Width::Fat32 { value & COUNTED_32 } else { value };
        decode(value, &self.sb)
    }

    /// Returns `N` bytes at `offset`, which are in one sector.
    pub fn bytes<const N: usize>(&self, offset: u64) -> Result<[u8; N]> {
        let size = u64::from(self.sb.sector_size);
        let block = self.cache.get(offset.checked_div(size).unwrap_or(0))?;
        let within = to_usize(offset.checked_rem(size).unwrap_or(0));
        block.get(within..).and_then(|rest| rest.first_chunk()).copied().ok_or(Error::Invalid)
    }

    /// Returns the entry of `cluster`: the chosen value where the copies of the FAT differ. An entry with an
    /// impossible number ends its chain.
    pub fn entry(&self, table: &mut Reader<'_>, cluster: Cluster) -> Result<Entry> {
        match self.choices.borrow().value(cluster) {
            Some(value) => Ok(self.decode(value)),
            None if self.sb.has(cluster) => table.entry(cluster),
            None => Ok(Entry::Last),
        }
    }
}
