//! Changing the data of files: what the contract asks, planned by `map::{tree, pointers}` and written in transactions.
//!
//! A change is planned without a transaction, under the inode's lock, so that it is known what it takes; then begun,
//! and everything that can fail comes before the first edit. Work that is more than one transaction holds goes in
//! steps ([`steps`]), each of which leaves a sound volume.
//! Invariant: nothing on disk names a block before its data was written, or as unwritten.
//! Locking: the inode's lock, exclusive; then a transaction; then leaf locks.
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

use super::change::cluster_of;
use crate::feature::Compat;
use crate::inode::{Inode, InodeFlags};
use crate::writer::{LockedInodes, Writer};

pub(crate) use dir_block::APPEND_CREDITS;
pub(crate) use own::OwnBlocks;

impl Writer {
    /// Returns a regular file whose bytes may be changed. Fails with `IsDirectory`, `Invalid`, with `Unsupported` if
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

    /// The same; and it is mapped by extents, for what the block map of ext2 cannot say. Fails with `NotSupported`.
    fn extents_inode(&self, ino: Ino) -> Result<Inode> {
        let inode = self.data_inode(ino)?;
        if inode.has(InodeFlags::EXTENTS) || inode.has(InodeFlags::INLINE_DATA) {
            Ok(inode)
        } else {
            Err(Error::NotSupported)
        }
    }

    fn lock_one(&self, ino: Ino) -> LockedInodes<'_> {
        self.locks().write(&[ino])
    }

    /// Returns whether the file's data goes through the journal: `ext4_inode_journal_mode`.
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

    /// Bytes a block.
    fn block_bytes(&self) -> u64 {
        self.volume().block_size().into()
    }

    /// Returns the block that holds byte `offset`.
    fn block_at(&self, offset: u64) -> u64 {
        offset.checked_div(self.block_bytes()).unwrap_or(0)
    }

    /// Returns the first block that starts at or after byte `offset`.
    fn block_from(&self, offset: u64) -> u64 {
        offset.div_ceil(self.block_bytes())
    }

    /// Blocks a cluster.
    fn cluster_len(&self) -> u64 {
        self.volume().super_block().cluster_blocks().into()
    }

    /// `range` with the rest of the clusters that it touches.
    fn whole_clusters(&self, range: &Range<u64>) -> Range<u64> {
        let size = self.cluster_len();
        cluster_of(range.start, size)..range.end.div_ceil(size).saturating_mul(size)
    }
}
