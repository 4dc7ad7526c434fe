//! Shrinking a volume.
//!
//! Order: files release the blocks after the new end, the journal first; inodes of removed groups get other numbers; the
//! volume gets its new size. All contents are copied to free blocks before the first map refers to a copy, so that both
//! copies are complete while maps change. A transaction of the journal changes as many files as it has room for. Without
//! a journal, and for the journal itself, changes are written as repairs are: copies, maps, bitmaps, while the volume is
//! marked as having errors.
//! Invariant: everything is planned before anything is written ([`plan`]).
//! Invariant: a file whose tree gets another number of nodes and the usage of its owners change in the same commit.
//! Invariant: inodes are moved only by transactions, since no order of single writes preserves all names.
//! Source: e2fsprogs `resize/resize2fs.c` `block_relocation`, `inode_relocation_to_new`, `move_itables`.

mod ahead;
mod blocks;
mod contents;
mod geometry;
mod inodes;
mod plan;
mod scan;
mod space;

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::to_u64;
use obento_block::{BlockDevice, Overlay};
use obento_driver::{CheckOptions, ResizeError, ResizeObserver, ResizeRefusal, ResizeResult};

use super::commit::Target;
use super::edits::{Copy, Edits};
use crate::feature::Compat;
use crate::super_block::SuperBlock;
use ahead::ReadAhead;
use plan::ShrinkPlan;
use scan::Owners;

/// The unit of the changes in memory.
const PAGE: u64 = 4096;

/// Returns the length in blocks that the volume on `device` has after it shrank to at most `blocks`, and `None` if it has
/// this length already. Writes nothing.
///
/// # Errors
///
/// - `Refused`: a feature prevents the change, or the contents do not fit.
/// - `Failed`: the volume is damaged, or the device failed.
pub(crate) fn planned_blocks(
    device: &Arc<dyn BlockDevice>,
    options: &CheckOptions,
    blocks: u64,
) -> ResizeResult<Option<u64>> {
    let device = read_ahead(device);
    let before = Shrinking::open(&device, options)?;
    Ok(before.plan(blocks)?.map(|plan| plan.end))
}

/// Returns the smallest length in blocks to which the volume on `device` can shrink.
///
/// # Errors
///
/// As for [`planned_blocks`].
pub(crate) fn minimum_blocks(device: &Arc<dyn BlockDevice>, options: &CheckOptions) -> ResizeResult<u64> {
    let device = read_ahead(device);
    Shrinking::open(&device, options)?.minimum()
}

/// Shrinks the volume on `device`, which is clean, to at most `blocks` blocks. Returns its new length in blocks, and `None`
/// if it has this length already.
///
/// # Errors
///
/// As for [`planned_blocks`]; nothing was changed if the change is refused.
pub(crate) fn shrink(
    device: &Arc<dyn BlockDevice>,
    options: &CheckOptions,
    blocks: u64,
    observer: ResizeObserver<'_>,
) -> ResizeResult<Option<u64>> {
    let device = read_ahead(device);
    let mut volume = Shrinking::open(&device, options)?;
    let Some(plan) = volume.plan(blocks)? else { return Ok(None) };
    volume.move_blocks(&plan, observer)?;
    volume.move_inodes(&plan)?;
    volume.cut(&plan)?;
    Ok(Some(plan.end))
}

fn read_ahead(device: &Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
    Arc::new(ReadAhead::new(Arc::clone(device)))
}

/// A volume that shrinks.
struct Shrinking<'a> {
    device: &'a Arc<dyn BlockDevice>,
    options: &'a CheckOptions,
    copy: Arc<Copy>,
    edits: Edits,
    owners: Owners,
    /// The block bitmaps of all groups.
    bitmaps: Vec<Vec<u8>>,
    /// The groups whose block bitmaps changed since the last commit.
    changed: BTreeSet<u32>,
    /// The groups whose inode bitmaps or counts of inodes changed since the last commit.
    changed_inodes: BTreeSet<u32>,
    /// Number of changed bytes after which a commit is due.
    limit: u64,
}

impl<'a> Shrinking<'a> {
    fn open(device: &'a Arc<dyn BlockDevice>, options: &'a CheckOptions) -> ResizeResult<Self> {
        let copy = Arc::new(Overlay::new(Arc::clone(device)));
        let mut edits = Edits::open(&copy, options)?;
        expect_shrinkable(&edits.view.sb)?;
        let owners = scan::owners(&mut edits)?;
        let bitmaps = space::bitmaps(&edits)?;
        let limit = Target::new(device, options).takes().unwrap_or(16 << 20) / 4;
        let (changed, changed_inodes) = (BTreeSet::new(), BTreeSet::new());
        Ok(Self { device, options, copy, edits, owners, bitmaps, changed, changed_inodes, limit })
    }

    /// Plans the change to at most `blocks` blocks. Returns `None` if the volume would not be shorter.
    fn plan(&self, blocks: u64) -> ResizeResult<Option<ShrinkPlan>> {
        let sb = &self.edits.view.sb;
        let end = plan::usable(sb, blocks).unwrap_or(0);
        if end >= sb.blocks_count {
            return Ok(None);
        }
        if let Some(plan) = self.plan_for(end)? {
            return Ok(Some(plan));
        }
        let min = self.minimum()?.saturating_mul(sb.block_size.into());
        Err(ResizeRefusal::TooShort { min }.into())
    }

    fn plan_for(&self, end: u64) -> ResizeResult<Option<ShrinkPlan>> {
        let target = Target::new(self.device, self.options);
        plan::plan(&self.edits, &self.owners, &self.bitmaps, end, target.takes())
    }

    /// Finds the smallest length that can be planned.
    fn minimum(&self) -> ResizeResult<u64> {
        let sb = &self.edits.view.sb;
        let (mut low, mut high) = (0_u64, sb.blocks_count);
        while low.saturating_add(1) < high {
            let middle = low.midpoint(high);
            let fits = match plan::usable(sb, middle).map(|end| self.plan_for(end)) {
                None | Some(Err(ResizeError::Refused(_))) => None,
                Some(planned) => planned?.map(|plan| plan.end),
            };
            match fits {
                Some(end) => high = end,
                None => low = middle,
            }
        }
        Ok(high)
    }

    /// Writes the changes so far: as one transaction, or in order. `journal` prevents the use of the journal, whose
    /// blocks move. The contents that maps refer to are durable.
    fn commit(&mut self, journal: JournalUse) -> ResizeResult<()> {
        self.write_inode_bitmaps()?;
        self.write_bitmaps()?;
        let mut target = Target::new(self.device, self.options);
        if journal == JournalUse::Moves {
            target.spare_journal();
        }
        Ok(target.commit_at_once(&self.copy)?)
    }

    /// Returns whether the changes so far, and those of `more` blocks, should be written before further ones.
    fn is_due(&self, more: usize) -> bool {
        // A bitmap and the descriptor of its group.
        let groups = self.changed.len().saturating_add(self.changed_inodes.len()).saturating_mul(2);
        let unit = u64::from(self.edits.view.sb.block_size).max(PAGE);
        let more = to_u64(groups.saturating_add(more)).saturating_mul(unit);
        self.copy.changed_len().saturating_add(more) >= self.limit
    }
}

/// Whether a commit can be a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum JournalUse {
    Available,
    /// The changes concern the journal itself.
    Moves,
}

/// Checks whether the features of a volume permit shrinking.
fn expect_shrinkable(sb: &SuperBlock) -> ResizeResult<()> {
    let feature = |name| Err(ResizeRefusal::Feature(name).into());
    if sb.has_bigalloc() {
        return feature("bigalloc");
    }
    if sb.compat.contains(Compat::SPARSE_SUPER2) {
        return feature("sparse_super2");
    }
    if sb.raw.s_jnl_backup_type > 1 {
        return feature("another backup of the journal than its map");
    }
    Ok(())
}
