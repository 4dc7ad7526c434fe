//! Removing names. An inode whose last name is removed is freed in the same transaction, if it has no users and few
//! blocks. Otherwise it becomes an orphan, and is freed by its forget.
//!
//! Source: Linux fs/ext4/namei.c `ext4_unlink`, `ext4_rmdir`.

use obento_base::{Error, FileKind, Ino, Name, Result};
use obento_driver::{AskUsage, RemovalKind, Usage};
use obento_journal::{Credits, Txn};

use super::names::{ENTRY, LAST_NAME, LockedName};
use crate::dir::{DirEdit, FoundName};
use crate::inode::Inode;
use crate::writer::{InodeWrite, PreparedEviction, Writer};
use crate::xattr::UnreferencedValues;

/// When an inode without names is freed.
enum Ending {
    /// It was freed together with the name. Contains the error of freeing it.
    Now(Option<Error>),
    /// Its forget frees it, unless it gets another name.
    Forgotten,
}

impl Writer {
    /// [`obento_driver::WritableFileSystem::remove`].
    pub(crate) fn remove(
        &self,
        dir: Ino,
        name: &Name,
        victim: RemovalKind,
        ask: &mut AskUsage<'_>,
    ) -> Result<()> {
        let found = self.lock_name(dir, name)?;
        let inode = &found.inode;
        let usage = ask(&inode.attr(self.volume().super_block()))?;
        match victim {
            RemovalKind::File if inode.is_dir() => return Err(Error::IsDirectory),
            RemovalKind::EmptyDirectory => self.expect_empty(inode)?,
            RemovalKind::File => {}
        }
        let is_last = usage == Usage::Unused && (inode.is_dir() || inode.links() <= 1);
        // Its errors are reported when it is forgotten.
        let eviction = if is_last { self.eviction(inode).unwrap_or_default() } else { None };
        let LockedName { dir, hit, inode, locked } = found;
        let mut txn =
            self.begin(ENTRY + LAST_NAME + eviction.as_ref().map_or(Credits(0), PreparedEviction::credits))?;
        let mut dead = UnreferencedValues::default();
        let removed =
            self.remove_in(&mut txn, (locked.view(&dir), &hit), locked.view(&inode), eviction, &mut dead);
        let (ending, outcome) = match removed {
            Ok(ending) => (ending, Ok(())),
            Err(error) => (Ending::Forgotten, Err(error)),
        };
        let ended = self.end(txn, &[&dir], outcome);
        drop(locked);
        self.evict_dead(dead);
        match ending {
            Ending::Now(freed) => freed.into_iter().for_each(|error| self.note_error(error)),
            Ending::Forgotten if is_last => self.forget(inode.ino()),
            Ending::Forgotten => {}
        }
        self.settle(ended)
    }

    /// Checks that a directory is empty. Fails with `NotDirectory`, `NotEmpty` or `Corrupt`.
    pub(super) fn expect_empty(&self, dir: &Inode) -> Result<()> {
        match self.volume().with_directory(dir, |directory| directory.is_empty())? {
            true => Ok(()),
            false => Err(Error::NotEmpty),
        }
    }

    fn remove_in<'t>(
        &self,
        txn: &mut Txn<'t>,
        (dir, hit): (InodeWrite<'t>, &FoundName),
        inode: InodeWrite<'t>,
        eviction: Option<PreparedEviction>,
        dead: &mut UnreferencedValues,
    ) -> Result<Ending> {
        let mut dir = DirEdit::new(self, txn, dir)?;
        let run = dir.take(txn, &hit.home)?;
        let mut inode = self.edit_inode(txn, inode)?;
        if eviction.is_some() {
            self.remove_orphan(txn, &mut inode)?;
        }
        let eviction = eviction.filter(|eviction| self.free_own(txn, &mut inode, eviction.blocks()).is_ok());
        if eviction.is_none() {
            self.take_name(&mut inode)?;
        }
        dir.remove(txn, &run, hit.spot);
        dir.inode.touch_data(self.now());
        if inode.kind() == FileKind::Directory {
            self.lose_subdirectory(&mut dir.inode);
        }
        dir.store(txn);
        let Some(eviction) = eviction else {
            self.store_inode(txn, &inode);
            return Ok(Ending::Forgotten);
        };
        Ok(Ending::Now(self.end_inode(txn, &mut inode, &eviction, dead).err()))
    }
}
