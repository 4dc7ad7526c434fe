//! Setting and removing an attribute as one change of a volume.
//!
//! Locking: the inode's lock, exclusive; a transaction; then as in [`super::store`].

use alloc::borrow::Cow;

use obento_base::{Error, Ino, Result};
use obento_driver::XattrMode;

use super::name::StoredName;
use super::store::Change;
use super::values::UnreferencedValues;
use crate::acl;
use crate::writer::{InodeGuard, Writer};

/// `XATTR_SIZE_MAX` of Linux include/uapi/linux/limits.h.
const SIZE_MAX: usize = 65_536;

impl Writer {
    /// Sets attribute `name` of `ino`. Fails with the first error: `NotSupported` for a name space that the format
    /// lacks; `Exists` or `NoData` as `mode` requires; `OutOfRange`; `Invalid` for an invalid access control list;
    /// `NoSpace`.
    pub(crate) fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let name = StoredName::parse(name)?;
        self.with_space(|| self.set_once(ino, name, value, mode))
    }

    fn set_once(&self, ino: Ino, name: StoredName<'_>, value: &[u8], mode: XattrMode) -> Result<()> {
        let inode = self.lock_user_inode(ino)?;
        let is_there = self.volume().has_xattr(&inode, &name)?;
        match mode {
            XattrMode::Create if is_there => return Err(Error::Exists),
            XattrMode::Replace if !is_there => return Err(Error::NoData),
            _ => name.expect_short()?,
        }
        if value.len() > SIZE_MAX {
            return Err(Error::OutOfRange);
        }
        let stored = if name.is_acl() { Cow::Owned(acl::from_xattr(value)?) } else { Cow::Borrowed(value) };
        self.change_in_transaction(inode, name, Change::Set(&stored, mode), stored.len())
    }

    /// Removes attribute `name` of `ino`. Fails with `NotSupported` as [`set_xattr`](Self::set_xattr) does, and with
    /// `NoData`.
    pub(crate) fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let name = StoredName::parse(name)?;
        // If the block is shared, the inode needs one of its own.
        self.with_space(|| {
            let inode = self.lock_user_inode(ino)?;
            self.change_in_transaction(inode, name, Change::Remove, 0)
        })
    }

    fn change_in_transaction(
        &self,
        inode: InodeGuard<'_>,
        name: StoredName<'_>,
        change: Change<'_>,
        len: usize,
    ) -> Result<()> {
        let credits = self.xattr_change_cost(&inode, len)?;
        let mut txn = self.begin(credits)?;
        let mut edit = self.edit_inode(&mut txn, inode.view())?;
        let mut dead = UnreferencedValues::default();
        let done = self.change_xattr(&mut txn, &mut edit, name, change, &mut dead);
        // As in Linux, an attribute that has the value already is no change (fs/ext4/xattr.c ext4_xattr_value_same).
        if done == Ok(true) {
            edit.touch(self.now());
            self.store_inode(&mut txn, &edit);
        }
        // After an error, too: allocations were released in the same transaction.
        txn.commit();
        drop(inode);
        self.evict_dead(dead);
        done.map(drop)
    }
}
