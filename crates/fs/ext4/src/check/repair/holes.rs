//! Directories with holes, in which what is there moves together, and without a block, which get one.
//!
//! Only maps that are in the inode as a whole are changed; others are left.
//! Source: e2fsprogs `e2fsck/pass2.c` `allocate_dir_block`, which fills a hole with an empty block in place of this.

use obento_base::Result;
use obento_base::wire::{FromBytes, split, to_usize};

use super::super::Issue;
use super::edits::Edits;
use crate::inode::InodeFlags;
use crate::map::check::{MAGIC, extent_len};
use crate::raw::{RawExtent, RawExtentHeader, RawInode};
use crate::unit::VolBlock;

/// Bytes of a header, and of an entry.
const ENTRY: usize = 12;
/// Bytes of the pointers to blocks of entries, which others to tables follow.
const DIRECT: usize = 48;

impl Edits {
    /// Mends a directory's lack of blocks; false for another issue.
    pub(super) fn mend_hole(&mut self, issue: &Issue) -> Result<bool> {
        match *issue {
            Issue::DirectoryHole { dir, .. } => self.close_holes(dir),
            Issue::DirectoryEmpty { dir } => self.give_block(dir),
            _ => Ok(false),
        }
    }

    /// Gives a directory that has lost its blocks an empty one. What was in it gets other names; its own parent is the
    /// root, until the next round finds who names it.
    fn give_block(&mut self, dir: u32) -> Result<bool> {
        let Some(block) = self.take_run(1)? else { return Ok(false) };
        let size = self.view.sb.block_size;
        let extents = self.has_tree(dir)?;
        if extents {
            self.empty_root(dir)?;
        }
        self.inode(dir, |raw| {
            let (low, high) = split(block);
            raw.i_flags.set(raw.i_flags.get() & !InodeFlags::INDEX.bits());
            raw.i_size_lo.set(size);
            raw.i_size_high.set(0);
            if !extents {
                raw.i_block = [0; 60];
                raw.i_block.iter_mut().zip(low.to_le_bytes()).for_each(|(to, from)| *to = from);
                return;
            }
            let (header, entries) = raw.i_block.split_at_mut(ENTRY);
            if let Ok((header, _)) = RawExtentHeader::mut_from_prefix(header)
                && let Ok((extent, _)) = RawExtent::mut_from_prefix(entries)
            {
                header.eh_entries.set(1);
                extent.ee_len.set(1);
                extent.ee_start_lo.set(low);
                extent.ee_start_hi.set(u16::try_from(high).unwrap_or(0));
            }
        })?;
        self.put(VolBlock(block), &alloc::vec![0; to_usize(size.into())])?;
        self.make_dot(dir, ".")?;
        self.make_dot(dir, "..")?;
        if self.view.sb.has_metadata_csum() { self.make_tail(dir, VolBlock(block)) } else { Ok(true) }
    }

    fn close_holes(&mut self, dir: u32) -> Result<bool> {
        let record = self.record(dir)?;
        let Ok((raw, _)) = RawInode::read_from_prefix(&record) else { return Ok(false) };
        let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
        let mut map = raw.i_block;
        let closed = match flags.contains(InodeFlags::EXTENTS) {
            true => close_extents(&mut map),
            false => close_pointers(&mut map),
        };
        let Some(blocks) = closed.filter(|_| map != raw.i_block) else { return Ok(false) };
        let (low, high) = split(blocks.saturating_mul(self.view.sb.block_size.into()));
        self.inode(dir, |raw| {
            raw.i_block = map;
            raw.i_size_lo.set(low);
            raw.i_size_high.set(high);
        })?;
        // An index that names blocks by their old places is found by the next round.
        Ok(true)
    }
}

/// Lets each extent of a tree without nodes begin where the one before ends; answers how many blocks there are.
fn close_extents(map: &mut [u8; 60]) -> Option<u64> {
    let (header, _) = RawExtentHeader::read_from_prefix(&map[..]).ok()?;
    if header.eh_magic.get() != MAGIC || header.eh_depth.get() != 0 {
        return None;
    }
    let mut at = 0_u32;
    let entries = map.get_mut(ENTRY..)?.chunks_exact_mut(ENTRY);
    for entry in entries.take(header.eh_entries.get().into()) {
        let extent = RawExtent::mut_from_bytes(entry).ok()?;
        extent.ee_block.set(at);
        at = at.checked_add(extent_len(extent).0.into())?;
    }
    Some(at.into())
}

/// Moves pointers together, if there are no others; answers how many there are.
fn close_pointers(map: &mut [u8; 60]) -> Option<u64> {
    let (direct, tables) = map.split_at_mut_checked(DIRECT)?;
    if tables.iter().any(|&byte| byte != 0) {
        return None;
    }
    let is_there = |word: &&[u8; 4]| **word != [0; 4];
    let words: alloc::vec::Vec<[u8; 4]> = direct.as_chunks().0.iter().filter(is_there).copied().collect();
    direct.fill(0);
    direct.iter_mut().zip(words.as_flattened()).for_each(|(to, from)| *to = *from);
    u64::try_from(words.len()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_move_together_unless_there_are_tables() {
        let mut map = [0; 60];
        map[4] = 7;
        map[40] = 9;
        let mut closed = map;
        assert_eq!(close_pointers(&mut closed), Some(2));
        assert_eq!((closed[0], closed[4], closed[40]), (7, 9, 0));
        map[48] = 1;
        assert_eq!(close_pointers(&mut map), None);
    }
}
