//! The resize inode, which owns the reserved descriptor blocks in every group with backups, so that the volume can
//! grow.
//!
//! On disk: its doubly indirect block refers, at the index of each reserved block among all descriptor blocks, to
//! that block of group 0, which in turn refers to the same block of every other group with backups.
//! Source: e2fsprogs `e2fsck/super.c` `check_resize_inode`, `lib/ext2fs/res_gdt.c`.

use alloc::vec::Vec;

use obento_base::wire::{FromBytes, to_u64, to_usize};

use super::blocks::on_volume;
use super::events::EventSink;
use super::inode_check::RESIZE_INO;
use super::issue::Issue;
use super::view::{View, keeps_for_growing_twice};
use crate::feature::Compat;
use crate::inode::InodeFlags;
use crate::map::check::numbers;
use crate::raw::RawInode;
use crate::unit::VolBlock;

/// Index of the doubly indirect block in `i_block`.
pub(super) const DOUBLY: usize = 13;

/// Checks the resize inode.
pub(super) fn check(view: &View, reported: &mut EventSink<'_>) {
    // With `meta_bg` the feature itself is wrong, which is reported, and no block is reserved.
    if keeps_for_growing_twice(&view.sb) {
        return;
    }
    if let Err(why) = look(view) {
        reported.found(Issue::ResizeInode { why });
    }
}

fn look(view: &View) -> Result<(), &'static str> {
    let sb = &view.sb;
    let Some((record, _)) = view.record(RESIZE_INO) else { return Ok(()) };
    let Ok((raw, _)) = RawInode::ref_from_prefix(&record) else { return Ok(()) };
    let map = numbers(&raw.i_block);
    if !sb.compat.contains(Compat::RESIZE_INODE) {
        if sb.raw.s_reserved_gdt_blocks.get() != 0 {
            return Err("blocks are reserved for growing without a resize inode");
        }
        let is_clear = map.iter().all(|number| number.get() == 0);
        return if is_clear { Ok(()) } else { Err("has blocks, but the feature resize_inode is not set") };
    }
    let doubly = map.get(DOUBLY).map_or(0, |number| number.get().into());
    let others = map.iter().enumerate().any(|(at, number)| at != DOUBLY && number.get() != 0);
    let is_regular = raw.i_mode.get() & 0o170_000 == 0o100_000;
    let no_map = InodeFlags::EXTENTS.union(InodeFlags::INLINE_DATA);
    let has_map = !InodeFlags::from_bits_retain(raw.i_flags.get()).intersects(no_map);
    if others || !has_map || raw.i_links_count.get() == 0 || !is_regular || !on_volume(sb, doubly, 1) {
        return Err("is invalid");
    }
    let unreadable = |_| "cannot be read";
    let bytes = view.read(VolBlock(doubly), 1).map_err(unreadable)?;
    let places = numbers(&bytes);
    let per_block = u64::from(sb.block_size.pointers());
    let kept_blocks = u64::from(sb.raw.s_reserved_gdt_blocks.get());
    let named = places.iter().filter(|number| number.get() != 0).count();
    if to_u64(named) > kept_blocks {
        return Err("refers to more blocks than are reserved");
    }
    let first = sb.desc_block(0, 0).0;
    let groups: Vec<u32> = (1..sb.groups).filter(|&group| sb.has_copy(group)).collect();
    for kept in 0..kept_blocks {
        let index = u64::from(sb.desc_blocks()).saturating_add(kept);
        let block = first.saturating_add(index);
        let place = index.checked_rem(per_block).unwrap_or(0);
        if places.get(to_usize(place)).map(|number| u64::from(number.get())) != Some(block) {
            return Err("does not refer to a reserved block");
        }
        let below = view.read(VolBlock(block), 1).map_err(unreadable)?;
        let mut copies = numbers(&below).iter();
        for &group in &groups {
            let into = u64::from(group).saturating_mul(sb.blocks_per_group.into());
            // Backups past the end of a block have no entry.
            let Some(copy) = copies.next() else { break };
            if u64::from(copy.get()) != block.saturating_add(into) {
                return Err("does not refer to a reserved block of a backup group");
            }
        }
    }
    Ok(())
}
