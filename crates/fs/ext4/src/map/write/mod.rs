//! Changing the data of files: operations of the contract, planned by `map::{tree, pointers}` and written in
//! transactions.
//!
//! A change is planned without a transaction, under the inode's lock, so that its credits are known. Then the
//! transaction begins, and all that can fail precedes the first edit. Work that exceeds one transaction is done in
//! steps ([`steps`]), each of which leaves a consistent volume.
//! Invariant: nothing on disk refers to a block before its data was written, except as unwritten.
//! Locking: the inode's lock, held exclusively; then a transaction; then leaf locks.
//! Source: Linux `fs/ext4/extents.c`, `fs/ext4/inode.c`.

mod allocate;
mod change;
mod data;
mod dir_block;
mod inline;
mod journalled;
mod own;
mod remove;
mod replayed;
mod shift;
mod space;
mod steps;
#[cfg(test)]
mod tests;

use core::ops::Range;

use obento_base::{Error, FileKind, Ino, Result};
use obento_driver::DataMode;

use crate::feature::Compat;
use crate::inode::{Inode, InodeFlags};
use crate::size::ClusterSize;
use crate::writer::{InodeGuard, Writer};

pub(crate) use own::OwnBlocks;

impl Writer {
    /// Returns a regular file whose data may be changed. Fails with `IsDirectory`, `Invalid`, with `Unsupported` if
    /// it is encrypted, or with `NotPermitted` if its contents are sealed by `verity`.
    fn data_inode(&self, ino: Ino) -> Result<Inode> {
        let inode = self.volume().user_inode(ino)?;
        match inode.kind() {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Error::IsDirectory),
            _ => return Err(Error::Invalid),
        }
        self.volume().refuse_encrypted(&inode, "encrypted file")?;
        if inode.has(InodeFlags::VERITY) {
            return Err(Error::NotPermitted);
        }
        Ok(inode)
    }

    /// Locks such a file, and reads it.
    fn lock_file(&self, ino: Ino) -> Result<InodeGuard<'_>> {
        self.lock_as(ino, Self::data_inode)
    }

    /// Returns whether the file's data is journalled: `ext4_inode_journal_mode`.
    pub(crate) fn is_journalled(&self, inode: &Inode) -> bool {
        self.volume().super_block().compat.contains(Compat::HAS_JOURNAL)
            && inode.kind() == FileKind::Regular
            && (self.mode() == DataMode::Journal || inode.has(InodeFlags::JOURNAL_DATA))
    }

    /// Fails with `FileTooBig` for a size that the inode's kind of map cannot reach.
    fn check_size(&self, inode: &Inode, size: u64) -> Result<()> {
        let most =
            self.volume().file_size_max(inode.has(InodeFlags::EXTENTS) || inode.has(InodeFlags::INLINE_DATA));
        if size > most { Err(Error::FileTooBig) } else { Ok(()) }
    }

    /// Returns the size of a block in bytes.
    fn block_bytes(&self) -> u64 {
        u64::from(self.volume().block_size())
    }

    /// Returns the block that contains byte `offset`.
    fn block_at(&self, offset: u64) -> u64 {
        self.volume().block_size().whole(offset)
    }

    /// Returns the first block that starts at or after byte `offset`.
    fn block_from(&self, offset: u64) -> u64 {
        self.volume().block_size().needed(offset)
    }

    fn cluster(&self) -> ClusterSize {
        self.volume().super_block().cluster
    }

    /// Extends `range` to whole clusters.
    fn whole_clusters(&self, range: &Range<u64>) -> Range<u64> {
        let cluster = self.cluster();
        cluster.round_down(range.start)..cluster.round_up(range.end)
    }
}

/// Fails with `NotSupported` for a file with the block map of ext2, for operations that it does not support.
fn expect_extents(inode: &Inode) -> Result<()> {
    match inode.has(InodeFlags::EXTENTS) || inode.has(InodeFlags::INLINE_DATA) {
        true => Ok(()),
        false => Err(Error::NotSupported),
    }
}
