//! The structures on disk, decoded field by field with their places: for people, and for tests that damage one.

use alloc::string::String;
use alloc::vec::Vec;

use obento_base::{Error, Ino, Result};

/// What to decode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The super block; a copy of it, by its position among the copies, with 0 the primary.
    SuperBlock(u32),
    /// A block group's descriptor.
    Group(u64),
    /// An inode, with its mapping.
    Inode(Ino),
    /// The blocks of a directory, entry by entry, index nodes included.
    Directory(Ino),
    /// A block of the volume: what it is used for and its bytes.
    Block(u64),
    /// The journal: super block and transactions.
    Journal,
}

/// The value of a field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FieldValue {
    /// A number.
    Number(u64),
    /// A number whose bits or digits people read in base 16.
    Hex(u64),
    /// Bytes: a UUID, a name, a block's contents.
    Bytes(Vec<u8>),
    /// Words: an enumeration, a list of flags, a time.
    Text(String),
}

/// One field on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    /// The specification's name.
    pub name: &'static str,
    /// Byte offset on the volume.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
    /// What it holds.
    pub value: FieldValue,
}

/// One structure on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// What it is: `super block`, `extent`, `directory entry`.
    pub kind: &'static str,
    /// How deep it lies inside the record before it: 0 for a whole structure, more for its parts.
    pub depth: u8,
    /// Its fields in the order of their offsets.
    pub fields: Vec<Field>,
}

/// What lies at a byte of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Spot {
    /// A structure of the volume itself.
    Structure {
        /// In words: `inode 12`, `block bitmap of group 3`.
        name: String,
        /// What shows it field by field, if anything does.
        target: Option<Target>,
    },
    /// A part of a file: its data, the entries of a directory, the nodes of a mapping. Which file it is, the tree tells.
    OfFiles,
    /// Nothing uses it.
    Unused,
}

/// A view of the structures on disk.
pub trait Inspect: Send + Sync {
    /// Hands the records of `target` to `sink`. Errors: NotFound for a number that the volume does not have; Invalid
    /// for an inode that is no directory; NotSupported for a structure that the format lacks. Damage within goes to
    /// the sink, and what can still be decoded after it.
    fn inspect(&self, target: Target, sink: &mut dyn FnMut(Result<Record>)) -> Result<()>;

    /// What lies at byte `offset` of the device. Errors: NotFound past the end of the volume; NotSupported if the driver
    /// cannot tell; Corrupt where what tells it is damaged.
    fn locate(&self, offset: u64) -> Result<Spot> {
        let _ = offset;
        Err(Error::NotSupported)
    }
}
