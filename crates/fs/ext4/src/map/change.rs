//! A change of a file's map, of either kind, in memory, and the blocks that it frees.
//!
//! With `bigalloc`, space is allocated in clusters. The blocks of one cluster of the file are in one cluster of the
//! volume, at the same offsets, however many extents refer to them.
//! Invariant: a cluster is free when no mapping of its file refers to any of its blocks.
//! Source: Linux `fs/ext4/extents.c` `get_implied_cluster_alloc`, `ext4_remove_blocks`.

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::{Error, Result};
use obento_block::Block;

use super::extents::Bounds;
use super::pointers::{self, Pointers};
use super::tree::{self, ExtentTree, Mapping, NodeLocation, Shift, room_in_block};
use crate::inode::{Inode, InodeFlags};
use crate::size::ClusterSize;
use crate::unit::{FileBlock, VolBlock};
use crate::volume::Volume;

/// The nodes of one file on the volume.
#[derive(Clone, Copy)]
pub(crate) struct Nodes<'a> {
    pub volume: &'a Volume,
    pub inode: &'a Inode,
}

impl tree::NodeSource for Nodes<'_> {
    type Bytes = Block;
    fn load(&self, at: VolBlock, parent_depth: u16, bounds: Bounds) -> Result<Block> {
        self.volume.extent_node(self.inode, at, parent_depth, bounds)
    }
}

impl pointers::PointerSource for Nodes<'_> {
    type Bytes = Block;
    fn load(&self, at: FileBlock, number: u32) -> Result<Block> {
        self.volume.indirect_block(self.inode, at, number)
    }
}

/// A map being changed in memory.
pub(crate) enum FileMap<'s, S> {
    Extents(ExtentTree<'s, S>),
    Indirect(Pointers<'s, S>),
}

impl<'s> FileMap<'s, Nodes<'s>> {
    /// Returns the map of a file whose data is in blocks.
    pub fn new(nodes: &'s Nodes<'s>) -> Result<Self> {
        let (inode, block_size) = (nodes.inode, nodes.volume.block_size());
        if inode.has(InodeFlags::INLINE_DATA) {
            return Err(Error::Invalid);
        }
        if !inode.has(InodeFlags::EXTENTS) {
            return Ok(Self::Indirect(Pointers::new(nodes, inode.i_block(), block_size.pointers())?));
        }
        super::extents::ExtentNode::root(inode)?.check_entries(inode, Bounds::ALL)?;
        Ok(Self::Extents(ExtentTree::new(nodes, inode.i_block(), room_in_block(block_size))?))
    }
}

impl<S: tree::NodeSource + pointers::PointerSource> FileMap<'_, S> {
    /// Replaces the mappings of `range` by `new`, which is within it and sorted. The old mappings are added to
    /// `removed`.
    pub fn splice(&mut self, range: Range<u64>, new: &[Mapping], removed: &mut Vec<Mapping>) -> Result<()> {
        match self {
            Self::Extents(map) => map.splice(range, new, removed),
            Self::Indirect(map) => map.splice(range, new, removed),
        }
    }

    /// Moves mappings of one leaf, like [`ExtentTree::shift_leaf`]. Fails with `NotSupported` without extents.
    pub fn shift_leaf(&mut self, at: u64, from: u64, shift: Shift) -> Result<Bounds> {
        match self {
            Self::Extents(map) => map.shift_leaf(at, from, shift),
            Self::Indirect(_) => Err(Error::NotSupported),
        }
    }

    /// Returns the last mappings in `range`, at most `most` of them, in order. Also returns the file block from which
    /// on nothing else is mapped in `range`.
    pub fn last_in(&mut self, range: &Range<u64>, most: usize) -> Result<(Vec<Mapping>, u64)> {
        match self {
            Self::Extents(map) => map.last_in(range, most),
            Self::Indirect(map) => map.last_in(range, most),
        }
    }

    /// Returns the part of the first mapping in `range` that is in it.
    pub fn first_in(&mut self, range: &Range<u64>) -> Result<Option<Mapping>> {
        let found = match self {
            Self::Extents(map) => map.first_in(range),
            Self::Indirect(map) => map.first_in(range),
        };
        Ok(found?.and_then(|mapping| mapping.within(range)))
    }

    /// Returns the last mapping that starts before `at`; for a block map only if it is near.
    pub fn before(&mut self, at: u64) -> Result<Option<Mapping>> {
        match self {
            Self::Extents(map) => map.before(at),
            Self::Indirect(map) => map.before(at),
        }
    }

    /// Returns the file block after the last one that can be mapped.
    pub fn end(&self) -> u64 {
        match self {
            // `EXT_MAX_BLOCKS`: the last of 2^32 blocks cannot be used.
            Self::Extents(_) => u32::MAX.into(),
            Self::Indirect(map) => map.end(),
        }
    }

    /// Returns whether `runs` reserved runs fill the holes of `range` without a new node, if this is found quickly.
    pub fn has_room(&mut self, range: &Range<u64>, runs: usize) -> Result<bool> {
        match self {
            Self::Extents(map) => map.has_room(range, runs),
            Self::Indirect(_) => Ok(false),
        }
    }

    /// Returns the maximum number of new nodes if `new`, the mappings that fill `range`, become part of the map in parts,
    /// in the order of the file. Leaves the map with these mappings.
    pub fn nodes_to_publish(&mut self, range: &Range<u64>, new: &[Mapping]) -> Result<usize> {
        match self {
            Self::Extents(map) => map.nodes_to_publish(range, new),
            Self::Indirect(map) => {
                map.splice(range.clone(), new, &mut Vec::new())?;
                Ok(map.new_nodes())
            }
        }
    }

    /// Returns the number of nodes that need a block.
    pub fn new_nodes(&self) -> usize {
        match self {
            Self::Extents(map) => map.new_nodes(),
            Self::Indirect(map) => map.new_nodes(),
        }
    }

    /// Assigns a block to each new node. Fails with `FileTooBig` for a block that the map cannot refer to.
    pub fn place_new(&mut self, next: impl FnMut() -> Option<VolBlock>) -> Result<()> {
        match self {
            Self::Extents(map) => {
                map.place_new(next);
                Ok(())
            }
            Self::Indirect(map) => map.place_new(next),
        }
    }

    /// Returns the nodes whose bytes must be written, including the root.
    pub fn changed(&self) -> Vec<(usize, NodeLocation)> {
        match self {
            Self::Extents(map) => map.changed().collect(),
            Self::Indirect(map) => map.changed().collect(),
        }
    }

    /// Returns the blocks that no longer contain a node.
    pub fn freed(&self) -> &[VolBlock] {
        match self {
            Self::Extents(map) => map.freed(),
            Self::Indirect(map) => map.freed(),
        }
    }

    /// Writes node `id` to `bytes`, with its checksum if nodes have one and `seed` is given.
    pub fn encode(&self, id: usize, bytes: &mut [u8], seed: Option<u32>) {
        match self {
            Self::Extents(map) => map.encode(id, bytes, seed),
            Self::Indirect(map) => map.encode(id, bytes),
        }
    }

    /// Returns the runs of the volume, in whole clusters, to which `removed` referred and
    /// nothing refers now.
    pub fn set_free(&mut self, removed: &[Mapping], cluster: ClusterSize) -> Result<Vec<(VolBlock, u64)>> {
        let mut runs: Vec<(VolBlock, u64)> = Vec::new();
        let mut seen_to = 0;
        for mapping in removed {
            let Some((start, len)) = self.free_clusters(mapping, cluster, &mut seen_to)? else { continue };
            match runs.last_mut() {
                Some((last, last_len)) if last.checked_add(*last_len) == Some(start) => {
                    *last_len = last_len.saturating_add(len);
                }
                _ => {
                    runs.try_reserve(1)?;
                    runs.push((start, len));
                }
            }
        }
        Ok(runs)
    }

    /// Returns the free clusters of one removed mapping, except those of the file before `seen_to`.
    fn free_clusters(
        &mut self,
        mapping: &Mapping,
        cluster: ClusterSize,
        seen_to: &mut u64,
    ) -> Result<Option<(VolBlock, u64)>> {
        if cluster == ClusterSize::ONE {
            return Ok(Some((mapping.place, mapping.len.into())));
        }
        let size = u64::from(cluster.blocks());
        let mut first = cluster.round_down(mapping.range().start).max(*seen_to);
        let mut end = cluster.round_up(mapping.end());
        *seen_to = end;
        if first < end && self.first_in(&(first..first.saturating_add(size)))?.is_some() {
            first = first.saturating_add(size);
        }
        let last = end.saturating_sub(size);
        if first < end && self.first_in(&(last..end))?.is_some() {
            end = last;
        }
        // The start on the volume of the cluster of the mapping's first block, and from there `first`.
        let base = cluster.round_down(mapping.place.0);
        let skip = first.checked_sub(cluster.round_down(mapping.range().start));
        let start = skip.and_then(|skip| base.checked_add(skip)).map(VolBlock);
        Ok(start.zip(end.checked_sub(first)).filter(|(_, len)| *len > 0))
    }

    /// Returns the place on the volume of block `at`, which is a hole, if its cluster is already allocated. Also
    /// returns the number of blocks from `at` on that are holes in that cluster.
    pub fn shared_cluster(&mut self, at: u64, cluster: ClusterSize) -> Result<Option<(VolBlock, u64)>> {
        let start = cluster.round_down(at);
        let end = start.saturating_add(cluster.blocks().into());
        let Some(found) = self.first_in(&(start..end))? else { return Ok(None) };
        let place = cluster.round_down(found.place.0).saturating_add(cluster.inside(at));
        let end = self.first_in(&(at..end))?.map_or(end, |next| next.range().start);
        Ok(Some((VolBlock(place), end.saturating_sub(at))))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::{ExtentState, empty_root};
    use super::*;
    use crate::size::BlockSize;

    fn sixteen() -> ClusterSize {
        ClusterSize::from_log(4, BlockSize::MIN).unwrap()
    }

    /// The source of a file of one node.
    struct Nothing;

    impl tree::NodeSource for Nothing {
        type Bytes = Vec<u8>;
        fn load(&self, _: VolBlock, _: u16, _: Bounds) -> Result<Vec<u8>> {
            Err(Error::Invalid)
        }
    }

    impl pointers::PointerSource for Nothing {
        type Bytes = Vec<u8>;
        fn load(&self, _: FileBlock, _: u32) -> Result<Vec<u8>> {
            Err(Error::Invalid)
        }
    }

    fn at(start: u32, len: u32, place: u64, state: ExtentState) -> Mapping {
        Mapping { start, len, place: VolBlock(place), state }
    }

    #[test]
    fn a_cluster_is_free_when_none_of_its_blocks_is_mapped() {
        let mut map = FileMap::Extents(ExtentTree::new(&Nothing, &empty_root(), 100).unwrap());
        // Clusters of 16: blocks 0..16 of the file at 160.., 16..48 at 320.. .
        let all = [at(2, 10, 162, ExtentState::Written), at(18, 30, 322, ExtentState::Unwritten)];
        map.splice(0..100, &all, &mut Vec::new()).unwrap();
        let mut remove = |range: Range<u64>| {
            let mut removed = Vec::new();
            map.splice(range, &[], &mut removed).unwrap();
            map.set_free(&removed, sixteen()).unwrap()
        };
        assert_eq!(remove(4..20), []);
        assert_eq!(remove(2..3), []);
        assert_eq!(remove(24..40), []);
        assert_eq!(remove(0..22), [(VolBlock(160), 16)]);
        assert_eq!(remove(16..48), [(VolBlock(320), 32)]);
    }

    #[test]
    fn two_extents_of_one_cluster_free_it_once() {
        let mut map = FileMap::Extents(ExtentTree::new(&Nothing, &empty_root(), 100).unwrap());
        let all = [
            at(0, 4, 160, ExtentState::Written),
            at(4, 4, 164, ExtentState::Unwritten),
            at(8, 24, 168, ExtentState::Written),
        ];
        map.splice(0..100, &all, &mut Vec::new()).unwrap();
        let mut removed = Vec::new();
        map.splice(0..30, &[], &mut removed).unwrap();
        assert_eq!(map.set_free(&removed, sixteen()).unwrap(), [(VolBlock(160), 16)]);
    }

    #[test]
    fn a_hole_in_a_cluster_that_is_there_has_its_place() {
        let mut map = FileMap::Extents(ExtentTree::new(&Nothing, &empty_root(), 100).unwrap());
        let all = [at(4, 2, 164, ExtentState::Written), at(10, 1, 170, ExtentState::Written)];
        map.splice(0..100, &all, &mut Vec::new()).unwrap();
        assert_eq!(map.shared_cluster(0, sixteen()), Ok(Some((VolBlock(160), 4))));
        assert_eq!(map.shared_cluster(7, sixteen()), Ok(Some((VolBlock(167), 3))));
        assert_eq!(map.shared_cluster(12, sixteen()), Ok(Some((VolBlock(172), 4))));
        assert_eq!(map.shared_cluster(16, sixteen()), Ok(None));
    }
}
