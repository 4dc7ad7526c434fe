//! The journal: whether it is usable, and the volume with the journal applied.
//!
//! Invariant: a dirty log is shown as if it had been replayed, as far as it is intact, so that a volume after a power
//! cut is checked in the state that the next mount will see. Nothing is written.
//! Source: e2fsprogs `e2fsck/journal.c` `e2fsck_get_journal`, `e2fsck_journal_load`, `e2fsck_check_ext3_journal`;
//! Linux `fs/jbd2/recovery.c`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::{FromZeros, IntoBytes};
use obento_base::{Error, Result};
use obento_block::BlockDevice;
use obento_driver::{CheckOptions, Notice};
use obento_journal::Journal;
use obento_journal::raw::{RawSuperBlock as RawJournal, SUPER_BLOCK_V1};

use super::events::EventSink;
use super::issue::Issue;
use super::reason::VolumeFeature;
use crate::feature::{Compat, Incompat};
use crate::format::JOURNAL_INO;
use crate::layout;
use crate::locate::{self, FoundSuperBlock};
use crate::replay::{behind, open_journal};
use crate::super_block::SuperBlock;

/// Returns the device with its journal applied, and the super block after that. Fails with `Unsupported` for unknown
/// contents of the log.
pub(super) fn look_behind(
    device: Arc<dyn BlockDevice>,
    found: FoundSuperBlock,
    options: &CheckOptions,
    reported: &mut EventSink<'_>,
) -> Result<(Arc<dyn BlockDevice>, SuperBlock)> {
    let lost = with_lost_feature(&device, &found.super_block);
    if lost.is_some() {
        reported.found(LOST_FEATURE);
    }
    let sb = lost.unwrap_or_else(|| found.super_block.clone());
    let needs = sb.incompat.contains(Incompat::NEEDS_RECOVERY);
    if !sb.compat.contains(Compat::HAS_JOURNAL) {
        // A named journal may need a replay, which would be lost with the name. Removing the name is therefore not a
        // safe repair.
        if names_journal(&sb) {
            reported.found(Issue::JournalNamed { ino: sb.raw.s_journal_inum.get() });
        } else if needs {
            reported.found(Issue::JournalNotThere {});
        }
        return Ok((device, sb));
    }
    let Some(journal) = open(&device, &sb, options, reported) else { return Ok((device, sb)) };
    if let Some((field, found)) = stray_field(&journal, &sb)? {
        reported.found(Issue::JournalField { field, found });
    }
    let errno = journal.super_block().errno;
    if errno != 0 {
        reported.found(Issue::JournalAborted { errno });
    }
    // A backup of the super block is too old to say whether the journal is dirty. The journal's own super block is
    // current.
    if !(needs || found.is_copy()) || !journal.super_block().needs_replay() {
        return Ok((device, sb));
    }
    let behind = match behind(Arc::clone(&device), &sb, journal) {
        Ok((behind, damage)) => {
            damage.into_iter().for_each(|why| reported.found(Issue::JournalReplay { why }));
            behind
        }
        Err(error @ Error::Unsupported(_)) => return Err(error),
        Err(why) => {
            reported.found(Issue::JournalReplay { why });
            return Ok((device, sb));
        }
    };
    if let Some((_, summary)) = &behind.replayed {
        reported.found(Issue::JournalDirty { transactions: summary.transactions.into() });
    }
    let again = match locate::read_raw(&*behind.device, found.offset) {
        Ok(Some(raw)) => {
            let is_corrected = found.instead_of.is_some() && !found.is_copy();
            let raw = if is_corrected { layout::with_fields(&raw, &sb.raw) } else { *raw };
            SuperBlock::decode(raw.as_bytes(), found.block())
        }
        _ => return Ok((behind.device, sb)),
    };
    // Fields that define the layout do not change while a volume is mounted, except when it grows.
    Ok(match again {
        Ok(mut again) if again.block_size == sb.block_size && again.groups == sb.groups => {
            again.compat.insert(sb.compat & Compat::HAS_JOURNAL);
            (behind.device, again)
        }
        _ => (behind.device, sb),
    })
}

/// Returns whether the volume needs recovery from a journal on another device that was not given.
pub(super) fn is_log_missing(sb: &SuperBlock, options: &CheckOptions) -> bool {
    let is_outside = sb.raw.s_journal_inum.get() == 0 && sb.raw.s_journal_uuid != [0; 16];
    sb.compat.contains(Compat::HAS_JOURNAL)
        && sb.incompat.contains(Incompat::NEEDS_RECOVERY)
        && is_outside
        && options.journal.is_none()
}

/// Opens the journal. Reports why it is unusable.
fn open(
    device: &Arc<dyn BlockDevice>,
    sb: &SuperBlock,
    options: &CheckOptions,
    reported: &mut EventSink<'_>,
) -> Option<Journal> {
    let mut notices = Vec::new();
    let opened = open_journal(device, sb, options.journal.as_ref(), &mut notices);
    for notice in notices {
        match notice {
            Notice::Damaged(why) => {
                reported.found(Issue::JournalInode { ino: sb.raw.s_journal_inum.get(), why });
            }
            Notice::JournalMissing { .. } if is_log_missing(sb, options) => {
                reported.found(Issue::JournalNotRead {});
            }
            Notice::JournalMissing { .. } => reported.found(Issue::JournalMissing {}),
            _ => {}
        }
    }
    opened.unwrap_or_else(|why| {
        reported.found(Issue::JournalDamaged { why });
        None
    })
}

/// The issue for which [`with_lost_feature`] returns a super block.
pub(super) const LOST_FEATURE: Issue =
    Issue::Feature { feature: VolumeFeature::Journal, why: "it is not set, but the log must be replayed" };

/// Returns a super block with the feature of journals, if only that is missing: the volume needs recovery, and the
/// journal inode contains a log to replay. The log contains synced data, which e2fsck discards.
pub(super) fn with_lost_feature(device: &Arc<dyn BlockDevice>, sb: &SuperBlock) -> Option<SuperBlock> {
    let wants = sb.incompat.contains(Incompat::NEEDS_RECOVERY) && sb.raw.s_journal_inum.get() == JOURNAL_INO;
    if !wants || sb.compat.contains(Compat::HAS_JOURNAL) {
        return None;
    }
    let journal = open_journal(device, sb, None, &mut Vec::new()).ok().flatten()?;
    let mut with = sb.clone();
    with.compat.insert(Compat::HAS_JOURNAL);
    with.raw.s_feature_compat.set(with.compat.bits());
    journal.super_block().needs_replay().then_some(with)
}

/// Returns whether a super block names a journal.
fn names_journal(sb: &SuperBlock) -> bool {
    let raw = &sb.raw;
    raw.s_journal_inum.get() != 0 || raw.s_journal_uuid != [0; 16]
}

/// Returns a field that the super block of an internal journal cannot have, and its value: in version 1 a field of
/// version 2, in version 2 the number of volumes that share it.
pub(super) fn stray_field(journal: &Journal, sb: &SuperBlock) -> Result<Option<(&'static str, u32)>> {
    if sb.raw.s_journal_inum.get() == 0 {
        return Ok(None);
    }
    let (_, label) = label(journal)?;
    let users = ("s_nr_users", label.s_nr_users.get());
    if label.s_header.h_blocktype.get() != SUPER_BLOCK_V1 {
        return Ok(Some(users).filter(|(_, found)| *found > 1));
    }
    let fields = [
        ("s_feature_compat", label.s_feature_compat.get()),
        ("s_feature_incompat", label.s_feature_incompat.get()),
        ("s_feature_ro_compat", label.s_feature_ro_compat.get()),
        users,
    ];
    Ok(fields.into_iter().find(|(_, found)| *found != 0))
}

/// Returns the byte offset of the journal's super block on its device, and the super block.
pub(super) fn label(journal: &Journal) -> Result<(u64, RawJournal)> {
    let at = journal.super_block_place()?.saturating_mul(journal.super_block().block_size.into());
    let mut raw = RawJournal::new_zeroed();
    journal.device().read_at(at, raw.as_mut_bytes())?;
    Ok((at, raw))
}
