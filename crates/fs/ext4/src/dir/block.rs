//! The blocks of a directory: reading them, and verifying their checksums.
//!
//! Invariant: a change uses a block of entries only if its checksum is right. With a wrong checksum, any name may refer
//! to another file. Reading shows the entries of such a block, and reports the damage.
//! Source: Linux Documentation/filesystems/ext4/directory.rst, checksums.rst; `ext4_dirblock_csum_verify` and
//! `ext4_dx_csum_verify` in fs/ext4/namei.c.

use core::ops::ControlFlow;

use obento_base::{Corrupt, Error, Result, Structure};
use obento_block::Block;
use zerocopy::{FromBytes, IntoBytes};

use super::record::{Records, record_len};
use super::shape::{Damaged, DirShape};
use crate::checksum::Crc;
use crate::raw::{RawDirEntry, RawDirTail, RawDxTail};
use crate::unit::FileBlock;

/// `EXT4_FT_DIR_CSUM`: the file type of the record that contains a checksum.
const CHECKSUM_KIND: u8 = 0xde;

/// A source of a directory's blocks.
pub(crate) trait DirBlocks {
    /// Returns block `at` of the directory, or the hole that begins there.
    fn block(&self, at: FileBlock) -> Result<BlockOrHole>;
}

/// The contents of a place in a directory.
pub(crate) enum BlockOrHole {
    Block(Block),
    /// A hole of this number of blocks.
    Hole(u32),
}

/// A directory whose entries are in blocks.
#[derive(Clone, Copy)]
pub(super) struct BlockStore<'a> {
    pub(super) shape: &'a DirShape,
    pub(super) blocks: &'a dyn DirBlocks,
}

impl<'a> BlockStore<'a> {
    /// Returns block `at` without verifying it.
    pub(super) fn read(&self, at: u32) -> Result<Block> {
        if at < self.shape.blocks
            && let BlockOrHole::Block(block) = self.blocks.block(FileBlock(at))?
        {
            return Ok(block);
        }
        Err(self.hole(at))
    }

    /// Returns block `at`, which contains entries.
    pub(super) fn leaf(&self, at: u32) -> Result<Block> {
        let block = self.read(at)?;
        self.verify_leaf(&block)?;
        Ok(block)
    }

    /// Returns block `at`, which contains entries, and its damage if that may be shown. Fails with `Corrupt` for
    /// other damage.
    pub(super) fn leaf_to_show(&self, at: u32) -> Result<(Block, Option<Error>)> {
        let block = self.read(at)?;
        let damage = self.damage(&block)?;
        Ok((block, damage))
    }

    /// Returns the damage of a block of entries if damaged blocks are shown. Otherwise fails with it.
    fn damage(&self, block: &Block) -> Result<Option<Error>> {
        match (self.verify_leaf(block), self.shape.damaged) {
            (Ok(()), _) => Ok(None),
            (Err(error), Damaged::VolumeOptions) => Ok(Some(error)),
            (Err(error), Damaged::Refused | Damaged::Ignored) => Err(error),
        }
    }

    /// Passes every block from `first` on that contains entries to `visit`, with its place and the damage that is
    /// shown. A block that cannot be read, and a hole of any length, is an error. Nodes of the index contain no
    /// entries, since they look like one unused record; the root contains `.` and `..`.
    pub(super) fn scan(
        &self,
        first: u32,
        mut visit: impl FnMut(u32, Result<(&Block, Option<Error>)>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut at = first;
        let mut in_hole = false;
        while at < self.shape.blocks {
            let (mut step, was_in_hole) = (1, in_hole);
            in_hole = false;
            match self.blocks.block(FileBlock(at)) {
                Ok(BlockOrHole::Block(block)) if self.shape.indexed && (at == 0 || self.is_node(&block)) => {
                    // The checksum, if any, shows that the block is a node of the index, which is damaged.
                    if at == 0 {
                        visit(at, Ok((&block, None)))?;
                    }
                }
                Ok(BlockOrHole::Block(block)) => {
                    visit(at, self.damage(&block).map(|damage| (&block, damage)))?
                }
                Ok(BlockOrHole::Hole(len)) => {
                    if !was_in_hole {
                        visit(at, Err(self.hole(at)))?;
                    }
                    (step, in_hole) = (len.max(1), true);
                }
                Err(error) => visit(at, Err(error))?,
            }
            at = at.saturating_add(step);
        }
        ControlFlow::Continue(())
    }

    /// Returns the records of `block`, which is block `at` of this directory.
    pub(super) fn records<'b>(&self, at: u32, block: &'b Block) -> Records<'b> {
        let DirShape { dir, block_size, .. } = *self.shape;
        Records { dir, block: block.number(), base: 0, bytes: block, block_size, starts: at == 0 }
    }

    fn hole(&self, at: u32) -> Error {
        Corrupt::DirectoryHole { dir: self.shape.dir, at: at.into() }.into()
    }

    pub(super) fn is_node(&self, bytes: &[u8]) -> bool {
        RawDirEntry::ref_from_prefix(bytes).is_ok_and(|(raw, _)| {
            raw.inode.get() == 0
                && record_len(raw.rec_len.get(), self.shape.block_size) == self.shape.block_size
        })
    }

    pub(super) fn verify_leaf(&self, block: &Block) -> Result<()> {
        let Some(seed) = self.shape.checksum_seed else { return Ok(()) };
        if block.is_verified() || self.shape.damaged == Damaged::Ignored {
            return Ok(());
        }
        let structure = Structure::Directory(self.shape.dir);
        let (number, offset) = (block.number(), self.shape.block_size.saturating_sub(12));
        let Ok((covered, tail)) = RawDirTail::ref_from_suffix(block) else {
            return Err(Corrupt::Truncated { structure, block: number, offset: 0, len: 12 }.into());
        };
        if tail.det_reserved_zero1.get() != 0
            || tail.det_rec_len.get() != 12
            || tail.det_reserved_zero2 != 0
            || tail.det_reserved_ft != CHECKSUM_KIND
        {
            let offset = offset.saturating_add(7);
            let field = "the type of the checksum entry (det_reserved_ft)";
            let found = tail.det_reserved_ft.into();
            return Err(Corrupt::Field { structure, field, block: number, offset, found }.into());
        }
        let (found, expected) = (tail.det_checksum.get(), Crc::new(seed).add(covered).get());
        if found != expected {
            return Err(Corrupt::Checksum { structure, block: number, found, expected }.into());
        }
        block.set_verified();
        Ok(())
    }

    /// Verifies the checksum of an index node: over its bytes up to `used`, and its tail at `tail`.
    pub(super) fn verify_node(&self, block: &Block, used: usize, tail: usize) -> Result<()> {
        let Some(seed) = self.shape.checksum_seed else { return Ok(()) };
        if block.is_verified() || self.shape.damaged == Damaged::Ignored {
            return Ok(());
        }
        let (structure, number) = (Structure::DirectoryIndex(self.shape.dir), block.number());
        let covered = block.get(..used);
        let tail = block.get(tail..).and_then(|bytes| RawDxTail::ref_from_prefix(bytes).ok());
        let (Some(covered), Some((tail, _))) = (covered, tail) else {
            return Err(Corrupt::Truncated { structure, block: number, offset: 0, len: 8 }.into());
        };
        let blank = RawDxTail { dt_checksum: 0.into(), ..*tail };
        let expected = Crc::new(seed).add(covered).add(blank.as_bytes()).get();
        let found = tail.dt_checksum.get();
        if found != expected {
            return Err(Corrupt::Checksum { structure, block: number, found, expected }.into());
        }
        block.set_verified();
        Ok(())
    }
}
