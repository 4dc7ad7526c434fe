//! The journal: whether it can be used, and what the volume looks like behind it.
//!
//! Invariant: a dirty log is shown as if it had been replayed, so that a volume that a power cut left is judged by what
//! the next mount will see. Nothing is written.
//! Source: e2fsprogs `e2fsck/journal.c`; Linux `fs/jbd2/recovery.c`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_block::BlockDevice;
use obento_driver::{CheckOptions, Notice, OpenOptions};

use super::{Issue, Told};
use crate::feature::{Compat, Incompat};
use crate::locate::{self, Found};
use crate::replay;
use crate::super_block::SuperBlock;

/// The device behind its journal, and the super block as the journal leaves it.
pub(super) fn look_behind(
    device: Arc<dyn BlockDevice>,
    found: Found,
    options: &CheckOptions,
    told: &mut Told<'_>,
) -> (Arc<dyn BlockDevice>, SuperBlock) {
    let sb = found.super_block.clone();
    let needs = sb.incompat.contains(Incompat::NEEDS_RECOVERY);
    if !sb.compat.contains(Compat::HAS_JOURNAL) {
        if needs {
            told.found(Issue::JournalNotThere {});
        }
        return (device, sb);
    }
    let open = OpenOptions { journal: options.journal.clone(), ..OpenOptions::new(options.clock.clone()) };
    let mut notices = Vec::new();
    let behind = replay::look_behind(Arc::clone(&device), &sb, found.is_copy(), &open, &mut notices);
    if !needs {
        check_at_rest(&device, &sb, options, &mut notices);
    }
    for notice in notices {
        match notice {
            Notice::Damaged(why) | Notice::ReplayFailed(why) => told.found(Issue::JournalDamaged { why }),
            Notice::JournalMissing { .. } => told.found(Issue::JournalMissing {}),
            Notice::MarkedWithErrors => told.found(Issue::JournalAborted { errno: 0 }),
            _ => {}
        }
    }
    if let Some((_, summary)) = &behind.replayed {
        told.found(Issue::JournalDirty { transactions: summary.transactions.into() });
    }
    let again = match locate::read_raw(&*behind.device, found.offset) {
        Ok(Some(raw)) => SuperBlock::decode(obento_base::wire::IntoBytes::as_bytes(&raw), found.block()),
        _ => return (behind.device, sb),
    };
    // What the volume is measured by never changes while it is mounted, but for growing.
    match again {
        Ok(again) if again.block_size == sb.block_size && again.groups == sb.groups => (behind.device, again),
        _ => (behind.device, sb),
    }
}

/// Looks at a journal with nothing to replay.
fn check_at_rest(
    device: &Arc<dyn BlockDevice>,
    sb: &SuperBlock,
    options: &CheckOptions,
    notices: &mut Vec<Notice>,
) {
    match replay::open_journal(device, sb, options.journal.as_ref(), notices) {
        Ok(Some(journal)) if journal.super_block().errno != 0 => notices.push(Notice::MarkedWithErrors),
        Ok(_) => {}
        Err(why) => notices.push(Notice::ReplayFailed(why)),
    }
}
