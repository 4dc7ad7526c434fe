//! The error type that all crates share. Each of its four classes corresponds to a kind of cause:
//!
//! - `Refused`: the request of the caller is impossible.
//! - `Unsupported`: obento does not support a feature of the volume, or a requested operation or option.
//! - `Corrupt`: the volume is damaged. The error contains the location.
//! - `Device`: the hardware, the host or a server failed, or the device rejects the access.
//!
//! Errors consist of typed fields. Only `Display` converts them to text.

use core::fmt;

use crate::{Errno, Ino, Quantity};

/// The result of every fallible operation.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// The reason why an operation failed. The variants are the four classes of errors: of the caller, of obento,
/// of the volume and of the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
pub enum Error {
    /// The request of the caller cannot be satisfied. The volume is not damaged.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The volume has a feature, or the caller requested an operation or an option, that obento does not support.
    #[error("{0} is not supported")]
    Unsupported(Feature),
    /// The volume violates its format.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The underlying device failed, or rejects the access.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Reasons to refuse a request. Each reason corresponds to one error number of Linux ([`Error::errno`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
pub enum Refusal {
    /// `EPERM`: the operation is not permitted for this object or for this caller, whatever the mode of the
    /// inode is.
    #[error("operation not permitted")]
    NotPermitted,
    /// `ENOENT`: the name or the path does not exist.
    #[error("no such file or directory")]
    NotFound,
    /// `EBADF`: the file is not open for this operation.
    #[error("the file is not open for this operation")]
    BadHandle,
    /// `EACCES`: the permission bits or the access control list deny the access.
    #[error("permission denied")]
    AccessDenied,
    /// `EBUSY`: another operation uses the object; the caller may try again.
    #[error("busy")]
    Busy,
    /// `EEXIST`: the name or the attribute exists.
    #[error("file exists")]
    Exists,
    /// `EXDEV`: source and target are on different file systems, or the directory requires another project.
    #[error("source and target are on different file systems")]
    CrossDevice,
    /// `ENOTDIR`: a directory is required.
    #[error("not a directory")]
    NotDirectory,
    /// `EISDIR`: the inode is a directory.
    #[error("is a directory")]
    IsDirectory,
    /// `EINVAL`: an argument is invalid.
    #[error("invalid argument")]
    Invalid,
    /// `EFBIG`: the size exceeds the limit of the format or of the file.
    #[error("file too large")]
    FileTooBig,
    /// `ENOSPC`: too little space or no inode is free.
    #[error("no space left")]
    NoSpace,
    /// `EDQUOT`: a limit of the owner, the group or the project of the file would be exceeded.
    #[error("disk quota exceeded")]
    QuotaExceeded,
    /// `EROFS`: the volume cannot be changed.
    #[error("read-only")]
    ReadOnly,
    /// `EMLINK`: the link count has reached its maximum.
    #[error("too many links")]
    TooManyLinks,
    /// `ERANGE`: the format cannot store the value.
    #[error("value out of range")]
    OutOfRange,
    /// `ENAMETOOLONG`: a name, a path or the target of a symbolic link is too long.
    #[error("name too long")]
    NameTooLong,
    /// `ENOTEMPTY`: the directory has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// `ELOOP`: the path has too many symbolic links or nested directories, or the inode is a symbolic link and may not
    /// be one.
    #[error("too many levels of symbolic links or directories")]
    Loop,
    /// `ENODATA`: the extended attribute does not exist.
    #[error("no such attribute")]
    NoData,
    /// `ENOMEM`: memory is exhausted.
    #[error("out of memory")]
    NoMemory,
    /// `ESTALE`: the volume contains no inode with this number.
    #[error("the inode is no longer in use")]
    Stale,
    /// `EOPNOTSUPP`: the format or the driver does not support the operation.
    #[error("operation not supported")]
    NotSupported,
    /// `ENXIO`: no data or hole is at or after the offset.
    #[error("no data or hole at or after this offset")]
    NoSuchOffset,
}

/// A feature, an operation or an option that obento does not support. A feature has its name in the documentation of
/// the format.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
pub enum Feature {
    /// A named feature, for example `encrypted file name`.
    #[error("{0}")]
    Named(&'static str),
    /// Changing volumes of this type, which the driver can only read.
    #[error("writing to this type")]
    Writing,
    /// Repairing volumes of this type, which the driver can only check.
    #[error("repairing this type")]
    Repairing,
    /// Changing a volume whose journal is on a device that is missing.
    #[error("writing without the external journal")]
    ExternalJournal,
    /// Changing a volume that its creator has marked read-only.
    #[error("writing to a volume that is marked read-only")]
    MarkedReadOnly,
    /// Changing a volume whose log must first be replayed by the format's own program.
    #[error("writing before the log is replayed")]
    UnreplayedLog,
    /// Changing a volume that machines of a cluster share.
    #[error("writing to a volume of a cluster")]
    Cluster,
    /// Opening a volume without the signature of the requested type.
    #[error("a volume without the signature of this type")]
    NoSignature,
    /// Opening a volume of a type that only the kernel engine opens. The engine is unavailable.
    #[error("this type without the kernel engine")]
    Engine(EngineObstacle),
    /// An option for opening a volume that the kernel engine does not support.
    #[error("{0} with the kernel engine")]
    EngineOption(OpenOption),
    /// Feature bits without documentation. `set` is the name of the field that contains the bits.
    #[error("a volume with the unknown {set} feature bits {bits:#x}")]
    Bits {
        /// Name of the field: `incompatible`, `read-only compatible`, ...
        set: &'static str,
        /// The unknown bits.
        bits: u64,
    },
}

/// Reasons why the kernel engine does not open a volume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EngineObstacle {
    /// The caller excludes the engine.
    Excluded,
    /// The caller requires the engine, and the engine does not support the type.
    NoDriver,
    /// The kernel is not installed.
    NotInstalled,
    /// The kernel that the user has chosen does not exist.
    NoSuchKernel,
    /// The kernel does not run on this processor.
    Processor,
    /// The kernel was built without support for the type.
    NotInKernel,
}

/// Options for opening a volume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
pub enum OpenOption {
    /// Use another super block.
    #[error("selecting a super block")]
    SuperBlock,
    /// Do not replay the journal.
    #[error("opening without a replay of the journal")]
    NoReplay,
    /// Do not verify checksums.
    #[error("ignoring checksums")]
    IgnoreChecksums,
    /// Use a journal on another device.
    #[error("a journal on another device")]
    Journal,
}

/// An on-disk structure: the location of a [`Corrupt`] error.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the text of each variant describes it")]
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
    #[error("node of B-tree {0}")]
    Tree(&'static &'static str),
    #[error("node of flash memory")]
    Node,
}

/// A violation of the format and its location. `block` is a block number of the volume, or of the journal device for a
/// structure of an external journal. `offset` is a byte offset within that block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Corrupt {
    /// A magic number is wrong.
    #[error("{structure}: magic number is {found:#x}, expected {expected:#x} ({})", place(*structure, *block))]
    Magic {
        /// Damaged structure.
        structure: Structure,
        /// Block that was read.
        block: u64,
        /// Stored value.
        found: u64,
        /// Correct value.
        expected: u64,
    },
    /// A checksum does not match.
    #[error("{structure}: stored checksum is {found:#x}, computed {expected:#x} (block {block})")]
    Checksum {
        /// Damaged structure.
        structure: Structure,
        /// Block that was read.
        block: u64,
        /// Stored checksum.
        found: u32,
        /// Computed checksum.
        expected: u32,
    },
    /// A field contains a value that the format forbids.
    #[error("{structure}: {field} is {found} (byte {offset} of block {block})")]
    Field {
        /// Damaged structure.
        structure: Structure,
        /// Name of the field in the specification.
        field: &'static str,
        /// Block that was read.
        block: u64,
        /// Byte offset of the field within the block.
        offset: u32,
        /// Stored value.
        found: u64,
    },
    /// A range of blocks is outside of the volume or overlaps the metadata of the volume.
    #[error("{structure}: {} outside the volume's data (file block {at})", are(*start, *len))]
    BlockRange {
        /// Damaged structure.
        structure: Structure,
        /// Position in the file in blocks.
        at: u64,
        /// First block of the range.
        start: u64,
        /// Number of blocks.
        len: u64,
    },
    /// An inode number is outside of the volume, or refers to an inode that is not allowed here.
    #[error("{structure}: the inode number {found} is not allowed here (byte {offset} of block {block})")]
    InodeNumber {
        /// Damaged structure.
        structure: Structure,
        /// Block that was read.
        block: u64,
        /// Byte offset of the number within the block.
        offset: u32,
        /// Stored inode number.
        found: u64,
    },
    /// A directory entry refers to an inode that is not allocated.
    #[error("inode {ino} is in a directory but not in use")]
    UnusedInode {
        /// The inode.
        ino: Ino,
    },
    /// The root is not a directory, so no path exists.
    #[error("the root (inode {ino}) is not a directory")]
    RootKind {
        /// The root.
        ino: Ino,
    },
    /// A directory record does not fit into its block.
    #[error(
        "directory {dir}: record of {} at byte {offset} of block {block} does not fit",
        Quantity::new((*rec_len).into(), "byte")
    )]
    RecordLength {
        /// The directory.
        dir: Ino,
        /// Block of the volume.
        block: u64,
        /// Byte offset within the block.
        offset: u32,
        /// Stored length of the record.
        rec_len: u32,
    },
    /// A directory entry contains an invalid name.
    #[error("directory {dir}: the bytes at byte {offset} of block {block} are not a file name")]
    EntryName {
        /// The directory.
        dir: Ino,
        /// Block of the volume.
        block: u64,
        /// Byte offset within the block.
        offset: u32,
    },
    /// A directory has a hole where a block is required.
    #[error("directory {dir}: block {at} is a hole")]
    DirectoryHole {
        /// The directory.
        dir: Ino,
        /// Position in the directory in blocks.
        at: u64,
    },
    /// An entry of an extent tree is out of order, overlaps another entry, or exceeds the range of its
    /// parent.
    #[error(
        "extent tree of inode {ino}: entry {index} ({}) covers file block {at}, which is out of order",
        place(Structure::ExtentTree(*ino), *block)
    )]
    ExtentOrder {
        /// The inode.
        ino: Ino,
        /// Block of the volume; 0 if the entry is in the inode.
        block: u64,
        /// Index of the entry.
        index: u16,
        /// First file block of the entry.
        at: u64,
    },
    /// The cluster chain of a file is invalid.
    #[error("cluster chain of inode {ino}: {what} (file cluster {at})")]
    Chain {
        /// The inode.
        ino: Ino,
        /// Position in the file in clusters.
        at: u32,
        /// The violation.
        what: &'static str,
    },
    /// A tree is too deep or contains a cycle.
    #[error("{structure}: level is {found}, expected {expected} (block {block})")]
    Depth {
        /// Damaged structure.
        structure: Structure,
        /// Block that was read.
        block: u64,
        /// Stored level.
        found: u16,
        /// Level that the parent requires.
        expected: u16,
    },
    /// The length that a structure states is greater than its actual length.
    #[error(
        "{structure}: a range of {} at byte {offset} of block {block} extends past the end",
        Quantity::new(*len, "byte")
    )]
    Truncated {
        /// Damaged structure.
        structure: Structure,
        /// Block that was read.
        block: u64,
        /// Byte offset within the block.
        offset: u32,
        /// Stated length.
        len: u64,
    },
}

/// A failure of the device, or of the file or server that the host uses as a device. Or: an access that the device
/// rejects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// A read failed.
    #[error("reading {} at byte {offset} failed: {}", Quantity::new(*len, "byte"), Errno(*errno))]
    Read {
        /// Byte offset on the device.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// Error number of the host; 0 if the structure of a disk image, such as qcow2, is damaged.
        errno: i32,
    },
    /// A write failed.
    #[error("writing {} at byte {offset} failed: {}", Quantity::new(*len, "byte"), Errno(*errno))]
    Write {
        /// Byte offset on the device.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// Error number of the host; 0 if the structure of a disk image, such as qcow2, is damaged.
        errno: i32,
    },
    /// A flush failed: data written since the last flush may be lost.
    #[error("flushing failed: {}", Errno(*errno))]
    Flush {
        /// Error number of the host.
        errno: i32,
    },
    /// The range is not on the device. Either the image is truncated, or a structure refers to a location past the
    /// end of the device.
    #[error(
        "the image or its partition is truncated: it has {}, and at least {} are needed",
        Quantity::new(*device_len, "byte"),
        offset.saturating_add(*len)
    )]
    OutOfBounds {
        /// Byte offset on the device.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// Length of the device in bytes.
        device_len: u64,
    },
    /// The device was opened read-only, and a write was requested.
    #[error("the device is open for reading only")]
    ReadOnly,
    /// The kernel that serves this volume failed, for the reason in the text.
    #[error("the kernel engine {0}")]
    Engine(&'static str),
    /// The FUSE server that serves this volume failed, for the reason in the text.
    #[error("the FUSE server {0}")]
    Server(&'static str),
    /// The NFS server that serves this volume failed, for the reason in the text.
    #[error("the NFS server {0}")]
    Nfs(&'static str),
}

/// Returns the subject and the verb of a sentence about `len` blocks from block `start` on.
fn are(start: u64, len: u64) -> impl fmt::Display {
    fmt::from_fn(move |f| match len {
        1 => write!(f, "block {start} is"),
        len => write!(f, "{len} blocks from block {start} on are"),
    })
}

/// Displays the place of a structure. The root of an extent tree is in the inode, and has the block number 0.
fn place(structure: Structure, block: u64) -> impl fmt::Display {
    fmt::from_fn(move |f| match (structure, block) {
        (Structure::ExtentTree(_), 0) => f.write_str("in the inode"),
        _ => write!(f, "block {block}"),
    })
}

impl Error {
    /// Returns whether this error is `Corrupt` or `Device`: the volume is damaged, or the device failed.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Corrupt(_) | Self::Device(_))
    }
}

macro_rules! refusals {
    ($($name:ident)*) => {
        /// The errors of the caller as values of [`Error`], so that code can write `Err(Error::NotFound)`.
        #[expect(non_upper_case_globals, missing_docs, reason = "stand for variants")]
        impl Error { $(pub const $name: Self = Self::Refused(Refusal::$name);)* }
    };
}
refusals! {
    NotPermitted NotFound BadHandle AccessDenied Busy Exists CrossDevice NotDirectory IsDirectory Invalid FileTooBig
    NoSpace QuotaExceeded ReadOnly TooManyLinks OutOfRange NameTooLong NotEmpty Loop NoData NoMemory Stale NotSupported
    NoSuchOffset
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
    fn the_root_of_an_extent_tree_is_in_the_inode() {
        let magic = |block| {
            let structure = Structure::ExtentTree(Ino(15));
            Corrupt::Magic { structure, block, found: 0, expected: 0xf30a }.to_string()
        };
        assert_eq!(magic(0), "extent tree of inode 15: magic number is 0x0, expected 0xf30a (in the inode)");
        assert_eq!(magic(9), "extent tree of inode 15: magic number is 0x0, expected 0xf30a (block 9)");
    }

    #[test]
    fn one_byte_is_in_the_singular() {
        let error = DeviceError::Read { offset: 0, len: 1, errno: 5 };
        assert_eq!(error.to_string(), "reading 1 byte at byte 0 failed: input/output error");
    }

    #[test]
    fn errors_stay_small_enough_to_return_by_value() {
        assert!(size_of::<Error>() <= 56, "{}", size_of::<Error>());
    }
}
