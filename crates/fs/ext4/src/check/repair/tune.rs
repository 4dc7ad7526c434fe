//! Changes fields of the super block, as a repair does: as one transaction if the volume has a journal.

use alloc::sync::Arc;

use obento_base::wire::{FromBytes, IntoBytes};
use obento_base::{Error, Result};
use obento_block::{BlockDevice, Overlay};
use obento_driver::{Access, CheckOptions, Driver as _, OpenOptions};

use super::commit::Target;
use super::edits::Edits;
use crate::Ext4Driver;
use crate::feature::Incompat;
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
    edit(&before, &mut before.raw.clone())?;
    recover(device, &before, options)?;
    let found = locate::find(&**device)?;
    let is_usable = !found.is_copy()
        && found.instead_of.is_none()
        && !found.super_block.incompat.contains(Incompat::NEEDS_RECOVERY);
    if !is_usable {
        return Err(Error::Invalid.into());
    }
    let sb = found.super_block;
    let mut changed = *sb.raw;
    edit(&sb, &mut changed)?;
    let copy = Arc::new(Overlay::new(Arc::clone(device)));
    Edits::open(&copy, options)?.super_block(|raw| *raw = changed)?;
    Target::new(device, options).commit(&copy)?;
    for group in sb.copies().skip(1) {
        let at = sb.group_start(group).0.saturating_mul(sb.block_size.into());
        change_copy(&**device, at, &sb, &edit)?;
    }
    Ok(device.flush()?)
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

/// Changes the backup at byte `at`. A damaged backup is left for a check.
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
