//! The space of deleted files: the free clusters, and the clusters that a file probably used.

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::wire::to_u64;
use obento_driver::Certainty;

use crate::bits::Bits;
use crate::pieces::Piece;
use crate::unit::Cluster;

/// Maximum number of runs and of links that the search processes, per cluster of the volume. On a real
/// volume, few deleted files claim the same cluster. On a hostile volume, thousands of files can claim all
/// clusters. After the limit, the search finds no further clusters.
const EFFORT: u64 = 64;
/// Maximum number of runs of all files. They use at most 64 MiB.
const RUNS: u64 = 1 << 22;
/// Maximum number of links of all chains.
const LINKS: u64 = 1 << 28;
/// Maximum length in bytes of the path of a directory that is searched (`PATH_MAX` of Linux).
const PATH_MAX: usize = 4096;

/// Returns the path of the entry `name` of the directory `path`. Returns `None` if the path is longer than
/// 4096 bytes, so that a search of nested directories ends.
pub fn join(path: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
    Some([path, slash, name].concat()).filter(|path| path.len() <= PATH_MAX)
}

/// Appends `cluster` to the runs of a chain.
pub fn append(runs: &mut Vec<Piece>, cluster: Cluster) {
    match runs.last_mut() {
        Some((start, len)) if start.0.saturating_add(*len) == cluster.0 => *len = len.saturating_add(1),
        _ => runs.push((cluster, 1)),
    }
}

/// The information about the clusters of a deleted file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KnownClusters {
    /// All clusters follow the first one.
    Contiguous,
    /// The chain of the clusters is still stored.
    Chain(Vec<Piece>),
    /// Only the first cluster is known.
    First,
}

/// The free clusters of a volume, and the clusters that deleted files claim.
pub struct FreeClusters {
    used: Bits,
    claimed: Bits,
    clusters: u32,
    data_start: u64,
    cluster_size: u32,
    /// Number of runs that the search may still find.
    runs: u64,
    /// Number of links that the search may still follow.
    links: u64,
}

impl FreeClusters {
    /// Creates the state of a volume of `clusters` clusters, of which all except `used` are free. The first
    /// cluster is at byte `data_start` of the device. A cluster has `cluster_size` bytes.
    pub fn new(used: Bits, clusters: u32, data_start: u64, cluster_size: u32) -> Self {
        let effort = u64::from(clusters).saturating_mul(EFFORT);
        let (claimed, runs, links) = (Bits::default(), effort.min(RUNS), effort.min(LINKS));
        Self { used, claimed, clusters, data_start, cluster_size, runs, links }
    }

    /// Returns whether a cluster is free.
    pub fn is_free(&self, cluster: Cluster) -> bool {
        cluster.is_one_of(self.clusters) && !self.used.has(cluster)
    }

    /// Returns the number of free clusters at the start of the `count` clusters from `first` on.
    pub fn free_from(&self, first: Cluster, count: u32) -> u32 {
        let end = first.0.saturating_add(count).min(self.end());
        let free = self.used.gaps(first.0..end).next().filter(|&(start, _)| start == first);
        free.map_or(0, |(_, len)| len)
    }

    /// Returns the runs of free clusters.
    pub fn free_runs(&self) -> impl Iterator<Item = Piece> {
        self.used.gaps(2..self.end())
    }

    /// Returns whether the `count` clusters from `first` on are free and claimed by no deleted file.
    pub fn has_room(&self, first: Cluster, count: u32) -> bool {
        let is_inside = self.end().saturating_sub(first.0) >= count;
        is_inside && self.free_from(first, count) == count && !self.claimed.has_any(first, count)
    }

    /// Counts a link, and returns whether the search may follow it. `runs` is the number of runs of the chain
    /// so far.
    pub fn follows_link(&mut self, runs: usize) -> bool {
        let is_allowed = self.links > 0 && to_u64(runs) <= self.runs;
        self.links = self.links.saturating_sub(1);
        is_allowed
    }

    /// Returns one past the last cluster.
    fn end(&self) -> u32 {
        self.clusters.saturating_add(2)
    }

    /// Returns the byte range of contiguous clusters on the device.
    pub fn bytes_of(&self, (first, count): Piece) -> Range<u64> {
        let size = u64::from(self.cluster_size);
        let index = u64::from(first.0.saturating_sub(2));
        let start = self.data_start.saturating_add(index.saturating_mul(size));
        start..start.saturating_add(u64::from(count).saturating_mul(size))
    }

    /// Claims the clusters that a deleted file of `size` bytes probably used. Returns their byte ranges on
    /// the device, and the likelihood that they contain the file. If several files claim the same cluster,
    /// only the first of these files can be `Certain` or `Likely`.
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
        let mut taken = Taken {
            left: size.div_ceil(self.cluster_size.max(1).into()),
            extents: Vec::new(),
            is_whole: true,
        };
        let following = (first, self.end().saturating_sub(first.0));
        let best = match known {
            KnownClusters::Contiguous => {
                self.take(following, &mut taken);
                Certainty::Certain
            }
            KnownClusters::Chain(chain) => {
                chain.into_iter().for_each(|piece| self.take(piece, &mut taken));
                Certainty::Likely
            }
            KnownClusters::First => {
                self.take_free(first, &mut taken);
                Certainty::Likely
            }
        };
        (taken.extents, if taken.is_whole && taken.left == 0 { best } else { Certainty::Doubtful })
    }

    /// Claims free clusters from `first` on, and skips clusters in use: the file was probably written around
    /// them.
    fn take_free(&mut self, first: Cluster, taken: &mut Taken) {
        let mut at = first.0;
        while taken.left > 0 && self.runs > 0 {
            let Some(free) = self.used.gaps(at..self.end()).next() else { break };
            taken.is_whole &= free.0.0 == at;
            at = free.0.0.saturating_add(free.1);
            self.take(free, taken);
        }
    }

    /// Claims the first clusters of `piece`, at most as many as are missing.
    fn take(&mut self, (start, len): Piece, taken: &mut Taken) {
        let count = u32::try_from(taken.left).unwrap_or(u32::MAX).min(len);
        if count == 0 || self.runs == 0 {
            return;
        }
        self.runs = self.runs.saturating_sub(1);
        let is_free = !self.used.has_any(start, count) && !self.claimed.has_any(start, count);
        let is_claimed = self.claimed.set_run(start, count).is_ok();
        taken.is_whole &= is_free && is_claimed;
        let bytes = self.bytes_of((start, count));
        match taken.extents.last_mut() {
            Some(last) if last.end == bytes.start => last.end = bytes.end,
            _ => taken.extents.push(bytes),
        }
        taken.left = taken.left.saturating_sub(count.into());
    }
}

/// The clusters of a file that the search has found.
struct Taken {
    /// Number of clusters that are missing.
    left: u64,
    extents: Vec<Range<u64>>,
    /// Whether no found cluster is in use or claimed by another file.
    is_whole: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns ten clusters of which these are used.
    fn space(used: &[u32]) -> FreeClusters {
        let mut bits = Bits::default();
        used.iter().for_each(|&cluster| assert_eq!(bits.set(Cluster(cluster)), Ok(false)));
        FreeClusters::new(bits, 10, 1000, 10)
    }

    #[test]
    fn clusters_in_use_are_skipped_and_make_a_place_doubtful() {
        let mut space = space(&[5, 9, 10, 11]);
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
    fn a_file_that_lost_a_cluster_claims_its_other_clusters() {
        let mut space = space(&[5]);
        let place = |space: &mut FreeClusters, first: u32, size| {
            space.place(Some(Cluster(first)), size, KnownClusters::Contiguous).1
        };
        assert_eq!(place(&mut space, 4, 30), Certainty::Doubtful);
        assert_eq!(place(&mut space, 6, 10), Certainty::Doubtful);
        assert_eq!(place(&mut space, 7, 10), Certainty::Certain);
    }

    #[test]
    fn a_stored_chain_is_taken_in_its_order() {
        let mut space = space(&[5]);
        let chain = KnownClusters::Chain(alloc::vec![(Cluster(7), 2), (Cluster(2), 3)]);
        let found = space.place(Some(Cluster(7)), 40, chain.clone());
        assert_eq!(found, (alloc::vec![1050..1070, 1000..1020], Certainty::Likely));
        assert_eq!(space.place(Some(Cluster(7)), 90, chain).1, Certainty::Doubtful);
        assert_eq!((space.free_from(Cluster(2), 9), space.free_from(Cluster(6), 90)), (3, 6));
        assert_eq!(space.free_from(Cluster(5), 9), 0);
        let has_room = |first, count| space.has_room(Cluster(first), count);
        assert!(has_room(10, 2) && !has_room(10, 3), "the volume ends");
        assert!(!has_room(4, 2), "5 is in use");
        assert!(!has_room(6, 2), "7 is claimed");
    }

    #[test]
    fn searches_of_many_files_and_of_deep_directories_end() {
        let mut space = space(&[]);
        let mut found = 0;
        for _ in 0..1000 {
            found += space.place(Some(Cluster(2)), u64::MAX, KnownClusters::First).0.len();
        }
        assert_eq!(found, 640);
        assert_eq!((0..1000).filter(|_| space.follows_link(0)).count(), 640);
        assert_eq!(join(b"", b"a").unwrap(), b"a");
        assert_eq!(join(&[b'a'; 4000], &[b'b'; 95]).unwrap().len(), 4096);
        assert_eq!(join(&[b'a'; 4000], &[b'b'; 96]), None);
    }

    #[test]
    fn files_of_a_volume_with_the_most_clusters_are_placed_by_runs() {
        let clusters = u32::MAX - 10;
        let mut used = Bits::default();
        used.set(Cluster(1 << 20)).unwrap();
        let mut space = FreeClusters::new(used, clusters, 0, 512);
        let size = u64::from(clusters - 1) * 512;
        let (extents, certainty) = space.place(Some(Cluster(2)), size, KnownClusters::First);
        assert_eq!((extents.len(), certainty), (2, Certainty::Doubtful));
        let (extents, certainty) = space.place(Some(Cluster(2)), size, KnownClusters::Contiguous);
        assert_eq!((extents, certainty), (alloc::vec![0..size], Certainty::Doubtful));
    }
}
