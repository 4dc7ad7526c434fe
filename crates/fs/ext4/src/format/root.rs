//! The root directory and lost+found.
//!
//! Source: e2fsprogs `lib/ext2fs/mkdir.c`, `lib/ext2fs/expanddir.c`; `misc/mke2fs.c` `create_root_dir`,
//! `create_lost_and_found`.
#![allow(clippy::arithmetic_side_effects, reason = "`Geometry` limits blocks, groups and inodes")]

use obento_base::FileKind;
use obento_base::wire::to_u64;
use obento_driver::FormatError;

use super::draft::Draft;
use super::geometry::FIRST_INO;
use super::inodes::{NewInode, ROOT_INO};
use super::mapping::Mapped;
use crate::dir::{DirShape, FreeSlot, NewEntry, needed};
use crate::inode::InodeFlags;

pub(crate) const NAME: &[u8] = b"lost+found";
/// Size of lost+found, so that `e2fsck` need not allocate blocks of a damaged volume.
pub(crate) const LOST_AND_FOUND: u64 = 16 << 10;
/// It has no indirect blocks.
const MAX_BLOCKS: u64 = 12;

impl Draft {
    /// Creates the root, with lost+found in it. Fails with `TooSmall`.
    pub fn make_root(&mut self, owner: (u32, u32)) -> Result<(), FormatError> {
        let goal = self.goal_of(ROOT_INO);
        let root = self.map_file(ROOT_INO, goal, 1)?;
        let shape = DirShape::of_new(&self.sb, ROOT_INO);
        let mut block = self.zeroed()?;
        shape.first_block(&mut block, ROOT_INO, ROOT_INO);
        let dots = needed(1) + needed(2);
        let slot = FreeSlot { offset: needed(1), len: shape.records_end() - needed(1), used: needed(2) };
        debug_assert!(slot.len > dots, "a block holds three entries");
        shape.put(&mut block, slot, &NewEntry { name: NAME, ino: FIRST_INO, kind: FileKind::Directory });
        shape.seal(&mut block);
        self.add_directory(ROOT_INO, 0o40_755, 3, owner, root, [block])
    }

    /// Creates lost+found, to which the root refers. Fails with `TooSmall`.
    pub fn make_lost_and_found(&mut self) -> Result<(), FormatError> {
        let blocks = self.sb.block_size.needed(LOST_AND_FOUND).clamp(2, MAX_BLOCKS);
        let goal = self.goal_of(FIRST_INO);
        self.note_inode_search(FIRST_INO);
        let lost = self.map_file(FIRST_INO, goal, blocks)?;
        let shape = DirShape::of_new(&self.sb, FIRST_INO);
        let mut first = self.zeroed()?;
        shape.first_block(&mut first, FIRST_INO, ROOT_INO);
        let mut blank = self.zeroed()?;
        shape.blank_block(&mut blank);
        let contents = core::iter::once(first).chain(core::iter::repeat(blank));
        self.add_directory(FIRST_INO, 0o40_700, 2, (0, 0), lost, contents)
    }

    fn add_directory(
        &mut self,
        ino: u32,
        mode: u16,
        links: u16,
        owner: (u32, u32),
        mapped: Mapped,
        contents: impl IntoIterator<Item = alloc::vec::Vec<u8>>,
    ) -> Result<(), FormatError> {
        let numbers = mapped.runs.iter().cloned().flatten();
        let mut blocks = 0_usize;
        for (number, bytes) in numbers.zip(contents) {
            self.blocks.insert(number, bytes);
            blocks += 1;
        }
        self.take_inode(ino, true);
        let size = self.sb.block_size.len(to_u64(blocks));
        self.add_inode(&NewInode {
            ino,
            mode,
            owner,
            links,
            size,
            blocks: mapped.owned,
            flags: self.map_flags(),
            i_block: mapped.i_block,
        })
    }

    /// Returns the flag of a file with extents, if the volume has extents.
    pub fn map_flags(&self) -> InodeFlags {
        if self.has_extents() { InodeFlags::EXTENTS } else { InodeFlags::empty() }
    }
}
