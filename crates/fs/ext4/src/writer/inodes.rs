//! Inodes in a transaction: copying, storing, creating and freeing.

use obento_base::wire::{FromBytes, to_usize};
use obento_base::{Attr, FileKind, Ino, Result};
use obento_driver::NewNode;
use obento_env::sync::MutexGuard;
use obento_journal::Txn;

use super::{FULL_EXTRA_ISIZE, InodeEdit, InodeGuard, InodeWrite, Time, Writer};
use crate::allocator::InodeClass;
use crate::feature::Incompat;
use crate::inode::{Inode, InodeFlags, encode_device};
use crate::map::empty_root;
use crate::raw::RawInode;

/// The flags that a new inode inherits from its directory: Linux `EXT4_FL_INHERITED`.
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
/// The inherited flags without meaning for a regular file: `EXT4_REG_FLMASK`.
const OF_DIRECTORIES: InodeFlags =
    InodeFlags::DIRSYNC.union(InodeFlags::TOPDIR).union(InodeFlags::CASEFOLD).union(InodeFlags::PROJINHERIT);
/// The inherited flags with a meaning for other types: `EXT4_OTHER_FLMASK`.
const OF_ALL: InodeFlags = InodeFlags::NODUMP.union(InodeFlags::NOATIME);

impl Writer {
    /// Locks inode `ino`, and reads it. Fails with `Corrupt`, or with `Stale` if it is not in use.
    pub(crate) fn lock_inode(&self, ino: Ino) -> Result<InodeGuard<'_>> {
        self.lock_as(ino, |writer, ino| writer.volume().inode(ino))
    }

    /// Locks inode `ino`, unless it is reserved by the format, and reads it. Fails as [`Self::lock_inode`] does.
    pub(crate) fn lock_user_inode(&self, ino: Ino) -> Result<InodeGuard<'_>> {
        self.lock_as(ino, |writer, ino| writer.volume().user_inode(ino))
    }

    /// Locks inode `ino`, and reads it by `read`, which may refuse it.
    pub(crate) fn lock_as(
        &self,
        ino: Ino,
        read: impl FnOnce(&Self, Ino) -> Result<Inode>,
    ) -> Result<InodeGuard<'_>> {
        let lock = self.locks().write_one(ino);
        let inode = read(self, ino)?;
        Ok(InodeGuard::new(lock, inode))
    }

    /// Reads a locked inode again, after a transaction that changed it.
    pub(crate) fn refresh(&self, inode: &mut InodeGuard<'_>) -> Result<()> {
        inode.replace(self.volume().inode(inode.ino())?);
        Ok(())
    }

    /// Returns a copy of a locked inode for a change. The lock is held until the transaction ends. Uses one
    /// credit. Fails with `NoMemory`, or if the device fails.
    pub(crate) fn edit_inode<'t>(&self, txn: &mut Txn<'t>, inode: InodeWrite<'t>) -> Result<InodeEdit> {
        self.copy_inode(txn, &inode)
    }

    /// Returns a copy of an inode that belongs to several files, or to the format: a value of an attribute,
    /// or a quota file. Such inodes have no lock of their own, but change only under the mutex of `_guard`.
    /// Fails as [`Self::edit_inode`] does.
    pub(crate) fn edit_shared_inode<T>(
        &self,
        txn: &mut Txn<'_>,
        _guard: &MutexGuard<'_, T>,
        inode: &Inode,
    ) -> Result<InodeEdit> {
        self.copy_inode(txn, inode)
    }

    fn copy_inode(&self, txn: &mut Txn<'_>, inode: &Inode) -> Result<InodeEdit> {
        let taken = txn.take(inode.place().block.0)?;
        let (format, seed) = (self.volume().super_block().into(), inode.checksum_seed());
        let values = self.volume().charged_values(inode)?;
        InodeEdit::new(format, inode.ino(), inode.place(), (inode.record(), values), taken, seed)
    }

    /// Stores a changed copy. It can be changed and stored again in the same transaction.
    pub fn store_inode(&self, txn: &mut Txn<'_>, edit: &InodeEdit) {
        // An inode that is not in use has no view.
        let _ = self.store(txn, edit, edit.links() == 0 && edit.mode() != 0, |_| ());
    }

    /// Stores a changed copy as [`Self::store_inode`] does, and returns its attributes. Fails with `Stale` if it is not
    /// in use.
    pub(crate) fn store_and_describe(&self, txn: &mut Txn<'_>, edit: &InodeEdit) -> Result<Attr> {
        let is_unlinked = edit.links() == 0 && edit.mode() != 0;
        self.store(txn, edit, is_unlinked, |inode| inode.attr(self.volume().super_block()))
    }

    fn store<T>(
        &self,
        txn: &mut Txn<'_>,
        edit: &InodeEdit,
        is_unlinked: bool,
        read: impl FnOnce(&Inode) -> T,
    ) -> Result<T> {
        let sb = self.volume().super_block();
        let (charges, seen) = self.volume().live().store(txn, sb, (edit, is_unlinked), read);
        self.note_usage(edit.ino(), charges);
        self.note_quota_blocks(txn, edit);
        seen
    }

    /// Creates the quota entries of the owners of a new inode, as [`Self::prepare_owners`] does.
    pub(crate) fn prepare_owners_of(&self, parent: &Inode, node: &NewNode<'_>) -> Result<()> {
        self.prepare_owners(self.owners_of(parent, node))
    }

    /// Returns the owners of a new inode in directory `parent`.
    pub(super) fn owners_of(&self, parent: &Inode, node: &NewNode<'_>) -> [u32; 3] {
        [node.uid, node.gid, self.inherited_project(parent).unwrap_or(0)]
    }

    /// Returns the project of new inodes in directory `parent`, if they inherit one.
    fn inherited_project(&self, parent: &Inode) -> Option<u32> {
        parent.has(InodeFlags::PROJINHERIT).then(|| parent.attr(self.volume().super_block()).project)
    }

    /// Allocates an inode in directory `parent` with the attributes of `node`, with one link (a directory: two) and
    /// without data. The caller writes the target of a link. Uses [`super::cost::NEW_INODE`]. The inode is not stored
    /// yet; after an error the caller frees it with [`Self::free_inode`]. Fails with `NoSpace`.
    pub fn new_inode(&self, txn: &mut Txn<'_>, parent: &Inode, node: &NewNode<'_>) -> Result<InodeEdit> {
        let wanted = InodeClass::new(node.kind, parent.ino(), parent.has(InodeFlags::TOPDIR));
        let new = self.allocator().allocate_inode(txn, parent.ino(), wanted)?;
        let size = self.volume().super_block().inode_size;
        let before = match self.volume().live().record(new.ino) {
            Some(record) => generation_at(&record, 0),
            None => generation_at(&txn.view(&new.table), new.place.offset),
        };
        let record = alloc::vec![0; size.into()];
        let format = self.volume().super_block().into();
        // Changed in place: another copy on the stack would have hundreds of bytes.
        let mut made = InodeEdit::new(format, new.ino, new.place, (&record, 0), new.table, 0);
        if let Ok(edit) = &mut made {
            edit.set_extra_isize(FULL_EXTRA_ISIZE);
            edit.set_generation(self.next_generation(before));
            self.describe(edit, parent, node);
        }
        made
    }

    /// Sets the attributes of a new inode.
    fn describe(&self, edit: &mut InodeEdit, parent: &Inode, node: &NewNode<'_>) {
        edit.set_mode(node.kind.mode_bits() | node.mode.bits());
        edit.set_owner(node.uid, node.gid);
        edit.set_links(if node.kind == FileKind::Directory { 2 } else { 1 });
        edit.set_version(1);
        let now = self.now();
        for time in [Time::Access, Time::Modify, Time::Change, Time::Birth] {
            edit.stamp(time, now);
        }
        edit.set_flags(inherited_flags(parent, node.kind));
        if let Some(project) = self.inherited_project(parent) {
            // An inode without space for a project has no project.
            let _ = edit.set_project(project);
        }
        match node.kind {
            FileKind::Regular | FileKind::Directory | FileKind::Symlink => self.start_extents(edit),
            kind if kind.is_device() => {
                let number = encode_device(node.rdev);
                edit.i_block_mut().iter_mut().zip(number).for_each(|(to, from)| *to = from);
            }
            _ => {}
        }
    }

    /// Creates an empty extent tree, on a volume with extents.
    pub fn start_extents(&self, edit: &mut InodeEdit) {
        if !self.volume().super_block().incompat.contains(Incompat::EXTENT) {
            return;
        }
        edit.insert_flags(InodeFlags::EXTENTS);
        *edit.i_block_mut() = empty_root();
    }

    /// Returns a generation other than `before`, and probably new.
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

    /// Frees an inode that has no blocks and no attributes and is not on the orphan list. Uses
    /// [`super::cost::FREE_INODE`]. Fails with `Corrupt` if it is already free; it then has no name and stays
    /// allocated.
    pub fn free_inode(&self, txn: &mut Txn<'_>, edit: &mut InodeEdit) -> Result<()> {
        let is_directory = edit.kind() == FileKind::Directory;
        edit.set_links(0);
        edit.set_size(0);
        edit.set_dtime(self.deletion_time());
        // Before the inode can be allocated again and stored, which needs no lock.
        let _ = self.store(txn, edit, false, |_| ());
        self.allocator().free_inode(txn, edit.ino(), is_directory)
    }

    /// Returns the current time, but never a number that could be an inode's, or `e2fsck` takes it for a remnant of
    /// the orphan list (`PR_1_LOW_DTIME`).
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

/// Returns the generation of the record at byte `offset`, which may be that of a free inode.
fn generation_at(block: &[u8], offset: u32) -> u32 {
    let record = block.get(to_usize(offset.into())..).unwrap_or_default();
    RawInode::ref_from_prefix(record).map_or(0, |(raw, _)| raw.i_generation.get())
}
