//! Bringing what was mended to the device, as transactions one after the other.
//!
//! The blocks in which the copy differs go into the volume's journal as one transaction, which is then replayed like
//! after a crash: a cut leaves the volume as it was, or as it is meant to be. A repair that is larger than half of the
//! journal is several transactions, each the end of a mend ([`Target::is_due`]), so that what a cut leaves is a volume of
//! which a part is mended, and marked as having errors.
//! Without a journal, or for one mend that the journal cannot take - copies of large files, the index of a directory of
//! megabytes - the blocks are written to their places in an order by which a cut costs no contents: what was free, what
//! files and directories own, the volume's own metadata. A second run mends what it leaves; of a directory whose index was
//! being made anew names may be lost, as by e2fsck.
//! Invariant: the super block wants recovery from before the transaction is in the log until it is in its place. The
//! super block's own block is written last.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::{IntoBytes, to_usize};
use obento_base::{Error, Result};
use obento_block::{Block, BlockDevice, Cache, Overlay};
use obento_driver::CheckOptions;
use obento_journal::Journal;

use super::edits::{Copy, Edits};
use super::{ERROR_FS, VALID_FS};
use crate::allocator::bits;
use crate::feature::{Compat, Incompat};
use crate::group::GroupFlags;
use crate::locate;
use crate::raw::RawSuperBlock;
use crate::replay::open_journal;
use crate::super_block::{PRIMARY_OFFSET, SuperBlock};
use crate::unit::VolBlock;
use crate::writer::seal_super_block;

/// Bytes of blocks that are on the way at once.
const CACHE: usize = 64 << 20;
/// How many blocks are written at once.
const RUN: u64 = 64;
/// Bytes of changes that are gathered where there is no journal.
const PLAIN: u64 = 64 << 20;

/// The device that is mended.
pub(super) struct Target<'a> {
    device: &'a Arc<dyn BlockDevice>,
    options: &'a CheckOptions,
    /// Bytes of changes after which they are due.
    limit: u64,
    /// Whether the journal's blocks may be somebody else's.
    is_journal_shared: bool,
    has_begun: bool,
}

impl<'a> Target<'a> {
    pub(super) fn new(device: &'a Arc<dyn BlockDevice>, options: &'a CheckOptions) -> Self {
        let mut this = Self { device, options, limit: PLAIN, is_journal_shared: false, has_begun: false };
        if let Ok(found) = locate::find(&**device)
            && let Ok(journal) = this.journal(&found.super_block)
        {
            let blocks = journal.super_block().log().len() / 2;
            let bytes =
                u64::try_from(blocks).unwrap_or(0).saturating_mul(found.super_block.block_size.into());
            this.limit = bytes.clamp(1, PLAIN);
        }
        this
    }

    /// Whether a transaction should be made before more is changed.
    pub(super) fn is_due(&self, copy: &Copy) -> bool {
        copy.changed_len() >= self.limit
    }

    /// Whether anything was written.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Leaves the journal alone from now on: what is written to it may destroy what a file holds.
    pub(super) fn spare_journal(&mut self) {
        self.is_journal_shared = true;
    }

    /// Brings what `copy` changed to the device; `copy` has no changes then.
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
            // A journal is found by the primary super block alone.
            let early = over(copy);
            change_super_block(&early, &sb, unfinished)?;
            self.bring_first(&early, &sb)?;
        }
        // Where the journal cannot take it, it is written without.
        if !(has_journal && self.by_journal(copy, &numbers).is_ok()) {
            self.write(copy, &sb, &numbers)?;
        }
        self.bring_first(&**copy, &sb)?;
        copy.forget();
        Ok(())
    }

    fn journal(&self, sb: &SuperBlock) -> Result<Journal> {
        let mut notices = Vec::new();
        let journal = open_journal(self.device, sb, self.options.journal.as_ref(), &mut notices)?;
        journal
            .filter(|_| notices.is_empty() && sb.compat.contains(Compat::HAS_JOURNAL))
            .ok_or(Error::Invalid)
    }

    /// The blocks in which `copy` differs, in order.
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

    /// As one transaction of the journal. Errors: whatever keeps the journal, as it is on the device, from taking it;
    /// what is mended may be its inode.
    fn by_journal(&self, copy: &Arc<Copy>, numbers: &[u64]) -> Result<()> {
        let found = locate::find(&**self.device)?;
        let journal = self.journal(&found.super_block)?;
        let is_part = numbers.iter().any(|&number| journal.runs().position(number).is_some());
        if found.instead_of.is_some() || is_part || journal.super_block().needs_replay() {
            return Err(Error::Invalid);
        }
        let blocks_count = found.super_block.blocks_count;
        let summary = journal.replay_onto(&**self.device, blocks_count)?;
        // The super block that comes out of the journal wants recovery too, until all else is in its place.
        let reader = over(copy);
        change_super_block(&reader, &locate::find(&**copy)?.super_block, want_recovery)?;
        let cache = Cache::new(Arc::new(reader), found.super_block.block_size, CACHE);
        let blocks = numbers.iter().map(|&number| cache.get(number)).collect::<Result<Vec<Block>>>()?;
        change_super_block(&**self.device, &found.super_block, want_recovery)?;
        journal.append(&summary, &blocks, self.options.clock.now())?;
        self.journal(&found.super_block)?.recover(&**self.device, blocks_count).map(drop)
    }

    /// To their places, the block of the super block left out.
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

    /// The block of the super block.
    fn bring_first(&self, copy: &dyn BlockDevice, sb: &SuperBlock) -> Result<()> {
        let size = u64::from(sb.block_size);
        let mut bytes = alloc::vec![0; to_usize(size)];
        let at = PRIMARY_OFFSET.checked_div(size).unwrap_or(0).saturating_mul(size);
        copy.read_at(at, &mut bytes)?;
        self.device.write_at(at, &bytes)?;
        self.device.flush()
    }

    /// When a block is written.
    fn rank(&self, after: &Edits, block: VolBlock) -> Rank {
        let view = &after.view;
        if view.zones.overlap(block, 1) || view.sb.group_of(block).is_none() {
            return Rank::Metadata;
        }
        if self.is_free(after, block) { Rank::Free } else { Rank::Owned }
    }

    /// Whether the device says that nobody has a block.
    fn is_free(&self, after: &Edits, block: VolBlock) -> bool {
        let (view, size) = (&after.view, after.view.sb.block_size);
        let Some(group) = view.sb.group_of(block) else { return false };
        let descriptor = view.group(group);
        if descriptor.flags.contains(GroupFlags::BLOCK_UNINIT) {
            return true;
        }
        let inside = block.0.saturating_sub(view.sb.group_start(group).0) >> view.sb.cluster_bits;
        let mut bitmap = alloc::vec![0; to_usize(size.into())];
        let at = descriptor.block_bitmap.0.saturating_mul(size.into());
        let Ok(bit) = u32::try_from(inside) else { return false };
        self.device.read_at(at, &mut bitmap).is_ok()
            && bits::next_clear(&bitmap, bit..bit.saturating_add(1)) == bit
    }
}

/// What is written first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Rank {
    /// What nobody has yet: copies, and new blocks of directories.
    Free,
    Owned,
    Metadata,
}

/// A device to change what is brought without changing `copy`.
fn over(copy: &Arc<Copy>) -> Overlay<Arc<dyn BlockDevice>> {
    let below: Arc<dyn BlockDevice> = Arc::<Copy>::clone(copy);
    Overlay::new(below)
}

/// Changes the super block alone, durably.
pub(super) fn change_super_block(
    device: &dyn BlockDevice,
    sb: &SuperBlock,
    change: impl FnOnce(&mut RawSuperBlock),
) -> Result<()> {
    let mut raw = sb.raw;
    change(&mut raw);
    seal_super_block(sb, &mut raw);
    device.write_at(PRIMARY_OFFSET, raw.as_bytes())?;
    device.flush()
}

/// Says that the journal is to be replayed.
pub(super) fn want_recovery(raw: &mut RawSuperBlock) {
    raw.s_feature_incompat.set(raw.s_feature_incompat.get() | Incompat::NEEDS_RECOVERY.bits());
}

/// Says that a volume is not as it should be.
pub(super) fn unfinished(raw: &mut RawSuperBlock) {
    raw.s_state.set(raw.s_state.get() & !VALID_FS | ERROR_FS);
}
