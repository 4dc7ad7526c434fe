//! Fast commits: changes that fsync wrote after the log since the last full commit, shown without a replay.
//!
//! A fast commit contains statements instead of blocks: an inode has this record, a range of it has this mapping, a
//! name was created. Linux replays them through its own file operations. On a volume that is only read, they are an
//! overlay, which `Volume::inode`, `Volume::map_run` and the directory code examine before they use the volume.
//!
//! Invariant: memory is bounded by the number and size of the records that `area` accepts, not by their contents. The
//! overlay does not show the free counts of the groups, and the times of directories whose names changed.
//! Source: Linux `fs/ext4/fast_commit.c`. Link counts of directories are those from before the crash; Linux' replay
//! leaves their correction to e2fsck.

mod apply;
mod area;
mod change;
mod names;
mod ranges;
#[cfg(test)]
mod tests;
mod tlv;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use obento_base::{Corrupt, Error, Ino, Result, Structure};
use obento_journal::Tid;

pub(crate) use area::{AreaGeometry, FastCommitArea, each_record};
pub(crate) use change::{InodeChange, ReplayedInode};
pub(crate) use names::NameChanges;
use names::NameStep;
pub(crate) use ranges::BlockOverlay;
pub(crate) use tlv::{Located, Tlv};

use crate::dir::Fold;
use crate::map::{Blocks, MappedRun};
use crate::raw::{RawFcAddRange, RawFcDelRange, RawFcDentryInfo};
use crate::unit::{FileBlock, VolBlock};

/// A larger length in an extent means an unwritten extent of the difference: `EXT_INIT_MAX_LEN`.
const MAX_WRITTEN_LEN: u16 = 1 << 15;

/// The volume without fast commits.
pub(crate) trait BaseVolume {
    /// Returns link count and type; `None` if the inode is not in use or cannot be read.
    fn node(&self, ino: Ino) -> Option<ReplayedInode>;
    /// Returns how names are compared in case-insensitive directories.
    fn fold(&self) -> Option<Fold>;
}

/// All changes of fast commits.
#[derive(Default, Debug)]
pub(crate) struct FastCommits {
    inodes: BTreeMap<Ino, InodeChange>,
    directories: BTreeMap<Ino, NameChanges>,
    /// Number of complete fast commits.
    pub(crate) commits: u32,
    /// The first error in the area, if there is one.
    pub(crate) damage: Option<Error>,
}

impl FastCommits {
    /// Reads the records in `area` that belong to transaction `tid`, the one after the last in the log. Fails if the
    /// device fails.
    pub(crate) fn load(
        area: &dyn FastCommitArea,
        geometry: AreaGeometry,
        tid: Tid,
        base: &dyn BaseVolume,
    ) -> Result<Self> {
        let valid = area::scan(area, geometry, tid)?;
        let changes = Self { commits: valid.commits, damage: valid.damage, ..Self::default() };
        let mut replay = Replay { base, changes };
        area::replay(area, geometry, valid, |tlv| {
            replay.apply(tlv);
            Ok(())
        })?;
        Ok(replay.changes)
    }

    /// Returns whether nothing changed.
    pub(crate) fn is_empty(&self) -> bool {
        self.inodes.is_empty() && self.directories.is_empty()
    }

    /// Returns the current record of inode `ino`, whose record in the inode table is `base`, or `None` if it did not
    /// change. A freed inode has no links.
    pub(crate) fn record(&self, ino: Ino, base: &[u8]) -> Option<Result<Vec<u8>>> {
        self.inodes.get(&ino).map(|change| change.merge(base))
    }

    /// Returns where block `at` of the file is.
    pub(crate) fn map(&self, ino: Ino, at: FileBlock) -> BlockOverlay {
        self.inodes.get(&ino).map_or(BlockOverlay::Base(u32::MAX), |change| change.ranges.get(at))
    }

    /// Returns the changes of names in `dir`, or `None` if there are no changes.
    pub(crate) fn names(&self, dir: Ino) -> Option<&NameChanges> {
        self.directories.get(&dir)
    }

    /// Returns the directories in which names changed.
    pub(crate) fn directories(&self) -> impl Iterator<Item = (Ino, &NameChanges)> {
        self.directories.iter().map(|(&ino, changes)| (ino, changes))
    }

    /// Returns the inodes that changed.
    pub(crate) fn inodes(&self) -> impl Iterator<Item = (Ino, &InodeChange)> {
        self.inodes.iter().map(|(&ino, change)| (ino, change))
    }

    /// Returns the parent of a directory that a fast commit created. It has no blocks: all its names are in
    /// [`Self::names`].
    pub(crate) fn made_in(&self, dir: Ino) -> Option<Ino> {
        self.inodes.get(&dir).and_then(|change| change.made_in)
    }
}

/// The state of applying records.
struct Replay<'a> {
    base: &'a dyn BaseVolume,
    changes: FastCommits,
}

impl Replay<'_> {
    fn apply(&mut self, tlv: Tlv<'_>) {
        match tlv {
            Tlv::AddRange(range) => self.add_range(range),
            Tlv::DelRange(range) => self.del_range(range),
            Tlv::Creat(info, name) => self.creat(info, name),
            Tlv::Link(info, name) => self.link(info, name),
            Tlv::Unlink(info, name) => self.unlink(info, name),
            Tlv::Inode(inode, record) => self.change(ino(inode.fc_ino.get())).log(record),
            Tlv::Pad | Tlv::Tail(_) | Tlv::Head(_) => {}
        }
    }

    fn change(&mut self, ino: Ino) -> &mut InodeChange {
        self.changes.inodes.entry(ino).or_default()
    }

    /// Returns the current link count and type of an inode in use.
    fn node(&self, ino: Ino) -> Option<ReplayedInode> {
        let node = self.changes.inodes.get(&ino).and_then(|change| change.node);
        node.or_else(|| self.base.node(ino)).filter(|node| node.links > 0)
    }

    fn add_range(&mut self, range: &RawFcAddRange) {
        let ino = ino(range.fc_ino.get());
        if self.node(ino).is_none() {
            return;
        }
        let extent = &range.fc_ex;
        let start = u64::from(extent.ee_start_lo.get()) | u64::from(extent.ee_start_hi.get()) << 32;
        let (len, place) = match extent.ee_len.get().checked_sub(MAX_WRITTEN_LEN) {
            Some(len) if len > 0 => (len, Blocks::Unwritten(VolBlock(start))),
            _ => (extent.ee_len.get(), Blocks::Mapped(VolBlock(start))),
        };
        self.change(ino).ranges.set(extent.ee_block.get(), MappedRun { len: len.into(), place });
    }

    fn del_range(&mut self, range: &RawFcDelRange) {
        let ino = ino(range.fc_ino.get());
        if self.node(ino).is_some() {
            let run = MappedRun { len: range.fc_len.get(), place: Blocks::Hole };
            self.change(ino).ranges.set(range.fc_lblk.get(), run);
        }
    }

    fn creat(&mut self, info: &RawFcDentryInfo, name: &[u8]) {
        let (dir, ino) = (ino(info.fc_parent_ino.get()), ino(info.fc_ino.get()));
        let Some(node) = self.node(ino) else {
            let (structure, found) = (Structure::FastCommit, ino.0);
            let unused = Corrupt::InodeNumber { structure, block: 0, offset: 4, found };
            self.changes.damage.get_or_insert(Error::from(unused));
            return;
        };
        if self.node(dir).is_none() {
            return;
        }
        if node.is_dir {
            let change = self.change(ino);
            change.made_in = Some(dir);
            change.map_dropped = true;
            self.count_links(dir, |links| links.saturating_add(1));
        } else {
            self.change(ino).node = Some(ReplayedInode { links: 1, ..node });
        }
        self.name(dir, name, NameStep::Link(ino));
    }

    fn link(&mut self, info: &RawFcDentryInfo, name: &[u8]) {
        let (dir, ino) = (ino(info.fc_parent_ino.get()), ino(info.fc_ino.get()));
        if self.node(ino).is_some() && self.node(dir).is_some() {
            self.name(dir, name, NameStep::Link(ino));
            self.count_links(ino, |links| links.saturating_add(1));
        }
    }

    fn unlink(&mut self, info: &RawFcDentryInfo, name: &[u8]) {
        let (dir, ino) = (ino(info.fc_parent_ino.get()), ino(info.fc_ino.get()));
        let (Some(node), Some(_)) = (self.node(ino), self.node(dir)) else { return };
        self.name(dir, name, NameStep::Unlink(ino));
        if node.is_dir {
            self.change(ino).free(true);
            self.changes.directories.remove(&ino);
            self.count_links(dir, |links| links.saturating_sub(1));
        } else if node.links == 1 {
            self.change(ino).free(false);
        } else {
            self.count_links(ino, |links| links.saturating_sub(1));
        }
    }

    fn name(&mut self, dir: Ino, name: &[u8], step: NameStep) {
        let folds = self.node(dir).is_some_and(|node| node.folds);
        let fold = if folds { self.base.fold() } else { None };
        let changes = self.changes.directories.entry(dir);
        changes.or_insert_with(|| NameChanges::new(fold)).push(name, step);
    }

    /// Changes a link count. A directory's count of 1 means uncounted and does not change.
    fn count_links(&mut self, ino: Ino, change: impl FnOnce(u16) -> u16) {
        let Some(node) = self.node(ino) else { return };
        if !(node.is_dir && node.links == 1) {
            self.change(ino).node = Some(ReplayedInode { links: change(node.links), ..node });
        }
    }
}

fn ino(number: u32) -> Ino {
    Ino(number.into())
}
