//! Freeing inodes that nobody names or uses any more.

use obento_base::{Error, Ino, Result};

use super::{Writer, cost};
use crate::xattr::Dead;

impl Writer {
    /// The last user of `ino` is gone: space that was kept ahead for it is given back, and without a name it is freed.
    pub(crate) fn forget(&self, ino: Ino) {
        if !self.volume().live().is_unlinked(ino) {
            return self.forget_space(ino);
        }
        // What cannot be freed stays on the orphan list, for the next who opens the volume.
        if let Err(error) = self.evict(ino) {
            self.forget_space(ino);
            self.note_error(error);
        }
    }

    /// Frees an inode without a name, which is on the orphan list, and the inodes of values that nobody names without
    /// it. Does nothing for one that has a name, or is free already.
    pub(crate) fn evict(&self, ino: Ino) -> Result<()> {
        let mut dead = Dead::default();
        let freed = self.evict_one(ino, &mut dead);
        self.evict_dead(dead);
        freed
    }

    /// Frees the inodes of values that nobody names any more.
    pub(crate) fn evict_dead(&self, mut dead: Dead) {
        while let Some(ino) = dead.0.pop() {
            if let Err(error) = self.evict_one(ino, &mut dead) {
                self.note_error(error);
            }
        }
    }

    /// Frees the blocks in steps, each of which a crash may end, then attributes and inode at once.
    fn evict_one(&self, ino: Ino, dead: &mut Dead) -> Result<()> {
        let _locked = self.locks().write(&[ino]);
        let inode = match self.volume().inode(ino) {
            Ok(inode) if inode.links() == 0 => inode,
            Ok(_) | Err(Error::Stale) => return Ok(()),
            Err(error) => return Err(error),
        };
        self.drop_blocks(inode.clone())?;
        let attributes = self.xattr_release_cost(&inode);
        let credits = attributes.unwrap_or_default();
        let mut txn = self.begin(cost::FREE_INODE + cost::ORPHAN + credits)?;
        let mut edit = self.edit_inode(&mut txn, ino)?;
        if let Err(error) = attributes.and_then(|_| self.release_xattrs(&mut txn, &mut edit, dead)) {
            // Damaged attributes do not keep the inode.
            self.kept.note_error(error, self.now());
        }
        let freed =
            self.remove_orphan(&mut txn, &mut edit).and_then(|()| self.free_inode(&mut txn, &mut edit));
        if freed.is_err() {
            // Off the list, and still in use: a check finds it.
            self.store_inode(&mut txn, &edit);
        }
        txn.commit();
        freed
    }

    /// Takes away what lies past the size of an inode that was being cut short.
    pub(super) fn end_truncation(&self, ino: Ino) -> Result<()> {
        let _locked = self.locks().write(&[ino]);
        self.trim_blocks(ino)?;
        let mut txn = self.begin(cost::INODE + cost::ORPHAN)?;
        let mut edit = self.edit_inode(&mut txn, ino)?;
        self.remove_orphan(&mut txn, &mut edit)?;
        self.store_inode(&mut txn, &edit);
        txn.commit();
        Ok(())
    }
}
