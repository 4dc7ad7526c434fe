//! The journal of a new volume: an empty log in an inode, or on another device.
//!
//! Source: e2fsprogs `lib/ext2fs/mkjournal.c`; `misc/util.c` `figure_journal_size`.
#![allow(clippy::arithmetic_side_effects, reason = "`Geometry` limits blocks, groups and inodes")]

use alloc::vec::Vec;

use obento_base::wire::{FromZeros, IntoBytes, split, to_usize};
use obento_block::BlockDevice;
use obento_driver::{Allowed, FormatError, FormatNotice};
use obento_journal::Incompat;
use obento_journal::raw::{self, MAGIC, RawSuperBlock as RawJournal, SUPER_BLOCK_V2};

use super::draft::Draft;
use super::inodes::{JOURNAL_INO, NewInode, PRIVATE_FILE};
use super::number::units;
use super::options::{JournalRoom, RequestedSettings};
use crate::feature::Compat;

/// The smallest journal.
pub(crate) const MIN_BLOCKS: u64 = 1024;
const _: () = assert!(raw::MIN_BLOCKS == 1024);
/// Maximum size of a journal.
pub(crate) const MAX_BLOCKS: u64 = 10_240_000;
/// `EXT2_JOURNAL_TO_FC_BLKS_RATIO`: blocks of the log per block of fast commits.
const FAST_COMMIT_RATIO: u64 = 64;
/// Marks a copy of the map of the journal inode in the super block.
const BACKUP_BLOCKS: u8 = 1;
/// Maximum number of file systems that share a journal: `JBD2_USERS_MAX`.
const MAX_USERS: u32 = 48;

/// The size of a journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct JournalSize {
    /// Blocks of the log, including the super block.
    pub log: u64,
    /// Blocks of fast commits after it.
    pub fast_commits: u64,
}

impl JournalSize {
    /// Returns the total number of blocks.
    pub fn blocks(self) -> u64 {
        self.log + self.fast_commits
    }

    /// Returns the default size, or `None` for a volume that is too small for a journal:
    /// `ext2fs_default_journal_size`.
    pub(crate) fn by_volume(blocks: u64) -> Option<u64> {
        const KIB: u64 = 1024;
        const SIZES: [(u64, u64); 7] = [
            (32 * KIB, 1024),
            (256 * KIB, 4096),
            (512 * KIB, 8192),
            (4096 * KIB, 16_384),
            (8192 * KIB, 32_768),
            (16_384 * KIB, 65_536),
            (32_768 * KIB, 131_072),
        ];
        if blocks < 2048 {
            return None;
        }
        Some(SIZES.iter().find(|(below, _)| blocks < *below).map_or(262_144, |&(_, size)| size))
    }

    /// Divides `blocks` blocks: fast commits get their default part if the volume `has_fast_commits`.
    pub(crate) fn of(blocks: u64, has_fast_commits: bool) -> Self {
        let fast_commits = if has_fast_commits { blocks / (FAST_COMMIT_RATIO + 1) } else { 0 };
        Self { log: blocks - fast_commits, fast_commits }
    }

    /// Returns the requested size, or else the default for the volume. Returns `None` if the volume is too small.
    /// Fails with `BadValue`.
    fn new(wishes: &RequestedSettings, draft: &Draft) -> Result<Option<Self>, FormatError> {
        let sb = &draft.sb;
        let Some(log) = Self::by_volume(sb.blocks_count) else { return Ok(None) };
        let in_blocks = |bytes: u64| sb.block_size.whole(bytes);
        let has_fast_commits = sb.compat.contains(Compat::FAST_COMMIT);
        let fast_commits = if has_fast_commits { log / FAST_COMMIT_RATIO } else { 0 };
        let asked_fast = wishes.fast_commit_size.filter(|_| has_fast_commits);
        let size = Self {
            log: wishes.journal_size.map_or(log, in_blocks),
            fast_commits: asked_fast.map_or(fast_commits, in_blocks),
        };
        if wishes.journal_size.is_none() && asked_fast.is_none() {
            return Ok(Some(size));
        }
        let free = sb.blocks_count - draft.space.count_in(0..sb.blocks_count);
        let room = match wishes.journal_room {
            JournalRoom::Half => free / 2,
            JournalRoom::All => free,
        };
        let bytes = |blocks: u64| blocks.saturating_mul(sb.block_size.into());
        let (least, most) = (bytes(MIN_BLOCKS), bytes(MAX_BLOCKS.min(room)));
        let all = bytes(size.blocks());
        if !(least..=most.max(least)).contains(&all) || size.blocks() > room {
            let value = alloc::format!("{all}");
            return Err(FormatError::BadValue {
                name: "journal_size",
                value,
                allowed: Allowed::Range(least, most),
            });
        }
        Ok(Some(size))
    }
}

impl Draft {
    /// Creates the journal that the features require. Returns the number of its blocks in the volume. Fails with
    /// `Journal`, `TooSmall`, with `BadValue` for its size or place, or with the errors of the other device.
    pub fn make_journal(
        &mut self,
        wishes: &RequestedSettings,
        external: Option<&dyn BlockDevice>,
        notices: &mut Vec<FormatNotice>,
    ) -> Result<u64, FormatError> {
        if let Some(device) = external {
            self.set_compat(Compat::HAS_JOURNAL, true);
            self.use_journal_device(device)?;
            return Ok(0);
        }
        let is_asked = wishes.journal_size.is_some() || wishes.fast_commit_size.is_some();
        if !self.sb.compat.contains(Compat::HAS_JOURNAL) && !is_asked {
            return Ok(0);
        }
        let Some(size) = JournalSize::new(wishes, self)? else {
            notices.push(FormatNotice::NoJournal);
            self.set_compat(Compat::HAS_JOURNAL, false);
            return Ok(0);
        };
        self.set_compat(Compat::HAS_JOURNAL, true);
        let goal = match &wishes.journal_location {
            Some(text) => self.journal_goal(text)?,
            None if wishes.packed => 0,
            None => self.middle(),
        };
        self.make_journal_inode(goal, size, wishes.lazy_journal)?;
        Ok(size.blocks())
    }

    fn journal_goal(&self, text: &str) -> Result<u64, FormatError> {
        let most = self.sb.blocks_count - 1;
        let bad = || FormatError::BadValue {
            name: "journal_location",
            value: text.into(),
            allowed: Allowed::Range(0, most),
        };
        let log = self.sb.raw.s_log_block_size.get() + 10;
        units(text, log).filter(|&goal| goal <= most).ok_or_else(bad)
    }

    fn make_journal_inode(&mut self, goal: u64, size: JournalSize, lazy: bool) -> Result<(), FormatError> {
        // With the block map of ext2, the goal is always the start of the inode's group.
        let goal = if self.has_extents() { goal } else { self.goal_of(JOURNAL_INO) };
        let mapped = self.map_file(JOURNAL_INO, goal, size.blocks())?;
        let bytes = self.sb.block_size.len(size.blocks());
        let place = mapped.runs.first().map_or(0, |run| run.start);
        let label = journal_label(self.sb.block_size.bytes(), size, 1, 1, &self.sb.raw.s_uuid);
        let mut block = self.zeroed()?;
        block.iter_mut().zip(label.as_bytes()).for_each(|(to, from)| *to = *from);
        self.blocks.insert(place, block);
        if !lazy {
            let runs = mapped.runs.iter().map(|run| (run.start, run.end - run.start));
            self.zeros.extend(runs);
        }
        let (low, high) = split(bytes);
        let raw = &mut self.sb.raw;
        let map = mapped.i_block.chunks_exact(4).filter_map(|word| word.first_chunk());
        let words = map.map(|word| u32::from_le_bytes(*word)).chain([high, low]);
        raw.s_jnl_blocks.iter_mut().zip(words).for_each(|(to, word)| to.set(word));
        raw.s_jnl_backup_type = BACKUP_BLOCKS;
        raw.s_journal_inum.set(JOURNAL_INO);
        self.add_inode(&NewInode {
            ino: JOURNAL_INO,
            mode: PRIVATE_FILE,
            owner: (0, 0),
            links: 1,
            size: bytes,
            blocks: mapped.owned,
            flags: self.map_flags(),
            i_block: mapped.i_block,
        })
    }

    /// Returns the first block of a group in the middle of the volume, that with the most free blocks among its
    /// neighbours: `get_midpoint_journal_block`.
    fn middle(&self) -> u64 {
        let sb = &self.sb;
        let half = (sb.blocks_count - u64::from(sb.first_data_block)) / 2;
        let middle = sb.group_of(crate::unit::VolBlock(half)).unwrap_or(0);
        let flex = 1_u32 << sb.raw.s_log_groups_per_flex;
        let (start, middle) = if flex > 1 && middle > flex {
            let first = middle & !(flex - 1);
            let free = (first..sb.groups).find(|&group| self.free_in(group) > 0).unwrap_or(0);
            (free, free)
        } else {
            (middle.saturating_sub(1), middle)
        };
        let end = if middle + 1 < sb.groups { middle + 1 } else { middle };
        let mut best = start;
        for group in start + 1..=end {
            if self.free_in(group) > self.free_in(best) {
                best = group;
            }
        }
        sb.group_start(best).0
    }

    fn free_in(&self, group: u32) -> u64 {
        let blocks = self.sb.group_blocks(group);
        blocks.end - blocks.start - self.space.count_in(blocks)
    }

    /// Adds this volume to the users of an external journal, and the journal to the volume. The journal device
    /// changes when everything else is written: `join_journal`.
    fn use_journal_device(&mut self, device: &dyn BlockDevice) -> Result<(), FormatError> {
        let (_, label) = self.read_journal_device(device)?;
        self.sb.raw.s_journal_uuid = label.s_uuid;
        Ok(())
    }

    /// Returns the place and the contents of the super block of the journal on `device`. Fails with `Journal`.
    fn read_journal_device(&self, device: &dyn BlockDevice) -> Result<(u64, RawJournal), FormatError> {
        let refuse = |why| Err(FormatError::Journal(why));
        let Some(found) = obento_journal::ExternalJournal::probe(device)? else {
            return refuse("contains no journal");
        };
        if found.block_size != self.sb.block_size.bytes() {
            return refuse("has blocks of another size");
        }
        let at = u64::from(found.super_block()) * u64::from(found.block_size);
        let mut label = RawJournal::new_zeroed();
        device.read_at(at, label.as_mut_bytes())?;
        if label.s_header.h_magic.get() != MAGIC || label.s_header.h_blocktype.get() != SUPER_BLOCK_V2 {
            return refuse("has a damaged super block");
        }
        if label.s_nr_users.get() >= MAX_USERS {
            return refuse("has the maximum number of users");
        }
        Ok((at, label))
    }

    /// Adds this volume to the users of the journal on `device`.
    pub fn join_journal(&self, device: &dyn BlockDevice) -> Result<(), FormatError> {
        let (at, mut label) = self.read_journal_device(device)?;
        let users = label.s_nr_users.get();
        let own = self.sb.raw.s_uuid;
        if label.s_users.iter().take(to_usize(users.into())).any(|user| *user == own) {
            return Ok(());
        }
        if let Some(user) = label.s_users.get_mut(to_usize(users.into())) {
            *user = own;
        }
        label.s_nr_users.set(users + 1);
        let checksums = Incompat::CSUM_V2 | Incompat::CSUM_V3;
        if Incompat::from_bits_retain(label.s_feature_incompat.get()).intersects(checksums) {
            let sum = obento_journal::checksum::super_block(label.as_bytes());
            label.s_checksum.set(sum);
        }
        device.write_at(at, label.as_bytes())?;
        Ok(device.flush()?)
    }
}

/// Returns the super block of an empty log that begins in block `first`.
pub(crate) fn journal_label(
    block_size: u32,
    size: JournalSize,
    users: u32,
    first: u32,
    uuid: &[u8; 16],
) -> RawJournal {
    let narrow = |blocks: u64| u32::try_from(blocks).unwrap_or(u32::MAX);
    let mut raw = RawJournal::new_zeroed();
    raw.s_header.h_magic.set(MAGIC);
    raw.s_header.h_blocktype.set(SUPER_BLOCK_V2);
    raw.s_blocksize.set(block_size);
    raw.s_maxlen.set(narrow(size.blocks()));
    raw.s_nr_users.set(users);
    raw.s_first.set(first);
    raw.s_sequence.set(1);
    raw.s_num_fc_blks.set(narrow(size.fast_commits));
    raw.s_uuid = *uuid;
    raw
}
