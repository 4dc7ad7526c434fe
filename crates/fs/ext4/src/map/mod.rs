//! From a block of a file to a block of the volume.
//!
//! A file is mapped by extents ([`extents`]), by the indirect blocks of ext2 and ext3 ([`indirect`]), or its bytes
//! lie in the inode itself ([`inline`]).
//! Invariant: a block that comes out of here is a block of the volume outside its metadata, so that a damaged map
//! cannot show one file the inode table.

mod change;
mod extents;
mod indirect;
mod inline;
mod moved;
mod pointers;
mod promise;
mod tree;
mod write;

use obento_base::{Corrupt, Error, Feature, Result, Structure};

use crate::fast_commit::Overlaid;
use crate::inode::{Inode, InodeFlags};
use crate::unit::{FileBlock, VolBlock};
use crate::volume::Volume;

pub(crate) use extents::extents_magic;
pub use inline::InlineData;
pub(crate) use moved::MovedTable;
pub(crate) use promise::PromiseTable;
pub(crate) use tree::{Mapping, State, empty_root, room_in_block};
pub(crate) use write::{APPEND_CREDITS, OwnBlocks};

/// A run of blocks of a file that are all of one kind, from the block that was asked for on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// How many blocks, at least 1.
    pub len: u32,
    /// Where they are.
    pub place: Blocks,
}

/// The kinds of a [`Run`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blocks {
    /// On the volume from this block on.
    Mapped(VolBlock),
    /// Allocated from this block on, but never written.
    Unwritten(VolBlock),
    /// Nowhere.
    Hole,
}

impl Volume {
    /// Returns the run that starts at block `at` of the file. Fails with `Unsupported` if the file is encrypted (and
    /// its blocks would be no use), with `Corrupt` if the map is damaged there, or with `Invalid` for inline data.
    pub fn map_run(&self, inode: &Inode, at: FileBlock) -> Result<Run> {
        if inode.has(InodeFlags::INLINE_DATA) {
            return Err(Error::Invalid);
        }
        let run = match self.fast_commits().map(inode.ino(), at) {
            Overlaid::Run(run) => run,
            Overlaid::Base(most) => {
                let run = self.map_stored(inode, at)?;
                Run { len: run.len.min(most).max(1), ..run }
            }
        };
        match run.place {
            Blocks::Mapped(start) | Blocks::Unwritten(start) => self.check_run(inode, at, start, run.len)?,
            Blocks::Hole => {}
        }
        Ok(run)
    }

    /// Returns the run as the inode's map says.
    fn map_stored(&self, inode: &Inode, at: FileBlock) -> Result<Run> {
        if inode.has(InodeFlags::EXTENTS) {
            self.map_extents(inode, at)
        } else {
            self.map_indirect(inode, at)
        }
    }

    /// The block of the volume that holds block `at` of the file; `None` for a hole and for what was never written.
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

    /// Refuses blocks outside the volume or over its metadata.
    fn check_run(&self, inode: &Inode, at: FileBlock, start: VolBlock, len: u32) -> Result<()> {
        if self.is_data(start, len.into()) {
            return Ok(());
        }
        let structure = map_structure(inode);
        Err(Corrupt::BlockRange { structure, at: at.0.into(), start: start.0, len: len.into() }.into())
    }

    /// `Unsupported` for what only the holder of a key can read.
    pub fn refuse_encrypted(&self, inode: &Inode, what: &'static str) -> Result<()> {
        if inode.has(InodeFlags::ENCRYPT) { Err(Error::Unsupported(Feature::Named(what))) } else { Ok(()) }
    }
}

/// Returns the structure to blame for a wrong block number.
fn map_structure(inode: &Inode) -> Structure {
    if inode.has(InodeFlags::EXTENTS) {
        Structure::ExtentTree(inode.ino())
    } else {
        Structure::IndirectBlock(inode.ino())
    }
}

/// What a check needs of the maps, which it walks by itself.
pub(crate) mod check {
    pub(crate) use super::extents::{MAGIC, MAX_DEPTH, extent_len, extent_start, index_leaf};
    pub(crate) use super::indirect::numbers;
}
