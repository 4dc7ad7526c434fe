//! Finds the resource that a volume ran out of, if the driver reports only a lack of space.

use obento_base::Error;
use obento_base::wire::to_u64;
use obento_driver::StoredProperties;
use obento_vfs::Vfs;

/// A resource other than blocks that a volume ran out of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Shortage {
    /// All inodes are in use: their number was fixed when the volume was created.
    #[error("no inode is free: all {0} are in use")]
    Inodes(u64),
    /// A directory of a FAT or exFAT volume has no free entries, and it cannot grow.
    #[error("the directory is full: all its entries are in use, and it cannot grow")]
    Entries,
    /// The space for the extended attributes of a file, which is at most a few blocks.
    #[error("the space for the attributes of the file is full")]
    Attributes,
}

/// The blocks that a new entry takes at most in a FAT volume: its directory grows by one, and the entry is a directory.
const NEW_ENTRY: u64 = 2;

impl Shortage {
    /// Returns the resource that `vfs` ran out of, if creating an entry failed with `error` although blocks are free.
    pub fn find(vfs: &Vfs, error: Error) -> Option<Self> {
        let usage = (error == Error::NoSpace).then(|| vfs.flushed_file_system().statfs().ok()).flatten()?;
        if usage.inodes > 0 {
            return (usage.free_inodes == 0).then_some(Self::Inodes(usage.inodes));
        }
        // FAT and exFAT store nothing of this; other formats without a fixed number of inodes store more.
        let is_fat = vfs.limits().keeps == StoredProperties::DIRECTORIES;
        (is_fat && usage.free >= NEW_ENTRY).then_some(Self::Entries)
    }

    /// Returns `Attributes` if setting an attribute with a value of `len` bytes failed with `error` although blocks are
    /// free.
    pub fn of_attribute(vfs: &Vfs, error: Error, len: usize) -> Option<Self> {
        /// Blocks for the attributes of an inode, and for an inode that contains the value.
        const BLOCKS: u64 = 8;
        let usage = (error == Error::NoSpace).then(|| vfs.flushed_file_system().statfs().ok()).flatten()?;
        let value = to_u64(len).div_ceil(u64::from(usage.block_size).max(1));
        (usage.available > value.saturating_add(BLOCKS)).then_some(Self::Attributes)
    }
}
