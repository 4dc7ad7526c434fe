//! Changing the size of a volume.
//!
//! A volume shrinks by copies of the clusters after the new end. A volume grows in place if its FATs have entries for
//! the new clusters; otherwise it gets larger FATs.
//!
//! Reading order: `limits.rs` (the possible sizes), `table.rs` (the FATs), `directories.rs` (entries that refer to
//! clusters), `relocate.rs` (moving clusters), `larger.rs` (larger FATs).
//! Source: fatgen103, "FAT Type Determination" and "Boot Sector and BPB".

mod boot;
mod directories;
mod larger;
mod limits;
mod relocate;
mod table;

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::{DeviceError, Error};
use obento_block::BlockDevice;
use obento_driver::{Resize, ResizeObserver, ResizeOptions, ResizePlan, ResizeRefusal, ResizeResult};

use crate::open::{FatDriver, locate};
use crate::super_block::SuperBlock;
use boot::BootSector;
use larger::Growing;
use limits::{FULL, Limits};
use relocate::Relocation;
use table::AllocationTable;

/// The bits of the state of a volume: in use, and an error of the medium.
const UNCLEAN: u8 = 0b11;

impl Resize for FatDriver {
    fn plan(&self, device: &Arc<dyn BlockDevice>, len: u64) -> ResizeResult<ResizePlan> {
        let old = super_block(&**device)?;
        let len = planned(device, &old, len)?.map_or(old.len, |new| new.len);
        Ok(ResizePlan { old_len: old.len, len, notes: Vec::new() })
    }

    fn minimum(&self, device: &Arc<dyn BlockDevice>) -> ResizeResult<u64> {
        let sb = super_block(&**device)?;
        let table = AllocationTable::read(&**device, &sb, sb.clusters)?;
        Limits::of(&**device, &sb)?.shortest(&table)
    }

    fn resize(
        &self,
        device: Arc<dyn BlockDevice>,
        options: &ResizeOptions,
        observer: ResizeObserver<'_>,
    ) -> ResizeResult<ResizePlan> {
        if device.is_read_only() {
            return Err(Error::ReadOnly.into());
        }
        let old = super_block(&*device)?;
        let Some(new) = planned(&device, &old, options.len)? else {
            return Ok(ResizePlan { old_len: old.len, len: old.len, notes: Vec::new() });
        };
        if new.len > device.len() {
            let (offset, len, device_len) = (0, new.len, device.len());
            return Err(Error::from(DeviceError::OutOfBounds { offset, len, device_len }).into());
        }
        let plan = ResizePlan { old_len: old.len, len: new.len, notes: Vec::new() };
        if new.clusters < old.clusters {
            shrink(&device, &old, &new, observer)?;
        } else if new.fat_start != old.fat_start {
            Growing::vacate(&device, &old, &new, observer)?.run()?;
        } else {
            grow(&*device, &old, &new)?;
        }
        Ok(plan)
    }
}

/// Returns the boot sector of a volume that can be resized.
fn super_block(device: &dyn BlockDevice) -> ResizeResult<SuperBlock> {
    let located = locate(device, None)?;
    if located.instead_of.is_some() {
        return Err(ResizeRefusal::NeedsCheck("the boot sector is damaged").into());
    }
    let sb = located.sb;
    if sb.len > device.len() {
        let (len, device_len) = (sb.len, device.len());
        return Err(Error::from(DeviceError::OutOfBounds { offset: 0, len, device_len }).into());
    }
    if sb.state & UNCLEAN != 0 {
        return Err(ResizeRefusal::NeedsCheck("the volume was not unmounted, or has errors").into());
    }
    Ok(sb)
}

/// Returns the boot sector after the change to `len` bytes, or `None` if nothing changes.
fn planned(device: &Arc<dyn BlockDevice>, old: &SuperBlock, len: u64) -> ResizeResult<Option<SuperBlock>> {
    let limits = Limits::of(&**device, old)?;
    let Some(new) = limits.planned(len)? else { return Ok(None) };
    let is_in_place = new.fat_start == old.fat_start && new.clusters >= old.clusters;
    if is_in_place {
        return Ok(Some(new));
    }
    let table = AllocationTable::read(&**device, old, old.clusters)?;
    if new.clusters < old.clusters {
        let min = limits.shortest(&table)?;
        if new.len < min {
            return Err(ResizeRefusal::TooShort { min }.into());
        }
    } else if !larger::has_room(&table, old, &new)? {
        return Err(limits.too_long(old, limits.entries(), FULL));
    }
    let is_sound = crate::check::issues(Arc::clone(device))?.is_empty();
    if !is_sound {
        return Err(ResizeRefusal::NeedsCheck("the volume has errors").into());
    }
    Ok(Some(new))
}

/// Shrinks a volume.
fn shrink(
    device: &Arc<dyn BlockDevice>,
    old: &SuperBlock,
    new: &SuperBlock,
    observer: ResizeObserver<'_>,
) -> ResizeResult<()> {
    let end = new.clusters.saturating_add(2);
    let mut relocation = Relocation::plan(device, old, end..old.clusters.saturating_add(2), 2..end)?;
    relocation.run(observer)?;
    let new = SuperBlock { root: relocation.root, ..new.clone() };
    BootSector::read(&**device)?.write_resized(&**device, &new)?;
    boot::write_free_count(&**device, &new, relocation.table.count_free(new.clusters)?)?;
    Ok(device.flush()?)
}

/// Grows a volume. The entries of the new clusters may contain anything, so that they are cleared before the boot
/// sector contains the new length.
fn grow(device: &dyn BlockDevice, old: &SuperBlock, new: &SuperBlock) -> ResizeResult<()> {
    let mut table = AllocationTable::read(device, old, new.clusters)?;
    table.clear_from(old.clusters)?;
    table.write(device)?;
    BootSector::read(device)?.write_resized(device, new)?;
    boot::write_free_count(device, new, table.count_free(new.clusters)?)?;
    Ok(device.flush()?)
}
