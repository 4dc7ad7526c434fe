//! The mounted state: what every other part of the driver hangs on.
//!
//! Locking: none of its own but the caches' leaf locks; nothing in a `Volume` changes after it was opened.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Corrupt, Error, Ino, Result, Structure};
use obento_block::{Block, BlockDevice, Cache};
use obento_driver::Notice;
use obento_env::sync::Mutex;

use crate::group::{GroupDescriptor, verify_descriptor};
use crate::inode::Inode;
use crate::map::Blocks;
use crate::super_block::{ROOT_INO, SuperBlock};
use crate::unit::{FileBlock, VolBlock};
use crate::zones::Zones;

/// How many blocks of the inode table come in with one that is missed: Linux's `inode_readahead_blks`.
const INODE_READ_AHEAD: u64 = 32;

/// An open ext2, ext3 or ext4 volume.
pub struct Volume {
    super_block: SuperBlock,
    cache: Cache,
    zones: Zones,
    notices: Mutex<Vec<Notice>>,
}

impl Volume {
    /// A volume over `device`, which shows the state that is meant to be seen: a journal has been replayed into it.
    pub(crate) fn new(device: Arc<dyn BlockDevice>, super_block: SuperBlock, cache: usize) -> Self {
        let cache = Cache::new(device, super_block.block_size, cache);
        Self { super_block, cache, zones: Zones::default(), notices: Mutex::new(Vec::new()) }
    }

    /// The checked super block.
    pub fn super_block(&self) -> &SuperBlock {
        &self.super_block
    }

    /// The cache of metadata blocks.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The device below.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        self.cache.device()
    }

    /// Bytes a block.
    pub fn block_size(&self) -> u32 {
        self.super_block.block_size
    }

    /// Whether the `len` blocks from `start` on may belong to a file: on the volume, and none of them metadata.
    pub(crate) fn is_data(&self, start: VolBlock, len: u64) -> bool {
        self.super_block.holds_blocks(start, len) && !self.zones.overlap(start, len)
    }

    /// Block `number` of the volume, refused unless it may belong to a file; `structure` named it.
    pub fn data_block(&self, number: VolBlock, structure: Structure) -> Result<Block> {
        if !self.is_data(number, 1) {
            return Err(Corrupt::BlockRange { structure, at: 0, start: number.0, len: 1 }.into());
        }
        self.cache.get(number.0)
    }

    /// Inode `ino`. Reserved inodes other than the root are there for the driver itself (`Volume::user_inode`
    /// refuses them).
    ///
    /// Errors, the first that holds: Stale if the volume has no such inode, or it is not in use; Corrupt.
    pub fn inode(&self, ino: Ino) -> Result<Inode> {
        let sb = &self.super_block;
        let (block, offset) = self.inode_place(ino)?;
        let per_group = self.inode_table_end(ino, block);
        let block = self.cache.get_ahead(block.0, block.0..per_group)?;
        Inode::from_table(sb, ino, block, offset)
    }

    /// Like [`Self::inode`], but Stale for inodes that are the format's own and never a user's: reserved ones other
    /// than the root, quota files, the orphan file.
    pub fn user_inode(&self, ino: Ino) -> Result<Inode> {
        if self.is_reserved(ino) { Err(Error::Stale) } else { self.inode(ino) }
    }

    /// Whether `ino` is the format's own, as `__ext4_iget` asks.
    pub fn is_reserved(&self, ino: Ino) -> bool {
        let sb = &self.super_block;
        let own = [
            &sb.raw.s_usr_quota_inum,
            &sb.raw.s_grp_quota_inum,
            &sb.raw.s_prj_quota_inum,
            &sb.raw.s_orphan_file_inum,
        ];
        ino != ROOT_INO
            && (ino.0 < u64::from(sb.first_ino) || own.iter().any(|inum| u64::from(inum.get()) == ino.0))
    }

    /// Block and byte offset of an inode's record.
    pub(crate) fn inode_place(&self, ino: Ino) -> Result<(VolBlock, usize)> {
        let sb = &self.super_block;
        let index = ino.0.checked_sub(1).filter(|_| ino.0 <= sb.inodes_count.into()).ok_or(Error::Stale)?;
        let group = index.checked_div(sb.inodes_per_group.into()).ok_or(Error::Stale)?;
        let inside = index.checked_rem(sb.inodes_per_group.into()).ok_or(Error::Stale)?;
        let descriptor = self.group(u32::try_from(group).map_err(|_| Error::Stale)?)?;
        let per_block = u64::from(sb.inodes_per_block());
        let block = inside.checked_div(per_block).unwrap_or(0);
        let slot = inside.checked_rem(per_block).unwrap_or(0);
        let table = descriptor.inode_table;
        if !sb.holds_blocks(table, sb.inode_table_blocks().into()) {
            let structure = Structure::GroupDescriptor(group);
            let len = sb.inode_table_blocks().into();
            return Err(Corrupt::BlockRange { structure, at: block, start: table.0, len }.into());
        }
        let offset = slot.saturating_mul(sb.inode_size.into());
        Ok((VolBlock(table.0.saturating_add(block)), to_usize(offset)))
    }

    fn inode_table_end(&self, _ino: Ino, block: VolBlock) -> u64 {
        block.0.saturating_add(INODE_READ_AHEAD)
    }

    /// The descriptor of `group`.
    pub fn group(&self, group: u32) -> Result<GroupDescriptor> {
        let sb = &self.super_block;
        let (index, offset) = sb.desc_place(group);
        let at = sb.desc_block(index, 0);
        let block = self.cache.get(at.0)?;
        let end = offset.saturating_add(sb.desc_size.into());
        let bytes = block.get(offset..end).unwrap_or_default();
        verify_descriptor(sb, group, bytes, at)?;
        GroupDescriptor::decode(bytes, group, at)
    }

    /// Block `at` of a file; `None` for a hole and for what was never written.
    pub fn read_file_block(&self, inode: &Inode, at: FileBlock) -> Result<Option<Block>> {
        match self.map_block(inode, at)? {
            Some(block) => Ok(Some(self.cache.get(block.0)?)),
            None => Ok(None),
        }
    }

    /// Fills `buf` with the bytes of the file from `offset` on, through the cache, holes as zeros; answers how many,
    /// fewer than `buf.len()` only at the end of the file. For the values of `ea_inode`s and the like; file data
    /// does not come this way.
    pub fn read_inode_data(&self, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let left = inode.size().saturating_sub(offset);
        let len = buf.len().min(to_usize(left));
        let block_size = u64::from(self.block_size());
        let mut done = 0_usize;
        while let Some(rest) = buf.get_mut(done..len).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(to_u64(done));
            let number = at.checked_div(block_size).and_then(|n| u32::try_from(n).ok());
            let inside = to_usize(at.checked_rem(block_size).unwrap_or(0));
            let file_block = FileBlock(number.ok_or(Error::FileTooBig)?);
            let take = rest.len().min(to_usize(block_size).saturating_sub(inside));
            let Some(target) = rest.get_mut(..take) else { break };
            let block = match self.map_run(inode, file_block)?.place {
                Blocks::Mapped(block) => Some(self.cache.get(block.0)?),
                Blocks::Unwritten(_) | Blocks::Hole => None,
            };
            match block.as_ref().and_then(|block| block.get(inside..inside.saturating_add(take))) {
                Some(source) => target.copy_from_slice(source),
                None => target.fill(0),
            }
            done = done.saturating_add(take);
        }
        Ok(len)
    }

    /// Notes something that a person should know.
    pub(crate) fn notice(&self, notice: Notice) {
        /// More of the same help nobody.
        const MAX_NOTICES: usize = 64;
        let mut notices = self.notices.lock();
        if notices.len() < MAX_NOTICES && !notices.contains(&notice) {
            notices.push(notice);
        }
    }

    /// What was noted so far.
    pub(crate) fn notices(&self) -> Vec<Notice> {
        self.notices.lock().clone()
    }
}
