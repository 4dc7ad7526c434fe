//! Common parts of operations on names: locks of the inode that a name refers to, link counts, the end of an
//! operation.
//!
//! Invariant: an operation ends a consistent transaction, also if it fails. It is also committed after an error, with
//! the growth of a directory.
//! Locking: a name is looked up under the directory's lock, and then its inode is locked, too. If that lock is not
//! free, both are locked together and the name is looked up again. If it then refers to another inode, everything is
//! repeated.
//! Source: Linux fs/ext4/namei.c.

use obento_base::{Attr, Error, FileKind, Ino, Name, Result};
use obento_journal::{Credits, Tid, Txn};

use crate::dir::{EntriesLocation, FoundName};
use crate::feature::{Compat, RoCompat};
use crate::inode::{Inode, InodeFlags};
use crate::super_block::SuperBlock;
use crate::writer::{InodeEdit, LockedInodes, Writer, cost};

/// Blocks that change for a name for which there is space: a block of the directory, and its inode.
pub(super) const ENTRY: Credits = Credits(2);
/// Blocks that change when a directory grows for a name: three steps, each with a node above and a leaf.
pub(super) const GROWTH: Credits = Credits(3 * (cost::APPEND.0 + 2));
/// Blocks that a new inode changes, including its release after an error.
pub(super) const NEW_INODE: Credits = Credits(cost::NEW_INODE.0 + cost::FREE_INODE.0);
/// Blocks that the first block of a new inode changes.
pub(super) const FIRST_BLOCK: Credits = cost::APPEND;
/// Blocks that the removal of an inode's last name changes: its own, and the orphan list.
pub(super) const LAST_NAME: Credits = Credits(cost::INODE.0 + cost::ORPHAN.0);

/// A directory's link count if it is unknown: `dir_nlink`.
const UNCOUNTED: u16 = 1;

/// A name that was found with everything locked.
pub(super) struct LockedName<'a> {
    pub(super) dir: Inode,
    pub(super) hit: FoundName,
    pub(super) inode: Inode,
    pub(super) locked: LockedInodes<'a>,
}

/// The result of an operation, and the commit to wait for without locks.
#[must_use]
pub(super) struct OperationEnd<T> {
    tid: Option<Tid>,
    outcome: Result<T>,
}

impl Writer {
    /// Returns the current directory `ino`. Fails with `NotDirectory`, or with `NotFound` if it was removed.
    pub(super) fn live_directory(&self, ino: Ino) -> Result<Inode> {
        let inode = match self.volume().user_inode(ino) {
            Err(Error::Stale) => return Err(Error::NotFound),
            inode => inode?,
        };
        match inode.kind() {
            FileKind::Directory if inode.links() == 0 => Err(Error::NotFound),
            FileKind::Directory => {
                self.volume().refuse_encrypted(&inode, "encrypted file name").map(|()| inode)
            }
            _ => Err(Error::NotDirectory),
        }
    }

    /// Returns the place of `name` in `dir`. Fails with `NotFound` or `Corrupt`.
    pub(super) fn find(&self, dir: &Inode, name: &Name) -> Result<FoundName> {
        self.volume().with_directory(dir, |directory| directory.find(name))
    }

    /// Looks up `name` in `dir` and locks both inodes. Fails with `NotDirectory`, `NotFound` or `Corrupt`.
    pub(super) fn lock_name(&self, dir: Ino, name: &Name) -> Result<LockedName<'_>> {
        let mut locked = self.locks().write(&[dir]);
        let view = self.live_directory(dir)?;
        let mut known = self.find(&view, name)?;
        if self.locks().try_add(&mut locked, known.ino) {
            let inode = self.named_inode(known.ino)?;
            return Ok(LockedName { dir: view, hit: known, inode, locked });
        }
        drop(locked);
        loop {
            let locked = self.locks().write(&[dir, known.ino]);
            let view = self.live_directory(dir)?;
            let hit = if self.is_current(&known.home) { known } else { self.find(&view, name)? };
            if locked.covers(hit.ino) {
                let inode = self.named_inode(hit.ino)?;
                return Ok(LockedName { dir: view, hit, inode, locked });
            }
            known = hit;
        }
    }

    /// Returns whether the block in which an entry was found has not changed, so that it need not be searched again.
    /// A change replaces the block in the cache.
    pub(super) fn is_current(&self, home: &EntriesLocation) -> bool {
        match home {
            EntriesLocation::Block(block) => self.volume().cache().is_current(block),
            EntriesLocation::Inline(_) => false,
        }
    }

    /// Returns the inode that an entry refers to. Fails with `Corrupt` if it is not in use.
    pub(super) fn named_inode(&self, ino: Ino) -> Result<Inode> {
        match self.volume().user_inode(ino) {
            Err(Error::Stale) => Err(obento_base::Corrupt::UnusedInode { ino }.into()),
            inode => inode,
        }
    }

    /// Ends the transaction of an operation, also if the operation failed.
    pub(super) fn end<T>(&self, txn: Txn<'_>, dirs: &[&Inode], outcome: Result<T>) -> OperationEnd<T> {
        let tid = txn.commit();
        let synchronous =
            dirs.iter().any(|dir| dir.flags().intersects(InodeFlags::SYNC | InodeFlags::DIRSYNC));
        OperationEnd { tid: (synchronous && outcome.is_ok()).then_some(tid), outcome }
    }

    /// Waits as necessary, and returns the result of the operation. No inode is locked.
    pub(super) fn settle<T>(&self, ended: OperationEnd<T>) -> Result<T> {
        if let Some(tid) = ended.tid {
            self.txns().wait_in_the_end(tid)?;
        }
        ended.outcome
    }

    /// Returns the attributes that `inode` will have once it is stored.
    pub(super) fn attr_of(&self, inode: &InodeEdit) -> Result<Attr> {
        Ok(inode.inode()?.attr(self.volume().super_block()))
    }

    /// Fails with `TooManyLinks` if `dir` cannot have another subdirectory.
    pub(super) fn expect_room_for_subdirectory(&self, dir: &Inode) -> Result<()> {
        let sb = self.volume().super_block();
        let stops_counting = sb.ro_compat.contains(RoCompat::DIR_NLINK) && is_indexed(sb, dir.flags());
        if u32::from(dir.links()) >= sb.link_max() && !stops_counting {
            return Err(Error::TooManyLinks);
        }
        Ok(())
    }

    /// Counts another subdirectory, or stops counting: `ext4_inc_count`.
    pub(super) fn gain_subdirectory(&self, dir: &mut InodeEdit) {
        let sb = self.volume().super_block();
        let links = dir.links().saturating_add(1);
        let uncounted = u32::from(links) > sb.link_max() || links == UNCOUNTED.saturating_add(1);
        dir.set_links(if is_indexed(sb, dir.flags()) && uncounted { UNCOUNTED } else { links });
    }

    /// Counts one subdirectory fewer, unless they are uncounted: `ext4_dec_count`.
    pub(super) fn lose_subdirectory(&self, dir: &mut InodeEdit) {
        if dir.links() > 2 {
            dir.set_links(dir.links().saturating_sub(1));
        }
    }

    /// Removes a name from `inode`, which becomes an orphan with the last one. Changes nothing after an error.
    pub(super) fn take_name(&self, inode: &mut InodeEdit) -> Result<()> {
        let left = match inode.kind() {
            FileKind::Directory => 0,
            _ => inode.links().saturating_sub(1),
        };
        if left == 0 {
            self.add_orphan(inode.ino())?;
        }
        inode.set_links(left);
        inode.touch(self.now());
        Ok(())
    }
}

/// Fails with `CrossDevice` if `inode` belongs to another project than the one that `dir` requires.
pub(super) fn expect_same_project(sb: &SuperBlock, dir: &Inode, inode: &Inode) -> Result<()> {
    if dir.has(InodeFlags::PROJINHERIT) && dir.attr(sb).project != inode.attr(sb).project {
        return Err(Error::CrossDevice);
    }
    Ok(())
}

fn is_indexed(sb: &SuperBlock, flags: InodeFlags) -> bool {
    sb.compat.contains(Compat::DIR_INDEX) && flags.contains(InodeFlags::INDEX)
}
