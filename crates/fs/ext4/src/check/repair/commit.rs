//! Bringing what was mended to the device, as a transaction.
//!
//! The blocks in which the copy differs go into the volume's journal as one transaction, which is then replayed like
//! after a crash: a cut leaves the volume as it was, or as it is meant to be. Where they do not fit, or there is no
//! journal, they are written one after the other, and a second run mends what a cut leaves.
//! Invariant: the super block wants recovery from before the transaction is in the log until it is in its place. The
//! super block's own block is written last.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::{IntoBytes, to_usize};
use obento_base::{Error, Result, Timestamp};
use obento_block::{Block, BlockDevice, Cache};

use super::edits::Copy;
use crate::feature::{Compat, Incompat};
use crate::locate;
use crate::replay::open_journal;
use crate::super_block::{PRIMARY_OFFSET, SuperBlock};
use crate::writer::seal_super_block;

/// Bytes of blocks that are on the way at once.
const CACHE: usize = 64 << 20;

/// Writes what `copy` changed to `device`.
pub(super) fn commit(
    copy: &Arc<Copy>,
    device: &Arc<dyn BlockDevice>,
    now: Timestamp,
    external: Option<&Arc<dyn BlockDevice>>,
) -> Result<()> {
    let sb = locate::find(&**copy)?.super_block;
    let numbers = different(copy, &**device, &sb)?;
    if numbers.is_empty() {
        return Ok(());
    }
    if sb.compat.contains(Compat::HAS_JOURNAL) {
        // Where the journal cannot take it, it is written without.
        let _ = by_journal(copy, device, &numbers, now, external);
    }
    // After a transaction the same bytes again; the mark of recovery goes with the super block.
    write(copy, &**device, &sb, &numbers)
}

/// The blocks in which `copy` differs, in order.
fn different(copy: &Copy, device: &dyn BlockDevice, sb: &SuperBlock) -> Result<Vec<u64>> {
    let size = u64::from(sb.block_size);
    let there = device.len().checked_div(size).unwrap_or(0);
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
        if device.read_at(at, &mut before).is_err() || before != after {
            result.push(number);
        }
    }
    Ok(result)
}

/// As one transaction of the journal. Errors: whatever keeps the journal, as it is on the device, from taking it; what
/// is mended may be its inode.
fn by_journal(
    copy: &Arc<Copy>,
    device: &Arc<dyn BlockDevice>,
    numbers: &[u64],
    now: Timestamp,
    external: Option<&Arc<dyn BlockDevice>>,
) -> Result<()> {
    let found = locate::find(&**device)?;
    let mut notices = Vec::new();
    let journal = open_journal(device, &found.super_block, external, &mut notices)?.ok_or(Error::Invalid)?;
    let is_part = numbers.iter().any(|&number| journal.runs().position(number).is_some());
    if found.instead_of.is_some() || !notices.is_empty() || is_part || journal.super_block().needs_replay() {
        return Err(Error::Invalid);
    }
    let blocks_count = found.super_block.blocks_count;
    let summary = journal.replay_onto(&**device, blocks_count)?;
    let reader: Arc<dyn BlockDevice> = Arc::<Copy>::clone(copy);
    let cache = Cache::new(reader, found.super_block.block_size, CACHE);
    let blocks = numbers.iter().map(|&number| cache.get(number)).collect::<Result<Vec<Block>>>()?;
    want_recovery(&**device, &found.super_block)?;
    journal.append(&summary, &blocks, now)?;
    let mut journal =
        open_journal(device, &found.super_block, external, &mut notices)?.ok_or(Error::Invalid)?;
    journal.recover(&**device, blocks_count).map(drop)
}

/// Says in the super block on the device that the journal is to be replayed.
fn want_recovery(device: &dyn BlockDevice, sb: &SuperBlock) -> Result<()> {
    let mut raw = sb.raw;
    raw.s_feature_incompat.set(raw.s_feature_incompat.get() | Incompat::NEEDS_RECOVERY.bits());
    seal_super_block(sb, &mut raw);
    device.write_at(PRIMARY_OFFSET, raw.as_bytes())?;
    device.flush()
}

/// To their places, the block of the super block last.
fn write(copy: &Copy, device: &dyn BlockDevice, sb: &SuperBlock, numbers: &[u64]) -> Result<()> {
    let size = u64::from(sb.block_size);
    let first = PRIMARY_OFFSET.checked_div(size).unwrap_or(0);
    let mut bytes = alloc::vec![0; to_usize(size)];
    let mut bring = |number: u64| {
        copy.read_at(number.saturating_mul(size), &mut bytes)?;
        device.write_at(number.saturating_mul(size), &bytes)
    };
    numbers.iter().filter(|&&number| number != first).try_for_each(|&number| bring(number))?;
    device.flush()?;
    bring(first)?;
    device.flush()
}
