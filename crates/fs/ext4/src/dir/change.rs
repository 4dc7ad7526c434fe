//! A directory that is being changed in a transaction.
//!
//! Invariant: all that can fail is in [`DirEdit::make_room`] and [`DirEdit::take`]; later steps cannot fail. After a
//! failure the directory is consistent, although it may have grown: a caller that stores its inode and commits loses
//! nothing.
//! Locking: the directory's lock, held exclusively since before the lookup of the arguments.

use core::ops::Range;

use obento_base::{Error, FileKind, Ino, Name, Result};
use obento_block::Block;
use obento_journal::{Taken, Txn};

use super::index::BLOCK_MASK;
use super::{
    DirShape, DirTxn, EntriesBody, EntriesLocation, EntryPosition, EntrySpace, FoundName, FreeSlot, Grown,
    Growth, InlineDir, NewEntry,
};
use crate::feature::Incompat;
use crate::inode::{Inode, InodeFlags};
use crate::unit::FileBlock;
use crate::writer::{InodeEdit, InodeWrite, Writer};
use crate::xattr::{inline_rest_max, with_inline_rest};

/// Maximum number of steps by which a directory grows for one entry. In the longest sequence, a node is split, the
/// index gets a level, and a leaf is split. Or the entries leave the inode, get an index, and the leaf is split. More
/// steps indicate an error.
const MOST_STEPS: u32 = 8;

/// A directory's inode in a transaction.
pub(crate) struct DirEdit<'a> {
    writer: &'a Writer,
    pub(crate) inode: InodeEdit,
    shape: DirShape,
    /// Whether its inode must be stored even after an error.
    has_grown: bool,
}

/// A run of records that is being changed.
#[derive(Debug)]
pub(crate) enum RecordRun {
    Block(Taken),
    /// In `i_block`.
    Head,
    /// After the inode's fields.
    Rest(Range<usize>),
}

impl RecordRun {
    /// Returns whether both are the same run of one directory.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Block(this), Self::Block(other)) => this.number() == other.number(),
            (Self::Head, Self::Head) | (Self::Rest(_), Self::Rest(_)) => true,
            _ => false,
        }
    }
}

impl<'a> DirEdit<'a> {
    /// Prepares a locked directory for changes. Fails with `NoMemory`, or if the device fails.
    pub(crate) fn new<'t>(writer: &'a Writer, txn: &mut Txn<'t>, view: InodeWrite<'t>) -> Result<Self> {
        Self::of(writer, writer.edit_inode(txn, view)?, &view)
    }

    /// Prepares the directory of `inode` for changes. `view` is its current state.
    pub(crate) fn of(writer: &'a Writer, inode: InodeEdit, view: &Inode) -> Result<Self> {
        let shape = writer.volume().shape(view)?;
        Ok(Self { writer, inode, shape, has_grown: false })
    }

    /// Stores the inode.
    pub(crate) fn store(&self, txn: &mut Txn<'_>) {
        self.writer.store_inode(txn, &self.inode);
    }

    /// Stores the inode if the directory has grown, for an operation that failed afterwards.
    pub(crate) fn store_grown(&self, txn: &mut Txn<'_>) {
        if self.has_grown {
            self.store(txn);
        }
    }

    /// Returns whether the directory has grown, so that places found before may be wrong.
    pub(crate) fn has_grown(&self) -> bool {
        self.has_grown
    }

    /// Returns the current place of `name`. Fails with `NotFound` or `Corrupt`.
    pub(crate) fn find(&self, name: &Name) -> Result<FoundName> {
        let view = self.inode.inode()?;
        self.writer.volume().with_directory(&view, |directory| directory.find(name))
    }

    /// Extends the directory until `name` has space, as `room`, which was found before, requires. Fails with
    /// `NoSpace` or `Corrupt`, or if the device fails.
    pub(crate) fn make_room(
        &mut self,
        txn: &mut Txn<'_>,
        name: &Name,
        mut room: EntrySpace,
    ) -> Result<(RecordRun, FreeSlot)> {
        for _ in 0..MOST_STEPS {
            match room {
                EntrySpace::Slot(home, slot) => return Ok((self.take(txn, &home)?, slot)),
                EntrySpace::Grow(growth) => self.grow(txn, growth, name)?,
            }
            let view = self.inode.inode()?;
            self.shape = self.writer.volume().shape(&view)?;
            room = self.writer.volume().with_directory(&view, |directory| directory.room(name))?;
        }
        Err(Error::NoSpace)
    }

    /// Takes a run for a change. Fails with `Corrupt`, or if the device fails.
    pub(crate) fn take(&self, txn: &mut Txn<'_>, home: &EntriesLocation) -> Result<RecordRun> {
        match home {
            EntriesLocation::Block(block) => txn.take_seen(block).map(RecordRun::Block),
            EntriesLocation::Inline(0) => Ok(RecordRun::Head),
            EntriesLocation::Inline(_) => {
                let view = self.inode.inode()?;
                let (start, rest) = self.writer.volume().inline_rest_at(&view)?;
                let start = start.saturating_sub(view.xattr_offset().unwrap_or(0).into());
                Ok(RecordRun::Rest(start..start.saturating_add(rest.len())))
            }
        }
    }

    /// Puts an entry into `slot` of `run`.
    pub(crate) fn put(&mut self, txn: &mut Txn<'_>, run: &RecordRun, slot: FreeSlot, entry: &NewEntry<'_>) {
        self.change(txn, run, |shape, bytes| shape.put(bytes, slot, entry));
        if !self.shape.indexed {
            // A stale index on a volume without the feature does not contain the entry: `ext4_update_dx_flag`.
            self.inode.remove_flags(InodeFlags::INDEX);
        }
    }

    /// Removes the entry at `spot` of `run`.
    pub(crate) fn remove(&mut self, txn: &mut Txn<'_>, run: &RecordRun, spot: EntryPosition) {
        self.change(txn, run, |shape, bytes| shape.remove(bytes, spot));
    }

    /// Changes the inode that the record at `spot` of `run` refers to.
    pub(crate) fn repoint(
        &mut self,
        txn: &mut Txn<'_>,
        run: &RecordRun,
        spot: EntryPosition,
        (ino, kind): (Ino, FileKind),
    ) {
        self.change(txn, run, |shape, bytes| shape.repoint(bytes, spot.offset, ino_bits(ino), kind));
    }

    fn change(&mut self, txn: &mut Txn<'_>, run: &RecordRun, change: impl FnOnce(&DirShape, &mut [u8])) {
        match run {
            RecordRun::Block(taken) => {
                let mut block = txn.edit(taken);
                change(&self.shape, &mut block);
                match self.shape.leaf_seal() {
                    Some(seal) => block.seal_later(seal),
                    None => block.set_verified(),
                }
            }
            RecordRun::Head => change(&self.shape, self.inode.i_block_mut().get_mut(4..).unwrap_or_default()),
            RecordRun::Rest(range) => {
                change(&self.shape, self.inode.xattr_bytes_mut().get_mut(range.clone()).unwrap_or_default());
            }
        }
    }

    /// Returns the place of the parent's number, for [`Self::set_parent`]. Fails with `Corrupt`, or if the device
    /// fails.
    pub(crate) fn take_parent(&self, txn: &mut Txn<'_>) -> Result<RecordRun> {
        if self.inode.has(InodeFlags::INLINE_DATA) {
            return Ok(RecordRun::Head);
        }
        let view = self.inode.inode()?;
        self.writer.volume().with_directory(&view, |directory| directory.parent())?;
        let first = self.writer.volume().read_file_block(&view, FileBlock(0))?.ok_or(Error::NotFound)?;
        txn.take(first.number()).map(RecordRun::Block)
    }

    /// Sets the directory's parent.
    pub(crate) fn set_parent(&mut self, txn: &mut Txn<'_>, run: &RecordRun, parent: Ino) {
        let parent = ino_bits(parent);
        match run {
            RecordRun::Block(taken) => {
                let mut block = txn.edit(taken);
                self.shape.set_block_parent(&mut block, parent);
                block.set_verified();
            }
            RecordRun::Head | RecordRun::Rest(_) => {
                if let Some(bytes) = self.inode.i_block_mut().first_chunk_mut() {
                    *bytes = parent.to_le_bytes();
                }
            }
        }
    }

    fn grow(&mut self, txn: &mut Txn<'_>, growth: Growth, name: &Name) -> Result<()> {
        if matches!(growth, Growth::Inline) {
            self.grow_inline(txn, name)?;
        } else {
            let mut growing =
                Growing { writer: self.writer, txn, inode: &mut self.inode, shape: &self.shape };
            if growth.act(&self.shape, &mut growing)? == Grown::Indexed {
                self.inode.insert_flags(InodeFlags::INDEX);
            }
        }
        self.has_grown = true;
        Ok(())
    }

    /// Extends the space for entries in the inode, or moves them to a block.
    fn grow_inline(&mut self, txn: &mut Txn<'_>, name: &Name) -> Result<()> {
        let view = self.inode.inode()?;
        let mut dir = self.writer.volume().with_directory(&view, |directory| match &directory.body {
            EntriesBody::Inline(inline) => InlineDir::copy(inline),
            EntriesBody::Blocks(_) => Err(Error::Invalid),
        })?;
        let most = inline_rest_max(&view)?.unwrap_or(0);
        if dir.grow(&self.shape, most, name.as_bytes().len())?.is_some() {
            let rest = with_inline_rest(&view, Some(&dir.rest))?;
            self.inode.xattr_bytes_mut().copy_from_slice(&rest);
            self.inode.set_size(dir.size());
            return Ok(());
        }
        let block = dir.to_block(&self.shape)?;
        let rest = with_inline_rest(&view, None)?;
        // A copy, since the inode keeps its entries if no block is available.
        let mut inode = self.inode.clone();
        inode.xattr_bytes_mut().copy_from_slice(&rest);
        inode.remove_flags(InodeFlags::INLINE_DATA);
        inode.set_size(0);
        inode.i_block_mut().fill(0);
        self.writer.start_extents(&mut inode);
        let (_, taken) = self.writer.append_dir_block(txn, &mut inode)?;
        let mut target = txn.edit(&taken);
        target.copy_from_slice(&block);
        target.set_verified();
        drop(target);
        self.inode = inode;
        Ok(())
    }

    /// Turns a new inode into an empty directory in `parent`: inline if the volume supports that and there is space,
    /// otherwise in a block. Fails with `NoSpace`, and then does not change the inode.
    pub(crate) fn start(&mut self, txn: &mut Txn<'_>, parent: Ino) -> Result<()> {
        let view = self.inode.inode()?;
        if self.keeps_inline() && inline_rest_max(&view)?.is_some() {
            let dir = InlineDir::new(&self.shape, ino_bits(parent));
            let rest = with_inline_rest(&view, Some(&dir.rest))?;
            self.inode.xattr_bytes_mut().copy_from_slice(&rest);
            self.inode.remove_flags(InodeFlags::EXTENTS);
            self.inode.insert_flags(InodeFlags::INLINE_DATA);
            self.inode.set_size(dir.size());
            *self.inode.i_block_mut() = dir.head;
            return Ok(());
        }
        let (_, taken) = self.writer.append_dir_block(txn, &mut self.inode)?;
        let mut block = txn.edit(&taken);
        self.shape.first_block(&mut block, ino_bits(self.shape.dir), ino_bits(parent));
        block.set_verified();
        Ok(())
    }

    fn keeps_inline(&self) -> bool {
        self.writer.volume().super_block().incompat.contains(Incompat::INLINE_DATA)
    }
}

/// A directory during the steps of its growth.
struct Growing<'a, 'x, 't> {
    writer: &'a Writer,
    txn: &'x mut Txn<'t>,
    inode: &'x mut InodeEdit,
    shape: &'x DirShape,
}

impl Growing<'_, '_, '_> {
    /// Returns the maximum size of a directory: the size that an index can refer to. Without `large_dir`, only 32 bits
    /// of the size are valid.
    fn size_max(&self) -> u64 {
        let (sb, size) = (self.writer.volume().super_block(), u64::from(self.shape.block_size));
        let named = u64::from(BLOCK_MASK).saturating_mul(size);
        let wide = sb.incompat.contains(Incompat::LARGE_DIR);
        if wide { named } else { named.min(u64::from(u32::MAX).saturating_sub(size)) }
    }
}

impl DirTxn for Growing<'_, '_, '_> {
    type Taken = Taken;

    fn take(&mut self, block: &Block) -> Result<Taken> {
        self.txn.take(block.number())
    }

    fn append(&mut self) -> Result<(u32, Taken)> {
        if self.inode.size() >= self.size_max() {
            return Err(Error::NoSpace);
        }
        let (at, taken) = self.writer.append_dir_block(self.txn, self.inode)?;
        Ok((at.0, taken))
    }

    fn edit(&mut self, taken: &Taken, change: impl FnOnce(&mut [u8])) {
        let mut block = self.txn.edit(taken);
        change(&mut block);
        block.set_verified();
    }
}

/// Returns the 32 bits of an inode number of the format.
fn ino_bits(ino: Ino) -> u32 {
    u32::try_from(ino.0).unwrap_or(0)
}
