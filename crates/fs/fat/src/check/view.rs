//! A volume as a check reads it: raw entries by their places, and which clusters have an owner.

use alloc::sync::Arc;

use obento_base::wire::to_usize;
use obento_base::{Error, Result};
use obento_block::{BlockDevice, Cache};
use obento_clusters::{Entry, Links as _};

use crate::super_block::SuperBlock;
use crate::table::Reader;
use crate::unit::Cluster;

/// Metadata that is kept in memory.
const CACHE: usize = 4 << 20;

/// The volume.
pub struct View {
    /// Where everything is.
    pub sb: SuperBlock,
    /// Its sectors.
    pub cache: Cache,
    /// Whether all copies of the FAT are kept.
    pub mirrored: bool,
}

impl View {
    /// A view of what `sb` describes.
    pub fn new(device: Arc<dyn BlockDevice>, sb: SuperBlock) -> Self {
        let mirrored = sb.active_fat.is_none();
        Self { cache: Cache::new(device, sb.sector_size, CACHE), sb, mirrored }
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        self.cache.device()
    }

    /// A reader of the FAT that is read.
    pub fn table(&self) -> Reader<'_> {
        Reader::new(&self.sb, &self.cache)
    }

    /// `N` bytes at `offset`, all in one sector.
    pub fn bytes<const N: usize>(&self, offset: u64) -> Result<[u8; N]> {
        let size = u64::from(self.sb.sector_size);
        let block = self.cache.get(offset.checked_div(size).unwrap_or(0))?;
        let within = to_usize(offset.checked_rem(size).unwrap_or(0));
        block.get(within..).and_then(|rest| rest.first_chunk()).copied().ok_or(Error::Invalid)
    }

    /// What the FAT says of `cluster`; what it cannot say is a last one.
    pub fn entry(&self, table: &mut Reader<'_>, cluster: Cluster) -> Result<Entry> {
        if self.sb.has(cluster) { table.entry(cluster) } else { Ok(Entry::Last) }
    }
}
