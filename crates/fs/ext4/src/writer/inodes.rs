//! Inodes in a transaction: copied out, put back, made, given back.

use obento_base::wire::{FromBytes, to_usize};
use obento_base::{FileKind, Ino, Result};
use obento_driver::NewNode;
use obento_journal::Txn;

use super::{FULL_EXTRA_ISIZE, InodeEdit, Time, Writer};
use crate::allocator::Wanted;
use crate::feature::Incompat;
use crate::inode::{Inode, InodeFlags, encode_device};
use crate::map::empty_root;
use crate::raw::RawInode;

/// What a new inode gets from its directory: Linux `EXT4_FL_INHERITED`.
const INHERITED: InodeFlags = InodeFlags::SECRM
    .union(InodeFlags::UNRM)
    .union(InodeFlags::COMPR)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::NOCOMPR)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::NOTAIL)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::PROJINHERIT)
    .union(InodeFlags::CASEFOLD)
    .union(InodeFlags::DAX);
/// What of that means nothing to a regular file: `EXT4_REG_FLMASK`.
const OF_DIRECTORIES: InodeFlags =
    InodeFlags::DIRSYNC.union(InodeFlags::TOPDIR).union(InodeFlags::CASEFOLD).union(InodeFlags::PROJINHERIT);
/// What means something to the rest: `EXT4_OTHER_FLMASK`.
const OF_ALL: InodeFlags = InodeFlags::NODUMP.union(InodeFlags::NOATIME);

impl Writer {
    /// A copy of inode `ino`, to be changed; its lock is held, exclusive. Spends one credit. Fails with `Corrupt`, or
    /// with `Stale` if it is not in use.
    pub fn edit_inode(&self, txn: &mut Txn<'_>, ino: Ino) -> Result<InodeEdit> {
        let slot = self.volume().inode_slot(ino)?;
        let taken = txn.take(slot.block.0)?;
        let inode = self.volume().inode(ino)?;
        let (format, seed) = (self.volume().super_block().into(), inode.checksum_seed());
        InodeEdit::new(format, ino, inode.place(), inode.record(), taken, seed)
    }

    /// The same for an inode that was read since its lock was taken.
    pub(crate) fn edit_known(&self, txn: &mut Txn<'_>, inode: &Inode) -> Result<InodeEdit> {
        let taken = txn.take(inode.place().block.0)?;
        let (format, seed) = (self.volume().super_block().into(), inode.checksum_seed());
        InodeEdit::new(format, inode.ino(), inode.place(), inode.record(), taken, seed)
    }

    /// Puts a changed copy back. It can be changed further and put back again in the same transaction.
    pub fn store_inode(&self, txn: &mut Txn<'_>, edit: &InodeEdit) {
        self.store(txn, edit, edit.links() == 0 && edit.mode() != 0);
    }

    fn store(&self, txn: &mut Txn<'_>, edit: &InodeEdit, is_unlinked: bool) {
        self.volume().live().store(txn, self.volume().super_block(), edit, is_unlinked);
    }

    /// Takes an inode in directory `parent` and makes it what `node` says, with one link (a directory: two), without
    /// data; the target of a link is the caller's to put in. Spends [`super::cost::NEW_INODE`]. It is not stored yet;
    /// who cannot go on gives it back with [`Self::free_inode`]. Fails with `NoSpace`.
    pub fn new_inode(&self, txn: &mut Txn<'_>, parent: &Inode, node: &NewNode<'_>) -> Result<InodeEdit> {
        let wanted = Wanted::new(node.kind, parent.ino(), parent.has(InodeFlags::TOPDIR));
        let new = self.allocator().allocate_inode(txn, parent.ino(), wanted)?;
        let size = self.volume().super_block().inode_size;
        let before = match self.volume().live().record(new.ino) {
            Some(record) => generation_at(&record, 0),
            None => generation_at(&txn.view(&new.table), new.place.offset),
        };
        let record = alloc::vec![0; size.into()];
        let format = self.volume().super_block().into();
        let mut edit = InodeEdit::new(format, new.ino, new.place, &record, new.table, 0)?;
        edit.set_extra_isize(FULL_EXTRA_ISIZE);
        edit.set_generation(self.next_generation(before));
        edit.set_mode(node.kind.mode_bits() | node.mode.bits());
        edit.set_owner(node.uid, node.gid);
        edit.set_links(if node.kind == FileKind::Directory { 2 } else { 1 });
        edit.set_version(1);
        let now = self.now();
        for time in [Time::Access, Time::Modify, Time::Change, Time::Birth] {
            edit.stamp(time, now);
        }
        edit.set_flags(inherited_flags(parent, node.kind));
        if parent.has(InodeFlags::PROJINHERIT) {
            // A directory without room for a project has none to give.
            let _ = edit.set_project(parent.attr(self.volume().super_block()).project);
        }
        match node.kind {
            FileKind::Regular | FileKind::Directory | FileKind::Symlink => self.start_extents(&mut edit),
            kind if kind.is_device() => {
                let number = encode_device(node.rdev);
                edit.i_block_mut().iter_mut().zip(number).for_each(|(to, from)| *to = from);
            }
            _ => {}
        }
        Ok(edit)
    }

    /// An empty extent tree, on a volume that has those.
    pub fn start_extents(&self, edit: &mut InodeEdit) {
        if !self.volume().super_block().incompat.contains(Incompat::EXTENT) {
            return;
        }
        edit.insert_flags(InodeFlags::EXTENTS);
        *edit.i_block_mut() = empty_root();
    }

    /// Another generation than `before`, and than most others.
    fn next_generation(&self, before: u32) -> u32 {
        match before {
            0 => {
                let now = self.now();
                let mixed = now.secs().unsigned_abs().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                u32::try_from(mixed).unwrap_or(0).wrapping_add(now.nanos()) | 1
            }
            before => before.wrapping_add(1),
        }
    }

    /// Gives an inode back, which has no blocks and no attributes left and is not on the orphan list. Spends
    /// [`super::cost::FREE_INODE`]. Errors, after which it has no name and is still taken: Corrupt if it is free already.
    pub fn free_inode(&self, txn: &mut Txn<'_>, edit: &mut InodeEdit) -> Result<()> {
        let is_directory = edit.kind() == FileKind::Directory;
        edit.set_links(0);
        edit.set_size(0);
        edit.set_dtime(self.deletion_time());
        // Before anybody can take it again and store it, which needs no lock.
        self.store(txn, edit, false);
        self.allocator().free_inode(txn, edit.ino(), is_directory)
    }

    /// Never a number that could be an inode's, or `e2fsck` takes it for a left-over of the orphan list
    /// (`PR_1_LOW_DTIME`).
    fn deletion_time(&self) -> u32 {
        let secs = self.now().secs().clamp(0, u32::MAX.into());
        u32::try_from(secs).unwrap_or(u32::MAX).max(self.volume().super_block().inodes_count)
    }
}

fn inherited_flags(parent: &Inode, kind: FileKind) -> InodeFlags {
    let flags = parent.flags() & INHERITED;
    match kind {
        FileKind::Directory => flags,
        FileKind::Regular => flags.difference(OF_DIRECTORIES),
        _ => flags & OF_ALL,
    }
}

/// The generation of the record at byte `offset`, whatever life it is from.
fn generation_at(block: &[u8], offset: u32) -> u32 {
    let record = block.get(to_usize(offset.into())..).unwrap_or_default();
    RawInode::ref_from_prefix(record).map_or(0, |(raw, _)| raw.i_generation.get())
}
