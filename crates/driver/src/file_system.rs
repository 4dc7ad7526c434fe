//! The trait [`FileSystem`]: an open volume.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::{Attr, Ino, Name, Result, Timestamp};
use obento_block::{BlockDevice, CacheUse};

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
    /// Maximum link count of an inode. If the format counts subdirectories, this maximum also limits the
    /// number of subdirectories of a directory. [`StoredProperties::SUBDIRECTORIES`] documents an exception.
    pub link_max: u32,
    /// Maximum size of a file in bytes. The limit of a single file may be smaller, if the volume supports several kinds
    /// of mappings (files of ext4 without extents).
    pub file_size_max: u64,
    /// Resolution of timestamps in nanoseconds.
    pub time_granularity: u32,
    /// Largest user ID that an inode can store.
    pub uid_max: u32,
    /// Largest group ID that an inode can store.
    pub gid_max: u32,
    /// The properties of Linux files that the format stores.
    pub keeps: StoredProperties,
    /// The state of a volume after a power failure.
    pub crash: Crash,
}

impl Limits {
    /// Returns whether an inode can store these user and group IDs.
    pub fn fits_owner(&self, uid: u32, gid: u32) -> bool {
        uid <= self.uid_max && gid <= self.gid_max
    }

    /// Returns whether the stored time `held` and the requested time `asked` differ by less than the
    /// resolution of the format.
    pub fn is_same_time(&self, held: Timestamp, asked: Timestamp) -> bool {
        let nanos = |time: Timestamp| {
            i128::from(time.secs()).saturating_mul(1_000_000_000).saturating_add(time.nanos().into())
        };
        nanos(held).abs_diff(nanos(asked)) < u128::from(self.time_granularity.max(1))
    }
}

bitflags::bitflags! {
    /// The properties of Linux files that a format stores. Each flag documents what a driver does if its
    /// format does not store the property.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct StoredProperties: u16 {
        /// All permission bits. Without this flag, the driver stores at most one property of a mode that the
        /// caller sets: whether the file is writable. The driver ignores the other bits. A driver that cannot
        /// change volumes may derive the modes from other data of the volume, such as access control lists (NTFS).
        const MODES = 1;
        /// Owner and group. Without this flag, all files have the same owner and group, which
        /// [`VolumeOptions`](crate::VolumeOptions) may select, and setting another owner fails with
        /// `NotPermitted`. Exception: on a volume of a driver that cannot change volumes, files may have
        /// different owners (NTFS).
        const OWNERS = 1 << 1;
        /// Symbolic links. Without this flag, creating a symbolic link fails with `NotPermitted`.
        const SYMLINKS = 1 << 2;
        /// FIFOs, sockets and device nodes. Without this flag, creating such a file fails with `NotPermitted`.
        const SPECIAL = 1 << 3;
        /// Ranges of a file without blocks. Without this flag, the driver allocates space for every byte of a file. A
        /// call that increases the size then allocates the new space, and can fail with `NoSpace`.
        const HOLES = 1 << 4;
        /// Names of arbitrary bytes, where two names are the same only if their bytes are equal. Without this flag,
        /// creating some names fails with `Invalid`, and different byte strings can be the same name.
        const NAMES = 1 << 5;
        /// A change time that is separate from the modification time. Without this flag, the driver may
        /// return the modification time as the change time.
        const CTIME = 1 << 6;
        /// Access times at the resolution of the format. Without this flag, access times have a coarser
        /// resolution (2 s on exFAT, one day on FAT), or are not stored.
        const ATIME = 1 << 8;
        /// Directories whose link count is 2 plus the number of subdirectories. Exception: with the feature
        /// `dir_nlink` of ext4, a directory may have more subdirectories than [`Limits::link_max`] allows;
        /// its link count is then 1. Without this flag, the link count of every directory is 1.
        const SUBDIRECTORIES = 1 << 7;
        /// Directories other than the root. Without this flag, creating a directory fails with `NotPermitted`.
        const DIRECTORIES = 1 << 9;
    }
}

/// The state of a volume after a power failure while the volume was open for writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crash {
    /// Each call of a method of [`WritableFileSystem`] is one change, unless the method documents a sequence
    /// of changes. A change is present in full or not at all. If a change is present, all earlier changes are
    /// present. A change that a successful [`sync`](WritableFileSystem::sync) or
    /// [`sync_file`](WritableFileSystem::sync_file) covered is present. Opening the volume recovers this
    /// state, except with [`Replay::Skip`](crate::Replay::Skip).
    ///
    /// The data that the caller wrote to mapped blocks may become durable in any order. Each sector of a file holds a
    /// value that the sector had since the last sync of the file. With
    /// [`DataMode::Writeback`](crate::DataMode::Writeback), a new block may also hold old contents of the device.
    Whole,
    /// A file that was synced and not changed since is intact, including its attributes. A change made after the last
    /// sync may be present in full, in part, or not at all:
    ///
    /// - A written file keeps its name. Each of its sectors holds a value that the sector had since the sync.
    ///   Its length is between the old and the new length.
    /// - A file that was renamed or removed after the sync may have no name.
    /// - No file contains the data of another file.
    ///
    /// A [check](crate::Check) repairs the volume.
    Repairable,
    /// Changes reach the device in any order, so the volume may be inconsistent. For example, a block may belong to
    /// two files, or be allocated and belong to no file. A [check](crate::Check) is necessary before the volume
    /// is opened again. A change made since the volume was opened may then be present in full, in part, or
    /// not at all.
    ///
    /// This is the state of an ext4 volume without a journal, and of an ext4 volume whose
    /// [`barrier`](crate::Journalling::barrier) is disabled.
    Unordered,
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

    /// Returns the usage of the volume as a process that calls statfs(2) on the inode `ino` sees it.
    ///
    /// The driver reduces the numbers to the limits of the project of `ino`, as `ext4_statfs` of Linux does, if both
    /// conditions apply:
    ///
    /// - `ino` has the flag `PROJECT_INHERIT`.
    /// - The driver enforces the limits of projects.
    ///
    /// The default implementation returns the same numbers as [`statfs`](Self::statfs).
    fn statfs_at(&self, ino: Ino) -> Result<StatFs> {
        let _ = ino;
        self.statfs()
    }

    /// Returns the device to which the offsets in [`Span::Mapped`](crate::Span::Mapped) refer, or `None` if the
    /// driver never maps data. If a dirty journal was replayed in memory, the mapped data on the returned device is the
    /// data after the replay. Other blocks may have the contents before the replay (xv6).
    fn device(&self) -> Option<&Arc<dyn BlockDevice>>;

    /// Returns the use of the driver's cache of metadata, or `None` if the driver has no such cache.
    fn cache_use(&self) -> Option<CacheUse> {
        None
    }

    /// Returns the inode that `name` refers to in the directory `dir`.
    ///
    /// After success, the inode is in use: the caller must call [`FileSystem::forget`] after its last use.
    /// One call of `forget` is sufficient, even after several lookups of the inode.
    ///
    /// If `dir` has the flag `FileFlags::CASEFOLD`, the lookup ignores case. If the format lacks the property
    /// [`StoredProperties::NAMES`], the format defines which byte strings are the same name.
    ///
    /// # Errors
    ///
    /// 1. `NotDirectory`: `dir` is not a directory.
    /// 2. `NotFound`: `dir` has no entry `name`. This includes names longer than [`Limits::name_max`];
    ///    `vfs` rejects those with `NameTooLong` before it calls the driver.
    fn lookup(&self, dir: Ino, name: &Name) -> Result<Ino>;

    /// Returns the parent directory of `dir`. The parent of the root is the root. For a removed directory
    /// that is still in use, returns the directory that last contained it, even if that directory was removed
    /// as well.
    ///
    /// # Errors
    ///
    /// - `NotDirectory`: `dir` is not a directory.
    fn parent(&self, dir: Ino) -> Result<Ino>;

    /// Returns the attributes of `ino`. `atime` is the stored access time. The driver does not apply a policy for
    /// access times.
    ///
    /// # Errors
    ///
    /// - `Stale`: the volume contains no inode with this number.
    fn getattr(&self, ino: Ino) -> Result<Attr>;

    /// Passes the entries of `dir` at and after the position `from` to `sink`, until `sink` breaks or the
    /// directory ends. `from` is [`Cookie::START`], or [`DirEntry::next`](crate::DirEntry::next) of an entry
    /// of the same directory. For any other value, the listing starts at an unspecified entry.
    ///
    /// The format defines the order, and the order stays the same while the directory does not change. An entry that
    /// exists during the whole listing is passed exactly once. An entry that is created or removed during the listing
    /// is passed at most once.
    ///
    /// The driver passes damage inside the directory to `sink` as an error, and then continues with the part
    /// of the directory that is readable. The driver holds no lock while it calls `sink`, so `sink` may call
    /// the file system.
    ///
    /// # Errors
    ///
    /// - `NotDirectory`: `dir` is not a directory.
    fn read_dir(&self, dir: Ino, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()>;

    /// Passes entries as [`read_dir`](Self::read_dir) does, but may hold locks while it calls `sink`. A driver then
    /// need not copy the entries first. `sink` must neither call the file system nor wait for a thread that does.
    ///
    /// # Errors
    ///
    /// As for [`read_dir`](Self::read_dir).
    fn read_dir_locked(&self, dir: Ino, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        self.read_dir(dir, from, sink)
    }

    /// Returns the target of a symbolic link. The target is never empty and has no terminating NUL.
    ///
    /// # Errors
    ///
    /// - `Invalid`: `ino` is not a symbolic link.
    fn read_link(&self, ino: Ino) -> Result<Vec<u8>>;

    /// Returns the location of the data of `ino` as one extent that starts at `range.start`. `range` is in
    /// bytes of the file, and need not consist of whole blocks. Past the end of the file, the extent is a
    /// hole, even if blocks are allocated there.
    ///
    /// The location is valid while the caller holds `layout`.
    ///
    /// # Errors
    ///
    /// 1. `IsDirectory`: `ino` is a directory.
    /// 2. `Invalid`: `ino` is not a regular file, or `range` is empty.
    /// 3. `Corrupt`: the extent is outside of the volume or overlaps its metadata. The error concerns this
    ///    extent only; the rest of the file stays readable.
    fn map(&self, layout: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent>;

    /// Returns where the caller can read the data of `ino`, as [`map`](Self::map) does. The extent is also `Mapped` if
    /// only the driver writes the data, but the device contains the current data. The caller must not write to the
    /// extent. The caller must ensure that no thread writes to `range`, or moves its blocks, before the caller has read
    /// the data.
    ///
    /// # Errors
    ///
    /// As for [`map`](Self::map).
    fn map_to_read(&self, layout: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent> {
        self.map(layout, ino, range)
    }

    /// Reads data for which [`map`](Self::map) returned `Span::Driver`. Reads from byte `offset` of the file
    /// into `buf`, and returns the number of bytes read. The number is less than `buf.len()` only at the end
    /// of the extent or of the file. A driver may fail with `Invalid` if it never returns `Span::Driver`.
    ///
    /// # Errors
    ///
    /// As for [`map`](Self::map).
    fn read(&self, layout: &Layout<'_>, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Starts a use of `ino`, whose number the caller got from a listing. Returns whether the number is still
    /// valid. If the result is `false`, the caller must look up the name instead. Only a driver whose files are on a
    /// server returns `false`. Such a driver drops the numbers of listed files that are not in use.
    ///
    /// The caller also calls `acquire` after `lookup` or `create`, if another thread may have called `forget`
    /// for the same inode since then.
    fn acquire(&self, _ino: Ino) -> bool {
        true
    }

    /// Informs the driver that the caller no longer uses `ino`. If the inode has no name, the driver frees
    /// the inode. Otherwise, the driver may drop the state that it caches for the inode.
    ///
    /// The caller calls `forget` once after the last use. The caller may also call `forget` for an inode that
    /// it used by number, without a `lookup`. No other thread may use the inode during the call, and the
    /// calling thread must hold no layout lock.
    ///
    /// This method cannot fail. If the driver cannot free an inode, the space of the inode stays in use. The next open
    /// for writing, or a [check](crate::Check), frees this space.
    fn forget(&self, ino: Ino);

    /// Returns the operations that change the volume, if the volume is open for writing. If an error made the
    /// volume read-only, the result may still be `Some`, and the operations fail with `ReadOnly`.
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

    /// Returns the operation that discards free space, if the volume is open for writing and the driver has this
    /// operation.
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
