//! Subvolumes and their versions.
//!
//! A subvolume sees the keys of its snapshot and of that snapshot's ancestors. Of several keys that differ only in the
//! snapshot, the one of the nearest ancestor counts. The number of an ancestor is greater than that of its descendants.
//! Source: Linux `fs/bcachefs/snapshot.c` (`bch2_snapshot_is_ancestor`), `snapshot_format.h`, `subvolume_format.h`,
//! `btree_iter.c` (`bch2_btree_iter_peek_max`).

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use obento_base::{Error, Result};
use obento_block::Slots;

use crate::btree::id;
use crate::btree::key::{Key, Pos, kind};
use crate::btree::tree::Trees;
use crate::layout::bytes::{u32_at, u64_at};
use crate::layout::super_block::SuperBlock;

/// Number of the subvolume that a mount shows (`BCACHEFS_ROOT_SUBVOL`).
pub const ROOT_SUBVOLUME: u32 = 1;
/// Most subvolumes and snapshots of a volume.
const COUNT_MAX: usize = 1 << 20;
/// Lineages that are cached.
const LINEAGES: usize = 8;

/// A subvolume (`struct bch_subvolume`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subvolume {
    /// Its snapshot.
    pub snapshot: u32,
    /// Number of its root.
    pub root: u64,
    /// The subvolume that contains its name.
    pub parent: Option<u32>,
}

/// All subvolumes and snapshots.
pub struct Snapshots {
    subvolumes: BTreeMap<u32, Subvolume>,
    /// Parent of each snapshot; 0 if it has none.
    parents: BTreeMap<u32, u32>,
    /// The lineages of the snapshots that were used last.
    lineages: Slots<u64, Arc<[u32]>>,
}

impl Snapshots {
    fn empty() -> Self {
        let (subvolumes, parents) = (BTreeMap::new(), BTreeMap::new());
        Self { subvolumes, parents, lineages: Slots::new(LINEAGES) }
    }

    /// Reads the tables. Returns the first damage too, since the rest is of use.
    ///
    /// # Errors
    ///
    /// - `NoMemory`: the tables exceed the budget.
    pub fn read(trees: &Trees, super_block: &SuperBlock) -> Result<(Self, Option<Error>)> {
        let (mut found, mut damage, mut count) = (Self::empty(), None, 0_usize);
        for tree in [id::SUBVOLUMES, id::SNAPSHOTS] {
            trees.walk(super_block, tree, Pos::MIN, &mut |key| {
                match key {
                    Ok(key) => found.add(key),
                    Err(error) => damage = damage.or(Some(error)),
                }
                count = count.saturating_add(1);
                if count > COUNT_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
        }
        if count > COUNT_MAX { Err(Error::NoMemory) } else { Ok((found, damage)) }
    }

    fn add(&mut self, key: Key<'_>) {
        let Ok(number) = u32::try_from(key.pos.offset) else { return };
        let word = |at| u32_at(key.value, at);
        match key.kind {
            kind::SUBVOLUME => {
                if let Some((snapshot, root)) = word(4).zip(u64_at(key.value, 8)) {
                    // `fs_path_parent`, which older volumes do not have.
                    let parent = word(20).filter(|&parent| parent != 0);
                    self.subvolumes.insert(number, Subvolume { snapshot, root, parent });
                }
            }
            kind::SNAPSHOT => {
                self.parents.insert(number, word(4).unwrap_or(0));
            }
            _ => {}
        }
    }

    /// Returns a subvolume.
    pub fn subvolume(&self, number: u32) -> Option<Subvolume> {
        self.subvolumes.get(&number).copied()
    }

    /// Returns the number of subvolumes.
    pub fn count(&self) -> usize {
        self.subvolumes.len()
    }

    /// Returns a snapshot and its ancestors in ascending order: those whose keys it sees.
    fn lineage(&self, snapshot: u32) -> Arc<[u32]> {
        if let Some(lineage) = self.lineages.get(&snapshot.into()) {
            return lineage;
        }
        // A parent has a greater number, so that the list ends and is sorted.
        let parent = |&child: &u32| self.parents.get(&child).copied().filter(|&parent| parent > child);
        let lineage: Vec<u32> = core::iter::successors(Some(snapshot), parent).collect();
        self.lineages.put(snapshot.into(), lineage.into())
    }

    /// Passes the keys that `snapshot` sees from `from` on to `f`, until it breaks.
    pub fn walk(
        &self,
        trees: &Trees,
        super_block: &SuperBlock,
        tree: u8,
        from: Pos,
        snapshot: u32,
        f: &mut dyn FnMut(Result<Key<'_>>) -> ControlFlow<()>,
    ) {
        // Position of the last key that was seen: further versions of it are older.
        let mut done = None;
        let lineage = self.lineage(snapshot);
        trees.walk(super_block, tree, Pos { snapshot: 0, ..from }, &mut |key| {
            let key = match key {
                Err(error) => return f(Err(error)),
                Ok(key) => key,
            };
            let place = (key.pos.inode, key.pos.offset);
            if done == Some(place) || lineage.binary_search(&key.pos.snapshot).is_err() {
                return ControlFlow::Continue(());
            }
            done = Some(place);
            match key.kind {
                kind::WHITEOUT | kind::EXTENT_WHITEOUT => ControlFlow::Continue(()),
                _ => f(Ok(key)),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_sees_its_ancestors_alone() {
        let parents = BTreeMap::from([(7, 9), (8, 9), (9, 20), (20, 0), (5, 5)]);
        let found = Snapshots { parents, ..Snapshots::empty() };
        for _ in 0..2 {
            assert_eq!(*found.lineage(7), [7, 9, 20]);
            assert_eq!(*found.lineage(9), [9, 20]);
            assert_eq!(*found.lineage(5), [5]);
        }
    }
}
