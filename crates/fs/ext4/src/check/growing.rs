//! The number of descriptor blocks that each group reserves for growing, where it cannot be right.
//!
//! Without a backup, a wrong number in the super block would give blocks of files to the volume.
//! Source: e2fsprogs `lib/ext2fs/res_gdt.c` `ext2fs_create_resize_inode`.

use obento_base::wire::FromBytes;

use super::events::EventSink;
use super::inode_check::RESIZE_INO;
use super::issue::Issue;
use super::resize::DOUBLY;
use super::view::{View, keeps_for_growing_twice};
use crate::feature::Compat;
use crate::map::check::numbers;
use crate::raw::RawInode;
use crate::unit::VolBlock;

impl View {
    /// Takes the number of reserved blocks from the resize inode, if the stored number includes other metadata and
    /// that of the inode does not.
    pub(super) fn correct_reserved(&mut self, reported: &mut EventSink<'_>) {
        let sb = &self.sb;
        if !sb.compat.contains(Compat::RESIZE_INODE) || keeps_for_growing_twice(sb) {
            return;
        }
        let first = sb.desc_block(0, 0).0.saturating_add(sb.desc_blocks().into());
        let found = sb.raw.s_reserved_gdt_blocks.get();
        let is_possible = |count: u16| count == 0 || !self.zones.overlap(VolBlock(first), count.into());
        if is_possible(found) {
            return;
        }
        let Some(expected) = self.listed_blocks(first).filter(|&count| is_possible(count)) else { return };
        self.sb.raw.s_reserved_gdt_blocks.set(expected);
        let (field, found, expected) = ("s_reserved_gdt_blocks", found.into(), expected.into());
        reported.found(Issue::SuperBlockValue { field, found, expected });
    }

    /// Returns the number of reserved blocks that the resize inode lists, if they are contiguous from `first` on.
    fn listed_blocks(&self, first: u64) -> Option<u16> {
        let (record, _) = self.record(RESIZE_INO)?;
        let (raw, _) = RawInode::ref_from_prefix(&record).ok()?;
        let doubly =
            numbers(&raw.i_block).get(DOUBLY).map(|number| number.get()).filter(|&block| block != 0)?;
        let bytes = self.read(VolBlock(doubly.into()), 1).ok()?;
        let listed =
            || numbers(&bytes).iter().map(|number| u64::from(number.get())).filter(|&block| block != 0);
        let count = u16::try_from(listed().count()).ok()?;
        let reserved = first..first.saturating_add(count.into());
        listed().all(|block| reserved.contains(&block)).then_some(count)
    }
}
