//! The mapping from file blocks to volume blocks.
//!
//! A file is mapped by extents ([`extents`]), or by the indirect blocks of ext2 and ext3 ([`indirect`]), or its data is
//! in the inode ([`inline`]).
//! Invariant: every returned block is a block of the volume outside of its metadata. A damaged map therefore cannot
//! show the inode table as the contents of a file.

mod blocks;
mod change;
mod extents;
mod indirect;
mod inline;
mod moved;
mod node_space;
mod pointers;
mod reservation;
mod tree;
mod write;

use obento_base::{Corrupt, Error, Feature, Result, Structure};

use crate::fast_commit::BlockOverlay;
use crate::inode::{Inode, InodeFlags};
use crate::unit::{FileBlock, VolBlock};
use crate::volume::Volume;

pub use blocks::{Blocks, MappedRun};
pub(crate) use extents::extents_magic;
pub use inline::InlineData;
pub(crate) use moved::MovedTable;
pub(crate) use node_space::NodeSpaceTable;
pub(crate) use reservation::ReservationTable;
pub(crate) use tree::{ExtentState, Mapping, empty_root, room_in_block};
pub(crate) use write::OwnBlocks;

impl Volume {
    /// Returns the run that starts at block `at` of the file. Fails with `Unsupported` if the file is encrypted (its
    /// blocks would be useless), with `Corrupt` for a damaged map, and with `Invalid` for inline data.
    pub fn map_run(&self, inode: &Inode, at: FileBlock) -> Result<MappedRun> {
        if inode.has(InodeFlags::INLINE_DATA) {
            return Err(Error::Invalid);
        }
        let run = match self.fast_commits().map(inode.ino(), at) {
            BlockOverlay::Run(run) => run,
            BlockOverlay::Base(most) => {
                let run = self.map_stored(inode, at)?;
                MappedRun { len: run.len.min(most).max(1), ..run }
            }
        };
        match run.place {
            Blocks::Mapped(start) | Blocks::Unwritten(start) => self.check_run(inode, at, start, run.len)?,
            Blocks::Hole => {}
        }
        Ok(run)
    }

    /// Returns the run according to the inode's map.
    fn map_stored(&self, inode: &Inode, at: FileBlock) -> Result<MappedRun> {
        if inode.has(InodeFlags::EXTENTS) {
            self.map_extents(inode, at)
        } else {
            self.map_indirect(inode, at)
        }
    }

    /// Returns the volume block of block `at` of the file, or `None` for a hole or an unwritten block.
    pub fn map_block(&self, inode: &Inode, at: FileBlock) -> Result<Option<VolBlock>> {
        Ok(match self.map_run(inode, at)?.place {
            Blocks::Mapped(block) => Some(block),
            Blocks::Unwritten(_) | Blocks::Hole => None,
        })
    }

    /// [`SuperBlock::file_size_max`](crate::super_block::SuperBlock::file_size_max).
    pub fn file_size_max(&self, extents: bool) -> u64 {
        self.super_block().file_size_max(extents)
    }

    /// Refuses blocks outside of the volume or in its metadata.
    fn check_run(&self, inode: &Inode, at: FileBlock, start: VolBlock, len: u32) -> Result<()> {
        if self.is_data(start, len.into()) {
            return Ok(());
        }
        let structure = map_structure(inode);
        Err(Corrupt::BlockRange { structure, at: at.0.into(), start: start.0, len: len.into() }.into())
    }

    /// Fails with `Unsupported` for an inode that can be read only with a key.
    pub fn refuse_encrypted(&self, inode: &Inode, what: &'static str) -> Result<()> {
        if inode.has(InodeFlags::ENCRYPT) { Err(Error::Unsupported(Feature::Named(what))) } else { Ok(()) }
    }
}

/// Returns the structure that a wrong block number is in.
fn map_structure(inode: &Inode) -> Structure {
    if inode.has(InodeFlags::EXTENTS) {
        Structure::ExtentTree(inode.ino())
    } else {
        Structure::IndirectBlock(inode.ino())
    }
}

/// Functions for the check, which walks maps itself.
pub(crate) mod check {
    pub(crate) use super::extents::{MAGIC, MAX_DEPTH, extent_len, extent_start, index_leaf};
    pub(crate) use super::indirect::numbers;
}
