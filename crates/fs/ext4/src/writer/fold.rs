//! Fast commits when a volume is opened for changes: they become a transaction of the log, which is then replayed
//! like any other.
//!
//! They are applied to a copy of the volume in memory. The blocks that differ are written to the log after its
//! transactions.
//! Invariant: a crash at any time leaves either the fast commits, which begin where the log ends, or the transaction of
//! the same number. That transaction invalidates the fast commits, like a full commit of Linux.
//! Source: Linux `fs/jbd2/recovery.c` `fc_do_one_pass`: fast commits are valid if their number follows the last one
//! in the log.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use obento_base::Result;
use obento_base::wire::to_usize;
use obento_block::{Block, BlockDevice, Overlay};
use obento_driver::{Journalling, OpenOptions, QuotaLimits};
use obento_journal::Log;

use super::{QuotaUpdates, Writer};
use crate::fast_commit::{AreaGeometry, FastCommits};
use crate::feature::{Compat, Incompat};
use crate::locate;
use crate::replay::open_journal;
use crate::super_block::{PRIMARY_OFFSET, SuperBlock};
use crate::volume::Volume;

/// Adds the changes of fast commits to the log of the volume on `device`. Returns the numbers of transactions and of
/// fast commits, or `None` if there are no fast commits. Fails with one of these errors: `Corrupt` for damaged fast
/// commits; `Unsupported` for changes that they cannot represent, or for more than the log can contain; the errors of
/// the journal.
#[inline(never)]
pub(crate) fn fold_fast_commits(
    device: &Arc<dyn BlockDevice>,
    sb: &SuperBlock,
    options: &OpenOptions,
) -> Result<Option<u64>> {
    let may_have = sb.compat.contains(Compat::FAST_COMMIT) && sb.incompat.contains(Incompat::NEEDS_RECOVERY);
    if !may_have {
        return Ok(None);
    }
    // The caller that replays the journal next reports its errors.
    let Some(journal) = open_journal(device, sb, options.journal.as_ref(), &mut Vec::new())? else {
        return Ok(None);
    };
    if !journal.super_block().needs_replay() || journal.super_block().fast_commits().is_empty() {
        return Ok(None);
    }
    let summary = journal.replay_onto(&**device, sb.blocks_count)?;
    let again = locate::decode_at(&**device, PRIMARY_OFFSET)?;
    let copy = Arc::new(Overlay::new(Arc::clone(device)));
    let volume = Volume::new(Arc::<Overlay<_>>::clone(&copy), again, options.cache)?;
    let geometry = AreaGeometry { block_size: sb.block_size.bytes(), inode_size: sb.inode_size };
    let commits = FastCommits::load(&journal, geometry, summary.next, &volume)?;
    if let Some(damage) = commits.damage {
        return Err(damage);
    }
    if commits.is_empty() {
        return Ok(None);
    }
    let journalling = Journalling { commit_interval: Duration::ZERO, ..options.journalling };
    let writer = Writer::new(
        Arc::new(volume),
        Log::None,
        Arc::clone(&options.clock),
        &journalling,
        None,
        QuotaUpdates::On(QuotaLimits::empty()),
    )?;
    writer.apply_fast_commits(&commits)?;
    writer.settle_quotas();
    writer.txns().close()?;
    let blocks = different_blocks(&writer, &copy, device)?;
    journal.append(&summary, &blocks, options.clock.now())?;
    Ok(Some(u64::from(summary.transactions).saturating_add(commits.commits.into())))
}

/// Returns the blocks of the volume that differ in the copy.
fn different_blocks(
    writer: &Writer,
    copy: &Overlay<Arc<dyn BlockDevice>>,
    below: &Arc<dyn BlockDevice>,
) -> Result<Vec<Block>> {
    let volume = writer.volume();
    let size = u64::from(volume.block_size());
    let count = volume.super_block().blocks_count;
    let mut numbers: Vec<u64> = Vec::new();
    for range in copy.changed() {
        let first = range.start.checked_div(size).unwrap_or(0);
        let blocks = first..range.end.div_ceil(size).min(count);
        numbers.try_reserve(to_usize(blocks.end.saturating_sub(blocks.start)))?;
        numbers.extend(blocks);
    }
    numbers.dedup();
    let mut before = alloc::vec![0; to_usize(size)];
    let mut different = Vec::new();
    for number in numbers {
        let block = volume.cache().get(number)?;
        below.read_at(number.saturating_mul(size), &mut before)?;
        if block[..] != before[..] {
            different.try_reserve(1)?;
            different.push(block);
        }
    }
    Ok(different)
}
