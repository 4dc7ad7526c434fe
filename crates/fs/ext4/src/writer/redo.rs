//! The changes that another process published before it failed, when a volume is opened for changes: they become a
//! transaction of the log, which is then replayed like any other.
//!
//! Invariant: a failure of this process at any time leaves the redo log complete, so that the next process performs the
//! same changes again. A power cut leaves the volume with all of these changes or with none.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_base::{Error, Result};
use obento_block::{Block, BlockDevice, BlockImage, Cache, Overlay};
use obento_driver::OpenOptions;

use crate::feature::Compat;
use crate::replay::open_journal;
use crate::super_block::SuperBlock;

/// Appends the changes in the redo log of `options` to the journal of the volume on `device`.
///
/// # Errors
///
/// 1. `Invalid`: the redo log is damaged or incomplete, or it does not belong to this volume.
/// 2. The errors of the journal. `Unsupported`: the changes do not fit into the journal.
#[inline(never)]
pub(super) fn fold_redo_log(
    device: &Arc<dyn BlockDevice>,
    sb: &SuperBlock,
    options: &OpenOptions,
) -> Result<()> {
    let Some(redo) = options.redo_log().filter(|_| sb.compat.contains(Compat::HAS_JOURNAL)) else {
        return Ok(());
    };
    let changes = redo.changes()?;
    if changes.is_empty() {
        return Ok(());
    }
    let journal =
        open_journal(device, sb, options.journal.as_ref(), &mut Vec::new())?.ok_or(Error::Invalid)?;
    let blocks = blocks_of(device, sb, &changes)?;
    let summary = journal.replay_onto(&**device, sb.blocks_count)?;
    // The data of these changes is in the page cache of the host.
    device.flush()?;
    journal.append(&summary, &blocks, options.clock.now()).map(drop)
}

/// Returns the changed blocks of the volume.
fn blocks_of(device: &Arc<dyn BlockDevice>, sb: &SuperBlock, changes: &[BlockImage]) -> Result<Vec<Block>> {
    let size = u64::from(sb.block_size);
    let copy = Arc::new(Overlay::new(Arc::clone(device)));
    for (number, bytes) in changes {
        if *number >= sb.blocks_count || bytes.len() != to_usize(size) {
            return Err(Error::Invalid);
        }
        copy.write_at(number.saturating_mul(size), bytes)?;
    }
    let cache = Cache::new(copy, sb.block_size.bytes(), 0);
    changes.iter().map(|(number, _)| cache.get(*number)).collect()
}
