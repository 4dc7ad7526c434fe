//! The places of the bitmaps and inode tables of the groups: with `flex_bg` together at the start of each flex group.
//!
//! Source: e2fsprogs `lib/ext2fs/alloc_tables.c` (`flexbg_offset`, `ext2fs_allocate_group_table`); `misc/mke2fs.c`
//! `packed_allocate_tables`.
#![allow(clippy::arithmetic_side_effects, reason = "`Geometry` limits blocks, groups and inodes")]

use obento_base::wire::to_usize;
use obento_driver::FormatError;

use super::draft::Draft;
use crate::feature::Incompat;
use crate::group::GroupDescriptor;
use crate::unit::VolBlock;

/// A part of a group's metadata.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    BlockBitmap,
    InodeBitmap,
    InodeTable,
}

impl Part {
    const ALL: [Self; 3] = [Self::BlockBitmap, Self::InodeBitmap, Self::InodeTable];

    fn of(self, group: &GroupDescriptor) -> u64 {
        match self {
            Self::BlockBitmap => group.block_bitmap.0,
            Self::InodeBitmap => group.inode_bitmap.0,
            Self::InodeTable => group.inode_table.0,
        }
    }

    fn set(self, group: &mut GroupDescriptor, block: u64) {
        match self {
            Self::BlockBitmap => group.block_bitmap = VolBlock(block),
            Self::InodeBitmap => group.inode_bitmap = VolBlock(block),
            Self::InodeTable => group.inode_table = VolBlock(block),
        }
    }
}

impl Draft {
    /// Allocates the bitmaps and inode tables of all groups, at the front of the volume if `packed`. Fails with
    /// `TooSmall`.
    pub fn allocate_tables(&mut self, packed: bool) -> Result<(), FormatError> {
        if packed && self.sb.incompat.contains(Incompat::FLEX_BG) {
            return self.pack_tables();
        }
        let flex = match self.sb.raw.s_log_groups_per_flex {
            0 => None,
            log if self.sb.incompat.contains(Incompat::FLEX_BG) => Some(1_u32 << log),
            _ => None,
        };
        (0..self.sb.groups).try_for_each(|group| match flex {
            Some(size) => self.allocate_in_flex_group(group, size),
            None => self.allocate_in_group(group),
        })
    }

    fn part_len(&self, part: Part) -> u64 {
        match part {
            Part::InodeTable => self.sb.inode_table_blocks().into(),
            Part::BlockBitmap | Part::InodeBitmap => 1,
        }
    }

    fn too_small(&self) -> FormatError {
        FormatError::TooSmall { what: "the inode tables", len: self.sb.volume_len() }
    }

    /// Returns the last block of `group`.
    fn last_block(&self, group: u32) -> u64 {
        self.sb.group_blocks(group).end - 1
    }

    fn place(&mut self, group: u32, part: Part, block: u64) {
        self.space.take(block..block + self.part_len(part));
        if let Some(descriptor) = self.groups.get_mut(to_usize(group.into())) {
            part.set(descriptor, block);
        }
    }

    fn placed(&self, group: u32, part: Part) -> u64 {
        self.groups.get(to_usize(group.into())).map_or(0, |group| part.of(group))
    }

    /// Without flex groups: in the group itself, with the bitmaps shifted by the stride of a RAID.
    fn allocate_in_group(&mut self, group: u32) -> Result<(), FormatError> {
        let (first, last) = (self.sb.group_start(group).0, self.last_block(group));
        let stride = u64::from(self.sb.raw.s_raid_stride.get());
        let mut start = first;
        if stride > 0 {
            let free = self.space.find(first, last, 1).ok_or_else(|| self.too_small())?;
            start = free + u64::from(self.sb.inode_table_blocks());
            let room = last.saturating_sub(start) + 1;
            let shift = (stride * u64::from(group)).checked_rem(room).unwrap_or(0);
            start += shift;
            if start >= last {
                start = first;
            }
        }
        for part in Part::ALL {
            let from = if part == Part::InodeTable { first } else { start };
            let len = self.part_len(part);
            let found = self.space.find(from, last, len).or_else(|| self.space.find(first, last, len));
            let block = found.ok_or_else(|| self.too_small())?;
            self.place(group, part, block);
        }
        Ok(())
    }

    fn allocate_in_flex_group(&mut self, group: u32, flex: u32) -> Result<(), FormatError> {
        let inside = group & (flex - 1);
        let last_group = (group | (flex - 1)).min(self.sb.groups - 1);
        let left = u64::from(last_group - group) + 1;
        // Space for a whole flex group, except in the last one, whose tables stay together unless it has only one
        // group.
        let behind = match last_group & (flex - 1) {
            0 => flex,
            _ if last_group == self.sb.groups - 1 => last_group - group + 1,
            _ => flex,
        };
        let last = self.last_block(last_group);
        let mut before = None;
        for part in Part::ALL {
            let len = self.part_len(part);
            // It is directly after the table of the previous group. In the first group, it is after the space for the
            // others.
            let goal = match before {
                _ if inside > 0 => self.placed(group - 1, part) + len,
                Some(before) => self.placed(group, before) + u64::from(behind),
                None => 0,
            };
            let first = self.sb.group_start(group - inside).0;
            let start = self.flex_start(first, last, goal, left, len);
            let found = self.space.find(start, last, len);
            let found = found.or_else(|| self.space.find(self.sb.group_start(group).0, last, len));
            let block = found.ok_or_else(|| self.too_small())?;
            self.place(group, part, block);
            self.note_table(block, len);
            before = Some(part);
        }
        Ok(())
    }

    /// Returns where to search for a part of a group: `flexbg_offset`.
    fn flex_start(&self, first: u64, last: u64, goal: u64, left: u64, len: u64) -> u64 {
        let size = (left * len).min(u64::from(self.sb.blocks_per_group) / 4);
        if goal > 0
            && goal < self.sb.blocks_count
            && let Some(found) = self.space.find(goal, goal + size, len)
        {
            return found;
        }
        let all = self.space.find(first, last, size);
        let one = || self.space.find(first, last, len);
        all.or_else(one).or_else(|| self.space.find(0, last, len)).unwrap_or(0)
    }

    /// Records that the bitmaps of the groups that contain a table must be written.
    fn note_table(&mut self, block: u64, len: u64) {
        let per_group = u64::from(self.sb.blocks_per_group);
        let last = block + len - 1;
        let mut at = block;
        while at < last {
            self.note_written(at);
            at = (at + per_group).min(last);
        }
        self.note_written(last);
    }

    /// Block bitmaps, inode bitmaps, inode tables: each kind for all groups in a row.
    fn pack_tables(&mut self) -> Result<(), FormatError> {
        let mut goal = 0;
        for part in Part::ALL {
            let len = self.part_len(part);
            for group in 0..self.sb.groups {
                let end = self.sb.blocks_count - 1;
                let found = self.space.find(goal, end, len);
                goal = found.ok_or_else(|| self.too_small())?;
                self.place(group, part, goal);
                self.note_table(goal, len);
            }
        }
        Ok(())
    }
}
