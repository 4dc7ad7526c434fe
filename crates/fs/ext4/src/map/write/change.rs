//! One change of a file's map, from the plan to the blocks.
#![allow(clippy::arithmetic_side_effects, reason = "runs are not empty and are within the volume")]

use alloc::vec::Vec;
use core::ops::{Range, RangeInclusive};

use obento_base::wire::to_u64;
use obento_base::{Error, FileKind, Ino, Result};
use obento_journal::{Credits, Taken, Tid, Txn};

use crate::allocator::{Allocator, BlockRun, Freed};
use crate::inode::{Inode, InodeFlags};
use crate::map::NodeSpaceTable;
use crate::map::change::{FileMap, Nodes};
use crate::map::reservation::Run;
use crate::map::tree::NodeLocation;
use crate::unit::VolBlock;
use crate::writer::{InodeEdit, InodeWrite, Writer, cost};

/// Blocks that are reserved for nodes of a map, and released unless they are published or kept.
pub(crate) struct NodeSpace<'w> {
    alloc: &'w Allocator,
    /// The blocks, those of `held` first.
    runs: Vec<BlockRun>,
    /// Blocks that were reserved before, which stay reserved unless they are published.
    held: Option<HeldNodes<'w>>,
}

/// Blocks for nodes that a write reserved before, and that a failed change must not lose.
pub(super) struct HeldNodes<'w> {
    table: &'w NodeSpaceTable,
    ino: Ino,
    /// The range of the write, in file blocks.
    blocks: Range<u64>,
    count: usize,
}

impl HeldNodes<'_> {
    /// Returns whether the write still needs `run`, which is number `index` of the blocks, and has it again.
    fn takes_back(&self, index: usize, run: BlockRun) -> bool {
        index < self.count && self.table.put_back(self.ino, &self.blocks, run)
    }
}

impl NodeSpace<'_> {
    /// Returns the blocks, which stay reserved.
    fn keep(mut self) -> Vec<BlockRun> {
        core::mem::take(&mut self.runs)
    }
}

impl Drop for NodeSpace<'_> {
    fn drop(&mut self) {
        for (index, run) in self.runs.drain(..).enumerate() {
            if !self.held.as_ref().is_some_and(|held| held.takes_back(index, run)) {
                self.alloc.release(run);
            }
        }
    }
}

/// A change of a file's map with all blocks that it allocates and frees.
pub(super) struct MapChange<'w, 's> {
    map: FileMap<'s, Nodes<'s>>,
    nodes: NodeSpace<'w>,
    gained: Vec<BlockRun>,
    lost: Vec<BlockRun>,
    freed: Freed,
}

impl MapChange<'_, '_> {
    /// Returns the number of blocks that the change allocates, with those of the map.
    pub(super) fn gained_blocks(&self) -> u64 {
        count_blocks(&self.gained) + count_blocks(&self.nodes.runs)
    }
}

fn count_blocks(runs: &[BlockRun]) -> u64 {
    runs.iter().map(|run| u64::from(run.len)).sum()
}

impl Writer {
    /// Completes the plan in `map`: reserves blocks for its new nodes. `gained` was reserved before, and stays the
    /// caller's until the change is applied. The change frees `lost`, whole clusters.
    pub(super) fn plan_change<'s>(
        &self,
        inode: &Inode,
        map: FileMap<'s, Nodes<'s>>,
        gained: Vec<BlockRun>,
        lost: Vec<Run>,
    ) -> Result<MapChange<'_, 's>> {
        let nodes = NodeSpace { alloc: self.allocator(), runs: Vec::new(), held: None };
        self.plan_change_with(inode, map, gained, lost, nodes)
    }

    /// Removes up to `count` blocks that are reserved for the nodes of `blocks` of a file. They are reserved again when
    /// the result is dropped, unless they were published. Fails with `NoMemory`.
    pub(super) fn take_nodes_of(&self, ino: Ino, blocks: &Range<u64>, count: usize) -> Result<NodeSpace<'_>> {
        let runs = self.node_space().take(ino, blocks, count)?;
        let held = HeldNodes { table: self.node_space(), ino, blocks: blocks.clone(), count: runs.len() };
        Ok(NodeSpace { alloc: self.allocator(), runs, held: Some(held) })
    }

    /// Plans a change like [`Self::plan_change`]. The blocks `nodes`, which were reserved before, are used for new nodes
    /// first.
    pub(super) fn plan_change_with<'w, 's>(
        &'w self,
        inode: &Inode,
        mut map: FileMap<'s, Nodes<'s>>,
        gained: Vec<BlockRun>,
        lost: Vec<Run>,
        mut nodes: NodeSpace<'w>,
    ) -> Result<MapChange<'w, 's>> {
        let mut lost: Vec<_> = lost.into_iter().flat_map(block_runs).collect();
        // By groups, so that each bitmap is taken once.
        lost.sort_unstable_by_key(|run| run.start);
        self.fill_node_space(&mut nodes, inode, map.new_nodes(), gained.first().map(|run| run.start))?;
        let mut places = nodes.runs.iter().map(|run| run.start);
        map.place_new(|| places.next())?;
        Ok(MapChange { map, nodes, gained, lost, freed: self.content_of(inode) })
    }

    /// Returns the kind of contents of the blocks of `inode`.
    pub(super) fn content_of(&self, inode: &Inode) -> Freed {
        let is_metadata = inode.kind() != FileKind::Regular || inode.has(InodeFlags::EA_INODE);
        if self.is_journalled(inode) || is_metadata { Freed::Metadata } else { Freed::Data }
    }

    /// Reserves blocks (clusters with bigalloc) for nodes until `space` has `count` of them.
    fn fill_node_space(
        &self,
        space: &mut NodeSpace<'_>,
        inode: &Inode,
        count: usize,
        near: Option<VolBlock>,
    ) -> Result<()> {
        space.runs.try_reserve_exact(count.saturating_sub(space.runs.len()))?;
        while space.runs.len() < count {
            let goal = near.unwrap_or_else(|| self.home_goal(inode.ino()));
            space.runs.push(self.insist(|| self.allocator().reserve_metadata(goal, 1))?);
        }
        Ok(())
    }

    /// Reserves `count` blocks for nodes that publishing `blocks` of a file may need.
    pub(super) fn hold_nodes(&self, inode: &Inode, blocks: Range<u64>, count: usize) -> Result<()> {
        let mut space = NodeSpace { alloc: self.allocator(), runs: Vec::new(), held: None };
        self.fill_node_space(&mut space, inode, count, None)?;
        // A block map has numbers of 32 bits.
        let is_far = |run: &BlockRun| run.start.0 > u64::from(u32::MAX);
        if !inode.has(InodeFlags::EXTENTS) && space.runs.iter().any(is_far) {
            return Err(Error::NoSpace);
        }
        let kept = self.node_space().add(inode.ino(), blocks, space.keep());
        kept.map_err(|runs| {
            self.release_nodes(runs);
            Error::NoMemory
        })
    }

    /// Returns the credits for applying `change` and storing its inode.
    pub(super) fn change_credits(&self, change: &MapChange<'_, '_>) -> Credits {
        let nodes = change.map.freed().iter().map(|&start| BlockRun { start, len: 1 });
        let runs = change.gained.iter().chain(&change.lost).chain(&change.nodes.runs).copied().chain(nodes);
        let touched = u32::try_from(change.map.changed().len()).unwrap_or(u32::MAX);
        cost::INODE + Credits(touched) + cost::RUN * self.groups_of(runs)
    }

    /// Estimates [`Self::change_credits`] while the change is still being planned.
    pub(super) fn estimate(&self, map: &FileMap<'_, Nodes<'_>>, lost: &[Run]) -> Credits {
        let nodes = map.changed().len() + map.freed().len() + map.new_nodes();
        let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
        Credits(nodes) + cost::RUN * (self.groups_of(lost.iter().copied().flat_map(block_runs)) + nodes)
    }

    /// Returns the number of groups that contain some runs.
    fn groups_of(&self, runs: impl Iterator<Item = BlockRun>) -> u32 {
        let mut all: Vec<u32> = runs.flat_map(|run| self.groups_from(run)).collect();
        if all.len() < 2 {
            return u32::from(!all.is_empty());
        }
        all.sort_unstable();
        all.dedup();
        u32::try_from(all.len()).unwrap_or(u32::MAX)
    }

    /// Returns the number of groups that contain a run.
    pub(super) fn groups_of_run(&self, run: BlockRun) -> u32 {
        let groups = self.groups_from(run);
        groups.end().saturating_sub(*groups.start()).saturating_add(1)
    }

    fn groups_from(&self, run: BlockRun) -> RangeInclusive<u32> {
        let sb = self.volume().super_block();
        let last = VolBlock(run.start.0 + u64::from(run.len) - 1);
        sb.group_of(run.start).unwrap_or(0)..=sb.group_of(last).unwrap_or(0)
    }

    /// Applies `change` in a transaction of its own. `finish` changes the rest of the inode, and may use `more`
    /// credits.
    pub(super) fn commit_change(
        &self,
        inode: InodeWrite<'_>,
        change: MapChange<'_, '_>,
        more: Credits,
        finish: impl FnOnce(&mut Txn<'_>, &mut InodeEdit) -> Result<()>,
    ) -> Result<Tid> {
        let mut txn = self.begin(self.change_credits(&change) + more)?;
        let mut edit = self.edit_inode(&mut txn, inode)?;
        finish(&mut txn, &mut edit)?;
        self.apply_change(&mut txn, &mut edit, change)?;
        self.store_inode(&mut txn, &edit);
        Ok(txn.commit())
    }

    /// Writes `change` into `txn` and `edit`, which the caller stores. All that can fail for lack of space or credits
    /// precedes the first edit.
    pub(super) fn apply_change(
        &self,
        txn: &mut Txn<'_>,
        edit: &mut InodeEdit,
        mut change: MapChange<'_, '_>,
    ) -> Result<()> {
        let taken = take_nodes(txn, &change.map)?;
        let cluster = self.cluster();
        edit.add_blocks(change.gained_blocks())?;
        let freed_nodes = cluster.len(to_u64(change.map.freed().len()));
        edit.remove_blocks(count_blocks(&change.lost) + freed_nodes);
        for &run in &change.gained {
            self.allocator().publish(txn, run)?;
        }
        while let Some(run) = change.nodes.runs.pop() {
            self.allocator().publish(txn, run)?;
        }
        self.write_nodes(txn, edit, &change.map, &taken);
        for run in &change.lost {
            self.allocator().free_blocks(txn, run.start, run.len, change.freed)?;
        }
        for &node in change.map.freed() {
            let (start, len) = (VolBlock(cluster.round_down(node.0)), cluster.blocks());
            self.allocator().free_blocks(txn, start, len, Freed::Metadata)?;
        }
        Ok(())
    }

    fn write_nodes(
        &self,
        txn: &mut Txn<'_>,
        edit: &mut InodeEdit,
        map: &FileMap<'_, Nodes<'_>>,
        taken: &[(usize, Option<Taken>)],
    ) {
        let seed = self.volume().super_block().has_metadata_csum().then(|| edit.checksum_seed());
        for (id, taken) in taken {
            match taken {
                Some(taken) => {
                    let mut block = txn.edit(taken);
                    map.encode(*id, &mut block, seed);
                    block.set_verified();
                }
                None => map.encode(*id, edit.i_block_mut(), None),
            }
        }
    }
}

fn take_nodes(txn: &mut Txn<'_>, map: &FileMap<'_, Nodes<'_>>) -> Result<Vec<(usize, Option<Taken>)>> {
    let changed = map.changed();
    let mut taken = Vec::new();
    taken.try_reserve_exact(changed.len())?;
    for (id, home) in changed {
        taken.push((
            id,
            match home {
                NodeLocation::Block(block) => Some(txn.take(block.0)?),
                NodeLocation::Fresh(block) => Some(txn.take_new(block.0)?),
                NodeLocation::Root | NodeLocation::New | NodeLocation::Gone => None,
            },
        ));
    }
    Ok(taken)
}

/// Divides a run into pieces of whole clusters whose length fits 32 bits.
pub(super) fn block_runs((start, len): Run) -> impl Iterator<Item = BlockRun> {
    const MOST: u64 = 1 << 31;
    let pieces = len.div_ceil(MOST);
    (0..pieces).filter_map(move |n| {
        let skip = n * MOST;
        let piece = u32::try_from((len - skip).min(MOST)).ok()?;
        Some(BlockRun { start: start.checked_add(skip)?, len: piece })
    })
}
