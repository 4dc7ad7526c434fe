//! Fast commits: what fsync wrote behind the log since the last full commit, seen without being replayed.
//!
//! A fast commit does not hold blocks but facts: this inode looks so, this range of it lies there, this name was
//! made. Linux replays them through its own file operations; a volume that is only read keeps them as an overlay
//! that `Volume::inode`, `Volume::map_run` and the directory code ask before they believe the volume.
//!
//! Invariant: memory is bounded by the number and size of records that `area` accepts, not by what they claim.
//! What the overlay does not show: the free counts of the groups, and the times of directories whose names changed.
//! Source: Linux `fs/ext4/fast_commit.c`. Link counts of directories follow what happened before the crash; Linux's
//! replay leaves them to e2fsck.

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

pub(crate) use area::{Area, Geometry, each_record};
pub(crate) use change::{InodeChange, Node};
pub(crate) use names::NameChanges;
use names::Step;
pub(crate) use ranges::Overlaid;
pub(crate) use tlv::{Located, Tlv};

use crate::dir::Fold;
use crate::map::{Blocks, Run};
use crate::raw::{RawFcAddRange, RawFcDelRange, RawFcDentryInfo};
use crate::unit::{FileBlock, VolBlock};

/// Above this a length in an extent means an unwritten one of so much less: `EXT_INIT_MAX_LEN`.
const MAX_WRITTEN_LEN: u16 = 1 << 15;

/// What the volume says of an inode before any fast commit.
pub(crate) trait Base {
    /// Links and kind; `None` if the inode is not in use or cannot be read.
    fn node(&self, ino: Ino) -> Option<Node>;
    /// How names are compared in directories that ignore case.
    fn fold(&self) -> Option<Fold>;
}

/// All that fast commits changed.
#[derive(Default, Debug)]
pub(crate) struct FastCommits {
    inodes: BTreeMap<Ino, InodeChange>,
    directories: BTreeMap<Ino, NameChanges>,
    /// Complete fast commits.
    pub(crate) commits: u32,
    /// The first thing wrong with the area, if anything is.
    pub(crate) damage: Option<Error>,
}

impl FastCommits {
    /// Takes up the records in `area` that belong to transaction `tid`, the first that the log does not have. Fails
    /// if the device fails.
    pub(crate) fn load(area: &dyn Area, geometry: Geometry, tid: Tid, base: &dyn Base) -> Result<Self> {
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

    /// The record of inode `ino` as it is now, where the inode table has `base`. `None`: as it stands there. A freed
    /// inode has no links.
    pub(crate) fn record(&self, ino: Ino, base: &[u8]) -> Option<Result<Vec<u8>>> {
        self.inodes.get(&ino).map(|change| change.merge(base))
    }

    /// Returns where block `at` of the file is.
    pub(crate) fn map(&self, ino: Ino, at: FileBlock) -> Overlaid {
        self.inodes.get(&ino).map_or(Overlaid::Base(u32::MAX), |change| change.ranges.get(at))
    }

    /// What happened to the names in `dir`; `None`: nothing.
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

    /// For a directory that a fast commit made, the one it lies in. It has no blocks: all its names are in
    /// [`Self::names`].
    pub(crate) fn made_in(&self, dir: Ino) -> Option<Ino> {
        self.inodes.get(&dir).and_then(|change| change.made_in)
    }
}

/// The records being applied.
struct Replay<'a> {
    base: &'a dyn Base,
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

    /// Links and kind of an inode in use, as they are by now.
    fn node(&self, ino: Ino) -> Option<Node> {
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
        self.change(ino).ranges.set(extent.ee_block.get(), Run { len: len.into(), place });
    }

    fn del_range(&mut self, range: &RawFcDelRange) {
        let ino = ino(range.fc_ino.get());
        if self.node(ino).is_some() {
            let run = Run { len: range.fc_len.get(), place: Blocks::Hole };
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
            self.change(ino).node = Some(Node { links: 1, ..node });
        }
        self.name(dir, name, Step::Link(ino));
    }

    fn link(&mut self, info: &RawFcDentryInfo, name: &[u8]) {
        let (dir, ino) = (ino(info.fc_parent_ino.get()), ino(info.fc_ino.get()));
        if self.node(ino).is_some() && self.node(dir).is_some() {
            self.name(dir, name, Step::Link(ino));
            self.count_links(ino, |links| links.saturating_add(1));
        }
    }

    fn unlink(&mut self, info: &RawFcDentryInfo, name: &[u8]) {
        let (dir, ino) = (ino(info.fc_parent_ino.get()), ino(info.fc_ino.get()));
        let (Some(node), Some(_)) = (self.node(ino), self.node(dir)) else { return };
        self.name(dir, name, Step::Unlink(ino));
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

    fn name(&mut self, dir: Ino, name: &[u8], step: Step) {
        let folds = self.node(dir).is_some_and(|node| node.folds);
        let fold = if folds { self.base.fold() } else { None };
        let changes = self.changes.directories.entry(dir);
        changes.or_insert_with(|| NameChanges::new(fold)).push(name, step);
    }

    /// Changes a link count. A directory's of 1 means uncounted and stays.
    fn count_links(&mut self, ino: Ino, change: impl FnOnce(u16) -> u16) {
        let Some(node) = self.node(ino) else { return };
        if !(node.is_dir && node.links == 1) {
            self.change(ino).node = Some(Node { links: change(node.links), ..node });
        }
    }
}

fn ino(number: u32) -> Ino {
    Ino(number.into())
}
