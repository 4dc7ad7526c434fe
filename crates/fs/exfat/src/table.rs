//! The file allocation table: for each cluster of a chain, the next one.
//!
//! Layout: entries of 32 bits, the first two of which belong to no cluster; 0xfffffff7 bad, 0xffffffff the last
//! cluster of a chain. The entries of free clusters and of contiguous files have no meaning.
//! Source: specification, 4.1.

use obento_base::wire::to_usize;
use obento_base::{Corrupt, Error, Result, Structure};
use obento_block::{Block, Cache};
use obento_clusters::{Cluster, Entry, Links};

use crate::super_block::SuperBlock;

/// A cluster that cannot be used.
pub const BAD: u32 = 0xffff_fff7;
/// The last cluster of a chain.
pub const LAST: u32 = 0xffff_ffff;

/// Decodes `value`.
pub fn decode(value: u32, sb: &SuperBlock) -> Entry {
    match value {
        0 => Entry::Free,
        BAD => Entry::Bad,
        LAST => Entry::Last,
        _ if sb.has(Cluster(value)) => Entry::Next(Cluster(value)),
        _ => Entry::Invalid(value),
    }
}

/// Returns the byte offset of an entry on the volume.
pub fn place(sb: &SuperBlock, cluster: Cluster) -> u64 {
    sb.fat_start.saturating_add(u64::from(cluster.0).saturating_mul(4))
}

/// A reader of the FAT. It keeps the current sector, since most entries are near the previous one.
pub struct Reader<'v> {
    sb: &'v SuperBlock,
    cache: &'v Cache,
    held: Option<Block>,
}

impl<'v> Reader<'v> {
    /// Creates a reader of the active FAT.
    pub fn new(sb: &'v SuperBlock, cache: &'v Cache) -> Self {
        Self { sb, cache, held: None }
    }

    /// Returns the bits of an entry.
    pub fn value(&mut self, cluster: Cluster) -> Result<u32> {
        let size = u64::from(self.cache.block_size());
        let offset = place(self.sb, cluster);
        let number = offset.checked_div(size).unwrap_or(0);
        if self.held.as_ref().is_none_or(|held| held.number() != number) {
            let end = self.sb.fat_start.saturating_add(self.sb.fat_len).checked_div(size).unwrap_or(0);
            self.held = Some(self.cache.get_ahead(number, number..end.max(number.saturating_add(1)))?);
        }
        let within = to_usize(offset.checked_rem(size).unwrap_or(0));
        let held = self.held.as_deref().unwrap_or_default();
        let bytes = held.get(within..).and_then(|rest| rest.first_chunk::<4>()).copied();
        bytes.map(u32::from_le_bytes).ok_or(Error::Invalid)
    }
}

impl Links for Reader<'_> {
    fn clusters(&self) -> u32 {
        self.sb.clusters
    }

    fn entry(&mut self, cluster: Cluster) -> Result<Entry> {
        if !self.sb.has(cluster) {
            let structure = Structure::AllocationTable;
            return Err(Corrupt::BlockRange { structure, at: 0, start: cluster.0.into(), len: 1 }.into());
        }
        let value = self.value(cluster)?;
        Ok(decode(value, self.sb))
    }
}
