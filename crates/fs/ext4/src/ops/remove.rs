//! Taking names away. What loses its last one becomes an orphan, and is freed when it is forgotten.
//!
//! Source: Linux fs/ext4/namei.c `ext4_unlink`, `ext4_rmdir`.

use obento_base::{Error, FileKind, Ino, Name, Result};
use obento_journal::Txn;

use super::names::{ENTRY, Found, LAST_NAME};
use crate::dir::{DirEdit, Hit};
use crate::inode::Inode;
use crate::writer::Writer;

impl Writer {
    /// [`obento_driver::WritableFileSystem::unlink`].
    pub(crate) fn unlink(&self, dir: Ino, name: &Name) -> Result<()> {
        let found = self.lock_name(dir, name)?;
        if found.inode.is_dir() {
            return Err(Error::IsDirectory);
        }
        self.remove(found)
    }

    /// [`obento_driver::WritableFileSystem::rmdir`].
    pub(crate) fn rmdir(&self, dir: Ino, name: &Name) -> Result<()> {
        let found = self.lock_name(dir, name)?;
        if !found.inode.is_dir() {
            return Err(Error::NotDirectory);
        }
        self.expect_empty(&found.inode)?;
        self.remove(found)
    }

    /// Errors: NotEmpty; Corrupt.
    pub(super) fn expect_empty(&self, dir: &Inode) -> Result<()> {
        match self.volume().with_directory(dir, |directory| directory.is_empty())? {
            true => Ok(()),
            false => Err(Error::NotEmpty),
        }
    }

    fn remove(&self, found: Found<'_>) -> Result<()> {
        let Found { dir, hit, inode, locked } = found;
        let mut txn = self.begin(ENTRY + LAST_NAME)?;
        let removed = self.remove_in(&mut txn, &dir, &hit, &inode);
        let ended = self.end(txn, &[&dir], removed);
        drop(locked);
        self.settle(ended)
    }

    fn remove_in(&self, txn: &mut Txn<'_>, dir: &Inode, hit: &Hit, inode: &Inode) -> Result<()> {
        let mut dir = DirEdit::new(self, txn, dir)?;
        let run = dir.take(txn, &hit.home)?;
        let mut inode = self.edit_known(txn, inode)?;
        self.take_name(&mut inode)?;
        dir.remove(txn, &run, hit.spot);
        dir.inode.touch_data(self.now());
        if inode.kind() == FileKind::Directory {
            self.lose_subdirectory(&mut dir.inode);
        }
        dir.store(txn);
        self.store_inode(txn, &inode);
        Ok(())
    }
}
