//! The space of deleted files: which clusters are free, and which of them a file probably had.

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::Result;
use obento_driver::Certainty;

use crate::check::Bits;
use crate::unit::Cluster;

/// The steps for each cluster of the volume. Deleted files have claimed the same cluster a few times, but not many
/// thousand files the whole volume. Of files after that, no more clusters are found.
const EFFORT: u64 = 64;
/// The longest path of a directory that is searched (`PATH_MAX` of Linux).
const PATH_MAX: usize = 4096;

/// Returns the path of an entry of a directory, or `None` if it is too long. Only the first directories of a chain are
/// searched.
pub fn join(path: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
    Some([path, slash, name].concat()).filter(|path| path.len() <= PATH_MAX)
}

/// What is known about the clusters of a deleted file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KnownClusters {
    /// They follow the first one.
    Contiguous,
    /// Their chain is still stored.
    Chain(Vec<Cluster>),
    /// Only the first one is known.
    First,
}

/// The clusters of a volume that are free, and those that deleted files had.
pub struct FreeClusters {
    free: Bits,
    claimed: Bits,
    clusters: u32,
    data_start: u64,
    cluster_size: u32,
    /// Steps that searches for the clusters of files may still take.
    effort: u64,
}

impl FreeClusters {
    /// Creates the state of a volume without free clusters. Fails with `NoMemory`.
    pub fn new(clusters: u32, data_start: u64, cluster_size: u32) -> Result<Self> {
        let (free, claimed) = (Bits::new(clusters)?, Bits::new(clusters)?);
        let effort = u64::from(clusters).saturating_mul(EFFORT);
        Ok(Self { free, claimed, clusters, data_start, cluster_size, effort })
    }

    /// Marks a cluster as free.
    pub fn set_free(&mut self, cluster: Cluster) {
        self.free.set(cluster);
    }

    /// Returns whether a cluster is free.
    pub fn is_free(&self, cluster: Cluster) -> bool {
        cluster.is_one_of(self.clusters) && self.free.has(cluster)
    }

    /// Returns the bytes of a cluster on the device.
    pub fn bytes_of(&self, cluster: Cluster) -> Range<u64> {
        let index = u64::from(cluster.0.saturating_sub(2));
        let start = self.data_start.saturating_add(index.saturating_mul(self.cluster_size.into()));
        start..start.saturating_add(self.cluster_size.into())
    }

    /// Returns the bytes that a deleted file of `size` bytes probably had, and how likely that is. Of files that claim
    /// the same cluster, only the first one can be certain or likely.
    pub fn place(
        &mut self,
        first: Option<Cluster>,
        size: u64,
        known: KnownClusters,
    ) -> (Vec<Range<u64>>, Certainty) {
        if size == 0 {
            return (Vec::new(), Certainty::Certain);
        }
        let Some(first) = first.filter(|first| self.is_free(*first)) else {
            return (Vec::new(), Certainty::Overwritten);
        };
        let following = (first.0..self.clusters.saturating_add(2)).map(Cluster);
        match known {
            KnownClusters::Contiguous => self.take(following, size, Certainty::Certain, false),
            KnownClusters::Chain(chain) => self.take(chain.into_iter(), size, Certainty::Likely, false),
            KnownClusters::First => self.take(following, size, Certainty::Likely, true),
        }
    }

    /// Returns the bytes of the first of `clusters`, and `best` if all of them are free. With `skips_used`, the file is
    /// taken to have gone around clusters that are in use.
    fn take(
        &mut self,
        clusters: impl Iterator<Item = Cluster>,
        size: u64,
        best: Certainty,
        skips_used: bool,
    ) -> (Vec<Range<u64>>, Certainty) {
        let mut left = size.div_ceil(self.cluster_size.max(1).into());
        let (mut extents, mut is_whole): (Vec<Range<u64>>, bool) = (Vec::new(), true);
        for cluster in clusters {
            if left == 0 || self.effort == 0 {
                break;
            }
            self.effort = self.effort.saturating_sub(1);
            let is_free = self.is_free(cluster);
            is_whole &= is_free;
            if !is_free && skips_used {
                continue;
            }
            is_whole &= !self.claimed.set(cluster);
            let bytes = self.bytes_of(cluster);
            match extents.last_mut() {
                Some(last) if last.end == bytes.start => last.end = bytes.end,
                _ => extents.push(bytes),
            }
            left = left.saturating_sub(1);
        }
        (extents, if is_whole && left == 0 { best } else { Certainty::Doubtful })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_in_use_are_skipped_and_make_a_place_doubtful() {
        let mut space = FreeClusters::new(10, 1000, 10).unwrap();
        [2, 3, 4, 6, 7, 8].into_iter().for_each(|cluster| space.set_free(Cluster(cluster)));
        let place = |space: &mut FreeClusters, first: u32, size| {
            space.place(Some(Cluster(first)), size, KnownClusters::First)
        };
        assert_eq!(place(&mut space, 2, 15), (alloc::vec![1000..1020], Certainty::Likely));
        assert_eq!(place(&mut space, 4, 15), (alloc::vec![1020..1030, 1040..1050], Certainty::Doubtful));
        // The space of the file before.
        assert_eq!(place(&mut space, 6, 5).1, Certainty::Doubtful);
        assert_eq!(place(&mut space, 5, 5), (Vec::new(), Certainty::Overwritten));
        assert_eq!(place(&mut space, 8, 50).1, Certainty::Doubtful);
        let place = space.place(Some(Cluster(7)), 10, KnownClusters::Contiguous);
        assert_eq!(place, (alloc::vec![1050..1060], Certainty::Certain));
    }

    #[test]
    fn searches_of_many_files_and_of_deep_directories_end() {
        let mut space = FreeClusters::new(10, 1000, 10).unwrap();
        (2..12).for_each(|cluster| space.set_free(Cluster(cluster)));
        let mut found = 0;
        for _ in 0..1000 {
            found += space.place(Some(Cluster(2)), u64::MAX, KnownClusters::First).0.len();
        }
        assert_eq!(found, 64);
        assert_eq!(join(b"", b"a").unwrap(), b"a");
        assert_eq!(join(&[b'a'; 4000], &[b'b'; 95]).unwrap().len(), 4096);
        assert_eq!(join(&[b'a'; 4000], &[b'b'; 96]), None);
    }
}
