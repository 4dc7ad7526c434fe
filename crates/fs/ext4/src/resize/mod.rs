//! Changing the size of a volume.
//!
//! Reading order: `shape.rs` (the size and the features of the grown volume), `place.rs` (where the tables of new groups
//! are), `grow.rs` (the order of the writes). `check::shrink` makes volumes smaller with the edits of repairs.

mod grow;
mod old;
mod place;
mod shape;
mod table;

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::{DeviceError, Error};
use obento_block::BlockDevice;
use obento_driver::{
    CheckOptions, RepairMode, Resize, ResizeObserver, ResizeOptions, ResizePlan, ResizeRefusal, ResizeResult,
};

use crate::Ext4Driver;
use crate::check::{minimum_blocks, planned_blocks, recover, shrink};
use crate::feature::{Compat, Incompat};
use crate::locate;
use crate::super_block::SuperBlock;
use grow::GrowingVolume;

impl Resize for Ext4Driver {
    fn plan(&self, device: &Arc<dyn BlockDevice>, len: u64) -> ResizeResult<ResizePlan> {
        let old = super_block(&**device)?;
        if len >= old.volume_len() {
            let new = shape::grown(&old, len)?;
            return Ok(plan(&old, new.as_ref()));
        }
        let size = old.block_size;
        let blocks = planned_blocks(device, &looking(), size.whole(len))?;
        let len = size.len(blocks.unwrap_or(old.blocks_count));
        Ok(ResizePlan { old_len: old.volume_len(), len, notes: Vec::new() })
    }

    fn minimum(&self, device: &Arc<dyn BlockDevice>) -> ResizeResult<u64> {
        let sb = super_block(&**device)?;
        Ok(sb.block_size.len(minimum_blocks(device, &looking())?))
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
        if options.len >= super_block(&*device)?.volume_len() {
            let before = self.plan(&device, options.len)?;
            if before.len > device.len() {
                let (offset, len, device_len) = (0, before.len, device.len());
                return Err(Error::from(DeviceError::OutOfBounds { offset, len, device_len }).into());
            }
        }
        let checking = CheckOptions {
            repair_mode: RepairMode::Safe,
            journal: options.journal.clone(),
            ..CheckOptions::new(Arc::clone(&options.clock))
        };
        recover(&device, &super_block(&*device)?, &checking)?;
        let old = super_block(&*device)?;
        if old.incompat.contains(Incompat::NEEDS_RECOVERY) {
            return Err(ResizeRefusal::NeedsCheck("the journal cannot be replayed").into());
        }
        if options.len < old.volume_len() {
            let size = old.block_size;
            let blocks = shrink(&device, &checking, size.whole(options.len), observer)?;
            let len = size.len(blocks.unwrap_or(old.blocks_count));
            return Ok(ResizePlan { old_len: old.volume_len(), len, notes: Vec::new() });
        }
        let Some(new) = shape::grown(&old, options.len)? else { return Ok(plan(&old, None)) };
        let plan = plan(&old, Some(&new));
        GrowingVolume::open(&device, old, new)?.run(&checking, observer)?;
        Ok(plan)
    }
}

/// Returns the options for reading a volume.
fn looking() -> CheckOptions {
    CheckOptions::new(Arc::new(obento_env::NO_CLOCK))
}

/// Returns the primary super block of a volume that can be resized.
fn super_block(device: &dyn BlockDevice) -> ResizeResult<SuperBlock> {
    let found = locate::find(device)?;
    if found.is_copy() || found.instead_of.is_some() {
        return Err(ResizeRefusal::NeedsCheck("the primary super block is damaged").into());
    }
    found.super_block.check_len(device.len())?;
    shape::expect_resizable(&found.super_block)?;
    Ok(found.super_block)
}

fn plan(old: &SuperBlock, new: Option<&SuperBlock>) -> ResizePlan {
    let mut notes = Vec::new();
    let had_reserved = old.compat.contains(Compat::RESIZE_INODE);
    let is_converted = |new: &&SuperBlock| {
        !old.incompat.contains(Incompat::META_BG) && new.incompat.contains(Incompat::META_BG)
    };
    if new.filter(is_converted).is_some() {
        notes.push(if had_reserved {
            "the feature meta_bg replaces resize_inode, because too few blocks are reserved for descriptors"
                .into()
        } else {
            "the feature meta_bg was enabled, because no blocks are reserved for descriptors".into()
        });
    }
    ResizePlan { old_len: old.volume_len(), len: new.unwrap_or(old).volume_len(), notes }
}
