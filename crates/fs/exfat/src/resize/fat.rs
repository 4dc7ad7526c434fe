//! The FAT in memory.

use alloc::vec::Vec;

use obento_base::Error;
use obento_base::wire::to_usize;
use obento_block::BlockDevice;
use obento_clusters::{Cluster, Entry, SparseTable};
use obento_driver::ResizeResult;

use crate::super_block::SuperBlock;
use crate::table::{BAD, LAST, decode};

/// Size of an entry in bytes.
const ENTRY: u64 = 4;

/// The entries of the FAT, and the sectors of it that are not written yet. Parts whose entries are zero take no memory.
pub struct Fat {
    sb: SuperBlock,
    bytes: SparseTable,
}

/// Returns the size in bytes of a FAT for `clusters` clusters, in whole sectors.
pub fn len_for(sb: &SuperBlock, clusters: u32) -> u64 {
    u64::from(clusters).saturating_add(2).saturating_mul(ENTRY).next_multiple_of(sb.sector_size.into())
}

impl Fat {
    /// Reads the entries of `clusters` clusters, which may be more than the volume has. Fails with `NoMemory`, or if
    /// the device fails.
    pub fn read(device: &dyn BlockDevice, sb: &SuperBlock, clusters: u32) -> ResizeResult<Self> {
        let bytes = SparseTable::read(device, sb.fat_start, len_for(sb, clusters), sb.sector_size)?;
        Ok(Self { sb: sb.clone(), bytes })
    }

    /// Returns a FAT with the same entries. No sector counts as changed. Fails with `NoMemory`.
    pub fn copy(&self) -> ResizeResult<Self> {
        Ok(Self { sb: self.sb.clone(), bytes: self.bytes.copy()? })
    }

    /// Returns a FAT without used clusters for the volume that `sb` describes. All its sectors count as changed. Fails
    /// with `NoMemory`.
    pub fn empty(&self, sb: &SuperBlock) -> ResizeResult<Self> {
        let mut bytes = SparseTable::zeros(sb.fat_len, sb.sector_size);
        // The first two entries belong to no cluster: the media type and a mark.
        bytes.put(0, &self.bytes.get::<8>(0))?;
        Ok(Self { sb: sb.clone(), bytes })
    }

    /// Returns the entry of a cluster.
    pub fn entry(&self, cluster: Cluster) -> Entry {
        let at = u64::from(cluster.0).saturating_mul(ENTRY);
        decode(u32::from_le_bytes(self.bytes.get(at)), &self.sb)
    }

    /// Returns the clusters whose entries are not zero, and the entries.
    fn entries(&self) -> impl Iterator<Item = (Cluster, u32)> {
        let words = |(at, bytes): (u64, &[u8])| {
            let first = u32::try_from(at / ENTRY).unwrap_or(u32::MAX);
            let words: Vec<u32> = bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
            (first..).zip(words)
        };
        let entries = self.bytes.parts().flat_map(words);
        entries.map(|(cluster, value)| (Cluster(cluster), value)).filter(|(_, value)| *value != 0)
    }

    /// Returns the clusters of the volume that cannot be used.
    pub fn bad(&self) -> impl Iterator<Item = Cluster> {
        let bad = self.entries().filter(|&(cluster, value)| value == BAD && self.sb.has(cluster));
        bad.map(|(cluster, _)| cluster)
    }

    /// Clears the entries of all clusters that the volume does not have yet. Fails with `NoMemory`.
    pub fn clear_new(&mut self) -> ResizeResult<()> {
        let end = self.sb.numbers().end;
        let new: Vec<Cluster> =
            self.entries().map(|(cluster, _)| cluster).filter(|new| new.0 >= end).collect();
        new.into_iter().try_for_each(|cluster| self.set(cluster, 0))
    }

    /// Changes the entry of a cluster in memory. Fails with `NoMemory`.
    pub fn set(&mut self, cluster: Cluster, value: u32) -> ResizeResult<()> {
        let (at, value) = (u64::from(cluster.0).saturating_mul(ENTRY), value.to_le_bytes());
        if self.bytes.get(at) != value {
            self.bytes.put(at, &value)?;
        }
        Ok(())
    }

    /// Links clusters to a chain in memory. Fails with `NoMemory`.
    pub fn link(&mut self, clusters: &[Cluster]) -> ResizeResult<()> {
        let next = clusters.iter().skip(1).map(|next| next.0).chain([LAST]);
        clusters.iter().zip(next).try_for_each(|(&cluster, next)| self.set(cluster, next))
    }

    /// Returns the clusters of the chain that begins with `first`, at most `count`.
    pub fn chain(&self, first: Cluster, count: u32) -> impl Iterator<Item = Cluster> + '_ {
        let chain = core::iter::successors(Some(first), |&cluster| match self.entry(cluster) {
            Entry::Next(next) => Some(next),
            _ => None,
        });
        chain.take(to_usize(count.into()))
    }

    /// Writes the changed sectors, and waits until they are on stable storage. Fails with `NoMemory`, or if
    /// the device fails.
    pub fn write(&mut self, device: &dyn BlockDevice) -> ResizeResult<()> {
        Ok(self.bytes.write(device, core::iter::once(self.sb.fat_start))?)
    }
}

/// Collects clusters. Fails with `NoMemory`.
pub fn collected(clusters: impl Iterator<Item = Cluster>) -> ResizeResult<Vec<Cluster>> {
    let mut all = Vec::new();
    for cluster in clusters {
        all.try_reserve(1).map_err(|_| Error::NoMemory)?;
        all.push(cluster);
    }
    Ok(all)
}

/// Returns `len` zeros. Fails with `NoMemory`.
pub fn zeros(len: u64) -> ResizeResult<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(to_usize(len)).map_err(|_| Error::NoMemory)?;
    bytes.resize(to_usize(len), 0);
    Ok(bytes)
}
