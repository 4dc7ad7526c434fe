//! The properties of a directory that its operations need.

use obento_base::Ino;

use super::fold::{Fold, Folder};
use super::hash::{Chars, Hasher, NameHash};

/// The properties of a directory from the super block and the inode.
#[derive(Clone, Debug)]
pub(crate) struct DirShape {
    pub(crate) dir: Ino,
    pub(crate) block_size: u32,
    /// Number of blocks of the directory.
    pub(crate) blocks: u32,
    /// Highest inode number of the volume.
    pub(crate) max_ino: u32,
    /// Whether records contain the type of their inode.
    pub(crate) file_types: bool,
    /// The seed of the checksums of this directory's blocks, if they have any.
    pub(crate) checksum_seed: Option<u32>,
    pub(crate) order: Order,
    /// The hash version for a new index, if the volume supports indexes.
    pub(crate) new_index: Option<u8>,
    /// Whether the inode has the flag `INDEX`.
    pub(crate) indexed: bool,
    /// Maximum number of levels of an index, including the root.
    pub(crate) max_levels: u8,
    pub(crate) chars: Chars,
    pub(crate) hash_seed: [u32; 4],
    /// Set in a case-insensitive directory.
    pub(crate) fold: Option<Fold>,
    /// The treatment of blocks with wrong checksums.
    pub(crate) damaged: Damaged,
}

/// The treatment of a block of entries with a wrong checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Damaged {
    /// It is an error: a change must not rely on its contents.
    Refused,
    /// Its entries are shown in addition to the error.
    VolumeOptions,
    /// Checksums are not verified.
    Ignored,
}

impl DirShape {
    /// Returns the hash of `name` in a directory of this shape.
    pub(super) fn hash(&self, hasher: &Hasher, folder: &mut Folder, name: &[u8]) -> NameHash {
        match self.fold {
            // A name that cannot be folded is hashed as it is.
            Some(_) => hasher.hash(folder.fold(name).unwrap_or(name)),
            None => hasher.hash(name),
        }
    }
}

/// The order in which a directory without an index is listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// By hash, because the directory is small and may get an index later.
    Hash(Hasher),
    /// From front to back.
    Offset,
}
