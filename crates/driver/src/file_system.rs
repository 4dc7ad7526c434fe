//! The trait [`FileSystem`]: an open volume.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::{Attr, Ino, Name, Result, Timestamp};
use obento_block::BlockDevice;

use crate::{
    Bulk, Cookie, EntrySink, Extent, Failover, Handover, Inspect, Layout, Nameless, Relabel, Trim,
    VolumeInfo, Whiteouts, WritableFileSystem, Xattrs,
};

/// The limits and the guarantees of a format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Maximum length of a name in bytes.
    pub name_max: u32,
    /// Maximum length of the target of a symbolic link in bytes.
    pub symlink_max: u32,
    /// Maximum link count of a file.
    pub link_max: u32,
    /// Maximum size of a file in bytes.
    pub file_size_max: u64,
    /// Resolution of timestamps in nanoseconds.
    pub time_granularity: u32,
    /// Largest user ID that an inode can store.
    pub uid_max: u32,
    /// Largest group ID that an inode can store.
    pub gid_max: u32,
    /// The properties of Linux files that the format stores.
    pub keeps: StoredProperties,
    /// The state of a volume after a power cut.
    pub crash: Crash,
}

impl Limits {
    /// Returns whether an inode can store these user and group IDs.
    pub fn fits_owner(&self, uid: u32, gid: u32) -> bool {
        uid <= self.uid_max && gid <= self.gid_max
    }

    /// Returns whether `held` and `asked` differ by less than the resolution of the format.
    pub fn is_same_time(&self, held: Timestamp, asked: Timestamp) -> bool {
        let nanos = |time: Timestamp| {
            i128::from(time.secs()).saturating_mul(1_000_000_000).saturating_add(time.nanos().into())
        };
        nanos(held).abs_diff(nanos(asked)) < u128::from(self.time_granularity.max(1))
    }
}

bitflags::bitflags! {
    /// The properties of Linux files that a format stores. Each flag documents the behaviour of a driver whose format
    /// does not store the property. Either the value is the same for all files, or the driver refuses to set it.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct StoredProperties: u16 {
        /// All permission bits. Without this flag, a format stores at most one bit, which decides whether the file is
        /// writable. The driver ignores the other bits of a mode.
        const MODES = 1;
        /// Owner and group. Without this flag, all files have the same owner and group, which
        /// [`VolumeOptions`](crate::VolumeOptions) may select. Setting another owner fails with `NotPermitted`.
        const OWNERS = 1 << 1;
        /// Symbolic links. Without this flag, creating a symbolic link fails with `NotPermitted`.
        const SYMLINKS = 1 << 2;
        /// FIFOs, sockets and device nodes. Without this flag, creating such a file fails with `NotPermitted`.
        const SPECIAL = 1 << 3;
        /// Ranges of a file without blocks. Without this flag, a file that grows is filled with zeros, which take
        /// space. Space that is reserved within the size of a file is allocated at once.
        const HOLES = 1 << 4;
        /// Names of arbitrary bytes, where two names are the same only if their bytes are equal. Without this flag,
        /// some names are `Invalid`, and different byte strings can be the same name.
        const NAMES = 1 << 5;
        /// A change time that is separate from the modification time.
        const CTIME = 1 << 6;
        /// Access times at the resolution of the format. Without this flag, access times have a resolution
        /// of one day, or are not stored.
        const ATIME = 1 << 8;
        /// Link counts of directories that count subdirectories: 2 plus the number of subdirectories. Without this
        /// flag, the link count of every directory is 1.
        const SUBDIRECTORIES = 1 << 7;
        /// Directories other than the root. Without this flag, creating a directory fails with `NotPermitted`.
        const DIRECTORIES = 1 << 9;
    }
}

/// The state of a volume after a power failure while the volume was open for writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crash {
    /// Each change, that is, each call of a method of [`WritableFileSystem`], is present in full or not at all. If a
    /// change is present, all earlier changes are present. Opening the volume recovers this state.
    ///
    /// Data that the caller wrote to mapped blocks is not ordered. Each sector of a file holds a value that the
    /// sector had since the last sync of the file. With [`DataMode::Writeback`](crate::DataMode::Writeback), a new
    /// block may also hold old contents of the device.
    Whole,
    /// A file that was synced and not changed since is intact, including its attributes. A change made after the last
    /// sync may be present in full, in part, or not at all:
    ///
    /// - A written file keeps its name. Each of its sectors holds a value that the sector had since the sync. Its
    ///   length lies between the old and the new length.
    /// - A file that was renamed or removed after the sync may have no name.
    /// - No file contains the data of another file.
    ///
    /// A [check](crate::Check) repairs the volume.
    Repairable,
}

/// Usage of a volume, as `statvfs(3)` reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatFs {
    /// Unit of the block counts in bytes; a power of two. It is also the granularity of mappings. A hole or an
    /// unwritten extent that `map` returns starts at a multiple of this size or at the start of the requested range.
    /// It ends at a multiple of this size or at the end of the requested range.
    pub block_size: u32,
    /// Number of blocks for files, without the overhead of the format.
    pub blocks: u64,
    /// Number of free blocks.
    pub free: u64,
    /// Number of free blocks that users other than the superuser may allocate.
    pub available: u64,
    /// Number of inodes; 0 if the format creates inodes on demand.
    pub inodes: u64,
    /// Number of free inodes.
    pub free_inodes: u64,
}

/// An open volume. Any thread may call any method at any time.
pub trait FileSystem: Send + Sync {
    /// Returns the inode of the root directory.
    fn root(&self) -> Ino;

    /// Returns the limits of the format.
    fn limits(&self) -> Limits;

    /// Returns the type, label, features and state of the volume, for `obento info`.
    fn info(&self) -> VolumeInfo;

    /// Returns the usage of the volume.
    fn statfs(&self) -> Result<StatFs>;

    /// Returns the device to which the offsets in [`Span::Mapped`](crate::Span::Mapped) refer, or `None` if the
    /// driver never maps data. If a dirty journal was replayed in memory, the returned device has the contents of the
    /// volume after the replay.
    fn device(&self) -> Option<&Arc<dyn BlockDevice>>;

    /// Returns the inode that `name` refers to in the directory `dir`.
    ///
    /// After success, the caller must call [`FileSystem::forget`] once when it no longer uses the inode, even if it
    /// looked up the inode several times. A directory that ignores case when it compares names has the flag
    /// `FileFlags::CASEFOLD`.
    ///
    /// # Errors
    ///
    /// 1. `NotDirectory`: `dir` is not a directory.
    /// 2. `NotFound`: `dir` has no entry `name`. This includes names longer than [`Limits::name_max`];
    ///    `vfs` rejects those with `NameTooLong` before it calls the driver.
    fn lookup(&self, dir: Ino, name: &Name) -> Result<Ino>;

    /// Returns the parent directory of `dir`. The parent of the root is the root. For a removed directory,
    /// returns the directory that last contained it.
    ///
    /// # Errors
    ///
    /// - `NotDirectory`: `dir` is not a directory.
    fn parent(&self, dir: Ino) -> Result<Ino>;

    /// Returns the attributes of `ino`. `atime` is the stored access time: the policy of the host for access times
    /// does not change it.
    ///
    /// # Errors
    ///
    /// - `Stale`: the inode is not in use.
    fn getattr(&self, ino: Ino) -> Result<Attr>;

    /// Passes the entries of `dir` at and after the position `from` to `sink`, until `sink` breaks or the directory
    /// ends.
    ///
    /// The format defines the order, and the order stays the same while the directory does not change. An entry that
    /// exists during the whole listing is passed exactly once. An entry that is created or removed during the listing
    /// is passed at most once.
    ///
    /// The driver reports damage inside the directory to `sink`, and then continues with the rest of the directory.
    /// The driver holds no lock while it calls `sink`, so `sink` may call the file system.
    ///
    /// # Errors
    ///
    /// - `NotDirectory`: `dir` is not a directory.
    fn read_dir(&self, dir: Ino, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()>;

    /// Returns the target of a symbolic link. The target is never empty and has no terminating NUL.
    ///
    /// # Errors
    ///
    /// - `Invalid`: `ino` is not a symbolic link.
    fn read_link(&self, ino: Ino) -> Result<Vec<u8>>;

    /// Returns the location of the data of `ino` from `range.start` on. The result is one extent that starts at
    /// `range.start`. Past the end of the file, the result is a hole. `vfs` does not read past the end of the file.
    ///
    /// # Errors
    ///
    /// 1. `IsDirectory`: `ino` is a directory.
    /// 2. `Invalid`: `ino` is not a regular file, or `range` is empty.
    /// 3. `Corrupt`: the extent lies outside of the volume or overlaps its metadata. The error concerns
    ///    this extent only; the rest of the file stays readable.
    fn map(&self, layout: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent>;

    /// Reads data for which [`map`](Self::map) returned `Span::Driver`. Fills `buf` from byte `offset` of
    /// the file and returns the number of bytes read. The number is less than `buf.len()` only at the end
    /// of the extent or of the file.
    ///
    /// # Errors
    ///
    /// As for [`map`](Self::map).
    fn read(&self, layout: &Layout<'_>, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Informs the driver that the caller no longer uses `ino`. If the link count is 0, the driver frees the inode.
    /// Otherwise, the driver may drop the state that it caches for the inode.
    ///
    /// `vfs` counts the uses of an inode, so that a driver does not have to. `vfs` calls `forget` once after the last
    /// use. `vfs` may also call `forget` for an inode that it used by number, without a `lookup`. This method cannot
    /// fail: the next `sync` reports an error that occurs here.
    fn forget(&self, ino: Ino);

    /// Returns the operations that change the volume, if the volume is open for writing.
    fn writable(&self) -> Option<&dyn WritableFileSystem> {
        None
    }

    /// Returns the operations on extended attributes, if the format has them.
    fn xattrs(&self) -> Option<&dyn Xattrs> {
        None
    }

    /// Returns the operations on files without a name, if the volume is open for writing and the format supports such
    /// files. After a crash, the next open for writing frees these files.
    fn nameless(&self) -> Option<&dyn Nameless> {
        None
    }

    /// Returns the renames that leave a whiteout, if the volume is open for writing and the format supports them.
    fn whiteouts(&self) -> Option<&dyn Whiteouts> {
        None
    }

    /// Returns the operation that changes the label, if the volume is open for writing and the driver supports it.
    fn relabel(&self) -> Option<&dyn Relabel> {
        None
    }

    /// Returns the operations on many files at once, if a call to the driver is expensive. A caller that reads many
    /// files should then read ahead in a separate thread.
    fn bulk(&self) -> Option<&dyn Bulk> {
        None
    }

    /// Returns the operation that discards free space, if the volume is open for writing and the driver can find the
    /// free space.
    fn trim(&self) -> Option<&dyn Trim> {
        None
    }

    /// Returns the operation that prepares the volume for use by another process, if the driver supports it.
    fn handover(&self) -> Option<&dyn Handover> {
        None
    }

    /// Returns the operations that make changes survive a failure of the process, if the volume was opened with
    /// [`OpenOptions::redo`](crate::OpenOptions::redo) and the driver supports it.
    fn failover(&self) -> Option<&dyn Failover> {
        None
    }

    /// Returns a view of the on-disk structures, if the driver offers one.
    fn inspect(&self) -> Option<&dyn Inspect> {
        None
    }
}
