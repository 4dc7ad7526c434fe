//! Changing the size of a volume.
//!
//! Entries of a file may be in two sectors, and their checksum covers all of them, so that references are not changed
//! in place. Instead, each directory with a changed reference is written to free clusters, up to the root directory,
//! which refers to the new bitmap. A change of the boot region, which refers to the root directory, replaces all of
//! them.
//!
//! A volume grows in place if there is room for a longer FAT before the first cluster. Otherwise, the contents of the
//! first clusters move, and then a new FAT replaces these clusters.
//!
//! Reading order: `limits.rs` (the possible sizes), `fat.rs`, `entries.rs` (references), `structures.rs` (the volume in
//! memory), `plan.rs` (places), `change.rs` (writing).
//! Source: specification, 3.1 and 3.4 (boot regions), 4.1 (FAT), 6.2 (secondary entries), 7.1 (bitmap).

mod change;
mod entries;
mod fat;
mod limits;
mod plan;
mod structures;

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::{DeviceError, Error};
use obento_block::BlockDevice;
use obento_driver::{
    Resize, ResizeError, ResizeObserver, ResizeOptions, ResizePlan, ResizeRefusal, ResizeResult,
};

use crate::open::{ExFatDriver, locate};
use crate::super_block::{DIRTY, MEDIA_FAILURE, SuperBlock};
use change::Change;
use plan::Plan;
use structures::Structures;

impl Resize for ExFatDriver {
    fn plan(&self, device: &Arc<dyn BlockDevice>, len: u64) -> ResizeResult<ResizePlan> {
        let old = super_block(&**device)?;
        let len = planned(device, &old, len)?.map_or(old.len, |(new, _)| new.len);
        Ok(ResizePlan { old_len: old.len, len, notes: Vec::new() })
    }

    fn minimum(&self, device: &Arc<dyn BlockDevice>) -> ResizeResult<u64> {
        let sb = super_block(&**device)?;
        expect_sound(device)?;
        limits::shortest(&Structures::read(&**device, &sb, sb.clusters)?)
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
        let Some((new, step)) = planned(&device, &old, options.len)? else {
            return Ok(ResizePlan { old_len: old.len, len: old.len, notes: Vec::new() });
        };
        if new.len > device.len() {
            let (offset, len, device_len) = (0, new.len, device.len());
            return Err(Error::from(DeviceError::OutOfBounds { offset, len, device_len }).into());
        }
        let result = ResizePlan { old_len: old.len, len: new.len, notes: Vec::new() };
        let Step { structures, plan } = step;
        let (device, shift) = (&*device, limits::shift(&old, &new));
        Change::new(device, structures, plan)?.run(observer)?;
        if shift > 0 {
            let sb = super_block(device)?;
            let structures = Structures::read(device, &sb, sb.clusters)?;
            let plan = Plan::new(&structures, &new, 0..0, shift)?;
            Change::new(device, structures, plan)?.run(observer)?;
        }
        Ok(result)
    }
}

/// Returns the boot sector of a volume that can be resized.
fn super_block(device: &dyn BlockDevice) -> ResizeResult<SuperBlock> {
    let located = locate(device, None)?;
    let sb = located.region.sb;
    if located.damage.is_some() {
        return Err(ResizeRefusal::NeedsCheck("the boot region is damaged").into());
    }
    if sb.fats > 1 {
        return Err(ResizeRefusal::Feature("TexFAT").into());
    }
    if sb.len > device.len() {
        let (len, device_len) = (sb.len, device.len());
        return Err(Error::from(DeviceError::OutOfBounds { offset: 0, len, device_len }).into());
    }
    if sb.flags & (DIRTY | MEDIA_FAILURE) != 0 {
        return Err(ResizeRefusal::NeedsCheck("the volume was not unmounted, or has errors").into());
    }
    Ok(sb)
}

/// Refuses a volume in which a check finds anything. The structures of other volumes are followed without further
/// checks.
fn expect_sound(device: &Arc<dyn BlockDevice>) -> ResizeResult<()> {
    match crate::check::issues(Arc::clone(device))?.is_empty() {
        true => Ok(()),
        false => Err(ResizeRefusal::NeedsCheck("the volume has errors").into()),
    }
}

/// The first change of a resize: the whole change, or the move of the contents of the first clusters.
struct Step {
    structures: Structures,
    plan: Plan,
}

/// Returns the boot sector after the change to `len` bytes, or `None` if nothing changes.
fn planned(
    device: &Arc<dyn BlockDevice>,
    old: &SuperBlock,
    len: u64,
) -> ResizeResult<Option<(SuperBlock, Step)>> {
    let Some(new) = limits::planned(old, len)? else { return Ok(None) };
    expect_sound(device)?;
    let is_in_place = new.fat_start == old.fat_start;
    let clusters = if is_in_place { new.clusters } else { old.clusters };
    let structures = Structures::read(&**device, old, clusters)?;
    let plan = match is_in_place {
        true if new.clusters < old.clusters => shrink(&structures, &new)?,
        true => Plan::new(&structures, &new, 0..0, 0)?,
        false => vacate(&structures, old, &new)?,
    };
    Ok(Some((new, Step { structures, plan })))
}

/// Plans a shorter volume.
fn shrink(structures: &Structures, new: &SuperBlock) -> ResizeResult<Plan> {
    let min = limits::shortest(structures)?;
    let vacated = new.clusters.saturating_add(2)..structures.sb.clusters.saturating_add(2);
    match Plan::new(structures, new, vacated, 0) {
        Ok(plan) if new.len >= min => Ok(plan),
        Ok(_) | Err(ResizeError::Refused(ResizeRefusal::NoRoom)) => {
            Err(ResizeRefusal::TooShort { min }.into())
        }
        Err(error) => Err(error),
    }
}

/// Plans the move of the contents of the first clusters, which a new FAT replaces.
fn vacate(structures: &Structures, old: &SuperBlock, new: &SuperBlock) -> ResizeResult<Plan> {
    let refused = || limits::too_long(old, limits::room(old), limits::FULL);
    let vacated = 2..limits::shift(old, new).saturating_add(2);
    let is_possible = vacated.end < old.clusters.saturating_add(2)
        && !structures.fat.bad().any(|bad| vacated.contains(&bad.0))
        && limits::has_room_to_renumber(structures, new);
    if !is_possible {
        return Err(refused());
    }
    match Plan::new(structures, old, vacated, 0) {
        Err(ResizeError::Refused(ResizeRefusal::NoRoom)) => Err(refused()),
        result => result,
    }
}
