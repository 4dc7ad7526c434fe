//! Pass 1: every inode that may be in use, group by group.
//!
//! Source: e2fsprogs `e2fsck/pass1.c` `e2fsck_pass1_run`, `check_blocks`.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::{FromBytes, join, to_usize};
use obento_base::{FileKind, Result};

use super::blocks::is_tree;
use super::budget::InodeBudget;
use super::events::EventSink;
use super::inode_check::{InodeCheck, Mode, Owned};
use super::issue::Issue;
use super::parallel::each_part;
use super::part::{Attributes, GroupResults, Holder, Usage};
use super::reason::VolumeFeature;
use super::state::{CheckState, Dir, DirRun, InodeSlot, Marks};
use super::view::View;
use crate::checksum::inode_seed;
use crate::dir::kind_code;
use crate::feature::{Incompat, RoCompat};
use crate::inode::{InodeFlags, stored_checksum};
use crate::raw::{RawInode, RawInodeExtra};
use crate::unit::VolBlock;

const ROOT: u32 = 2;
/// `S_IFDIR`.
const DIRECTORY: u16 = 0o040_000;
/// Number of inode table blocks that are read at once.
const BATCH: u64 = 64;

/// Facts that are known before the inodes are checked.
pub(super) struct PassContext {
    /// Inodes on the orphan list.
    pub(super) orphans: BTreeSet<u32>,
    /// Whether a time of deletion below the number of inodes is the next entry of an orphan list, and not the time of
    /// a wrong clock.
    pub(super) low_times: bool,
}

impl PassContext {
    pub(super) fn new(view: &View, orphans: BTreeSet<u32>) -> Self {
        let sb = &view.sb;
        let low = |time: u32| time != 0 && time < sb.inodes_count;
        let times = [&sb.raw.s_wtime, &sb.raw.s_mtime, &sb.raw.s_mkfs_time];
        Self { orphans, low_times: !times.iter().any(|time| low(time.get())) }
    }
}

/// Checks all inodes. Returns the attributes, and the usage of owners.
pub(super) fn check(
    view: &Arc<View>,
    state: CheckState,
    known: PassContext,
    threads: u32,
    reported: &mut EventSink<'_>,
) -> (CheckState, Attributes, Usage) {
    let (state, known) = (Arc::new(state), Arc::new(known));
    let work = {
        let (view, state, known) = (Arc::clone(view), Arc::clone(&state), Arc::clone(&known));
        Arc::new(move |group| group_part(&view, &state, &known, Mode::Claim, group))
    };
    let groups = view.sb.groups;
    let (mut attributes, mut inodes, mut dirs) = (Attributes::default(), Vec::new(), Vec::new());
    let (mut large, mut trees) = (false, false);
    let mut usage = Usage::default();
    each_part(threads, groups, &work, |group, part: GroupResults| {
        part.issues.into_iter().for_each(|issue| reported.found(issue));
        inodes.push(part.slots.into_boxed_slice());
        dirs.extend(part.dirs);
        attributes.blocks.extend(part.attributes.blocks);
        attributes.values.extend(part.attributes.values);
        attributes.holders.extend(part.attributes.holders);
        large |= part.has_large_files;
        trees |= part.has_foreign_trees;
        usage.merge(part.usage);
        reported.progress("inodes", group.saturating_add(1).into(), groups.into());
    });
    drop(work);
    if large && !view.sb.ro_compat.contains(RoCompat::LARGE_FILE) {
        reported.found(Issue::MissingFeature { feature: VolumeFeature::LargeFiles });
    }
    if trees {
        reported.found(Issue::Feature {
            feature: VolumeFeature::Extents,
            why: "it is not set, but inodes have extents",
        });
    }
    // All threads have ended, so this is the only reference.
    let mut state = match Arc::try_unwrap(state) {
        Ok(state) => state,
        Err(shared) => shared.emptied(),
    };
    state.inodes = inodes;
    state.dirs = dirs;
    (state, attributes, usage)
}

/// Returns the usage of owners.
pub(super) fn usage(view: &View) -> Result<Usage> {
    let state = CheckState::new(view)?;
    let known = PassContext::new(view, BTreeSet::new());
    let mut usage = Usage::default();
    for group in 0..view.sb.groups {
        usage.merge(group_part(view, &state, &known, Mode::Claim, group).usage);
    }
    Ok(usage)
}

/// Reports the owners of blocks that were claimed twice.
pub(super) fn find_twice(view: &View, state: &CheckState, known: &PassContext, reported: &mut EventSink<'_>) {
    for group in 0..view.sb.groups {
        let part = group_part(view, state, known, Mode::FindTwice, group);
        part.issues.into_iter().for_each(|issue| reported.found(issue));
    }
}

/// Returns the blocks of inode `ino`, and the seed of its checksums, without reporting or claiming anything.
pub(super) fn runs(view: &View, state: &CheckState, ino: u32) -> Option<(u32, Vec<DirRun>)> {
    let (record, place) = view.record(ino)?;
    let (raw, _) = RawInode::ref_from_prefix(&record).ok()?;
    let (raw, mut part) = (*raw, GroupResults::default());
    let seed = inode_seed(view.sb.checksum_seed, ino, raw.i_generation.get());
    let (mode, extra, marks) = (Mode::FindTwice, None, Marks::empty());
    let part = &mut part;
    let mut look = InodeCheck {
        view,
        state,
        part,
        mode,
        ino,
        raw,
        extra,
        record: &record,
        place,
        seed,
        reported: 0,
        marks,
        values: 0,
        allowance: InodeBudget::of_format(),
    };
    let mut owned = Owned::new(0, true);
    if look.has(InodeFlags::EXTENTS) {
        look.extents(&mut owned);
    } else {
        look.pointers(&mut owned);
    }
    Some((seed, owned.runs))
}

fn group_part(view: &View, state: &CheckState, known: &PassContext, mode: Mode, group: u32) -> GroupResults {
    let mut part = GroupResults::default();
    let sb = &view.sb;
    let used = view.used_inodes(group);
    let table = view.group(group).inode_table;
    let per_block = u64::from(sb.inodes_per_block());
    let blocks = u64::from(used).div_ceil(per_block.max(1));
    let first = group.saturating_mul(sb.inodes_per_group).saturating_add(1);
    let mut bytes = Vec::new();
    let mut block = 0;
    while block < blocks {
        let count = blocks.saturating_sub(block).min(BATCH);
        let from = VolBlock(table.0.saturating_add(block));
        let inside = u32::try_from(block.saturating_mul(per_block)).unwrap_or(u32::MAX);
        let ino = first.saturating_add(inside);
        if let Err(why) = view.read_into(from, count, &mut bytes) {
            part.issues.push(Issue::InodeUnreadable { ino, why });
            bytes.clear();
            let missing = count.saturating_mul(per_block).min(u64::from(used.saturating_sub(inside)));
            part.slots.extend((0..missing).map(|_| InodeSlot::default()));
        }
        let left = to_usize(used.saturating_sub(inside).into());
        for ((ino, record), at) in
            (ino..).zip(bytes.chunks_exact(sb.inode_size.into())).take(left).zip(0_u64..)
        {
            let place = VolBlock(from.0.saturating_add(at.checked_div(per_block).unwrap_or(0)));
            let slot = inode(view, state, known, mode, &mut part, (ino, record, place));
            part.slots.push(slot);
        }
        block = block.saturating_add(count);
    }
    while part.slots.last().is_some_and(|slot| !slot.is_used() && slot.kind == 0) {
        part.slots.pop();
    }
    part
}

/// Checks one inode.
fn inode(
    view: &View,
    state: &CheckState,
    known: &PassContext,
    mode: Mode,
    part: &mut GroupResults,
    (ino, record, place): (u32, &[u8], VolBlock),
) -> InodeSlot {
    let Ok((raw, rest)) = RawInode::ref_from_prefix(record) else { return InodeSlot::default() };
    let own = view.is_own(ino);
    if !own && raw.i_links_count.get() == 0 && record.iter().all(|&byte| byte == 0) {
        return InodeSlot::default();
    }
    let extra = RawInodeExtra::ref_from_prefix(rest).ok().map(|(extra, _)| *extra);
    let seed = inode_seed(view.sb.checksum_seed, ino, raw.i_generation.get());
    let mut look = InodeCheck {
        view,
        state,
        part,
        mode,
        ino,
        raw: *raw,
        extra,
        record,
        place,
        seed,
        reported: 0,
        marks: Marks::empty(),
        values: 0,
        allowance: if ino == ROOT { InodeBudget::of_root(&state.budget) } else { InodeBudget::new() },
    };
    look.checksum();
    look.all(known)
}

impl InodeCheck<'_> {
    fn checksum(&mut self) {
        if self.mode == Mode::FindTwice || !self.view.sb.has_metadata_csum() {
            return;
        }
        let Some((found, expected)) = stored_checksum(self.seed, self.record) else { return };
        if found != expected && self.record.iter().any(|&byte| byte != 0) {
            self.emit(Issue::InodeChecksum { ino: self.ino, found, expected });
        }
    }

    /// Checks everything that belongs to the inode. Returns its slot.
    fn all(&mut self, known: &PassContext) -> InodeSlot {
        let (ino, links) = (self.ino, self.raw.i_links_count.get());
        let dtime = self.raw.i_dtime.get();
        let is_orphan = known.orphans.contains(&ino);
        if dtime != 0 && known.low_times && dtime < self.view.sb.inodes_count && !is_orphan {
            self.emit(Issue::LostOrphan { ino });
        }
        if self.view.is_own(ino) {
            return self.own_inode();
        }
        if links == 0 {
            if dtime == 0 && self.raw.i_mode.get() != 0 && ino != ROOT && !is_orphan {
                self.emit(Issue::DeletedWithoutTime { ino });
            }
            return InodeSlot::default();
        }
        if self.is_really_directory() {
            let mode = self.raw.i_mode.get();
            self.emit(Issue::DirectoryMode { ino, mode });
            self.raw.i_mode.set(mode & 0o7777 | DIRECTORY);
        }
        if ino == ROOT && !self.is_dir() {
            self.report_bad(Issue::RootNotDirectory { ino });
        }
        if dtime != 0 && !is_orphan {
            self.emit(Issue::DeletionTime { ino });
        }
        self.fields();
        self.flags();
        let clusters = self.extra_space();
        self.shape();
        self.owned(clusters);
        if self.is_value() {
            self.marks |= Marks::VALUE;
            let users = join(self.raw.l_i_version.get(), self.raw.i_ctime.get());
            let parent = self.raw.i_mtime.get();
            let (hash, size) = (self.raw.i_atime.get(), self.size());
            self.part.attributes.holders.push(Holder { ino, users, parent, hash, size });
        }
        if self.has(InodeFlags::ENCRYPT) {
            self.marks |= Marks::ENCRYPTED;
            if let Err(why) = self.encryption() {
                self.emit(Issue::Encryption { ino, why });
            }
        }
        InodeSlot::new(self.kind().map_or(0, kind_code), self.marks, links)
    }

    /// Returns whether its map is an extent tree. If the super block lacks the feature, the flag and a valid header
    /// decide, as for e2fsck: the feature is a single bit, and the trees are all that files contain.
    fn has_tree(&mut self) -> bool {
        let has_feature = self.view.sb.incompat.contains(Incompat::EXTENT);
        let is_foreign = !has_feature && self.has(InodeFlags::EXTENTS) && is_tree(&self.raw.i_block);
        self.part.has_foreign_trees |= is_foreign;
        is_foreign || has_feature && self.has(InodeFlags::EXTENTS)
    }

    /// Checks its blocks, its size and its block count. `clusters` is the number of clusters of attribute values.
    pub(super) fn owned(&mut self, clusters: u64) {
        let sb = &self.view.sb;
        let is_dir = self.is_dir();
        let mut owned = Owned::new(clusters, is_dir && self.mode == Mode::Claim);
        let acl = join(self.raw.i_file_acl_lo.get(), self.raw.l_i_file_acl_high.get().into());
        owned.clusters = owned.clusters.saturating_add(self.attributes_block(acl));
        let is_inline = self.has(InodeFlags::INLINE_DATA) && sb.incompat.contains(Incompat::INLINE_DATA);
        let is_own = self.view.is_own(self.ino);
        let maps = match self.kind() {
            Some(FileKind::Regular | FileKind::Directory) => true,
            Some(FileKind::Symlink) => !self.is_fast_link(),
            // As in e2fsck and Linux: an inode without a type has no map.
            Some(_) | None => false,
        };
        if maps && !is_inline {
            if self.has_tree() {
                self.extents(&mut owned);
            } else {
                self.pointers(&mut owned);
            }
        }
        if is_inline && !is_dir && !is_own {
            self.inline_data();
        }
        if is_dir && !is_own && owned.end == 0 && !is_inline {
            self.emit(Issue::DirectoryEmpty { dir: self.ino });
        }
        if self.mode == Mode::Claim {
            self.sizes(&owned, is_inline);
            self.block_count(&owned);
            self.count_usage(owned.clusters);
        }
        if is_dir && !is_own {
            let (size, flags) = (self.size(), self.raw.i_flags.get());
            self.part.dirs.push(Dir::new(self.ino, self.seed, flags, size, owned.runs));
        }
    }
}
