//! Ranges of files in fast commits: space whose place is already decided.

use alloc::vec::Vec;

use obento_base::{Error, Feature, FileKind, Ino, Result};
use obento_journal::Credits;

use crate::allocator::BlockRun;
use crate::inode::Inode;
use crate::map::change::{FileMap, Nodes};
use crate::map::tree::{ExtentState, Mapping};
use crate::map::{Blocks, MappedRun};
use crate::writer::Writer;

impl Writer {
    /// Frees the mappings from block `at` on that differ from `run`. All ranges of a file are processed before the
    /// first [`Self::fill_range`], since a cluster is free when nothing refers to any of its blocks. Fails with
    /// `Unsupported` for an inode without a map of its own.
    pub(crate) fn empty_range(&self, ino: Ino, at: u32, run: MappedRun) -> Result<()> {
        let inode = self.lock_as(ino, Self::ranged_inode)?;
        let nodes = Nodes { volume: self.volume(), inode: &inode };
        let mut map = FileMap::new(&nodes)?;
        let start = u64::from(at);
        let range = start..start.saturating_add(run.len.into()).min(map.end());
        let (mut removed, mut kept) = (Vec::new(), Vec::new());
        map.splice(range.clone(), &[], &mut removed)?;
        if let Some(new) = mapping(at, run) {
            let is_kept = |old: &Mapping| new.within(&old.range()).is_some_and(|new| new.place == old.place);
            kept.try_reserve(removed.len())?;
            kept.extend(removed.iter().copied().filter(is_kept));
            removed.retain(|old| !is_kept(old));
        }
        map.splice(range, &kept, &mut Vec::new())?;
        let lost = map.set_free(&removed, self.volume().super_block().cluster)?;
        let change = self.plan_change(&inode, map, Vec::new(), lost)?;
        self.commit_change(inode.view(), change, Credits(0), |_, _| Ok(())).map(drop)
    }

    /// Maps the blocks from `at` on to `run`; `reserved` is the part of it that was free.
    pub(crate) fn fill_range(
        &self,
        ino: Ino,
        at: u32,
        run: MappedRun,
        reserved: Vec<BlockRun>,
    ) -> Result<()> {
        let inode = self.lock_as(ino, Self::ranged_inode)?;
        let Some(new) = mapping(at, run) else { return Ok(()) };
        let nodes = Nodes { volume: self.volume(), inode: &inode };
        let mut map = FileMap::new(&nodes)?;
        map.splice(new.range(), &[new], &mut Vec::new())?;
        let change = self.plan_change(&inode, map, reserved, Vec::new())?;
        self.commit_change(inode.view(), change, Credits(0), |_, _| Ok(())).map(drop)
    }

    fn ranged_inode(&self, ino: Ino) -> Result<Inode> {
        let inode = self.volume().inode(ino)?;
        match inode.kind() {
            FileKind::Regular | FileKind::Symlink => Ok(inode),
            _ => Err(Error::Unsupported(Feature::Named("fast commits of a directory's blocks"))),
        }
    }
}

/// Returns the mapping of `run` from block `at` on, or `None` if it is a hole.
fn mapping(at: u32, run: MappedRun) -> Option<Mapping> {
    let (place, state) = match run.place {
        Blocks::Mapped(place) => (place, ExtentState::Written),
        Blocks::Unwritten(place) => (place, ExtentState::Unwritten),
        Blocks::Hole => return None,
    };
    Some(Mapping { start: at, len: run.len, place, state })
}
