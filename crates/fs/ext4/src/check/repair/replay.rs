//! The journal's transactions to their places, before anything else is looked at.
//!
//! Source: e2fsprogs `e2fsck/journal.c` `e2fsck_run_ext3_journal`; Linux `fs/jbd2/recovery.c`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::Result;
use obento_base::wire::IntoBytes;
use obento_block::BlockDevice;
use obento_driver::{CheckOptions, OpenOptions};

use super::super::Issue;
use crate::feature::{Compat, Incompat};
use crate::locate;
use crate::replay::open_journal;
use crate::super_block::PRIMARY_OFFSET;
use crate::writer::{fold_fast_commits, seal_super_block};

/// Replays the journal onto the device, if it is sound; one that is not is found by who looks next. Errors: those of
/// the device.
pub(super) fn onto(device: &Arc<dyn BlockDevice>, options: &CheckOptions) -> Result<Option<Issue>> {
    let Ok(found) = locate::find(&**device) else { return Ok(None) };
    let sb = found.super_block;
    let is_dirty = sb.compat.contains(Compat::HAS_JOURNAL) && sb.incompat.contains(Incompat::NEEDS_RECOVERY);
    if !is_dirty || found.instead_of.is_some() {
        return Ok(None);
    }
    let open =
        OpenOptions { journal: options.journal.clone(), ..OpenOptions::new(Arc::clone(&options.clock)) };
    let _ = fold_fast_commits(device, &sb, &open);
    let mut notices = Vec::new();
    let Ok(Some(mut journal)) = open_journal(device, &sb, options.journal.as_ref(), &mut notices) else {
        return Ok(None);
    };
    let Ok(summary) = journal.recover(&**device, sb.blocks_count) else { return Ok(None) };
    // What was replayed may be the super block.
    let Some(mut raw) = locate::read_raw(&**device, PRIMARY_OFFSET)? else { return Ok(None) };
    raw.s_feature_incompat.set(raw.s_feature_incompat.get() & !Incompat::NEEDS_RECOVERY.bits());
    seal_super_block(&sb, &mut raw);
    device.write_at(PRIMARY_OFFSET, raw.as_bytes())?;
    device.flush()?;
    let transactions = u64::from(summary.transactions);
    Ok((transactions > 0).then_some(Issue::JournalDirty { transactions }))
}
