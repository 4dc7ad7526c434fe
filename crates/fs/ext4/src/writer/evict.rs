//! Freeing inodes without names and users.

use obento_base::{Error, Ino, Result};
use obento_journal::{Credits, Txn};

use super::{InodeEdit, Writer, cost};
use crate::inode::Inode;
use crate::map::OwnBlocks;
use crate::xattr::UnreferencedValues;

/// The resources of an inode that will be freed.
pub(crate) struct PreparedEviction {
    blocks: OwnBlocks,
    blocks_credits: Credits,
    /// The credits for releasing its attributes, or the error that prevents it.
    attributes: Result<Credits>,
}

impl PreparedEviction {
    /// Returns its blocks for [`Writer::free_own`].
    pub(crate) fn blocks(&self) -> &OwnBlocks {
        &self.blocks
    }

    /// Returns the credits for freeing the inode.
    pub(crate) fn credits(&self) -> Credits {
        cost::FREE_INODE + self.blocks_credits + self.attributes.unwrap_or_default()
    }
}

impl Writer {
    /// Handles the last user's forget of `ino`: releases the space ahead of it, and frees it if it has no name.
    pub(crate) fn forget(&self, ino: Ino) {
        if !self.volume().live().is_unlinked(ino) {
            return self.forget_space(ino);
        }
        // An inode that cannot be freed stays on the orphan list for the next open.
        if let Err(error) = self.evict(ino) {
            self.forget_space(ino);
            self.note_error(error);
        }
    }

    /// Frees an inode without a name, which is on the orphan list, and the inodes of attribute values that are no
    /// longer used. Does nothing for an inode that has a name or is already free.
    pub(crate) fn evict(&self, ino: Ino) -> Result<()> {
        let mut dead = UnreferencedValues::default();
        let freed = self.evict_one(ino, &mut dead);
        self.evict_dead(dead);
        freed
    }

    /// Frees the inodes of attribute values that are no longer used.
    pub(crate) fn evict_dead(&self, mut dead: UnreferencedValues) {
        while let Some(ino) = dead.0.pop() {
            if let Err(error) = self.evict_one(ino, &mut dead) {
                self.note_error(error);
            }
        }
    }

    /// Frees an inode at once, or first its blocks in steps, after each of which a crash is possible.
    fn evict_one(&self, ino: Ino, dead: &mut UnreferencedValues) -> Result<()> {
        let mut inode = match self.lock_inode(ino) {
            Ok(inode) if inode.links() == 0 => inode,
            Ok(_) | Err(Error::Stale) => return Ok(()),
            Err(error) => return Err(error),
        };
        self.forget_space(ino);
        let eviction = match self.eviction(&inode) {
            Ok(Some(eviction)) => eviction,
            Ok(None) | Err(_) => {
                // The errors of its blocks are reported there.
                self.drop_blocks(&mut inode)?;
                self.refresh(&mut inode)?;
                self.prepare_eviction(&inode, OwnBlocks::NONE)
            }
        };
        let mut txn = self.begin(eviction.credits() + cost::ORPHAN)?;
        let mut edit = self.edit_inode(&mut txn, inode.view())?;
        self.remove_orphan(&mut txn, &mut edit)?;
        let freed = match self.free_own(&mut txn, &mut edit, &eviction.blocks) {
            Ok(()) => self.end_inode(&mut txn, &mut edit, &eviction, dead),
            Err(error) => {
                // It stays an orphan for the next open.
                self.add_orphan(ino)?;
                self.store_inode(&mut txn, &edit);
                Err(error)
            }
        };
        txn.commit();
        freed
    }

    /// Returns the resources of `inode`, if one transaction can free them all. Fails with `Corrupt`, or if the device
    /// fails.
    pub(crate) fn eviction(&self, inode: &Inode) -> Result<Option<PreparedEviction>> {
        Ok(self.own_blocks(inode)?.map(|blocks| self.prepare_eviction(inode, blocks)))
    }

    fn prepare_eviction(&self, inode: &Inode, blocks: OwnBlocks) -> PreparedEviction {
        let blocks_credits = self.own_credits(&blocks);
        PreparedEviction { blocks, blocks_credits, attributes: self.xattr_release_cost(inode) }
    }

    /// Frees an inode that is not on the orphan list and whose blocks are freed, with its attributes. Fails with
    /// `Corrupt` if it is already free; it is then stored without a name and stays allocated for a check to find.
    pub(crate) fn end_inode(
        &self,
        txn: &mut Txn<'_>,
        edit: &mut InodeEdit,
        eviction: &PreparedEviction,
        dead: &mut UnreferencedValues,
    ) -> Result<()> {
        let attributes = match eviction.attributes {
            Ok(Credits(0)) => Ok(()),
            cost => cost.and_then(|_| self.release_xattrs(txn, edit, dead)),
        };
        if let Err(error) = attributes {
            // Damaged attributes do not prevent freeing the inode.
            self.note_damage(error);
        }
        let freed = self.free_inode(txn, edit);
        if freed.is_err() {
            self.store_inode(txn, edit);
        }
        freed
    }

    /// Removes the blocks past the size of an inode whose truncation was interrupted.
    pub(crate) fn end_truncation(&self, ino: Ino) -> Result<()> {
        let mut inode = self.lock_inode(ino)?;
        self.trim_blocks(&mut inode)?;
        self.refresh(&mut inode)?;
        let mut txn = self.begin(cost::INODE + cost::ORPHAN)?;
        let mut edit = self.edit_inode(&mut txn, inode.view())?;
        self.remove_orphan(&mut txn, &mut edit)?;
        self.store_inode(&mut txn, &edit);
        txn.commit();
        Ok(())
    }
}
