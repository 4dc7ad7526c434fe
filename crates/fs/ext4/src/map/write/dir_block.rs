//! Appending blocks to a directory, a long symbolic link or an attribute value: metadata, in the caller's
//! transaction.

use alloc::vec::Vec;

use obento_base::{Error, Result};
use obento_journal::{Taken, Txn};

use crate::allocator::BlockRun;
use crate::map::change::{FileMap, Nodes};
use crate::map::tree::{ExtentState, Mapping};
use crate::unit::FileBlock;
use crate::writer::{InodeEdit, Writer};

impl Writer {
    /// Appends a zeroed block to the file of `edit`, whose size increases by it. The caller fills it and stores the
    /// inode. Fails with `NoSpace` or `FileTooBig` before anything is changed.
    pub(crate) fn append_dir_block(
        &self,
        txn: &mut Txn<'_>,
        edit: &mut InodeEdit,
    ) -> Result<(FileBlock, Taken)> {
        let inode = edit.inode()?;
        let at = self.block_from(inode.size());
        let start = u32::try_from(at).map_err(|_| Error::FileTooBig)?;
        let nodes = Nodes { volume: self.volume(), inode: &inode };
        let mut map = FileMap::new(&nodes)?;
        if at >= map.end() {
            return Err(Error::FileTooBig);
        }
        let (place, reserved) = self.metadata_block(&inode, &mut map, at)?;
        let give_back = |error| {
            reserved.iter().for_each(|&run| self.allocator().release(run));
            error
        };
        let new = Mapping { start, len: 1, place, state: ExtentState::Written };
        map.splice(at..at.saturating_add(1), &[new], &mut Vec::new()).map_err(give_back)?;
        let gained: Vec<BlockRun> = reserved.iter().copied().collect();
        let change = self.plan_change(&inode, map, gained, Vec::new()).map_err(give_back)?;
        self.keep_room(edit, change.gained_blocks()).map_err(give_back)?;
        let taken = txn.take_new(place.0).map_err(give_back)?;
        self.apply_change(txn, edit, change)?;
        edit.set_size(at.saturating_add(1).saturating_mul(self.block_bytes()));
        Ok((FileBlock(start), taken))
    }
}
