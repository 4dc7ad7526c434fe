//! Changing attributes and flags.
//!
//! Source: Linux `fs/ext4/ioctl.c` `ext4_ioctl_setflags`, `fs/ext4/ext4.h` `EXT4_FL_USER_MODIFIABLE`.

use core::ops::ControlFlow;

use obento_base::{Attr, Error, FileFlags, FileKind, Ino, Result};
use obento_driver::{Cookie, SetAttr, TimeChange};

use super::{InodeEdit, Time, Writer, cost};
use crate::feature::{Incompat, RoCompat};
use crate::inode::{Inode, InodeFlags};
use crate::map::Blocks;
use crate::unit::FileBlock;

/// The flags that a caller may change. The others belong to the format.
const MODIFIABLE: InodeFlags = InodeFlags::SECRM
    .union(InodeFlags::UNRM)
    .union(InodeFlags::COMPR)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::IMMUTABLE)
    .union(InodeFlags::APPEND)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::NOTAIL)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::TOPDIR)
    .union(InodeFlags::DAX)
    .union(InodeFlags::PROJINHERIT)
    .union(InodeFlags::CASEFOLD);

/// The flags that only directories have: the complement of Linux `EXT4_REG_FLMASK`, except for `CASEFOLD`.
const ONLY_DIRECTORIES: InodeFlags =
    InodeFlags::DIRSYNC.union(InodeFlags::TOPDIR).union(InodeFlags::PROJINHERIT);

/// The flags that exclude direct access: Linux `EXT4_DAX_MUT_EXCL`.
const NOT_WITH_DAX: InodeFlags = InodeFlags::VERITY
    .union(InodeFlags::ENCRYPT)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::INLINE_DATA);

impl Writer {
    /// [`obento_driver::WritableFileSystem::set_attr`].
    pub(crate) fn set_attr(&self, ino: Ino, change: &SetAttr) -> Result<Attr> {
        let inode = self.lock_user_inode(ino)?;
        let flags = change.flags.map(|flags| self.new_flags(&inode, flags)).transpose()?;
        if let Some(flags) = flags {
            self.change_data_mode(&inode, flags)?;
        }
        let mut room = None;
        if change.uid.or(change.gid).or(change.project).is_some() {
            let old = inode.attr(self.volume().super_block());
            let ids = [(change.uid, old.uid), (change.gid, old.gid), (change.project, old.project)];
            self.prepare_owners(ids.map(|(new, old)| new.unwrap_or(old)))?;
            let gaining = ids.map(|(new, old)| new.filter(|&new| new != old));
            room = self.room_for_transfer(&inode, gaining)?;
        }
        let mut txn = self.begin(cost::INODE)?;
        let mut edit = self.edit_inode(&mut txn, inode.view())?;
        self.apply(&mut edit, change)?;
        if let Some(flags) = flags {
            edit.set_flags(flags);
        }
        let attr = self.store_and_describe(&mut txn, &edit);
        self.hold_transferred(&edit, room);
        txn.commit();
        attr
    }

    fn apply(&self, edit: &mut InodeEdit, change: &SetAttr) -> Result<()> {
        let now = self.now();
        // Reading a file does not change its attributes.
        if (*change != SetAttr { atime: change.atime, ..SetAttr::default() }) {
            edit.touch(now);
        }
        if let Some(mode) = change.mode {
            edit.set_mode(edit.kind().mode_bits() | mode.bits());
        }
        let (uid, gid) = edit.owner();
        edit.set_owner(change.uid.unwrap_or(uid), change.gid.unwrap_or(gid));
        if self.volume().super_block().ro_compat.contains(RoCompat::PROJECT) {
            change.project.map_or(Ok(()), |project| edit.set_project(project))?;
        } else {
            change.expect_no_project()?;
        }
        let times = [
            (Time::Access, change.atime),
            (Time::Modify, change.mtime),
            (Time::Change, change.ctime),
            (Time::Birth, change.btime),
        ];
        for (time, to) in times {
            match to {
                None => {}
                Some(TimeChange::Now) => edit.stamp(time, now),
                Some(TimeChange::At(to)) => edit.stamp(time, to),
            }
        }
        Ok(())
    }

    /// Returns the new flags of an inode, without those that it cannot have. Making a directory case-insensitive fails
    /// with `NotSupported` on a volume without that feature, with `NotDirectory`, or with `NotEmpty`. Existing entries
    /// would have other hashes.
    fn new_flags(&self, inode: &Inode, flags: FileFlags) -> Result<InodeFlags> {
        let modifiable = if inode.is_dir() { MODIFIABLE } else { MODIFIABLE.difference(ONLY_DIRECTORIES) };
        let wanted = InodeFlags::from_bits_retain(flags.bits()) & modifiable;
        let new = inode.flags().difference(MODIFIABLE) | wanted;
        // Linux `dax_compatible`: data inside a directory does not count.
        let exclusive =
            if inode.is_dir() { NOT_WITH_DAX.difference(InodeFlags::INLINE_DATA) } else { NOT_WITH_DAX };
        if new.contains(InodeFlags::DAX) && new.intersects(exclusive) && new != inode.flags() {
            return Err(Error::NotSupported);
        }
        if (new ^ inode.flags()).contains(InodeFlags::CASEFOLD) {
            if !self.volume().super_block().incompat.contains(Incompat::CASEFOLD) {
                return Err(Error::NotSupported);
            }
            if !inode.is_dir() {
                return Err(Error::NotDirectory);
            }
            let mut has_entries = false;
            self.volume().current_list(inode, Cookie::START, &mut |_| {
                has_entries = true;
                ControlFlow::Break(())
            })?;
            if has_entries {
                return Err(Error::NotEmpty);
            }
        }
        Ok(new)
    }

    /// Prepares a file whose data will be journalled, or no longer journalled. Data in the journal is written to its
    /// place, or a replay would overwrite later data that is not journalled. The cache drops the data, so that it is
    /// not read from there.
    fn change_data_mode(&self, inode: &Inode, flags: InodeFlags) -> Result<()> {
        let changes = (inode.flags() ^ flags).contains(InodeFlags::JOURNAL_DATA);
        let has_blocks = inode.kind() == FileKind::Regular && !inode.has(InodeFlags::INLINE_DATA);
        if !changes || !has_blocks {
            return Ok(());
        }
        self.txns().checkpoint()?;
        let block_size = u64::from(self.volume().block_size());
        let blocks = inode.size().div_ceil(block_size);
        let mut at = 0;
        while let Some(block) = u32::try_from(at).ok().filter(|_| at < blocks) {
            let run = self.volume().map_run(inode, FileBlock(block))?;
            if let Blocks::Mapped(start) = run.place {
                (0..run.len).for_each(|n| self.volume().cache().forget(start.0.saturating_add(n.into())));
            }
            at = at.saturating_add(run.len.max(1).into());
        }
        Ok(())
    }
}
