//! One read or one change of the volume.
//!
//! Invariant: only [`Volume::change`] creates an `Op` that is passed by `&mut`, and holds the lock
//! exclusively meanwhile.
//! Invariant: an edit is a new version of the block that only this change can read. Dropping the edit
//! discards the new version.

use alloc::vec::Vec;
use core::ops::Deref;

use obento_base::wire::to_u64;
use obento_base::{Corrupt, Error, Ino, Result, Structure, Timestamp};
use obento_block::Block;
use obento_driver::{INHERITED, NewNode};

use crate::numbers::Edits;
use crate::volume::Counters;
use crate::{Geometry, Inode, Inodes, LockedInode, Map, Volume};

/// A read or a change: the access of a format's methods to the volume.
pub struct Op<'v, F> {
    pub(crate) volume: &'v Volume<F>,
    pub(crate) counters: Counters,
    pub(crate) edits: Edits<'v>,
    pub(crate) freed: Vec<u32>,
}

/// The contents of a block as the change sees them.
pub enum Bytes<'a> {
    /// Edited by this change.
    Edited(&'a [u8]),
    /// Not edited by this change: the contents that all readers see.
    Cached(Block),
}

impl Deref for Bytes<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Edited(bytes) => bytes,
            Self::Cached(block) => block,
        }
    }
}

impl<'v, F: Inodes> Op<'v, F> {
    pub(crate) fn new(volume: &'v Volume<F>, counters: Counters) -> Self {
        Self { volume, counters, edits: Edits::default(), freed: Vec::new() }
    }

    /// Returns the format.
    pub fn format(&self) -> &'v F {
        &self.volume.format
    }

    /// Returns the locations of the parts of the volume.
    pub fn geometry(&self) -> &'v Geometry {
        self.volume.format.geometry()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.volume.clock.now()
    }

    /// Returns metadata block `number`. Fails if the device fails.
    pub fn get(&self, number: u32) -> Result<Bytes<'_>> {
        match self.edits.get(number) {
            Some(edit) => Ok(Bytes::Edited(edit)),
            None => self.volume.cache.get(number.into()).map(Bytes::Cached),
        }
    }

    /// Returns metadata block `number` for editing. Fails if the device fails.
    #[inline(never)]
    pub fn edit(&mut self, number: u32) -> Result<&mut [u8]> {
        let cache = &self.volume.cache;
        self.edits.get_or_start(number, || Ok(cache.edit(&cache.get(number.into())?)))
    }

    /// Allocates a block for file data, with unspecified contents. Fails with `NoSpace`, or if the device
    /// fails.
    pub fn data_block(&mut self, inode: &mut LockedInode<'_, F::Map>) -> Result<u32> {
        let number = self.take_block()?;
        inode.attr.blocks = inode.attr.blocks.saturating_add(self.sectors());
        Ok(number)
    }

    /// Allocates a zeroed metadata block. Fails with `NoSpace`, or if the device fails.
    pub fn metadata_block(&mut self, inode: &mut LockedInode<'_, F::Map>) -> Result<u32> {
        let number = self.data_block(inode)?;
        // The cache may contain the contents of its previous use.
        let base = self.volume.cache.renew(number.into())?;
        self.edits.insert(number, self.volume.cache.edit(&base));
        Ok(number)
    }

    /// Frees a block of an inode. Ignores the number 0. Fails if the device fails.
    pub fn drop_block(&mut self, inode: &mut LockedInode<'_, F::Map>, number: u32) -> Result<()> {
        if number == 0 {
            return Ok(());
        }
        inode.attr.blocks = inode.attr.blocks.saturating_sub(self.sectors());
        self.free_block(number)
    }

    /// Returns the size of a block in the unit of [`Attr::blocks`](obento_base::Attr).
    pub(crate) fn sectors(&self) -> u64 {
        to_u64(self.geometry().block_size()) / 512
    }

    /// Fails with `Corrupt` if `block`, which block `at` of inode `ino` refers to, cannot belong to a file.
    pub fn expect_data(&self, ino: Ino, at: u64, block: u32) -> Result<()> {
        if self.geometry().is_data(block) {
            return Ok(());
        }
        let structure = Structure::Inode(ino);
        Err(Corrupt::BlockRange { structure, at, start: block.into(), len: 1 }.into())
    }

    /// Returns inode `ino`. Fails with `Corrupt`, or with `Stale` if the inode is free or does not exist.
    pub fn inode(&self, ino: Ino) -> Result<LockedInode<'v, F::Map>> {
        self.inode_if_used(ino)?.ok_or(Error::Stale)
    }

    /// Returns inode `ino`, or `None` if the inode is free or does not exist. Fails with `Corrupt`, or if the
    /// device fails.
    pub(crate) fn inode_if_used(&self, ino: Ino) -> Result<Option<LockedInode<'v, F::Map>>> {
        let Some((block, place)) = self.geometry().inode_place(ino) else { return Ok(None) };
        let bytes = self.get(block)?;
        let inode = self.format().decode(ino, bytes.get(place).unwrap_or_default())?;
        Ok(inode.map(LockedInode::new))
    }

    /// Stores an inode. Fails if the device fails.
    pub(crate) fn put(&mut self, inode: &LockedInode<'_, F::Map>) -> Result<()> {
        let format = self.format();
        format.encode(inode, self.inode_bytes(inode.ino())?);
        Ok(())
    }

    /// Returns the bytes of an inode for editing. Fails with `Stale` if there is no such inode, or if the device
    /// fails.
    fn inode_bytes(&mut self, ino: Ino) -> Result<&mut [u8]> {
        let (block, place) = self.geometry().inode_place(ino).ok_or(Error::Stale)?;
        Ok(self.edit(block)?.get_mut(place).unwrap_or_default())
    }

    /// Creates an inode in `dir` without a name. Fails with `NoSpace`, or if the device fails.
    pub(crate) fn new_inode(
        &mut self,
        node: &NewNode<'_>,
        dir: &Inode<F::Map>,
    ) -> Result<LockedInode<'v, F::Map>> {
        let (next, end) = (self.counters.next_inode.max(1), self.geometry().inodes);
        let room = self.counters.free_inodes.checked_sub(1).ok_or(Error::NoSpace)?;
        for number in (next..end).chain(1..next) {
            let ino = Ino(number.into());
            // A damaged inode is in use.
            match self.inode_if_used(ino) {
                Ok(None) => {}
                Ok(Some(_)) | Err(Error::Corrupt(_)) => continue,
                Err(error) => return Err(error),
            }
            self.counters.free_inodes = room;
            self.counters.next_inode = number.saturating_add(1);
            let format = self.format();
            let generation = format.next_generation(self.inode_bytes(ino)?);
            let mut attr = node.attr(ino, generation, self.now());
            attr.flags = dir.attr.flags & INHERITED;
            return Ok(LockedInode::new(Inode::new(attr)));
        }
        Err(Error::NoSpace)
    }
}

impl<F: Map> Op<'_, F> {
    /// Frees an inode without a name, and its blocks. Fails if the device fails.
    pub(crate) fn free_inode(&mut self, mut inode: LockedInode<'_, F::Map>) -> Result<()> {
        let format = self.format();
        format.cut(self, &mut inode, 0..u64::MAX)?;
        self.counters.free_inodes = self.counters.free_inodes.saturating_add(1);
        format.clear(self.inode_bytes(inode.ino())?);
        Ok(())
    }
}
