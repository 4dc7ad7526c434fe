//! Decoding of on-disk structures with the location of each field. Users inspect volumes with these functions. Tests
//! use the locations to damage fields.

use alloc::string::String;
use alloc::vec::Vec;

use obento_base::{Error, Ino, Result};
use obento_env::IN_KERNEL;

/// The structure to decode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// A super block, by its index among the copies. Index 0 is the primary super block.
    SuperBlock(u32),
    /// The descriptor of the block group with this number. For LFS, the segment with this number.
    Group(u64),
    /// An inode and its mapping.
    Inode(Ino),
    /// The blocks of a directory, entry by entry, including index nodes.
    Directory(Ino),
    /// A block of the volume: its use and its contents.
    Block(u64),
    /// The journal: its super block and its transactions.
    Journal,
}

/// The value of a field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FieldValue {
    /// A number.
    Number(u64),
    /// A number that is displayed in hexadecimal.
    Hex(u64),
    /// Bytes: a UUID, a name, the contents of a block.
    Bytes(Vec<u8>),
    /// Text: an enumeration, a list of flags, a time.
    Text(String),
}

/// A field on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    /// Name in the specification of the format.
    pub name: &'static str,
    /// Byte offset on the volume. For a field of an external journal, the byte offset on the device of the journal.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
    /// Value of the field.
    pub value: FieldValue,
}

/// A structure on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Kind of the structure: `super block`, `extent`, `directory entry`.
    pub kind: &'static str,
    /// Nesting depth: 0 for a whole structure, more for its parts.
    pub depth: u8,
    /// Fields in the order of their offsets.
    pub fields: Vec<Field>,
}

/// The use of a byte of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ByteUse {
    /// The byte belongs to a structure of the volume.
    Structure {
        /// Name of the structure: `inode 12`, `block bitmap of group 3`.
        name: String,
        /// Target that decodes the structure, if one exists.
        target: Option<Target>,
    },
    /// The byte belongs to a file: its data, the entries of a directory, or the nodes of its mapping. The driver cannot
    /// determine the file. A caller finds the file by walking the tree.
    OfFiles,
    /// The byte is unused.
    Unused,
}

/// A view of the on-disk structures of an open volume.
pub trait Inspect: Send + Sync {
    /// Passes the records of `target` to `sink`. If the structure is damaged, passes an error to `sink`, and then the
    /// records that can still be decoded.
    ///
    /// # Errors
    ///
    /// - `NotFound`: the number in `target` exceeds the number of such structures, or refers to a free inode.
    /// - `Invalid`: the inode of [`Target::Directory`] is not a directory.
    /// - `NotSupported`: the volume has no structures of this kind, or the driver cannot decode them.
    fn inspect(&self, target: Target, sink: &mut dyn FnMut(Result<Record>)) -> Result<()>;

    /// Returns the use of the byte at `offset` bytes from the start of the volume.
    ///
    /// # Errors
    ///
    /// - `NotFound`: `offset` is past the end of the volume.
    /// - `NotSupported`: the driver cannot determine the use.
    /// - `Corrupt`: the structure that determines the use is damaged.
    fn locate(&self, offset: u64) -> Result<ByteUse> {
        let _ = offset;
        Err(Error::NotSupported)
    }
}

/// Returns `volume`. A driver returns this result from [`FileSystem::inspect`](crate::FileSystem::inspect).
/// In a kernel module, the function returns `None`: the module has no commands that inspect volumes, and need
/// not contain the code for them.
pub fn inspectable<V: Inspect>(volume: &V) -> Option<&dyn Inspect> {
    if IN_KERNEL { None } else { Some(volume) }
}

/// Returns the result of `properties`: properties of a volume that only commands show, such as the features,
/// the state and the facts of [`VolumeInfo`](crate::VolumeInfo). In a kernel module, returns the default
/// value instead, which is empty.
pub fn for_commands<T: Default>(properties: impl FnOnce() -> T) -> T {
    if IN_KERNEL { T::default() } else { properties() }
}
