//! The attributes of an inode: number, kind, mode, owner, times, size.

use core::fmt;

use crate::Timestamp;

/// An inode number. No file has the number 0. Drivers may use 0 internally, for example for a missing parent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ino(pub u64);

impl fmt::Display for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A counter that distinguishes successive inodes with the same number, for NFS handles and FUSE nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Generation(pub u32);

/// The type of a file: the `S_IFMT` bits of a POSIX `st_mode`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A FIFO.
    Fifo,
    /// A Unix-domain socket.
    Socket,
}

impl FileKind {
    /// Returns the type in the format bits of a POSIX `st_mode`, or `None` for a value that POSIX does not
    /// define.
    pub fn from_mode(mode: u16) -> Option<Self> {
        Some(match mode & 0o170_000 {
            0o100_000 => Self::Regular,
            0o040_000 => Self::Directory,
            0o120_000 => Self::Symlink,
            0o020_000 => Self::CharDevice,
            0o060_000 => Self::BlockDevice,
            0o010_000 => Self::Fifo,
            0o140_000 => Self::Socket,
            _ => return None,
        })
    }

    /// Returns the type as the format bits of a POSIX `st_mode`.
    pub fn mode_bits(self) -> u16 {
        match self {
            Self::Regular => 0o100_000,
            Self::Directory => 0o040_000,
            Self::Symlink => 0o120_000,
            Self::CharDevice => 0o020_000,
            Self::BlockDevice => 0o060_000,
            Self::Fifo => 0o010_000,
            Self::Socket => 0o140_000,
        }
    }

    /// Returns whether inodes of this type have a device number.
    pub fn is_device(self) -> bool {
        matches!(self, Self::CharDevice | Self::BlockDevice)
    }
}

/// Permission bits with set-user-ID, set-group-ID and sticky: the low 12 bits of a POSIX `st_mode`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Mode(u16);

impl Mode {
    /// Set-user-ID.
    pub const SET_UID: Self = Self(0o4000);
    /// Set-group-ID.
    pub const SET_GID: Self = Self(0o2000);
    /// Restricted deletion ("sticky").
    pub const STICKY: Self = Self(0o1000);

    /// Creates a mode from the low 12 bits of `mode`. Ignores the other bits.
    pub const fn new(mode: u16) -> Self {
        Self(mode & 0o7777)
    }

    /// Returns the bits with the values of POSIX.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Returns whether all bits of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns this mode without the bits of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// The number of a device node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct DeviceNumber {
    /// Major number: the driver.
    pub major: u32,
    /// Minor number: the device of the driver.
    pub minor: u32,
}

bitflags::bitflags! {
    /// File flags, with the values of `FS_IOC_GETFLAGS` in Linux (include/uapi/linux/fs.h).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct FileFlags: u32 {
        /// Overwrite on deletion (`s`).
        const SECURE_DELETE = 0x1;
        /// Keep for undelete (`u`).
        const UNDELETE = 0x2;
        /// Compress (`c`).
        const COMPRESS = 0x4;
        /// Synchronous updates (`S`).
        const SYNC = 0x8;
        /// Cannot be changed (`i`).
        const IMMUTABLE = 0x10;
        /// Only appending (`a`).
        const APPEND = 0x20;
        /// dump(8) skips the file (`d`).
        const NO_DUMP = 0x40;
        /// Access times not updated (`A`).
        const NO_ATIME = 0x80;
        /// Encrypted (`E`).
        const ENCRYPTED = 0x800;
        /// Directory with a hash index (`I`).
        const INDEX = 0x1000;
        /// Data written to the journal (`j`).
        const JOURNAL_DATA = 0x4000;
        /// Tail not merged (`t`).
        const NO_TAIL = 0x8000;
        /// Synchronous directory updates (`D`).
        const DIR_SYNC = 0x10000;
        /// Top of a directory hierarchy (`T`).
        const TOP_DIR = 0x20000;
        /// Mapped by extents (`e`).
        const EXTENTS = 0x80000;
        /// Protected by fs-verity (`V`).
        const VERITY = 0x100000;
        /// Value of a large extended attribute.
        const EA_INODE = 0x200000;
        /// Never copied on write (`C`).
        const NO_COW = 0x800000;
        /// Direct access (`x`).
        const DAX = 0x2000000;
        /// Data inside the inode (`N`).
        const INLINE_DATA = 0x10000000;
        /// Project quota inherited (`P`).
        const PROJECT_INHERIT = 0x20000000;
        /// Names compared without case (`F`).
        const CASEFOLD = 0x40000000;
        const _ = !0;
    }
}

/// The attributes of an inode: POSIX `struct stat` plus birth time, flags and a change counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// Generation of the inode number.
    pub generation: Generation,
    /// Type of the file.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: Mode,
    /// Link count; 1 if the format has no link counts.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number; zeros if the inode is not a device.
    pub rdev: DeviceNumber,
    /// Size in bytes.
    pub size: u64,
    /// Allocated space in units of 512 bytes.
    pub blocks: u64,
    /// Preferred I/O size in bytes.
    pub block_size: u32,
    /// Access time.
    pub atime: Timestamp,
    /// Modification time.
    pub mtime: Timestamp,
    /// Change time.
    pub ctime: Timestamp,
    /// Birth time, if the format stores it.
    pub btime: Option<Timestamp>,
    /// File flags.
    pub flags: FileFlags,
    /// Change counter. If the format stores a counter, each change of the data or the attributes increments
    /// the counter. Otherwise, the driver derives the value from `ctime`.
    pub change: u64,
    /// Project ID for quotas; 0 if the format has no projects.
    pub project: u32,
}

impl Attr {
    /// Returns a POSIX `st_mode`: type and permission bits.
    pub fn st_mode(&self) -> u16 {
        self.kind.mode_bits() | self.mode.bits()
    }

    /// Returns whether the inode is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Records a change of the attributes: sets the change time to `now`, and increments the change counter.
    /// The counter stays at its maximum.
    pub fn touch(&mut self, now: Timestamp) {
        self.ctime = now;
        self.change = self.change.saturating_add(1);
    }

    /// Records a change of the data: sets the modification time to `now`, and records a change of the attributes.
    pub fn touch_data(&mut self, now: Timestamp) {
        self.mtime = now;
        self.touch(now);
    }
}
