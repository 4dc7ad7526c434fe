//! An open volume.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::{Attr, Ino, Name, Result, Timestamp};
use obento_block::BlockDevice;

use crate::{
    Bulk, Cookie, EntrySink, Extent, Inspect, Layout, Nameless, Trim, VolumeInfo, WritableFileSystem, Xattrs,
};

/// What a format can hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The longest name in bytes.
    pub name_max: u32,
    /// The longest target of a symbolic link in bytes.
    pub symlink_max: u32,
    /// The most names a file may have.
    pub link_max: u32,
    /// The largest file in bytes.
    pub file_size_max: u64,
    /// The step of a timestamp in nanoseconds.
    pub time_granularity: u32,
    /// The largest number of an owner.
    pub uid_max: u32,
    /// The largest number of a group.
    pub gid_max: u32,
    /// What it keeps of what Linux knows of a file.
    pub keeps: Keeps,
    /// What a power cut leaves.
    pub crash: Crash,
}

impl Limits {
    /// Whether it has room for these.
    pub fn fits_owner(&self, uid: u32, gid: u32) -> bool {
        uid <= self.uid_max && gid <= self.gid_max
    }

    /// Whether `held` is the time `asked`, as far as it tells times apart.
    pub fn is_same_time(&self, held: Timestamp, asked: Timestamp) -> bool {
        let nanos = |time: Timestamp| {
            i128::from(time.secs()).saturating_mul(1_000_000_000).saturating_add(time.nanos().into())
        };
        nanos(held).abs_diff(nanos(asked)) < u128::from(self.time_granularity.max(1))
    }
}

bitflags::bitflags! {
    /// What a format keeps of what Linux knows of a file. What it does not keep is the same for all files or is refused,
    /// as it says here.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Keeps: u16 {
        /// All permission bits. Without: whether anybody may write, at most, and other bits of a mode are dropped.
        const MODES = 1;
        /// Owner and group. Without: the mount's, and NotPermitted for others.
        const OWNERS = 1 << 1;
        /// Symbolic links. Without: NotPermitted.
        const SYMLINKS = 1 << 2;
        /// FIFOs, sockets and device nodes. Without: NotPermitted.
        const SPECIAL = 1 << 3;
        /// Ranges without blocks. Without: what a file grows by is zeros that take space, and what was reserved within its
        /// size is its own at once.
        const HOLES = 1 << 4;
        /// Names of any bytes, each another. Without: Invalid for some, and others are the same.
        const NAMES = 1 << 5;
        /// When attributes changed, apart from when data did.
        const CTIME = 1 << 6;
        /// When data was read, to the granularity. Without: to the day, at most.
        const ATIME = 1 << 8;
        /// How many directories a directory holds, in its link count. Without: 1.
        const SUBDIRECTORIES = 1 << 7;
        /// Directories besides the root. Without: NotPermitted.
        const DIRECTORIES = 1 << 9;
    }
}

/// What a power cut leaves of a volume that is open for changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crash {
    /// Each change wholly or not at all, in their order; opening the volume is enough.
    Whole,
    /// What was synced and not changed since, whole, its attributes included. Of each change since then all, part or nothing: a file that
    /// was written to is there under its name, each sector as it was since the sync, and as long as it was or between; what was renamed or
    /// removed meanwhile may be without a name. Nothing shows what is another's, and a [check](crate::Check) mends the rest.
    Repairable,
}

/// Use of a volume, as `statvfs(3)` tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatFs {
    /// Unit of the block counts in bytes; also the grain in which files are mapped: whatever `map` calls a hole or
    /// unwritten starts and ends at a multiple of it, or at the end of the range asked for. A power of two.
    pub block_size: u32,
    /// Blocks for files, without the format's own overhead.
    pub blocks: u64,
    /// Free blocks.
    pub free: u64,
    /// Free blocks that others than the super user may take.
    pub available: u64,
    /// Inodes in all; 0 where the format makes them as needed.
    pub inodes: u64,
    /// Free inodes.
    pub free_inodes: u64,
}

/// An open volume. Every method may be called from any thread at any time.
pub trait FileSystem: Send + Sync {
    /// The inode of the root directory.
    fn root(&self) -> Ino;

    /// What the format can hold.
    fn limits(&self) -> Limits;

    /// What the volume is: type, label, features, state. For people and `info`.
    fn info(&self) -> VolumeInfo;

    /// How full the volume is.
    fn statfs(&self) -> Result<StatFs>;

    /// The device that [`Span::Mapped`](crate::Span::Mapped) offsets count on: with a journal that was not replayed,
    /// one that shows it as if it were. `None` where nothing is ever mapped.
    fn device(&self) -> Option<&Arc<dyn BlockDevice>>;

    /// The inode that `name` names in `dir`. Errors: NotDirectory; NotFound. A name longer than
    /// [`Limits::name_max`] is NotFound; `vfs` has answered NameTooLong before. On success the caller owes a
    /// [`FileSystem::forget`] when it has no more use for the inode: one, however often it was looked up.
    /// A directory whose names are compared without case says `FileFlags::CASEFOLD`.
    fn lookup(&self, dir: Ino, name: &Name) -> Result<Ino>;

    /// The directory that `dir` lies in; the root's is the root. Of a removed directory, the one it lay in. Errors:
    /// NotDirectory.
    fn parent(&self, dir: Ino) -> Result<Ino>;

    /// The attributes of `ino`. Errors: Stale if the inode is not in use. `atime` is what the volume stores.
    fn getattr(&self, ino: Ino) -> Result<Attr>;

    /// Hands the entries of `dir` that follow `from` to `sink`, until it breaks or there are no more. The order is the
    /// format's own and the same each time while nothing changes; an entry that is there throughout is handed over
    /// exactly once; one that comes or goes meanwhile, at most once. Errors: NotDirectory. Damage within the
    /// directory goes to the sink, and the rest of the directory after it. The sink may call the file system: a
    /// driver holds no lock meanwhile.
    fn read_dir(&self, dir: Ino, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()>;

    /// The target of a symbolic link: bytes, without a final NUL, never empty. Errors: Invalid if `ino` is none.
    fn read_link(&self, ino: Ino) -> Result<Vec<u8>>;

    /// Where the bytes from `range.start` on live: one run that starts there. Past the end of the file the answer is
    /// `Hole`; `vfs` bounds reads by the size. An empty `range` is Invalid. Errors: IsDirectory; Invalid for what is
    /// no regular file; Corrupt for an extent that lies outside the volume or over its metadata, which costs that
    /// run and not the file.
    fn map(&self, layout: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent>;

    /// Reads bytes that [`map`](Self::map) called `Driver`: fills `buf` from byte `offset` on and answers how many
    /// bytes, which is less than `buf.len()` only at the end of the run or of the file. Errors: as `map`.
    fn read(&self, layout: &Layout<'_>, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// The caller has no more use for `ino`. With a link count of 0 the driver frees it; otherwise it may drop what it
    /// keeps in memory for it. `vfs` counts uses, a driver need not: it comes once after the last use, and may come for
    /// an inode that was reached by its number and never looked up. Cannot fail: what goes wrong is the next `sync`'s
    /// to tell.
    fn forget(&self, ino: Ino);

    /// Changes, if the volume is open for them.
    fn writable(&self) -> Option<&dyn WritableFileSystem> {
        None
    }

    /// Extended attributes, if the format has them.
    fn xattrs(&self) -> Option<&dyn Xattrs> {
        None
    }

    /// Files without a name, if the volume is open for changes and the format has them: those that a crash leaves are
    /// found again and freed.
    fn nameless(&self) -> Option<&dyn Nameless> {
        None
    }

    /// Many files at once, if calls are dear to the driver: who reads many of its files does so ahead, in a thread.
    fn bulk(&self) -> Option<&dyn Bulk> {
        None
    }

    /// Giving free space back to the device, if the volume is open for changes and the format can tell what is free.
    fn trim(&self) -> Option<&dyn Trim> {
        None
    }

    /// A view of the structures on disk, if the driver offers one.
    fn inspect(&self) -> Option<&dyn Inspect> {
        None
    }
}
