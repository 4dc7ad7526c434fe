//! Replaying the journal before anything else is checked.
//!
//! Damage in the log costs only the affected part, and the rest is replayed. An error in the journal's super block is
//! copied to the super block of the volume, and impossible fields of the journal's super block are cleared. If the
//! primary super block is unusable, it is restored from a backup first, with the request for recovery, since only
//! that shows a second run that there is something to replay.
//! Source: e2fsprogs `e2fsck/journal.c` `e2fsck_run_ext3_journal`, `recover_ext3_journal`, `clear_v2_journal_fields`;
//! Linux `fs/jbd2/recovery.c`.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem::offset_of;

use obento_base::Result;
use obento_base::wire::IntoBytes;
use obento_block::BlockDevice;
use obento_driver::{CheckOptions, OpenOptions, RepairMode, Severity};
use obento_journal::raw::RawSuperBlock as RawJournal;
use obento_journal::{Journal, Version, checksum};

use super::super::issue::Issue;
use super::super::journal::{LOST_FEATURE, label, stray_field, with_lost_feature};
use super::super::view::{find, instead_of};
use super::commit::{change_super_block, unfinished, want_recovery};
use crate::feature::{Compat, Incompat};
use crate::locate::{self, FoundSuperBlock};
use crate::replay::open_journal;
use crate::super_block::{PRIMARY_OFFSET, SuperBlock};
use crate::writer::{fold_fast_commits, seal_super_block};

/// Replays the journal onto the device, as far as it is intact and the options permit. The next check finds an
/// unusable journal. Returns the issues that were repaired. Fails with `Unsupported` for unknown contents of the log,
/// or if the device fails.
pub(super) fn onto(device: &Arc<dyn BlockDevice>, options: &CheckOptions) -> Result<Vec<Issue>> {
    let mut issues = Vec::new();
    let Ok(mut found) = find(&**device, options) else { return Ok(issues) };
    if found.is_copy() && found.instead_of.is_none() {
        // The primary super block is usable, and knows more about the journal.
        found = locate::find(&**device)?;
    }
    let may_be = !found.is_copy() && options.repair_mode == RepairMode::All;
    if let Some(with) = with_lost_feature(device, &found.super_block).filter(|_| may_be) {
        // Before the replay, or a second run would not know about it.
        issues.push(LOST_FEATURE);
        change_super_block(&**device, &with, |_| {})?;
        found.super_block = with;
    }
    let sb = &found.super_block;
    if !sb.compat.contains(Compat::HAS_JOURNAL) {
        return Ok(issues);
    }
    let mut notices = Vec::new();
    let Ok(Some(journal)) = open_journal(device, sb, options.journal.as_ref(), &mut notices) else {
        return Ok(issues);
    };
    let log = journal.super_block();
    let stray = stray_field(&journal, sb)?;
    let is_dirty = sb.incompat.contains(Incompat::NEEDS_RECOVERY) || found.is_copy() && log.needs_replay();
    let is_sound = !is_dirty && log.errno == 0 && stray.is_none();
    // An impossible field of the journal's super block is damage.
    let may_be = stray.is_none() || options.repair_mode == RepairMode::All;
    if is_sound || !may_be || !may_repair(&journal, &found, options) {
        return Ok(issues);
    }
    if let Some(issue) = instead_of(&found) {
        issues.push(issue);
        change_super_block(&**device, sb, |raw| {
            raw.s_block_group_nr.set(0);
            want_recovery(raw);
            unfinished(raw);
        })?;
    }
    if let Some((field, found)) = stray {
        issues.push(Issue::JournalField { field, found });
        clear_stray(&journal)?;
    }
    let journal = if is_dirty { replay(device, sb, options, &mut issues)? } else { Some(journal) };
    if let Some(journal) = journal.filter(|journal| journal.super_block().errno != 0) {
        issues.push(Issue::JournalAborted { errno: journal.super_block().errno });
        change_primary(device, sb, unfinished)?;
        journal.clear_error()?;
    }
    Ok(issues)
}

/// Clears fields that the super block of an internal journal cannot have. In version 2 the features stay, since they
/// are needed to read the log.
fn clear_stray(journal: &Journal) -> Result<()> {
    let (at, mut raw) = label(journal)?;
    if journal.super_block().version == Version::V1 {
        let newer = raw.as_mut_bytes().get_mut(offset_of!(RawJournal, s_feature_compat)..);
        newer.unwrap_or_default().fill(0);
    } else {
        raw.s_nr_users.set(1);
        if journal.super_block().checksums().in_blocks() {
            raw.s_checksum.set(checksum::super_block(raw.as_bytes()));
        }
    }
    journal.device().write_at(at, raw.as_bytes())?;
    journal.device().flush()
}

/// Returns whether the options permit repairing the errors of the journal and the super block.
fn may_repair(journal: &Journal, found: &FoundSuperBlock, options: &CheckOptions) -> bool {
    let is_sound = || {
        let replayed = journal.replay_index(found.super_block.blocks_count);
        replayed.is_ok_and(|replayed| replayed.damage.is_none())
    };
    let is_safe = || instead_of(found).is_none_or(|issue| issue.severity() < Severity::Damage);
    options.repair_mode == RepairMode::All || !found.is_copy() && is_safe() && is_sound()
}

/// Replays everything that is intact.
fn replay(
    device: &Arc<dyn BlockDevice>,
    sb: &SuperBlock,
    options: &CheckOptions,
    issues: &mut Vec<Issue>,
) -> Result<Option<Journal>> {
    let open =
        OpenOptions { journal: options.journal.clone(), ..OpenOptions::new(Arc::clone(&options.clock)) };
    let _ = fold_fast_commits(device, sb, &open);
    let mut notices = Vec::new();
    let Ok(Some(mut journal)) = open_journal(device, sb, options.journal.as_ref(), &mut notices) else {
        return Ok(None);
    };
    let (summary, damage) = journal.recover_sound_part(&**device, sb.blocks_count)?;
    let transactions = u64::from(summary.transactions);
    if transactions > 0 {
        issues.push(Issue::JournalDirty { transactions });
    }
    change_primary(device, sb, |raw| {
        raw.s_feature_incompat.set(raw.s_feature_incompat.get() & !Incompat::NEEDS_RECOVERY.bits());
        if damage.is_some() {
            unfinished(raw);
        }
    })?;
    issues.extend(damage.map(|why| Issue::JournalReplay { why }));
    Ok(Some(journal))
}

/// Changes the primary super block on the device, since the replay may have changed it.
fn change_primary(
    device: &Arc<dyn BlockDevice>,
    sb: &SuperBlock,
    change: impl FnOnce(&mut crate::raw::RawSuperBlock),
) -> Result<()> {
    let Some(mut raw) = locate::read_raw(&**device, PRIMARY_OFFSET)? else { return Ok(()) };
    change(&mut raw);
    seal_super_block(sb, &mut raw);
    device.write_at(PRIMARY_OFFSET, raw.as_bytes())?;
    device.flush()
}
