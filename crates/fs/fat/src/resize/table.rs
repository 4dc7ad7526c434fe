//! The FATs in memory.

use alloc::vec::Vec;

use obento_block::BlockDevice;
use obento_clusters::{Bits, Entry, SparseTable};
use obento_driver::ResizeResult;

use crate::super_block::SuperBlock;
use crate::super_block::Width;
use crate::table::{COUNTED_32, decode, pieces, place, used_among};
use crate::unit::Cluster;

/// The active FAT, and the sectors of it that are not written yet. Parts in which all clusters are free take no memory.
pub struct AllocationTable {
    sb: SuperBlock,
    bytes: SparseTable,
}

impl AllocationTable {
    /// Reads the entries of the active FAT for `clusters` clusters, which may be more than the volume has. Fails with
    /// `NoMemory`, or if the device fails.
    pub fn read(device: &dyn BlockDevice, sb: &SuperBlock, clusters: u32) -> ResizeResult<Self> {
        let len = sb.width.table_len(clusters).next_multiple_of(sb.sector_size.into()).min(sb.fat_len);
        let bytes = SparseTable::read(device, sb.fat_offset(sb.read_fat()), len, sb.sector_size)?;
        Ok(Self { sb: sb.clone(), bytes })
    }

    /// Returns a FAT without used clusters for the volume that `sb` describes. All its sectors count as changed. Fails
    /// with `NoMemory`.
    pub fn empty(&self, sb: &SuperBlock) -> ResizeResult<Self> {
        let mut bytes = SparseTable::zeros(sb.fat_len, sb.sector_size);
        // The first two entries contain the media type and marks.
        for at in 0..sb.width.table_len(0) {
            bytes.put(at, &self.bytes.get::<1>(at))?;
        }
        Ok(Self { sb: sb.clone(), bytes })
    }

    /// Returns the entry of a cluster.
    pub fn entry(&self, cluster: Cluster) -> Entry {
        decode(self.value(cluster), &self.sb)
    }

    /// Returns the used bits of the entry of a cluster.
    pub fn value(&self, cluster: Cluster) -> u32 {
        let (within, shift) = place(self.sb.width, cluster);
        let value = self.bytes.get(within);
        let used = match self.sb.width {
            Width::Fat12 => 0xfff,
            Width::Fat16 => 0xffff,
            Width::Fat32 => COUNTED_32,
        };
        u32::from_le_bytes(value) >> shift & used
    }

    /// Changes the entry of a cluster in memory. Fails with `NoMemory`.
    pub fn set(&mut self, cluster: Cluster, value: u32) -> ResizeResult<()> {
        for (at, kept, bits) in pieces(self.sb.width, cluster, value) {
            let [byte] = self.bytes.get(at);
            self.bytes.put(at, &[byte & kept | bits])?;
        }
        Ok(())
    }

    /// Frees all entries after those of the first `clusters` clusters in memory. Fails with `NoMemory`.
    pub fn clear_from(&mut self, clusters: u32) -> ResizeResult<()> {
        let end = self.entries();
        let mut cluster = clusters.saturating_add(2);
        while cluster < end {
            let (at, _) = place(self.sb.width, Cluster(cluster));
            if self.sb.width != Width::Fat12 && at.is_multiple_of(self.sb.sector_size.into()) {
                self.bytes.zero_from(at);
                break;
            }
            self.set(Cluster(cluster), 0)?;
            cluster = cluster.saturating_add(1);
        }
        Ok(())
    }

    /// Returns the number of entries.
    fn entries(&self) -> u32 {
        let entries = self.bytes.len().saturating_mul(8).checked_div(self.sb.width.bits().into());
        u32::try_from(entries.unwrap_or(0)).unwrap_or(u32::MAX)
    }

    /// Returns the clusters whose entries are not free, and no others after the last cluster of the volume. Fails with
    /// `NoMemory`.
    pub fn used(&self) -> ResizeResult<Bits> {
        let (mut used, mut bits) = (Bits::default(), Vec::new());
        let end = self.sb.clusters.saturating_add(2);
        if self.sb.width == Width::Fat12 {
            for cluster in (2..end).map(Cluster).filter(|&cluster| self.value(cluster) != 0) {
                used.set(cluster)?;
            }
            return Ok(used);
        }
        for (at, bytes) in self.bytes.parts() {
            let first = at.saturating_mul(8).checked_div(self.sb.width.bits().into()).unwrap_or(0);
            let first = Cluster(u32::try_from(first).unwrap_or(u32::MAX));
            bits.clear();
            used_among(self.sb.width, at, first, bytes, &mut bits);
            used.load(first, &bits)?;
        }
        used.unset_run(Cluster(0), 2)?;
        used.unset_run(Cluster(end), u32::MAX)?;
        Ok(used)
    }

    /// Returns the number of free clusters among the first `clusters` clusters. Fails with `NoMemory`.
    pub fn count_free(&self, clusters: u32) -> ResizeResult<u32> {
        Ok(clusters.saturating_sub(self.used()?.count(2..clusters.saturating_add(2))))
    }

    /// Writes the changed sectors to all FATs that are maintained, one FAT after the other. An entry of 12 bits may be in
    /// two sectors, so that a power failure may damage the entry in one FAT.
    pub fn write(&mut self, device: &dyn BlockDevice) -> ResizeResult<()> {
        let copies = match self.sb.active_fat {
            Some(active) => active..active.saturating_add(1),
            None => 0..self.sb.fats,
        };
        let starts = copies.map(|copy| self.sb.fat_offset(copy));
        Ok(self.bytes.write(device, starts)?)
    }
}
