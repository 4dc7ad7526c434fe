//! The reference counts of the clusters of a file, of 16 bits each.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{DeviceError, Result};
use obento_block::BlockDevice;

use super::header::Header;
use super::state::words;
use super::table::OFFSET;
use crate::error::Opening;
use crate::{TABLE_MAX, read_bytes};

/// No space left on device. Source: include/uapi/asm-generic/errno-base.h.
const ENOSPC: i32 = 28;
const COUNTS: &str = "reference counts";

/// Maximum number of free clusters that are known for reuse. Other ones stay unused, so that a file costs little memory.
const FREE_MAX: usize = 1 << 20;

/// A block of counts.
#[derive(Debug)]
pub(super) struct Block {
    pub at: u64,
    pub counts: Vec<u16>,
    /// The block differs from the file.
    pub is_dirty: bool,
}

/// All counts.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// The places of the blocks, and the place of this table.
    pub table: Vec<u64>,
    pub table_at: u64,
    /// The table differs from the file.
    pub is_table_dirty: bool,
    pub blocks: BTreeMap<u64, Block>,
    /// The cluster after the last one in use.
    end: u64,
    /// Clusters before the end without a reference, the lowest last.
    free: Vec<u64>,
}

impl Counts {
    /// Reads all counts.
    ///
    /// # Errors
    ///
    /// Unsupported if they need more than 64 MiB ([`TABLE_MAX`]); wrong counts if they do not count the tables
    /// themselves.
    pub fn read(file: &dyn BlockDevice, header: &Header) -> Result<Self, Opening> {
        let len = u64::from(header.counts_clusters).saturating_mul(header.cluster());
        let table = words(&read_bytes(file, header.counts_at, len, "table of reference counts")?);
        let mut this = Self { table, table_at: header.counts_at, ..Self::default() };
        let used = this.table.iter().filter(|&&at| at & OFFSET != 0).count();
        if to_u64(used) > Self::blocks_max(header) {
            return Err(Opening::Unsupported(
                "changes of a file of more than 33,554,432 clusters (2 TiB with clusters of 64 KiB)",
            ));
        }
        let mut places = BTreeSet::new();
        for (index, at) in (0..).zip(this.table.clone()) {
            let at = at & OFFSET;
            if at == 0 {
                continue;
            }
            if header.inside(at) != 0 {
                return Err(Opening::damaged(COUNTS, "a block is not at a cluster"));
            }
            // Two copies in memory would overwrite each other.
            if !places.insert(at) {
                return Err(Opening::WrongCounts);
            }
            let bytes = read_bytes(file, at, header.cluster(), COUNTS)?;
            let counts = bytes.as_chunks::<2>().0.iter().map(|&bytes| u16::from_be_bytes(bytes)).collect();
            this.blocks.insert(index, Block { at, counts, is_dirty: false });
        }
        this.find_free(header);
        this.check(header)?;
        Ok(this)
    }

    fn find_free(&mut self, header: &Header) {
        let per_block = Self::per_block(header);
        let counted = || {
            self.blocks.iter().flat_map(move |(&index, block)| {
                (index.saturating_mul(per_block)..).zip(block.counts.iter().copied())
            })
        };
        let end =
            counted().filter(|&(_, count)| count > 0).last().map_or(0, |(last, _)| last.saturating_add(1));
        let free = counted().filter(|&(cluster, count)| count == 0 && cluster < end);
        let mut free: Vec<_> = free.map(|(cluster, _)| cluster).take(FREE_MAX).collect();
        free.reverse();
        (self.free, self.end) = (free, end);
    }

    /// Checks that the tables are counted: otherwise they would be overwritten.
    fn check(&self, header: &Header) -> Result<(), Opening> {
        let l1 = (header.l1_at, u64::from(header.l1_len).saturating_mul(8));
        let table = (self.table_at, to_u64(self.table.len()).saturating_mul(8));
        let blocks = self.blocks.values().map(|block| (block.at, header.cluster()));
        for (at, len) in [(0, 1), l1, table].into_iter().chain(blocks) {
            if Self::clusters(header, at, len).any(|cluster| self.get(header, cluster) == 0) {
                return Err(Opening::WrongCounts);
            }
        }
        Ok(())
    }

    /// Returns the maximum number of blocks of counts.
    fn blocks_max(header: &Header) -> u64 {
        TABLE_MAX.checked_div(header.cluster()).unwrap_or(0)
    }

    fn per_block(header: &Header) -> u64 {
        header.cluster() / 2
    }

    fn split(header: &Header, cluster: u64) -> (u64, usize) {
        let per_block = Self::per_block(header);
        let inside = cluster.checked_rem(per_block).unwrap_or(0);
        (cluster.checked_div(per_block).unwrap_or(0), to_usize(inside))
    }

    fn clusters(header: &Header, at: u64, len: u64) -> core::ops::Range<u64> {
        let shift = header.cluster_bits();
        let end = at.saturating_add(len).div_ceil(header.cluster());
        at.checked_shr(shift).unwrap_or(0)..end
    }

    fn get(&self, header: &Header, cluster: u64) -> u16 {
        let (block, inside) = Self::split(header, cluster);
        self.blocks.get(&block).and_then(|block| block.counts.get(inside)).copied().unwrap_or(0)
    }

    fn set(&mut self, header: &Header, cluster: u64, count: u16) {
        let (block, inside) = Self::split(header, cluster);
        let Some(block) = self.blocks.get_mut(&block) else { return };
        if let Some(place) = block.counts.get_mut(inside) {
            *place = count;
            block.is_dirty = true;
        }
    }

    /// Returns the cluster after the last one in use.
    #[cfg(test)]
    fn end(&self) -> u64 {
        self.end
    }

    /// Returns the cluster after the last one in use once [`Self::allocate`] has succeeded.
    pub fn end_of_next(&self, header: &Header) -> u64 {
        if !self.free.is_empty() {
            return self.end;
        }
        let (index, _) = Self::split(header, self.end);
        let block = u64::from(!self.blocks.contains_key(&index));
        self.end.saturating_add(1).saturating_add(block)
    }

    /// Allocates a cluster, whose count becomes 1. Fails if the table of counts is full, or if the file would have more
    /// counts than [`Self::read`] accepts.
    pub fn allocate(&mut self, header: &Header) -> Result<u64> {
        if let Some(cluster) = self.free.pop() {
            self.set(header, cluster, 1);
            return Ok(cluster);
        }
        let cluster = self.end;
        let (index, _) = Self::split(header, cluster);
        let mut next = cluster.saturating_add(1);
        if !self.blocks.contains_key(&index) {
            let full = DeviceError::Write {
                offset: cluster.saturating_mul(header.cluster()),
                len: header.cluster(),
                errno: ENOSPC,
            };
            if to_u64(self.blocks.len()) >= Self::blocks_max(header) {
                return Err(full.into());
            }
            // The block follows the cluster, and counts itself.
            let at = next.saturating_mul(header.cluster());
            *self.table.get_mut(to_usize(index)).ok_or(full)? = at;
            self.is_table_dirty = true;
            let counts = vec![0; to_usize(Self::per_block(header))];
            self.blocks.insert(index, Block { at, counts, is_dirty: true });
            self.set(header, next, 1);
            next = next.saturating_add(1);
        }
        self.set(header, cluster, 1);
        self.end = next;
        Ok(cluster)
    }

    /// Removes a reference to each cluster of `len` bytes at `at`.
    pub fn release(&mut self, header: &Header, at: u64, len: u64) {
        for cluster in Self::clusters(header, at, len) {
            let count = self.get(header, cluster);
            if count == 1 {
                self.free.push(cluster);
            }
            self.set(header, cluster, count.saturating_sub(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::sync::Arc;
    use obento_base::Error;
    use obento_block::MemDevice;

    const CLUSTER: u64 = 4096;
    /// The number of blocks of counts that 64 MiB contain, and of clusters that one counts.
    const BLOCKS: u64 = (64 << 20) / CLUSTER;
    const PER_BLOCK: u64 = CLUSTER / 2;

    /// A file of 4 KiB clusters: the table, with one entry more than the limit, and `used` blocks that count every cluster.
    fn file(used: u64) -> (Arc<MemDevice>, Header) {
        let table_len = (BLOCKS + 1).saturating_mul(8);
        let first = 2 * CLUSTER + table_len.next_multiple_of(CLUSTER);
        let mut bytes = vec![0; to_usize(first + used * CLUSTER)];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, b"QFI\xfb");
        put(4, &3_u32.to_be_bytes());
        put(20, &12_u32.to_be_bytes());
        put(48, &(2 * CLUSTER).to_be_bytes());
        put(56, &u32::try_from(table_len.div_ceil(CLUSTER)).unwrap().to_be_bytes());
        put(96, &4_u32.to_be_bytes());
        put(100, &104_u32.to_be_bytes());
        let counts = [0, 1].repeat(to_usize(PER_BLOCK));
        for n in 0..used {
            let at = first + n * CLUSTER;
            put(to_usize(2 * CLUSTER + n * 8), &at.to_be_bytes());
            put(to_usize(at), &counts);
        }
        let file = Arc::new(MemDevice::new(bytes));
        let header = Header::read(&*file).unwrap();
        assert_eq!(header.cluster(), CLUSTER);
        (file, header)
    }

    #[test]
    fn a_file_does_not_grow_past_the_limit_of_counts_that_can_be_opened() {
        let (device, header) = file(BLOCKS - 1);
        let mut counts = Counts::read(&*device, &header).unwrap();
        let first = (BLOCKS - 1) * PER_BLOCK;
        // The next cluster needs the last block of counts, which is the cluster after it.
        assert_eq!((counts.allocate(&header), counts.end()), (Ok(first), first + 2));
        (2..PER_BLOCK).for_each(|n| assert_eq!(counts.allocate(&header), Ok(first + n)));
        let refused = counts.allocate(&header);
        assert!(
            matches!(refused, Err(Error::Device(DeviceError::Write { errno: ENOSPC, .. }))),
            "{refused:?}"
        );
        assert_eq!(to_u64(counts.blocks.len()), BLOCKS);
    }

    #[test]
    fn a_block_of_counts_that_is_listed_twice_is_refused() {
        let (device, header) = file(2);
        let mut first = [0; 8];
        device.read_at(2 * CLUSTER, &mut first).unwrap();
        assert!(Counts::read(&*device, &header).is_ok());
        device.write_at(2 * CLUSTER + 8, &first).unwrap();
        assert!(matches!(Counts::read(&*device, &header), Err(Opening::WrongCounts)));
    }

    #[test]
    fn a_file_with_more_counts_is_refused_with_its_limit() {
        let (device, header) = file(BLOCKS + 1);
        let Err(Opening::Unsupported(what)) = Counts::read(&*device, &header) else { panic!("opened") };
        assert!(what.contains("33,554,432 clusters"), "{what}");
    }
}
