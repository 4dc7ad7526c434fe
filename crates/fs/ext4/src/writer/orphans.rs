//! Orphans, which a crash must not leave behind: inodes in use without a name, or with an interrupted truncation.
//!
//! On disk: a list that starts at `s_last_orphan` and continues in the inodes' `i_dtime`. With `orphan_file`, slots of
//! 32 bits in the blocks of an inode, and the list for orphans without a slot. Each block has a magic number and a
//! checksum at its end.
//! Invariant: the table here defines the `i_dtime` of an inode on the list, even if a copy of its record differs. The
//! commit ensures that, so that a neighbour can be written without its inode's lock.
//! Invariant: an orphan gets its place on disk when the transaction that made it one is committed. Most are freed
//! before that, and leave no trace.
//! Source: Linux `fs/ext4/orphan.c`; `Documentation/filesystems/ext4/orphan.rst`.

use alloc::vec::Vec;

use hashbrown::{HashMap, HashSet};
use obento_base::wire::{FromBytes, to_u64, to_usize};
use obento_base::{Corrupt, DeviceError, Error, Ino, Result, Structure};
use obento_env::sync::{Mutex, MutexGuard};
use obento_journal::{Taken, Txn};

use super::{InodeEdit, Writer};
use crate::checksum::Crc;
use crate::feature::Compat;
use crate::inode::Inode;
use crate::raw::RawInode;
use crate::super_block::ORPHAN_MAGIC;
use crate::unit::{FileBlock, VolBlock};
use crate::volume::Volume;

/// Size of the magic number and the checksum at the end of a block.
const TAIL: usize = 8;
/// Maximum number of used blocks of an orphan file: the maximum of `mke2fs`, `EXT4_DEFAULT_ORPHAN_FILE_BLOCKS`.
const MAX_BLOCKS: u64 = 512;

/// An inode's neighbours on the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Links {
    before: Option<Ino>,
    next: u32,
}

/// A block of the orphan file.
#[derive(Debug)]
struct FileSlots {
    block: VolBlock,
    free: u32,
}

/// The orphans of a volume, as they will be on disk.
#[derive(Debug, Default)]
pub(super) struct OrphanState {
    head: u32,
    list: HashMap<Ino, Links>,
    blocks: Vec<FileSlots>,
    /// Orphans without a place on disk.
    new: HashSet<Ino>,
    /// Number of the block of the orphan file, and of the slot in it.
    slots: HashMap<Ino, (usize, usize)>,
    /// The seed of block checksums.
    seed: u32,
}

/// The orphans of a volume.
#[derive(Debug)]
pub(super) struct Orphans(Mutex<OrphanState>);

impl Orphans {
    /// Reads the orphans on disk. The list ends at an invalid inode. Fails with `Corrupt` for an invalid orphan file,
    /// or if the device fails.
    pub(super) fn load(volume: &Volume) -> Result<Self> {
        let mut state =
            OrphanState { head: volume.super_block().raw.s_last_orphan.get(), ..OrphanState::default() };
        state.load_list(volume)?;
        if volume.super_block().compat.contains(Compat::ORPHAN_FILE) {
            state.load_file(volume)?;
        }
        Ok(Self(Mutex::new(state)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, OrphanState> {
        self.0.lock()
    }
}

impl OrphanState {
    fn load_list(&mut self, volume: &Volume) -> Result<()> {
        let (mut next, mut before) = (self.head, None);
        while next != 0 {
            let ino = Ino(next.into());
            let Some(after) = stored_dtime(volume, ino).filter(|_| !self.list.contains_key(&ino)) else {
                // As Linux does with a bad orphan: the rest of the list cannot be trusted.
                match before.and_then(|ino| self.list.get_mut(&ino)) {
                    Some(links) => links.next = 0,
                    None => self.head = 0,
                }
                break;
            };
            self.list.try_reserve(1).map_err(|_| Error::NoMemory)?;
            self.list.insert(ino, Links { before, next: after });
            (before, next) = (Some(ino), after);
        }
        Ok(())
    }

    fn load_file(&mut self, volume: &Volume) -> Result<()> {
        let ino = Ino(volume.super_block().raw.s_orphan_file_inum.get().into());
        let inode = volume.inode(ino)?;
        self.seed = inode.checksum_seed();
        let blocks = inode.size().checked_div(volume.block_size().into()).unwrap_or(0).min(MAX_BLOCKS);
        for at in 0..u32::try_from(blocks).unwrap_or(0) {
            let block = volume.read_file_block(&inode, FileBlock(at))?;
            let hole =
                Corrupt::BlockRange { structure: Structure::OrphanList, at: at.into(), start: 0, len: 1 };
            let block = block.ok_or(hole)?;
            self.check_block(volume, &block)?;
            let index = self.blocks.len();
            let mut free = 0_u32;
            for (slot, found) in slots(&block).enumerate() {
                if found == 0 {
                    free = free.saturating_add(1);
                } else {
                    self.slots.insert(Ino(found.into()), (index, slot));
                }
            }
            self.blocks.push(FileSlots { block: VolBlock(block.number()), free });
        }
        Ok(())
    }

    fn check_block(&self, volume: &Volume, block: &obento_block::Block) -> Result<()> {
        let structure = Structure::OrphanList;
        let number = block.number();
        let Some((rest, sum)) = block.split_last_chunk::<4>() else { return Err(Error::Invalid) };
        let magic = rest.last_chunk::<4>().map_or(0, |magic| u32::from_le_bytes(*magic));
        if magic != ORPHAN_MAGIC {
            let (found, expected) = (magic.into(), ORPHAN_MAGIC.into());
            return Err(Corrupt::Magic { structure, block: number, found, expected }.into());
        }
        let (found, expected) = (u32::from_le_bytes(*sum), self.sum(number, block));
        if volume.super_block().has_metadata_csum() && found != expected {
            return Err(Corrupt::Checksum { structure, block: number, found, expected }.into());
        }
        Ok(())
    }

    /// Returns the checksum of a block of the orphan file, over its number and its slots.
    fn sum(&self, number: u64, bytes: &[u8]) -> u32 {
        let slots = bytes.get(..bytes.len().saturating_sub(TAIL)).unwrap_or_default();
        Crc::new(self.seed).add(&number.to_le_bytes()).add(slots).get()
    }

    fn holds(&self, ino: Ino) -> bool {
        self.new.contains(&ino) || self.list.contains_key(&ino) || self.slots.contains_key(&ino)
    }

    /// Returns the first inode of the list.
    pub(super) fn head(&self) -> u32 {
        self.head
    }

    /// Assigns places to new orphans, for the commit of `txn`. An orphan that no operation has stored stays without a
    /// place while it cannot be read. Fails with `NoMemory`, or if the device fails; the commit then fails.
    pub(super) fn place_new(&mut self, txn: &mut Txn<'_>, volume: &Volume) -> Result<()> {
        let mut new: Vec<_> = core::mem::take(&mut self.new).into_iter().collect();
        new.sort_unstable();
        let has_sums = volume.super_block().has_metadata_csum();
        for ino in new {
            let number = u32::try_from(ino.0).map_err(|_| Error::Stale)?;
            match self.free_slot(txn) {
                Some((taken, index, slot)) => {
                    self.slots.try_reserve(1).map_err(|_| Error::NoMemory)?;
                    self.put_slot(txn, &taken, slot, number, has_sums);
                    self.slots.insert(ino, (index, slot));
                    if let Some(slots) = self.blocks.get_mut(index) {
                        slots.free = slots.free.saturating_sub(1);
                    }
                }
                None => {
                    // The operation that made it an orphan may have failed before storing it, and the list continues
                    // in its record.
                    let is_stored = volume.live().record(ino).is_some();
                    match touch(txn, volume, ino) {
                        // The transaction does not change this inode, which gets its place in a later commit.
                        Err(Error::Device(DeviceError::Read { .. })) if !is_stored => {
                            self.new.try_reserve(1).map_err(|_| Error::NoMemory)?;
                            self.new.insert(ino);
                        }
                        touched => touched.and_then(|()| self.put_first(ino, number))?,
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns a free slot of the orphan file, if its block can be taken.
    fn free_slot(&self, txn: &mut Txn<'_>) -> Option<(Taken, usize, usize)> {
        let index = self.blocks.iter().position(|block| block.free > 0)?;
        let taken = txn.take(self.blocks.get(index)?.block.0).ok()?;
        let slot = slots(&txn.view(&taken)).position(|found| found == 0)?;
        Some((taken, index, slot))
    }

    fn put_first(&mut self, ino: Ino, number: u32) -> Result<()> {
        self.list.try_reserve(1).map_err(|_| Error::NoMemory)?;
        let next = core::mem::replace(&mut self.head, number);
        if let Some(links) = self.list.get_mut(&Ino(next.into())) {
            links.before = Some(ino);
        }
        self.list.insert(ino, Links { before: None, next });
        Ok(())
    }

    /// Returns the required `i_dtime` of an inode on the list.
    pub(super) fn dtime(&self, ino: Ino) -> Option<u32> {
        self.list.get(&ino).map(|links| links.next)
    }

    /// Returns all orphans.
    pub(super) fn all(&self) -> Vec<Ino> {
        let mut all: Vec<_> = self.list.keys().chain(self.slots.keys()).chain(&self.new).copied().collect();
        all.sort_unstable();
        all
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty() && self.slots.is_empty() && self.new.is_empty()
    }

    /// Drops all orphans, as Linux does on a volume with errors.
    pub(super) fn clear_list(&mut self) {
        self.head = 0;
        self.list.clear();
    }

    fn put_slot(&self, txn: &mut Txn<'_>, taken: &Taken, slot: usize, value: u32, has_sums: bool) {
        let mut block = txn.edit(taken);
        if let Some(bytes) = block.get_mut(slot.saturating_mul(4)..).and_then(|bytes| bytes.first_chunk_mut())
        {
            *bytes = value.to_le_bytes();
        }
        let sum = self.sum(taken.number(), &block);
        if has_sums && let Some(bytes) = block.last_chunk_mut() {
            *bytes = sum.to_le_bytes();
        }
    }
}

impl Writer {
    /// Adds inode `ino` to the orphans, unless it is one, before its last name is removed or it is truncated in
    /// steps. The caller stores it in the same transaction. Fails with `NoMemory` before anything is changed.
    pub fn add_orphan(&self, ino: Ino) -> Result<()> {
        let mut state = self.orphans().lock();
        if !state.holds(ino) {
            state.new.try_reserve(1).map_err(|_| Error::NoMemory)?;
            state.new.insert(ino);
        }
        Ok(())
    }

    /// Removes the inode of `edit` from the orphans, if it is one. The caller stores it in the same transaction.
    /// Fails if the device fails, before anything is changed.
    pub fn remove_orphan(&self, txn: &mut Txn<'_>, edit: &mut InodeEdit) -> Result<()> {
        let ino = edit.ino();
        let mut state = self.orphans().lock();
        if state.new.remove(&ino) {
            return Ok(());
        }
        if let Some(&(index, slot)) = state.slots.get(&ino) {
            let block = state.blocks.get(index).map(|slots| slots.block).ok_or(Error::Invalid)?;
            let taken = txn.take(block.0)?;
            state.put_slot(txn, &taken, slot, 0, self.volume().super_block().has_metadata_csum());
            state.slots.remove(&ino);
            if let Some(slots) = state.blocks.get_mut(index) {
                slots.free = slots.free.saturating_add(1);
            }
            return Ok(());
        }
        let Some(&Links { before, next }) = state.list.get(&ino) else { return Ok(()) };
        match before {
            Some(before) => {
                touch(txn, self.volume(), before)?;
                if let Some(links) = state.list.get_mut(&before) {
                    links.next = next;
                }
            }
            None => state.head = next,
        }
        if let Some(links) = state.list.get_mut(&Ino(next.into())) {
            links.before = before;
        }
        state.list.remove(&ino);
        edit.set_dtime(0);
        Ok(())
    }
}

/// Makes the commit write an inode on the list again. The caller holds the orphans' lock. Fails if the device fails,
/// before anything is changed.
fn touch(txn: &mut Txn<'_>, volume: &Volume, ino: Ino) -> Result<()> {
    let slot = volume.inode_slot(ino)?;
    let table = txn.take(slot.block.0)?;
    let values = |inode: &Inode| volume.charged_values(inode);
    volume.live().touch(txn, (volume.super_block(), values), ino, slot.place(), &table)
}

/// Returns the slots of a block of the orphan file.
fn slots(block: &[u8]) -> impl Iterator<Item = u32> + '_ {
    let end = block.len().saturating_sub(TAIL);
    let (chunks, _) = block.get(..end).unwrap_or_default().as_chunks::<4>();
    chunks.iter().map(|bytes| u32::from_le_bytes(*bytes))
}

/// Returns the stored `i_dtime` of an inode on the list, or `None` if the inode was never in use.
fn stored_dtime(volume: &Volume, ino: Ino) -> Option<u32> {
    let sb = volume.super_block();
    if ino.0 < sb.first_ino.into() {
        return None;
    }
    let slot = volume.inode_slot(ino).ok()?;
    let block = volume.cache().get(slot.block.0).ok()?;
    let (raw, _) = RawInode::ref_from_prefix(block.get(slot.offset..)?).ok()?;
    let next = raw.i_dtime.get();
    (raw.i_mode.get() != 0 && to_u64(to_usize(next.into())) <= sb.inodes_count.into()).then_some(next)
}
