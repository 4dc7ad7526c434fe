//! The mounted state: the super block, the inode of the index file, and what was written after the checkpoint.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Corrupt, Error, FileKind, Ino, Result, Structure};
use obento_block::{BlockDevice, Slots};
use obento_driver::Notice;

use crate::inode::Inode;
use crate::map::Place;
use crate::roll::Rolled;
use crate::super_block::{Located, SuperBlock};

/// The root directory (`ULFS_ROOTINO`).
pub const ROOT: Ino = Ino(2);
/// Most blocks that are cached.
const SLOTS: usize = 1024;

/// An open volume.
pub struct Volume {
    device: Arc<dyn BlockDevice>,
    /// The super block with the newest checkpoint that can be used.
    pub super_block: SuperBlock,
    /// Position of that super block.
    pub super_block_at: u64,
    index: Inode,
    /// What was written after the checkpoint.
    pub rolled: Rolled,
    /// What a user should know.
    pub notices: Vec<Notice>,
    blocks: Slots<(u64, u64), Arc<[u8]>>,
}

impl Volume {
    /// Opens the newest checkpoint whose index file can be found.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: no checkpoint has an index file.
    pub fn open(device: Arc<dyn BlockDevice>, found: Vec<Located>, cache: usize) -> Result<Self> {
        let mut result = Error::NotFound;
        let mut notices = Vec::new();
        for located in found {
            let Located { super_block, at, damage } = located;
            notices.extend(damage.map(Notice::Damaged));
            match Self::checkpoint(device.clone(), super_block, at, cache) {
                Ok(mut volume) => {
                    if !notices.is_empty() && at != crate::super_block::FIRST {
                        notices.push(Notice::BackupSuperBlock { block: at / 512 });
                    }
                    volume.notices = notices;
                    let (expected, found) = (volume.super_block.len, volume.device.len());
                    if found < expected {
                        volume.notices.push(Notice::Truncated { expected, found });
                    }
                    return Ok(volume);
                }
                Err(error @ Error::Device(_)) => return Err(error),
                Err(error) => {
                    notices.push(Notice::Damaged(error));
                    if result == Error::NotFound {
                        result = error;
                    }
                }
            }
        }
        Err(result)
    }

    fn checkpoint(
        device: Arc<dyn BlockDevice>,
        super_block: SuperBlock,
        at: u64,
        cache: usize,
    ) -> Result<Self> {
        let slots = cache.checked_div(to_usize(super_block.block.into())).unwrap_or(0).clamp(16, SLOTS);
        let nothing = [0; 256];
        let mut volume = Self {
            index: Inode::decode(super_block.encoding, &nothing, 0),
            device,
            super_block,
            super_block_at: at,
            rolled: Rolled::default(),
            notices: Vec::new(),
            blocks: Slots::new(slots),
        };
        let number = volume.super_block.index;
        volume.index = volume.inode_at(number, volume.super_block.index_address)?;
        Ok(volume)
    }

    /// Returns the device.
    pub fn shared_device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Returns the end of the volume on the device.
    pub fn limit(&self) -> u64 {
        self.super_block.len.min(self.device.len())
    }

    /// Returns `len` bytes at an address, which may be cached.
    pub fn block(&self, address: u64, len: u32) -> Result<Arc<[u8]>> {
        let key = (address, len.into());
        if let Some(bytes) = self.blocks.get(&key) {
            return Ok(bytes);
        }
        let mut bytes = vec![0; to_usize(len.into())];
        self.device.read_at(self.super_block.bytes(address), &mut bytes)?;
        Ok(self.blocks.put(key, bytes.into()))
    }

    /// Returns the inode `number` of a block of inodes.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: the block does not contain the inode.
    pub fn inode_at(&self, number: u64, address: i64) -> Result<Inode> {
        let ino = Ino(number);
        let encoding = self.super_block.encoding;
        let len = self.super_block.inode_block;
        let missing = || -> Error {
            let at = u64::try_from(address).unwrap_or(0);
            let block = self.super_block.bytes(at) / 512;
            let structure = Structure::Inode(ino);
            Corrupt::Field { structure, field: "di_inumber", block, offset: 0, found: 0 }.into()
        };
        let found = self.address(ino, 0, address, len.into())?.ok_or_else(missing)?;
        let bytes = self.block(found, len)?;
        // The last inode with the number is the newest one (`lfs_ifind`).
        let mut inodes = bytes.chunks_exact(encoding.inode_len()).enumerate().rev();
        let (index, bytes) =
            inodes.find(|(_, bytes)| Inode::number_in(encoding, bytes) == number).ok_or_else(missing)?;
        let within = to_u64(index.saturating_mul(encoding.inode_len()));
        Ok(Inode::decode(encoding, bytes, self.super_block.bytes(found).saturating_add(within)))
    }

    /// Returns the version and the address of an inode according to the index file, or `None` past its end.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: the index file is damaged.
    pub fn entry(&self, number: u64) -> Result<Option<(u32, i64)>> {
        let found = &self.super_block;
        let entries = u64::from(found.entries);
        let before = u64::from(found.cleaner_blocks).saturating_add(found.table_blocks.into());
        let block = before.saturating_add(number.checked_div(entries).unwrap_or(0));
        let Some(bytes) = self.index_block(block)? else { return Ok(None) };
        let index = to_usize(number.checked_rem(entries).unwrap_or(0));
        let at = index.saturating_mul(found.encoding.entry_len());
        let address = found.encoding.address(&bytes, at.saturating_add(found.encoding.entry_address()));
        Ok(Some((found.encoding.u32(&bytes, at), address)))
    }

    /// Returns a block of the index file, or `None` past its end.
    pub fn index_block(&self, number: u64) -> Result<Option<Arc<[u8]>>> {
        Ok(self.index_place(number)?.map(|(bytes, _)| bytes))
    }

    /// Returns a block of the index file and its position on the volume, or `None` past its end.
    pub fn index_place(&self, number: u64) -> Result<Option<(Arc<[u8]>, u64)>> {
        let found = &self.super_block;
        if number.saturating_mul(found.block.into()) >= self.index.size {
            return Ok(None);
        }
        match self.place(Ino(found.index), &self.index, number)? {
            Place::Hole(_) => Ok(None),
            Place::At(address) => {
                let len = self.block_len(&self.index, number);
                let bytes = self.block(address, u32::try_from(len).unwrap_or(0))?;
                Ok(Some((bytes, self.super_block.bytes(address))))
            }
        }
    }

    /// Returns the number after the greatest inode number that the index file has room for.
    pub fn inode_end(&self) -> u64 {
        let found = &self.super_block;
        let before = u64::from(found.cleaner_blocks).saturating_add(found.table_blocks.into());
        let blocks = self.index.size.checked_div(found.block.into()).unwrap_or(0).saturating_sub(before);
        // A block of the index file that is not on the device has no inodes.
        let most = self.limit().checked_div(u64::try_from(found.encoding.entry_len()).unwrap_or(1));
        blocks.saturating_mul(found.entries.into()).min(most.unwrap_or(0))
    }

    /// Returns an inode.
    ///
    /// # Errors
    ///
    /// 1. `Stale`: the inode is not in use.
    /// 2. `Corrupt`: it is damaged.
    pub fn inode(&self, ino: Ino) -> Result<Inode> {
        if let Some(inode) = self.rolled.inodes.get(&ino.0) {
            return Ok(inode.clone());
        }
        if ino.0 == self.super_block.index {
            return Ok(self.index.clone());
        }
        let (_, address) = self.entry(ino.0)?.filter(|_| ino.0 != 0).ok_or(Error::Stale)?;
        if address == 0 {
            return Err(Error::Stale);
        }
        self.inode_at(ino.0, address)
    }

    /// Returns an inode and its type.
    pub fn typed(&self, ino: Ino) -> Result<(Inode, FileKind)> {
        let inode = self.inode(ino)?;
        let found = inode.mode.into();
        let structure = Structure::Inode(ino);
        let kind =
            inode.kind().ok_or(Corrupt::Field { structure, field: "di_mode", block: 0, offset: 0, found })?;
        Ok((inode, kind))
    }

    /// Returns the inode of a directory.
    ///
    /// # Errors
    ///
    /// - `NotDirectory`: the inode is not a directory.
    pub fn directory(&self, ino: Ino) -> Result<Inode> {
        match self.typed(ino)? {
            (inode, FileKind::Directory) => Ok(inode),
            _ => Err(Error::NotDirectory),
        }
    }

    /// Reads bytes of a file that are within its size.
    pub fn read_bytes(&self, ino: Ino, inode: &Inode, at: u64, buf: &mut [u8]) -> Result<()> {
        let block = u64::from(self.super_block.block);
        let mut at = at;
        let mut rest = buf;
        while !rest.is_empty() {
            let number = at.checked_div(block).unwrap_or(0);
            let within = at.checked_rem(block).unwrap_or(0);
            let part = to_usize(block.saturating_sub(within)).min(rest.len());
            let Some((now, later)) = rest.split_at_mut_checked(part) else { break };
            match self.place(ino, inode, number)? {
                Place::Hole(_) => now.fill(0),
                Place::At(address) => {
                    self.device.read_at(self.super_block.bytes(address).saturating_add(within), now)?;
                }
            }
            at = at.saturating_add(to_u64(part));
            rest = later;
        }
        Ok(())
    }
}
