//! The possible sizes of a volume.

use obento_block::BlockDevice;
use obento_clusters::{Bits, Entry};
use obento_driver::{ResizeError, ResizeRefusal, ResizeResult};

use super::boot::BootSector;
use super::table::AllocationTable;
use crate::super_block::SuperBlock;
use crate::super_block::{FAT12_MAX, FAT16_MAX, FAT32_MAX, Root, Width};
use crate::unit::Cluster;

/// The reason if larger FATs have no place.
pub const FULL: &str = "the size of its FAT";

/// The limits of the size of a volume whose type does not change.
pub struct Limits<'s> {
    sb: &'s SuperBlock,
    /// The length is a multiple of this number of bytes.
    unit: u64,
}

impl<'s> Limits<'s> {
    /// Reads the unit from the boot sector. mtools refuses a volume that ends inside a track, so that a volume of whole
    /// tracks keeps this property.
    pub fn of(device: &dyn BlockDevice, sb: &'s SuperBlock) -> ResizeResult<Self> {
        let sector = u64::from(sb.sector_size);
        let track = sector.saturating_mul(BootSector::read(device)?.sectors_per_track().into());
        let is_whole = track > 0 && sb.len.is_multiple_of(track);
        Ok(Self { sb, unit: if is_whole { track } else { sector } })
    }

    /// Returns the boot sector of a volume of at most `len` bytes, or `None` if the length stays the same. The FATs move
    /// if they are too small. Refuses a length above the limit.
    pub fn planned(&self, len: u64) -> ResizeResult<Option<SuperBlock>> {
        let sb = self.sb;
        let len = self.floor(len);
        let count = |start: u64| {
            let clusters = len.saturating_sub(start).checked_div(sb.cluster_size.into());
            u32::try_from(clusters.unwrap_or(0)).unwrap_or(u32::MAX)
        };
        let clusters = count(sb.data_start);
        let (limit, why) = self.limit();
        let new = if len <= sb.len || clusters <= self.entries() || self.entries() >= limit {
            SuperBlock { len, clusters, ..sb.clone() }
        } else if let Some(larger) = self.with_larger_fats(clusters.min(limit)) {
            SuperBlock { len, clusters: count(larger.data_start), ..larger }
        } else {
            return Err(self.too_long(sb, self.entries(), FULL));
        };
        if len > sb.len && new.clusters > limit {
            return Err(self.too_long(&new, limit, why));
        }
        Ok((len != sb.len).then_some(new))
    }

    /// Returns the refusal of a volume with more than `clusters` clusters.
    pub fn too_long(&self, sb: &SuperBlock, clusters: u32, why: &'static str) -> ResizeError {
        let most = u64::from(clusters).saturating_add(1).saturating_mul(sb.cluster_size.into());
        let end = sb.data_start.saturating_add(most).saturating_sub(1);
        ResizeRefusal::TooLong { max: self.floor(end).max(self.sb.len), why }.into()
    }

    /// Returns the boot sector of the volume with FATs for `clusters` clusters, which follow the old structures. The
    /// places of clusters stay multiples of a cluster apart. Returns `None` if a field is too small.
    fn with_larger_fats(&self, clusters: u32) -> Option<SuperBlock> {
        let sb = self.sb;
        let fat_len = sb.width.table_len(clusters).next_multiple_of(sb.sector_size.into());
        let root_len = match sb.root {
            Root::Region { len, .. } => len,
            Root::Chain(_) => 0,
        };
        let len = fat_len.checked_mul(sb.fats.into())?.checked_add(root_len)?;
        let whole = len.checked_next_multiple_of(sb.cluster_size.into())?;
        let data_start = sb.data_start.checked_add(whole)?;
        let fat_start = data_start.checked_sub(len)?;
        let sectors = |bytes: u64| bytes.checked_div(sb.sector_size.into());
        u16::try_from(sectors(fat_start)?).ok()?;
        let root = match sb.root {
            Root::Region { len, .. } => Root::Region { start: data_start.checked_sub(len)?, len },
            chain @ Root::Chain(_) => chain,
        };
        Some(SuperBlock { fat_start, fat_len, data_start, root, ..sb.clone() })
    }

    /// Rounds a length down to the unit.
    fn floor(&self, len: u64) -> u64 {
        len.saturating_sub(len.checked_rem(self.unit).unwrap_or(0))
    }

    /// Returns the length of the shortest volume that has room for all used clusters. Fails with `NoMemory`.
    pub fn shortest(&self, table: &AllocationTable) -> ResizeResult<u64> {
        let sb = self.sb;
        let in_use = table.used()?;
        let (mut used, mut bad) = (0_u32, Bits::default());
        for (first, count) in in_use.runs(2..sb.clusters.saturating_add(2)) {
            for cluster in (first.0..first.0.saturating_add(count)).map(Cluster) {
                match table.entry(cluster) {
                    Entry::Bad => bad.set_run(cluster, 1)?,
                    _ => used = used.saturating_add(1),
                }
            }
        }
        // Bad clusters keep their places.
        let mut needed = used;
        for (first, count) in bad.runs(2..sb.clusters.saturating_add(2)).filter(|_| used > 0) {
            // The last cluster has this number.
            if first.0 <= needed.saturating_add(1) {
                needed = needed.saturating_add(count);
            }
        }
        let end = self.end_of(needed.max(self.least()));
        Ok(end.checked_next_multiple_of(self.unit).map_or(sb.len, |len| len.min(sb.len)))
    }

    /// Returns the byte offset of the end of a volume with this number of clusters.
    fn end_of(&self, clusters: u32) -> u64 {
        let data = u64::from(clusters).saturating_mul(self.sb.cluster_size.into());
        self.sb.data_start.saturating_add(data)
    }

    /// Returns the minimum number of clusters of the type. Many FAT32 volumes have fewer clusters than the specification
    /// requires; they may become even smaller.
    fn least(&self) -> u32 {
        match self.sb.width {
            Width::Fat12 => 1,
            Width::Fat16 => FAT12_MAX.saturating_add(1),
            Width::Fat32 if self.sb.clusters > FAT16_MAX => FAT16_MAX.saturating_add(1),
            Width::Fat32 => 1,
        }
    }

    /// Returns the maximum number of clusters of the type, and its name.
    fn limit(&self) -> (u32, &'static str) {
        let (limit, why) = match self.sb.width {
            Width::Fat12 => (FAT12_MAX, "the limit of FAT12"),
            Width::Fat16 => (FAT16_MAX, "the limit of FAT16"),
            Width::Fat32 => (FAT32_MAX, "the limit of FAT32"),
        };
        let sectors = u64::from(u32::MAX).saturating_mul(self.sb.sector_size.into());
        let data = sectors.saturating_sub(self.sb.data_start);
        let counted = data.checked_div(self.sb.cluster_size.into()).unwrap_or(0);
        (limit.min(u32::try_from(counted).unwrap_or(u32::MAX)), why)
    }

    /// Returns the number of clusters for which the FATs have entries.
    pub fn entries(&self) -> u32 {
        let entries = self.sb.fat_len.saturating_mul(8).checked_div(self.sb.width.bits().into());
        u32::try_from(entries.unwrap_or(0)).unwrap_or(u32::MAX).saturating_sub(2)
    }
}
