//! The one error type: four classes, each for another reader.
//!
//! `Refused` is for the caller, who asked for what cannot be; `Unsupported` is ours; `Corrupt` is the disk's and says
//! where; `Device` is the hardware's or the host's. No text is built here: fields are, and `Display` words them.

use crate::{Errno, Ino};

/// What every fallible call of obento answers with.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Why an operation was not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The request cannot be granted; nothing is wrong with the volume.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The volume uses what obento cannot handle.
    #[error("{0} is not supported")]
    Unsupported(Feature),
    /// The volume contradicts its format.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The device below failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// The caller's errors; each has one error number of POSIX.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant's text says it")]
pub enum Refusal {
    #[error("operation not permitted")]
    NotPermitted,
    #[error("no such file or directory")]
    NotFound,
    #[error("handle is closed or open for something else")]
    BadHandle,
    #[error("permission denied")]
    AccessDenied,
    #[error("busy")]
    Busy,
    #[error("file exists")]
    Exists,
    #[error("the two are on different file systems")]
    CrossDevice,
    #[error("not a directory")]
    NotDirectory,
    #[error("is a directory")]
    IsDirectory,
    #[error("invalid argument")]
    Invalid,
    #[error("file too large")]
    FileTooBig,
    #[error("no space left")]
    NoSpace,
    #[error("read-only")]
    ReadOnly,
    #[error("too many links")]
    TooManyLinks,
    #[error("result does not fit")]
    OutOfRange,
    #[error("name too long")]
    NameTooLong,
    #[error("directory not empty")]
    NotEmpty,
    #[error("too many levels of symbolic links")]
    Loop,
    #[error("no such attribute")]
    NoData,
    #[error("out of memory")]
    NoMemory,
    #[error("the inode is no longer the one that was meant")]
    Stale,
    #[error("operation not supported")]
    NotSupported,
    #[error("no data or hole at or after this offset")]
    NoSuchOffset,
}

/// What obento does not support, by the name that the format's documentation gives it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Feature {
    /// A feature with a name, for example `encrypted file name`.
    #[error("{0}")]
    Named(&'static str),
    /// Feature bits that no documentation names. `set` says which word they are from.
    #[error("unknown {set} feature bits {bits:#x}")]
    Bits {
        /// `incompatible`, `read-only compatible`, ...
        set: &'static str,
        /// The unknown bits.
        bits: u64,
    },
}

/// A structure on disk, as a place for [`Corrupt`] to point to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant's text says it")]
pub enum Structure {
    #[error("super block")]
    SuperBlock,
    #[error("descriptor of group {0}")]
    GroupDescriptor(u64),
    #[error("block bitmap of group {0}")]
    BlockBitmap(u64),
    #[error("inode bitmap of group {0}")]
    InodeBitmap(u64),
    #[error("inode {0}")]
    Inode(Ino),
    #[error("extent tree of inode {0}")]
    ExtentTree(Ino),
    #[error("indirect block of inode {0}")]
    IndirectBlock(Ino),
    #[error("directory {0}")]
    Directory(Ino),
    #[error("index of directory {0}")]
    DirectoryIndex(Ino),
    #[error("inline data of inode {0}")]
    InlineData(Ino),
    #[error("symbolic link {0}")]
    Symlink(Ino),
    #[error("extended attributes of inode {0}")]
    Xattr(Ino),
    #[error("journal")]
    Journal,
    #[error("fast commit area")]
    FastCommit,
    #[error("orphan list")]
    OrphanList,
    #[error("multiple mount protection block")]
    Mmp,
    #[error("quota file {0}")]
    Quota(Ino),
    #[error("partition table")]
    PartitionTable,
    #[error("boot sector")]
    BootSector,
    #[error("file allocation table")]
    AllocationTable,
    #[error("up-case table")]
    UpCaseTable,
}

/// How the volume contradicts its format, and where. `block` is a block of the volume, `offset` a byte offset within
/// the structure named.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Corrupt {
    /// A magic number is wrong.
    #[error("{structure}: magic number is {found:#x}, expected {expected:#x} (block {block})")]
    Magic {
        /// Where.
        structure: Structure,
        /// Block that was read.
        block: u64,
        /// What stands there.
        found: u64,
        /// What should.
        expected: u64,
    },
    /// A checksum does not match.
    #[error("{structure}: checksum is {found:#x}, computed {expected:#x} (block {block})")]
    Checksum {
        /// Where.
        structure: Structure,
        /// Block that was read.
        block: u64,
        /// What is stored.
        found: u32,
        /// What the bytes give.
        expected: u32,
    },
    /// A field holds a value that the format forbids.
    #[error("{structure}: {field} is {found} (byte {offset} of block {block})")]
    Field {
        /// Where.
        structure: Structure,
        /// The field, by the specification's name.
        field: &'static str,
        /// Block that was read.
        block: u64,
        /// Byte offset of the field within the block.
        offset: u32,
        /// What is stored.
        found: u64,
    },
    /// A block number points outside the volume or into its metadata.
    #[error("{structure}: blocks {start} to {start}+{len} are outside the volume's data (file block {at})")]
    BlockRange {
        /// Where.
        structure: Structure,
        /// Position in the file, in blocks.
        at: u64,
        /// First block named.
        start: u64,
        /// How many blocks.
        len: u64,
    },
    /// An inode number points outside the volume or at an inode that cannot be meant.
    #[error("{structure}: names inode {found} (byte {offset} of block {block})")]
    InodeNumber {
        /// Where.
        structure: Structure,
        /// Block that was read.
        block: u64,
        /// Byte offset within the block.
        offset: u32,
        /// The number.
        found: u64,
    },
    /// An inode that a directory names is not in use.
    #[error("inode {ino} is in a directory but not in use")]
    UnusedInode {
        /// The inode.
        ino: Ino,
    },
    /// A directory record does not fit its block.
    #[error("directory {dir}: record of {rec_len} bytes at byte {offset} of block {block} does not fit")]
    RecordLength {
        /// The directory.
        dir: Ino,
        /// Block of the volume.
        block: u64,
        /// Byte offset within the block.
        offset: u32,
        /// The length stored.
        rec_len: u32,
    },
    /// A name in a directory is not a name.
    #[error("directory {dir}: the bytes at byte {offset} of block {block} are no file name")]
    EntryName {
        /// The directory.
        dir: Ino,
        /// Block of the volume.
        block: u64,
        /// Byte offset within the block.
        offset: u32,
    },
    /// A directory has no block where it should have one.
    #[error("directory {dir}: block {at} is a hole")]
    DirectoryHole {
        /// The directory.
        dir: Ino,
        /// Position in the directory, in blocks.
        at: u64,
    },
    /// An entry of an extent tree is out of order, overlaps, or leaves the range of its parent.
    #[error(
        "extent tree of inode {ino}: entry {index} of block {block} covers file block {at}, which is out of order"
    )]
    ExtentOrder {
        /// The inode.
        ino: Ino,
        /// Block of the volume; 0 for the inode itself.
        block: u64,
        /// Position among the entries.
        index: u16,
        /// First file block that the entry covers.
        at: u64,
    },
    /// The chain of clusters that makes up a file is none.
    #[error("cluster chain of inode {ino}: {what} (file cluster {at})")]
    Chain {
        /// The inode.
        ino: Ino,
        /// Position in the file, in clusters.
        at: u32,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A tree is deeper than the format allows, or runs in a circle.
    #[error("{structure}: level {found} where {expected} was expected (block {block})")]
    Depth {
        /// Where.
        structure: Structure,
        /// Block that was read.
        block: u64,
        /// The level stored.
        found: u16,
        /// The level that the parent asks for.
        expected: u16,
    },
    /// A structure ends before what it announces.
    #[error("{structure}: {len} bytes at byte {offset} of block {block} run past its end")]
    Truncated {
        /// Where.
        structure: Structure,
        /// Block that was read.
        block: u64,
        /// Byte offset within the block.
        offset: u32,
        /// The length announced.
        len: u64,
    },
}

/// The device, or what the host put in its place, failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// Reading failed. `errno` is the host's, 0 if it gave none.
    #[error("reading {len} bytes at {offset} failed: {}", Errno(*errno))]
    Read {
        /// Byte offset on the device.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// The host's error number.
        errno: i32,
    },
    /// Writing failed.
    #[error("writing {len} bytes at {offset} failed: {}", Errno(*errno))]
    Write {
        /// Byte offset on the device.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// The host's error number.
        errno: i32,
    },
    /// A flush failed: what was written since the last one may be lost.
    #[error("flushing failed: {}", Errno(*errno))]
    Flush {
        /// The host's error number.
        errno: i32,
    },
    /// The range is not on the device: the image is cut short, or a structure points past its end.
    #[error("{len} bytes at {offset} are past the end of the image, which has {device_len} bytes")]
    OutOfBounds {
        /// Byte offset on the device.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// Length of the device.
        device_len: u64,
    },
    /// The device was opened for reading.
    #[error("the device is open for reading only")]
    ReadOnly,
    /// A kernel that stands between us and the volume: what it did.
    #[error("the kernel engine {0}")]
    Engine(&'static str),
}

impl Error {
    /// Whether the volume, and not the request, is at fault.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Corrupt(_) | Self::Device(_))
    }
}

macro_rules! refusals {
    ($($name:ident)*) => {
        /// The caller's errors as values of [`Error`], so that `Err(Error::NotFound)` reads well.
        #[expect(non_upper_case_globals, missing_docs, reason = "stand for variants")]
        impl Error { $(pub const $name: Self = Self::Refused(Refusal::$name);)* }
    };
}
refusals! {
    NotPermitted NotFound BadHandle AccessDenied Busy Exists CrossDevice NotDirectory IsDirectory Invalid FileTooBig
    NoSpace ReadOnly TooManyLinks OutOfRange NameTooLong NotEmpty Loop NoData NoMemory Stale NotSupported NoSuchOffset
}

impl From<alloc::collections::TryReserveError> for Error {
    fn from(_: alloc::collections::TryReserveError) -> Self {
        Self::NoMemory
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn corruption_says_where() {
        let error = Error::from(Corrupt::RecordLength { dir: Ino(12), block: 99, offset: 40, rec_len: 3 });
        assert_eq!(error.to_string(), "directory 12: record of 3 bytes at byte 40 of block 99 does not fit");
        assert_eq!(error.errno().0, 117);
    }

    #[test]
    fn errors_stay_small_enough_to_return_by_value() {
        assert!(size_of::<Error>() <= 56, "{}", size_of::<Error>());
    }
}
