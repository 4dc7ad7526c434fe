//! Writing repairs to the device as successive transactions.
//!
//! The blocks that differ in the copy are written to the volume's journal as one transaction, and then to their places,
//! as by a replay after a crash: an interruption leaves either the old or the new state. A repair that is larger than half of the
//! journal is split into several transactions, each at the end of a repair step ([`Target::is_due`]), so that an
//! interruption leaves a partly repaired volume that is marked as having errors. Without a journal, or for one step
//! that exceeds the journal (copies of large files, the index of a directory of megabytes), the blocks are written to
//! their places in an order in which an interruption loses no contents: free blocks, blocks of files and directories,
//! the volume's own metadata, backups of the super block. A second run repairs the rest. Names of a directory whose index was being rebuilt may
//! be lost, as with e2fsck.
//! Invariant: the super block requests recovery from before the transaction is in the log until its blocks are in
//! their places. The super block's own block is written last.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::{IntoBytes, to_usize};
use obento_base::{Error, Result};
use obento_block::{Block, BlockDevice, Cache, Overlay};
use obento_driver::CheckOptions;
use obento_journal::Journal;

use super::edits::{Copy, Edits};
use crate::allocator::bits;
use crate::feature::{Compat, Incompat};
use crate::group::GroupFlags;
use crate::locate;
use crate::raw::RawSuperBlock;
use crate::replay::open_journal;
use crate::super_block::{ERROR_FS, PRIMARY_OFFSET, SuperBlock, VALID_FS};
use crate::unit::VolBlock;
use crate::writer::seal_super_block;

/// Size of the block cache.
const CACHE: usize = 64 << 20;
/// Number of blocks that are written at once.
const RUN: u64 = 64;
/// Size of the changes that are collected if there is no journal.
const PLAIN: u64 = 64 << 20;

/// The device that is repaired.
pub(super) struct Target<'a> {
    device: &'a Arc<dyn BlockDevice>,
    options: &'a CheckOptions,
    /// Size of the changes after which they are written.
    limit: u64,
    has_journal: bool,
    /// Whether the journal's blocks may belong to another file.
    is_journal_shared: bool,
    has_begun: bool,
}

impl<'a> Target<'a> {
    pub(super) fn new(device: &'a Arc<dyn BlockDevice>, options: &'a CheckOptions) -> Self {
        let mut this = Self {
            device,
            options,
            limit: PLAIN,
            has_journal: false,
            is_journal_shared: false,
            has_begun: false,
        };
        if let Ok(found) = locate::find(&**device)
            && let Ok(journal) = this.journal(&found.super_block)
        {
            let blocks = journal.super_block().log().len() / 2;
            let bytes =
                u64::try_from(blocks).unwrap_or(0).saturating_mul(found.super_block.block_size.into());
            this.limit = bytes.clamp(1, PLAIN);
            this.has_journal = true;
        }
        this
    }

    /// Returns whether a transaction should be written before more is changed.
    pub(super) fn is_due(&self, copy: &Copy) -> bool {
        copy.changed_len() >= self.limit
    }

    /// Returns the size of the largest transaction in bytes, or `None` without a journal.
    pub(super) fn takes(&self) -> Option<u64> {
        self.has_journal.then_some(self.limit)
    }

    /// Returns whether anything was written.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Leaves the journal alone from now on, since writing to it may destroy the contents of a file.
    pub(super) fn spare_journal(&mut self) {
        self.is_journal_shared = true;
    }

    /// Writes the changes of `copy` to the device. `copy` then has no changes.
    pub(super) fn commit(&mut self, copy: &Arc<Copy>) -> Result<()> {
        let found = locate::find(&**copy)?;
        let sb = found.super_block;
        let numbers = self.different(copy, &sb)?;
        if numbers.is_empty() {
            return Ok(());
        }
        self.has_begun = true;
        let has_journal =
            sb.compat.contains(Compat::HAS_JOURNAL) && !self.is_journal_shared && found.instead_of.is_none();
        if has_journal && locate::find(&**self.device).is_ok_and(|found| found.instead_of.is_some()) {
            // Only the primary super block locates the journal.
            let early = over(copy);
            change_super_block(&early, &sb, unfinished)?;
            self.bring_first(&early, &sb)?;
        }
        // If the journal cannot take the changes, they are written without it.
        if !(has_journal && self.by_journal(copy, &numbers).is_ok()) {
            self.write(copy, &sb, &numbers)?;
        }
        self.bring_first(&**copy, &sb)?;
        copy.forget();
        Ok(())
    }

    /// Writes all changes of `copy` to the device, as one transaction if the journal can take them and is not spared, and
    /// otherwise while the volume is marked as having errors. `copy` then has no changes.
    pub(super) fn commit_at_once(&mut self, copy: &Arc<Copy>) -> Result<()> {
        let sb = locate::find(&**self.device)?.super_block;
        let numbers = self.different(copy, &sb)?;
        if numbers.is_empty() {
            copy.forget();
            return Ok(());
        }
        if self.is_atomic(copy) {
            self.by_journal(copy, &numbers)?;
        } else {
            change_super_block(&**self.device, &sb, unfinished)?;
            self.write(copy, &sb, &numbers)?;
        }
        self.bring_first(&**copy, &sb)?;
        copy.forget();
        Ok(())
    }

    /// Returns whether [`commit_at_once`](Self::commit_at_once) would write `copy` as one transaction.
    pub(super) fn is_atomic(&self, copy: &Copy) -> bool {
        self.has_journal && !self.is_journal_shared && !self.is_due(copy)
    }

    fn journal(&self, sb: &SuperBlock) -> Result<Journal> {
        let mut notices = Vec::new();
        let journal = open_journal(self.device, sb, self.options.journal.as_ref(), &mut notices)?;
        journal
            .filter(|_| notices.is_empty() && sb.compat.contains(Compat::HAS_JOURNAL))
            .ok_or(Error::Invalid)
    }

    /// Returns the blocks in which `copy` differs, in order.
    fn different(&self, copy: &Copy, sb: &SuperBlock) -> Result<Vec<u64>> {
        let size = u64::from(sb.block_size);
        let there = self.device.len().checked_div(size).unwrap_or(0);
        let mut numbers = Vec::new();
        for range in copy.changed() {
            let first = range.start.checked_div(size).unwrap_or(0);
            numbers.extend(first..range.end.div_ceil(size).min(there));
        }
        numbers.dedup();
        let (mut before, mut after) = (alloc::vec![0; to_usize(size)], alloc::vec![0; to_usize(size)]);
        let mut result = Vec::new();
        for number in numbers {
            let at = number.saturating_mul(size);
            copy.read_at(at, &mut after)?;
            if self.device.read_at(at, &mut before).is_err() || before != after {
                result.push(number);
            }
        }
        Ok(result)
    }

    /// Writes the blocks as one transaction of the journal. Fails if the journal on the device cannot take it: the
    /// repair may concern its inode.
    fn by_journal(&self, copy: &Arc<Copy>, numbers: &[u64]) -> Result<()> {
        let found = locate::find(&**self.device)?;
        let journal = self.journal(&found.super_block)?;
        let is_part = numbers.iter().any(|&number| journal.runs().position(number).is_some());
        if found.instead_of.is_some() || is_part || journal.super_block().needs_replay() {
            return Err(Error::Invalid);
        }
        let blocks_count = found.super_block.blocks_count;
        let summary = journal.replay_onto(&**self.device, blocks_count)?;
        // The super block in the journal also requests recovery, until everything else is in its place.
        let reader = over(copy);
        change_super_block(&reader, &locate::find(&**copy)?.super_block, want_recovery)?;
        let cache = Cache::new(Arc::new(reader), found.super_block.block_size.bytes(), CACHE);
        let blocks = numbers.iter().map(|&number| cache.get(number)).collect::<Result<Vec<Block>>>()?;
        change_super_block(&**self.device, &found.super_block, want_recovery)?;
        let (next, head) = journal.append(&summary, &blocks, self.options.clock.now())?;
        self.bring_home(&blocks, found.super_block.block_size.into())?;
        self.journal(&found.super_block)?.mark_empty(next, head)
    }

    /// Writes blocks, which a transaction contains, to their places.
    fn bring_home(&self, blocks: &[Block], size: u64) -> Result<()> {
        let mut bytes = Vec::new();
        for run in blocks.chunk_by(|one, next| one.number().checked_add(1) == Some(next.number())) {
            for run in run.chunks(to_usize(RUN)) {
                let Some(first) = run.first() else { continue };
                bytes.clear();
                run.iter().for_each(|block| bytes.extend_from_slice(block));
                self.device.write_at(first.number().saturating_mul(size), &bytes)?;
            }
        }
        self.device.flush()
    }

    /// Writes the blocks to their places, except the block of the super block.
    fn write(&self, copy: &Arc<Copy>, sb: &SuperBlock, numbers: &[u64]) -> Result<()> {
        let after = Edits::open(copy, &CheckOptions { super_block: None, ..self.options.clone() })?;
        let size = u64::from(sb.block_size);
        let first = PRIMARY_OFFSET.checked_div(size).unwrap_or(0);
        let others = numbers.iter().filter(|&&number| number != first);
        let mut ordered: Vec<(Rank, u64)> =
            others.map(|&number| (self.rank(&after, VolBlock(number)), number)).collect();
        ordered.sort_unstable();
        let mut bytes = Vec::new();
        for same in ordered.chunk_by(|(one, _), (next, _)| one == next) {
            for run in same.chunk_by(|(_, one), (_, next)| one.checked_add(1) == Some(*next)) {
                let Some((_, first)) = run.first() else { continue };
                for (run, start) in run.chunks(to_usize(RUN)).zip((*first..).step_by(to_usize(RUN))) {
                    let (at, len) = (start.saturating_mul(size), run.len().saturating_mul(to_usize(size)));
                    bytes.resize(len, 0);
                    copy.read_at(at, &mut bytes)?;
                    self.device.write_at(at, &bytes)?;
                }
            }
            self.device.flush()?;
        }
        Ok(())
    }

    /// Writes the block of the super block.
    fn bring_first(&self, copy: &dyn BlockDevice, sb: &SuperBlock) -> Result<()> {
        let size = u64::from(sb.block_size);
        let mut bytes = alloc::vec![0; to_usize(size)];
        let at = PRIMARY_OFFSET.checked_div(size).unwrap_or(0).saturating_mul(size);
        copy.read_at(at, &mut bytes)?;
        self.device.write_at(at, &bytes)?;
        self.device.flush()
    }

    /// Returns when a block is written.
    fn rank(&self, after: &Edits, block: VolBlock) -> Rank {
        let view = &after.view;
        let sb = &view.sb;
        let group = sb.group_of(block).filter(|&group| group > 0 && sb.has_copy(group));
        if group.is_some_and(|group| sb.group_start(group) == block) {
            return Rank::Backup;
        }
        if view.zones.overlap(block, 1) || sb.group_of(block).is_none() {
            return Rank::Metadata;
        }
        if self.is_free(after, block) { Rank::Free } else { Rank::Owned }
    }

    /// Returns whether a block is free on the device.
    fn is_free(&self, after: &Edits, block: VolBlock) -> bool {
        let (view, size) = (&after.view, after.view.sb.block_size);
        let Some(group) = view.sb.group_of(block) else { return false };
        let descriptor = view.group(group);
        if descriptor.flags.contains(GroupFlags::BLOCK_UNINIT) {
            return true;
        }
        let inside = view.sb.cluster.whole(block.0.saturating_sub(view.sb.group_start(group).0));
        let mut bitmap = alloc::vec![0; to_usize(size.into())];
        let at = descriptor.block_bitmap.0.saturating_mul(size.into());
        let Ok(bit) = u32::try_from(inside) else { return false };
        self.device.read_at(at, &mut bitmap).is_ok()
            && bits::next_clear(&bitmap, bit..bit.saturating_add(1)) == bit
    }
}

/// The order of writes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Rank {
    /// Free blocks: copies, and new blocks of directories.
    Free,
    Owned,
    Metadata,
    /// Backups of the super block. A check takes the layout from them if the primary one differs from all of the
    /// first backups, so that they are not ahead of the structures that they describe.
    Backup,
}

/// Returns a device on which changes do not change `copy`.
fn over(copy: &Arc<Copy>) -> Overlay<Arc<dyn BlockDevice>> {
    let below: Arc<dyn BlockDevice> = Arc::<Copy>::clone(copy);
    Overlay::new(below)
}

/// Changes only the super block, durably.
pub(super) fn change_super_block(
    device: &dyn BlockDevice,
    sb: &SuperBlock,
    change: impl FnOnce(&mut RawSuperBlock),
) -> Result<()> {
    let mut raw = *sb.raw;
    change(&mut raw);
    seal_super_block(sb, &mut raw);
    device.write_at(PRIMARY_OFFSET, raw.as_bytes())?;
    device.flush()
}

/// Requests a replay of the journal.
pub(super) fn want_recovery(raw: &mut RawSuperBlock) {
    raw.s_feature_incompat.set(raw.s_feature_incompat.get() | Incompat::NEEDS_RECOVERY.bits());
}

/// Marks a volume as having errors.
pub(super) fn unfinished(raw: &mut RawSuperBlock) {
    raw.s_state.set(raw.s_state.get() & !VALID_FS | ERROR_FS);
}
