//! Converting a block map to an extent tree, as clusters require.
//!
//! Invariant: the blocks stay in their places. Without space for the tree the inode does not change.
//! Source: e2fsprogs `e2fsck/extents.c` `rebuild_extent_tree`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::{Error, Ino, Result};
use obento_block::BlockDevice;
use obento_env::Clock;

use super::edits::{Copy, Edits};
use crate::inode::InodeFlags;
use crate::map::{Blocks, ExtentState, Mapping};
use crate::unit::FileBlock;
use crate::volume::Volume;

/// Cache size for reading an inode.
const SMALL_CACHE: usize = 1 << 20;
/// Maximum number of pieces, which take 24 MiB: more than a file in practical use has.
pub(super) const MAX_PIECES: usize = 1 << 20;

impl Edits {
    /// Converts a block map. Returns false without space for the tree.
    pub(super) fn convert_block_map(&mut self, ino: u32, clock: &Arc<dyn Clock>) -> Result<bool> {
        let Some(pieces) = self.mapped_pieces(ino)? else { return Ok(false) };
        match self.map_again(ino, &pieces, clock) {
            Err(Error::NoSpace) => Ok(false),
            mapped => mapped.map(|()| true),
        }
    }

    /// Replaces the map of a file by an extent tree. Fails with `NoSpace`, and then changes nothing.
    pub(super) fn map_again(&mut self, ino: u32, pieces: &[Mapping], clock: &Arc<dyn Clock>) -> Result<()> {
        let before = self.record(ino)?;
        self.inode(ino, |raw| raw.i_flags.set(raw.i_flags.get() | InodeFlags::EXTENTS.bits()))?;
        self.empty_root(ino)?;
        let mapped = self.with_writer(clock, |writer| writer.map_pieces(Ino(ino.into()), pieces));
        if mapped == Err(Error::NoSpace) {
            self.edit_record(ino, |record| record.copy_from_slice(&before))?;
        }
        mapped
    }

    /// Returns the mappings of a file within its size, or `None` if there are too many.
    fn mapped_pieces(&self, ino: u32) -> Result<Option<Vec<Mapping>>> {
        let device: Arc<dyn BlockDevice> = Arc::<Copy>::clone(&self.device);
        let volume = Volume::bare(device, self.view.sb.clone(), SMALL_CACHE);
        let inode = volume.inode(Ino(ino.into()))?;
        let count = u32::try_from(inode.size().div_ceil(self.view.sb.block_size.into())).unwrap_or(u32::MAX);
        let (mut pieces, mut at) = (Vec::new(), 0_u32);
        while at < count {
            let run = volume.map_run(&inode, FileBlock(at))?;
            let len = run.len.min(count.saturating_sub(at)).max(1);
            if let Blocks::Mapped(place) = run.place {
                pieces.push(Mapping { start: at, len, place, state: ExtentState::Written });
            }
            if pieces.len() > MAX_PIECES {
                return Ok(None);
            }
            at = at.saturating_add(len);
        }
        Ok(Some(pieces))
    }
}
