//! The mounted state that all other parts of the driver use.
//!
//! Locking: only leaf locks: those of the cache and of the notices, and that of the journal's place, under which the
//! cache is read. No other part of a `Volume` changes after opening.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem::offset_of;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Attr, Corrupt, Error, Feature, Ino, Result, Structure};
use obento_block::{Block, BlockDevice, Cache};
use obento_driver::Notice;
use obento_env::sync::Mutex;
use obento_journal::{Journal, Runs, Tid};

use crate::dir::Fold;
use crate::fast_commit::{AreaGeometry, BaseVolume, FastCommits, ReplayedInode};
use crate::feature::{Compat, Incompat};
use crate::group::{GroupDescriptor, Groups, Totals};
use crate::inode::{Inode, InodeFlags, InodePlace, Live};
use crate::map::Blocks;
use crate::raw::RawInode;
use crate::replay::open_journal;
use crate::size::BlockSize;
use crate::super_block::{ROOT_INO, SuperBlock};
use crate::unit::{FileBlock, VolBlock};
use crate::zones::Zones;

/// Number of inode table blocks that are read with a missing one: Linux's `inode_readahead_blks`.
const INODE_READ_AHEAD: u64 = 32;
/// Maximum number of notices. Further ones are dropped.
const MAX_NOTICES: usize = 64;

/// An open ext2, ext3 or ext4 volume.
pub struct Volume {
    super_block: SuperBlock,
    cache: Arc<Cache>,
    groups: Groups,
    zones: Zones,
    fast_commits: FastCommits,
    /// The device of an external journal, if one was given.
    external_journal: Option<Arc<dyn BlockDevice>>,
    /// The blocks of the journal on this volume, once they were needed.
    journal_runs: Mutex<Option<Runs>>,
    notices: Mutex<Vec<Notice>>,
    /// Damage that a listing has reported as an error.
    shown_damage: Mutex<Vec<Corrupt>>,
    /// Changed inodes.
    live: Live,
}

impl Volume {
    /// Creates a volume on `device`, which has the journal applied. Reads all group descriptors.
    #[inline(never)]
    pub(crate) fn new(device: Arc<dyn BlockDevice>, super_block: SuperBlock, cache: usize) -> Result<Self> {
        let mut this = Self::bare(device, super_block, cache);
        let notices = &this.notices;
        let mut notice = |notice| push_notice(notices, notice);
        this.groups = Groups::scan(&this.super_block, &this.cache, &mut this.zones, &mut notice)?;
        Ok(this)
    }

    /// Creates a volume without reading its groups, which suffices to find the journal.
    pub(crate) fn bare(device: Arc<dyn BlockDevice>, super_block: SuperBlock, cache: usize) -> Self {
        let cache = Arc::new(Cache::new(device, super_block.block_size.bytes(), cache));
        Self {
            super_block,
            cache,
            groups: Groups::default(),
            zones: Zones::default(),
            fast_commits: FastCommits::default(),
            external_journal: None,
            journal_runs: Mutex::new(None),
            notices: Mutex::new(Vec::new()),
            shown_damage: Mutex::new(Vec::new()),
            live: Live::default(),
        }
    }

    /// Returns the checked super block.
    pub fn super_block(&self) -> &SuperBlock {
        &self.super_block
    }

    /// Returns the cache of metadata blocks.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Returns the device below.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        self.cache.device()
    }

    /// Returns the size of a block.
    pub fn block_size(&self) -> BlockSize {
        self.super_block.block_size
    }

    /// Returns whether the `len` blocks from `start` on may belong to a file: they are on the volume, and none of
    /// them is metadata.
    pub(crate) fn is_data(&self, start: VolBlock, len: u64) -> bool {
        let sb = &self.super_block;
        if !sb.holds_blocks(start, len) {
            return false;
        }
        match self.groups.totals() {
            Some(_) => !self.zones.overlap(start, len),
            None => !self.touches_metadata(start, len),
        }
    }

    /// Returns whether a run overlaps metadata, for volumes with too many groups for a list. Examines the groups of the
    /// run, and the groups whose bitmaps and tables may be there.
    fn touches_metadata(&self, start: VolBlock, len: u64) -> bool {
        let sb = &self.super_block;
        let last = VolBlock(start.0.saturating_add(len.saturating_sub(1)));
        let (Some(first), Some(last)) = (sb.group_of(start), sb.group_of(last)) else { return true };
        (first..=last).any(|group| {
            let mut zones = Zones::default();
            let listed = zones.add_copies(sb, group).and_then(|()| {
                // The metadata of a group without a readable descriptor is unknown.
                let described = sb.flex_groups(group).filter_map(|group| self.group(group).ok());
                described.into_iter().try_for_each(|descriptor| zones.add_descriptor(sb, &descriptor))
            });
            zones.finish();
            listed.is_err() || zones.overlap(start, len)
        })
    }

    /// Returns block `number`, if it may belong to a file. `structure` refers to it.
    pub fn data_block(&self, number: VolBlock, structure: Structure) -> Result<Block> {
        if !self.is_data(number, 1) {
            return Err(Corrupt::BlockRange { structure, at: 0, start: number.0, len: 1 }.into());
        }
        self.cache.get(number.0)
    }

    /// Returns inode `ino`. This includes reserved inodes, for use by the driver itself (`Volume::user_inode` refuses
    /// them).
    ///
    /// Fails with the first error: `Stale` if the volume has no such inode or it is not in use; `Corrupt`.
    pub fn inode(&self, ino: Ino) -> Result<Inode> {
        if let Some(known) = self.live.get(ino) {
            return known;
        }
        let sb = &self.super_block;
        let slot = self.inode_slot(ino)?;
        let end = slot.table_end.min(slot.block.0.saturating_add(INODE_READ_AHEAD));
        let block = self.cache.get_ahead(slot.block.0, slot.block.0..end)?;
        match self.replayed_record(ino, &block, slot.offset) {
            Some(record) => Inode::from_replay(sb, ino, record?.into(), slot.place()),
            None => Inode::from_table(sb, ino, block, slot.offset),
        }
    }

    /// Returns inode `ino` of the inode table, which is known to be in use although it has no name. Fails with
    /// `Corrupt`.
    pub(crate) fn unlinked_inode(&self, ino: Ino) -> Result<Inode> {
        let slot = self.inode_slot(ino)?;
        let block = self.cache.get(slot.block.0)?;
        Inode::unlinked_from_table(&self.super_block, ino, block, slot.offset)
    }

    /// Returns the changed inodes.
    pub(crate) fn live(&self) -> &Live {
        &self.live
    }

    /// Returns inode `ino` from the inode table, without fast commits and the running transaction. Fails in the same
    /// cases as [`Self::inode`].
    pub(crate) fn stored_inode(&self, ino: Ino) -> Result<Inode> {
        let slot = self.inode_slot(ino)?;
        Inode::from_table(&self.super_block, ino, self.cache.get(slot.block.0)?, slot.offset)
    }

    /// Returns the inode like [`Self::inode`], but fails with `Stale` for inodes of the format itself: reserved
    /// inodes except the root, quota files, the orphan file. Fails with `Corrupt` for an inode that contains an
    /// attribute value, since no directory refers to those (`check_igot_inode` of Linux).
    pub fn user_inode(&self, ino: Ino) -> Result<Inode> {
        if self.is_reserved(ino) {
            return Err(Error::Stale);
        }
        let inode = self.inode(ino)?;
        if inode.has(InodeFlags::EA_INODE) {
            let offset = offset_of!(RawInode, i_flags);
            return Err(inode.bad_field("i_flags", offset, inode.flags().bits()));
        }
        Ok(inode)
    }

    /// Checks that the root is a directory, as `ext4_fill_super` does. Fails with `Corrupt`.
    pub(crate) fn expect_root(&self) -> Result<()> {
        match self.user_inode(ROOT_INO) {
            Ok(root) if root.is_dir() => Ok(()),
            // The inode may also be unused.
            Ok(_) | Err(Error::Refused(_)) => Err(Corrupt::RootKind { ino: ROOT_INO }.into()),
            Err(error) => Err(error),
        }
    }

    /// Returns the attributes of inode `ino`. Fails in the same cases as [`Self::user_inode`].
    pub(crate) fn attr(&self, ino: Ino) -> Result<Attr> {
        let plain = |inode: &Inode| (!inode.has(InodeFlags::EA_INODE)).then(|| inode.attr(&self.super_block));
        // Avoids a copy of the inode for the most frequent case.
        match self.live.read(ino, plain).filter(|_| !self.is_reserved(ino)) {
            Some(Ok(Some(attr))) => Ok(attr),
            _ => Ok(self.user_inode(ino)?.attr(&self.super_block)),
        }
    }

    /// Returns whether `ino` is an inode of the format itself, as in `__ext4_iget`.
    pub fn is_reserved(&self, ino: Ino) -> bool {
        let sb = &self.super_block;
        let own = [
            &sb.raw.s_usr_quota_inum,
            &sb.raw.s_grp_quota_inum,
            &sb.raw.s_prj_quota_inum,
            &sb.raw.s_orphan_file_inum,
        ];
        ino != ROOT_INO
            && (ino.0 < u64::from(sb.first_ino) || own.iter().any(|inum| u64::from(inum.get()) == ino.0))
    }

    /// Returns the record with which fast commits replace the one at `offset` of `block`.
    fn replayed_record(&self, ino: Ino, block: &Block, offset: usize) -> Option<Result<Vec<u8>>> {
        if self.fast_commits.is_empty() {
            return None;
        }
        let end = offset.saturating_add(self.super_block.inode_size.into());
        self.fast_commits.record(ino, block.get(offset..end)?)
    }

    /// Returns the changes of the fast commits.
    pub(crate) fn fast_commits(&self) -> &FastCommits {
        &self.fast_commits
    }

    /// Stores the device of an external journal.
    pub(crate) fn set_external_journal(&mut self, device: Option<Arc<dyn BlockDevice>>) {
        self.external_journal = device;
    }

    /// Returns the journal, or `None` if the volume has no journal or its device was not given.
    pub(crate) fn journal(&self) -> Result<Option<Journal>> {
        if !self.super_block.compat.contains(Compat::HAS_JOURNAL) {
            return Ok(None);
        }
        // Problems of the journal inode were reported when the volume was opened.
        let mut reported = Vec::new();
        open_journal(self.device(), &self.super_block, self.external_journal.as_ref(), &mut reported)
    }

    /// Returns the place of `block` in the journal, if that is on this volume and can be opened. The place is
    /// determined once, since a journal never moves. Fails if the device fails.
    pub(crate) fn place_in_journal(&self, block: VolBlock) -> Result<Option<u32>> {
        if self.super_block.raw.s_journal_inum.get() == 0 {
            return Ok(None);
        }
        let mut known = self.journal_runs.lock();
        if let Some(runs) = &*known {
            return Ok(runs.position(block.0));
        }
        let runs = match self.journal() {
            Ok(journal) => journal.map(|journal| journal.runs().clone()).unwrap_or_default(),
            Err(error @ Error::Device(_)) => return Err(error),
            Err(_) => Runs::new(),
        };
        Ok(known.insert(runs).position(block.0))
    }

    /// Reads the fast commits after the replayed log of `journal`, and returns their number. Errors in them become
    /// notices.
    pub(crate) fn load_fast_commits(&mut self, journal: &Journal, next: Tid) -> u32 {
        if journal.super_block().fast_commits().is_empty() {
            return 0;
        }
        let sb = &self.super_block;
        let geometry = AreaGeometry { block_size: sb.block_size.bytes(), inode_size: sb.inode_size };
        match FastCommits::load(journal, geometry, next, self) {
            Ok(changes) => {
                if let Some(damage) = changes.damage {
                    self.notice(Notice::Damaged(damage));
                }
                self.fast_commits = changes;
            }
            Err(error) => self.notice(Notice::ReplayFailed(error)),
        }
        self.fast_commits.commits
    }

    /// Returns the place of an inode's record.
    pub(crate) fn inode_slot(&self, ino: Ino) -> Result<InodeTableSlot> {
        let sb = &self.super_block;
        let place = sb.inode_index(ino.0).filter(|_| ino.0 <= sb.inodes_count.into());
        let (group, index) = place.ok_or(Error::Stale)?;
        let table = self.groups.inode_table(sb, &self.cache, group)?;
        let (at, offset) = sb.inode_place(index);
        Ok(InodeTableSlot {
            block: VolBlock(table.0.saturating_add(at.into())),
            offset: to_usize(offset.into()),
            table_end: table.0.saturating_add(sb.inode_table_blocks().into()),
        })
    }

    /// Returns the descriptor of `group`, or an intact backup of it.
    pub fn group(&self, group: u32) -> Result<GroupDescriptor> {
        self.groups.get(&self.super_block, &self.cache, group)
    }

    /// Fails with the error of the first damaged group descriptor, or with `Unsupported` if there are too many
    /// groups.
    pub(crate) fn check_groups(&self) -> Result<()> {
        if self.groups.totals().is_none() {
            return Err(Error::Unsupported(Feature::Named("writing to more than 196608 block groups")));
        }
        let damage = self.notices().into_iter().find_map(|notice| match notice {
            Notice::Damaged(error) => Some(error),
            _ => None,
        });
        if self.groups.is_sound() { Ok(()) } else { Err(damage.unwrap_or(Error::ReadOnly)) }
    }

    /// Returns the free blocks and inodes from the descriptors, or else from the super block.
    pub(crate) fn totals(&self) -> Totals {
        let sb = &self.super_block;
        let stored =
            Totals { free_blocks: sb.free_blocks(), free_inodes: sb.raw.s_free_inodes_count.get().into() };
        self.groups.totals().unwrap_or(stored)
    }

    /// Returns the places of the metadata.
    pub(crate) fn zones(&self) -> &Zones {
        &self.zones
    }

    /// Returns block `at` of a file, or `None` for a hole or an unwritten block.
    pub fn read_file_block(&self, inode: &Inode, at: FileBlock) -> Result<Option<Block>> {
        match self.map_block(inode, at)? {
            Some(block) => Ok(Some(self.cache.get(block.0)?)),
            None => Ok(None),
        }
    }

    /// Fills `buf` with the bytes of the file from `offset` on, through the cache, with zeros for holes. Returns the
    /// number of bytes, which is less than `buf.len()` only at the end of the file. This is for attribute values in
    /// inodes and the like; file data is read in another way.
    pub fn read_inode_data(&self, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let left = inode.size().saturating_sub(offset);
        let len = buf.len().min(to_usize(left));
        let block_size = u64::from(self.block_size());
        let mut done = 0_usize;
        while let Some(rest) = buf.get_mut(done..len).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(to_u64(done));
            let number = at.checked_div(block_size).and_then(|n| u32::try_from(n).ok());
            let inside = to_usize(at.checked_rem(block_size).unwrap_or(0));
            let file_block = FileBlock(number.ok_or(Error::FileTooBig)?);
            let take = rest.len().min(to_usize(block_size).saturating_sub(inside));
            let Some(target) = rest.get_mut(..take) else { break };
            let block = match self.map_run(inode, file_block)?.place {
                Blocks::Mapped(block) => Some(self.cache.get(block.0)?),
                Blocks::Unwritten(_) | Blocks::Hole => None,
            };
            match block.as_ref().and_then(|block| block.get(inside..inside.saturating_add(take))) {
                Some(source) => target.copy_from_slice(source),
                None => target.fill(0),
            }
            done = done.saturating_add(take);
        }
        Ok(len)
    }

    /// Adds a notice for the user.
    pub(crate) fn notice(&self, notice: Notice) {
        push_notice(&self.notices, notice);
    }

    /// Records damage that a listing reports, so that a lookup in the same block does not report it again.
    pub(crate) fn damage_was_shown(&self, damage: Corrupt) {
        let mut shown = self.shown_damage.lock();
        if shown.len() < MAX_NOTICES && !shown.contains(&damage) {
            shown.push(damage);
        }
    }

    /// Adds a notice for damage that a lookup encountered and no listing has reported.
    pub(crate) fn damage_was_met(&self, damage: Corrupt) {
        let is_shown = self.shown_damage.lock().contains(&damage);
        if !is_shown {
            self.notice(Notice::Damaged(damage.into()));
        }
    }

    /// Returns the notices.
    pub(crate) fn notices(&self) -> Vec<Notice> {
        self.notices.lock().clone()
    }
}

/// The volume before fast commits are applied.
impl BaseVolume for Volume {
    fn node(&self, ino: Ino) -> Option<ReplayedInode> {
        let inode = self.inode(ino).ok()?;
        let folds = inode.has(InodeFlags::CASEFOLD);
        Some(ReplayedInode { links: inode.links(), is_dir: inode.is_dir(), folds })
    }

    fn fold(&self) -> Option<Fold> {
        let sb = &self.super_block;
        let folds = sb.incompat.contains(Incompat::CASEFOLD);
        folds.then(|| Fold::from_flags(sb.raw.s_encoding_flags.get()))
    }
}

/// The place of an inode's record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InodeTableSlot {
    /// Block of the inode table.
    pub block: VolBlock,
    /// Byte offset within the block.
    pub offset: usize,
    /// The first block after the inode table.
    pub table_end: u64,
}

impl InodeTableSlot {
    /// Converts the place to the form that an inode stores.
    pub(crate) fn place(&self) -> InodePlace {
        InodePlace { block: self.block, offset: u32::try_from(self.offset).unwrap_or(u32::MAX) }
    }
}

fn push_notice(notices: &Mutex<Vec<Notice>>, notice: Notice) {
    let mut notices = notices.lock();
    if notices.len() < MAX_NOTICES && !notices.contains(&notice) {
        notices.push(notice);
    }
}
