//! Changes fields of the super block, as a repair does: as one transaction if the volume has a journal. Adds and removes
//! the journal.

use alloc::sync::Arc;

use obento_base::wire::{FromBytes, IntoBytes};
use obento_base::{Error, Ino, Result};
use obento_block::{BlockDevice, Overlay};
use obento_driver::{Access, CheckOptions, Driver as _, OpenOptions};

use super::commit::Target;
use super::edits::Edits;
use crate::Ext4Driver;
use crate::feature::{Compat, Incompat};
use crate::format::JOURNAL_INO;
use crate::locate::{self, has_magic};
use crate::raw::RawSuperBlock;
use crate::super_block::SuperBlock;
use crate::writer::seal_super_block;

/// Recovers the volume if it was not closed, changes the super block, and then its backups. `edit` is applied to each copy, and gets the
/// primary super block as it was after the recovery.
///
/// # Errors
///
/// - Those of `edit`, before anything is changed.
/// - `ReadOnly`.
/// - `Truncated`: the device does not contain the whole volume.
/// - `Unsupported`: a feature permits only reading.
/// - `Invalid`: the primary super block or the journal is damaged; a check repairs them first.
/// - The device failed.
pub(crate) fn change_settings<E: From<Error>>(
    device: &Arc<dyn BlockDevice>,
    options: &CheckOptions,
    edit: impl Fn(&SuperBlock, &mut RawSuperBlock) -> core::result::Result<(), E>,
) -> core::result::Result<(), E> {
    if device.is_read_only() {
        return Err(Error::ReadOnly.into());
    }
    // Wrong values are refused before the journal is replayed.
    let before = locate::find(&**device)?.super_block;
    before.check_tunable(device.len())?;
    edit(&before, &mut before.raw.clone())?;
    recover(device, &before, options)?;
    let sb = usable(device)?;
    let mut changed = *sb.raw;
    edit(&sb, &mut changed)?;
    let copy = Arc::new(Overlay::new(Arc::clone(device)));
    Edits::open(&copy, options)?.super_block(|raw| *raw = changed)?;
    Target::new(device, options).commit(&copy)?;
    change_copies(&**device, &sb, &edit)
}

/// Returns the primary super block of a recovered volume. Fails with `Invalid` if it or the journal is damaged.
pub(super) fn usable(device: &Arc<dyn BlockDevice>) -> Result<SuperBlock> {
    let found = locate::find(&**device)?;
    let is_usable = !found.is_copy()
        && found.instead_of.is_none()
        && !found.super_block.incompat.contains(Incompat::NEEDS_RECOVERY);
    if is_usable { Ok(found.super_block) } else { Err(Error::Invalid) }
}

/// A change of the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JournalChange {
    /// A journal of the default size is created in the volume.
    Add,
    /// The journal in the volume is removed, and its blocks are freed.
    Remove,
}

/// Adds or removes the journal, and updates the backups of the super block. Does nothing if the volume already has, or
/// does not have, a journal. The volume is marked as having errors until the change is complete; a check completes or
/// reverts a change that was interrupted.
///
/// # Errors
///
/// - `Invalid`: the primary super block or the journal is damaged; a check repairs them first.
/// - `NoSpace`: the volume has no space for a journal. Nothing was changed.
/// - The device failed.
pub(crate) fn change_journal(
    device: &Arc<dyn BlockDevice>,
    options: &CheckOptions,
    change: JournalChange,
) -> Result<()> {
    let sb = usable(device)?;
    if sb.compat.contains(Compat::HAS_JOURNAL) == (change == JournalChange::Add) {
        return Ok(());
    }
    let copy = Arc::new(Overlay::new(Arc::clone(device)));
    let mut edits = Edits::open(&copy, options)?;
    match change {
        JournalChange::Add => {
            edits.super_block(|raw| {
                raw.s_feature_compat.set(raw.s_feature_compat.get() | Compat::HAS_JOURNAL.bits());
                raw.s_journal_inum.set(JOURNAL_INO);
            })?;
            Edits::open(&copy, options)?.recreate_journal(options)?;
        }
        JournalChange::Remove => {
            let ino = Ino(sb.raw.s_journal_inum.get().into());
            edits.with_writer(&options.clock, |writer| writer.drop_blocks(&mut writer.lock_inode(ino)?))?;
            edits.drop_journal()?;
        }
    }
    let after = locate::find(&*copy)?.super_block;
    if after.compat.contains(Compat::HAS_JOURNAL) != (change == JournalChange::Add) {
        return Err(Error::NoSpace);
    }
    let mut target = Target::new(device, options);
    // A journal that is being removed cannot take its own removal.
    target.spare_journal();
    target.commit_at_once(&copy)?;
    change_copies(&**device, &after, &|sb: &SuperBlock, raw: &mut RawSuperBlock| {
        copy_journal_fields(&sb.raw, raw);
        Ok::<(), Error>(())
    })
}

/// Copies the fields that refer to the journal to a backup of the super block.
fn copy_journal_fields(from: &RawSuperBlock, to: &mut RawSuperBlock) {
    let bit = Compat::HAS_JOURNAL.bits();
    to.s_feature_compat.set(to.s_feature_compat.get() & !bit | from.s_feature_compat.get() & bit);
    to.s_journal_uuid = from.s_journal_uuid;
    to.s_journal_inum = from.s_journal_inum;
    to.s_journal_dev = from.s_journal_dev;
    to.s_jnl_backup_type = from.s_jnl_backup_type;
    to.s_jnl_blocks = from.s_jnl_blocks;
}

/// Replays the journal of a volume that was not closed, frees the inodes without names, and counts what is free: opens the
/// volume for changes, and closes it.
///
/// # Errors
///
/// As for opening a volume for changes.
pub(crate) fn recover(device: &Arc<dyn BlockDevice>, sb: &SuperBlock, options: &CheckOptions) -> Result<()> {
    if !sb.incompat.contains(Incompat::NEEDS_RECOVERY) {
        return Ok(());
    }
    let open = OpenOptions {
        access: Access::ReadWrite,
        journal: options.journal.clone(),
        ..OpenOptions::new(Arc::clone(&options.clock))
    };
    let fs = Ext4Driver.open(Arc::clone(device), &open)?;
    fs.writable().map_or(Ok(()), |changes| changes.close())
}

/// Changes the backups of the super block, durably. A damaged backup is left for a check.
pub(super) fn change_copies<E: From<Error>>(
    device: &dyn BlockDevice,
    sb: &SuperBlock,
    edit: &impl Fn(&SuperBlock, &mut RawSuperBlock) -> core::result::Result<(), E>,
) -> core::result::Result<(), E> {
    for group in sb.copies().skip(1) {
        let at = sb.group_start(group).0.saturating_mul(sb.block_size.into());
        change_copy(device, at, sb, edit)?;
    }
    Ok(device.flush()?)
}

/// Changes the backup at byte `at`.
fn change_copy<E: From<Error>>(
    device: &dyn BlockDevice,
    at: u64,
    sb: &SuperBlock,
    edit: &impl Fn(&SuperBlock, &mut RawSuperBlock) -> core::result::Result<(), E>,
) -> core::result::Result<(), E> {
    let Some(mut raw) = read_copy(device, at)? else { return Ok(()) };
    edit(sb, &mut raw)?;
    seal_super_block(sb, &mut raw);
    Ok(device.write_at(at, raw.as_bytes())?)
}

fn read_copy(device: &dyn BlockDevice, at: u64) -> Result<Option<RawSuperBlock>> {
    let mut bytes = [0; size_of::<RawSuperBlock>()];
    if at.saturating_add(1024) > device.len() {
        return Ok(None);
    }
    device.read_at(at, &mut bytes)?;
    Ok(RawSuperBlock::read_from_bytes(&bytes).ok().filter(has_magic))
}
