//! The operations that change a volume.
//!
//! The driver sets `mtime` and `ctime` from the clock that it was opened with. `vfs` sets `atime` through `set_attr`,
//! and passes the time of a delayed write to `end_write`. In addition, `vfs`:
//!
//! - checks permissions;
//! - rejects names that are too long;
//! - serialises renames between directories;
//! - prevents a directory from becoming its own descendant.

use core::ops::Range;

use bitflags::bitflags;
use obento_base::{
    Attr, DeviceNumber, Error, FileFlags, FileKind, Generation, Ino, Mode, Name, Result, Timestamp,
};

use crate::{ExclusiveLayout, Layout, WriteTicket};

/// The attributes of a new inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewNode<'a> {
    /// Kind of the inode.
    pub kind: FileKind,
    /// Permission bits, with the umask of the caller applied.
    pub mode: Mode,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number; ignored unless the inode is a device.
    pub rdev: DeviceNumber,
    /// Target of a symbolic link; empty for other kinds.
    pub target: &'a [u8],
}

impl NewNode<'_> {
    /// Returns the attributes of a new inode that has no name and no contents, for a format that stores all
    /// attributes.
    pub fn attr(&self, ino: Ino, generation: Generation, now: Timestamp) -> Attr {
        Attr {
            ino,
            generation,
            kind: self.kind,
            mode: self.mode,
            nlink: 0,
            uid: self.uid,
            gid: self.gid,
            rdev: if self.kind.is_device() { self.rdev } else { DeviceNumber::default() },
            size: 0,
            blocks: 0,
            block_size: 4096,
            atime: now,
            mtime: now,
            ctime: now,
            btime: Some(now),
            flags: FileFlags::empty(),
            change: 0,
            project: 0,
        }
    }
}

/// The flags that a new inode inherits from its directory, unless the format defines other flags. Source:
/// `SHMEM_FL_INHERITED` in Linux.
pub const INHERITED: FileFlags = FileFlags::NO_DUMP.union(FileFlags::NO_ATIME);

/// A new value for a timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeChange {
    /// The current time of the clock of the driver.
    Now,
    /// This time, truncated to the resolution of the format. If the format cannot store the time, the change fails
    /// with `OutOfRange`. For formats where Linux instead selects the nearest time that can be stored (FAT), the
    /// driver does so too.
    At(Timestamp),
}

impl TimeChange {
    /// Returns the time that this change sets, where `now` is the current time.
    pub fn moment(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Now => now,
            Self::At(moment) => moment,
        }
    }

    /// Updates the times in `attr` after a change of the data. Sets `mtime` to the time of this change. Sets `ctime` to
    /// the same time, unless `ctime` is later: the attributes may have changed after the data.
    pub fn touch_data(self, attr: &mut Attr, now: Timestamp) {
        let Self::At(moment) = self else { return attr.touch_data(now) };
        attr.touch(moment.max(attr.ctime));
        attr.mtime = moment;
    }
}

/// The attributes to change. `None` leaves an attribute unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<Mode>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Access time.
    pub atime: Option<TimeChange>,
    /// Modification time.
    pub mtime: Option<TimeChange>,
    /// Change time, for tools that restore a tree. `None` uses the clock of the driver.
    pub ctime: Option<TimeChange>,
    /// Birth time. The driver ignores it if the format stores no birth time, or a birth time that cannot be changed.
    pub btime: Option<TimeChange>,
    /// File flags. The driver ignores flags that the format computes.
    pub flags: Option<FileFlags>,
    /// Project ID for quotas. A value other than 0 fails with `NotSupported` if the format stores no project IDs.
    pub project: Option<u32>,
}

impl SetAttr {
    /// Applies the changes to `attr`, for a format that stores all attributes. Updates the change time, unless only
    /// the access time changes.
    pub fn apply(&self, attr: &mut Attr, now: Timestamp) {
        // An access is not a change.
        if *self != (Self { atime: self.atime, ..Self::default() }) {
            attr.touch(now);
        }
        let time = |kept: Timestamp, change: Option<TimeChange>| change.map_or(kept, |to| to.moment(now));
        attr.mode = self.mode.unwrap_or(attr.mode);
        attr.uid = self.uid.unwrap_or(attr.uid);
        attr.gid = self.gid.unwrap_or(attr.gid);
        attr.flags = self.flags.unwrap_or(attr.flags);
        attr.project = self.project.unwrap_or(attr.project);
        attr.atime = time(attr.atime, self.atime);
        attr.mtime = time(attr.mtime, self.mtime);
        attr.ctime = time(attr.ctime, self.ctime);
        attr.btime = self.btime.map_or(attr.btime, |to| Some(to.moment(now)));
    }

    /// Checks that the change sets no project ID other than 0, for a format that stores no project IDs.
    ///
    /// # Errors
    ///
    /// - `NotSupported`: the project ID is not 0.
    pub fn expect_no_project(&self) -> Result<()> {
        if self.project.unwrap_or(0) == 0 { Ok(()) } else { Err(Error::NotSupported) }
    }
}

bitflags! {
    /// Flags of `rename`. At most one flag may be set.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct RenameFlags: u32 {
        /// Fail with `Exists` if the new name exists.
        const NO_REPLACE = 1;
        /// Exchange the two names.
        const EXCHANGE = 2;
    }
}

/// The effect of an allocation beyond the end of a file on the size of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// The size does not change.
    Keep,
    /// The size becomes the end of the range, if that is larger.
    Grow,
}

impl Size {
    /// Returns the size of a file of `size` bytes after an allocation of `range`.
    pub fn after(self, size: u64, range: &Range<u64>) -> u64 {
        match self {
            Self::Keep => size,
            Self::Grow => size.max(range.end),
        }
    }
}

/// A condition on the existence of an attribute before it is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XattrMode {
    /// The attribute may exist.
    Set,
    /// Fail with `Exists` if the attribute exists.
    Create,
    /// Fail with `NoData` if the attribute does not exist.
    Replace,
}

/// The kind of file whose name `remove` removes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemovalKind {
    /// Any file except a directory.
    File,
    /// An empty directory.
    EmptyDirectory,
}

/// Whether an inode is in use. `remove` asks this question before it removes a name of the inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Usage {
    /// The inode is in use. The caller of `remove` will call `forget` for the inode.
    Used,
    /// The inode is not in use, and no use begins before `remove` returns. If the inode was in use earlier, its
    /// `forget` has returned.
    Unused,
}

/// A function that a driver calls with the attributes of an inode before it removes a name of the inode. If the
/// function returns an error, the driver keeps the name and returns the error. The function must not call the driver,
/// since the driver may hold locks.
pub type AskUsage<'a> = dyn FnMut(&Attr) -> Result<Usage> + 'a;

/// A volume that is open for writing.
///
/// Unless its documentation says otherwise, each call is one atomic change, also with respect to crashes.
///
/// In addition to its documented errors, every method fails with `ReadOnly` after the volume was closed, or became
/// read-only because of a write error.
///
/// Exception from the order of errors: a driver that never supports `punch`, `allocate`, `zero_range`, `collapse` or
/// `insert` may return `NotSupported` before it checks the range.
pub trait WritableFileSystem: Send + Sync {
    /// Creates an inode and its entry in `dir`. The caller must call `forget` once. A new directory has link count 2
    /// and increases the link count of `dir`. A file or directory inherits the flags `NO_DUMP` and `NO_ATIME` from
    /// `dir` if the format has them. It also inherits the flags that the format defines as inherited.
    ///
    /// # Errors
    ///
    /// 1. `NotDirectory`: `dir` is not a directory.
    /// 2. `NotFound`: `dir` was removed.
    /// 3. `Exists`: `name` exists in `dir`.
    /// 4. `Invalid`: the target of the symbolic link is empty.
    /// 5. `NameTooLong`: the target is longer than `symlink_max`.
    /// 6. `OutOfRange`: the format cannot store the owner or the group.
    /// 7. `TooManyLinks`: `dir` cannot have another subdirectory.
    /// 8. `NoSpace`: no inode or block is free.
    fn create(&self, dir: Ino, name: &Name, node: &NewNode<'_>) -> Result<Attr>;

    /// Creates another name for `ino`.
    ///
    /// # Errors
    ///
    /// 1. `NotDirectory`: `dir` is not a directory.
    /// 2. `NotPermitted`: `ino` is a directory.
    /// 3. `NotFound`: `dir` was removed, or `ino` has no name left.
    /// 4. `Exists`: `name` exists in `dir`.
    /// 5. `TooManyLinks`: `ino` has the maximum link count.
    /// 6. `NoSpace`: the directory cannot grow.
    fn link(&self, ino: Ino, dir: Ino, name: &Name) -> Result<Attr>;

    /// Removes a name. Calls `ask` once, after the driver has found the inode and before it changes anything.
    ///
    /// Afterwards, `lookup(dir, name)` returns `NotFound`, and the link count of the inode is one less. A removed
    /// directory accepts no new entries. If the inode is in use, it can be read and written until its `forget`. If
    /// the inode is not in use and has no other name, the driver frees it.
    ///
    /// # Errors
    ///
    /// 1. `NotDirectory`: `dir` is not a directory.
    /// 2. `NotFound`: `name` does not exist in `dir`.
    /// 3. The error that `ask` returned.
    /// 4. `IsDirectory`: the name refers to a directory, for [`RemovalKind::File`].
    /// 5. `NotDirectory`: the name does not refer to a directory, for [`RemovalKind::EmptyDirectory`].
    /// 6. `NotEmpty`: the directory is not empty, for [`RemovalKind::EmptyDirectory`].
    fn remove(&self, dir: Ino, name: &Name, victim: RemovalKind, ask: &mut AskUsage<'_>) -> Result<()>;

    /// [Removes](Self::remove) the name of a file that the caller has looked up. The caller must still call
    /// `forget`.
    fn unlink(&self, dir: Ino, name: &Name) -> Result<()> {
        self.remove(dir, name, RemovalKind::File, &mut |_| Ok(Usage::Used))
    }

    /// [Removes](Self::remove) a directory that the caller has looked up. The caller must still call
    /// `forget`.
    fn rmdir(&self, dir: Ino, name: &Name) -> Result<()> {
        self.remove(dir, name, RemovalKind::EmptyDirectory, &mut |_| Ok(Usage::Used))
    }

    /// Moves a name. If `new_name` exists, its file is removed as by `unlink` or `rmdir`. A moved directory gets `to`
    /// as its parent. If both names refer to the same inode, the call succeeds and changes nothing.
    ///
    /// # Errors
    ///
    /// 1. `Invalid`: both flags are set.
    /// 2. `NotDirectory`: `from` or `to` is not a directory.
    /// 3. `NotFound`: `name` does not exist in `from`, or `to` was removed.
    /// 4. `Exists`: `new_name` exists, with `NO_REPLACE`.
    /// 5. `NotFound`: `new_name` does not exist, with `EXCHANGE`.
    /// 6. `IsDirectory`: something other than a directory would replace a directory.
    /// 7. `NotDirectory`: a directory would replace something other than a directory.
    /// 8. `NotEmpty`: the directory to replace is not empty.
    /// 9. `TooManyLinks`: `to` cannot have another subdirectory.
    /// 10. `NoSpace`: the directory cannot grow.
    fn rename(&self, from: Ino, name: &Name, to: Ino, new_name: &Name, flags: RenameFlags) -> Result<()>;

    /// Changes all given attributes or none. Returns the new attributes.
    ///
    /// # Errors
    ///
    /// - `OutOfRange`: the format cannot store a time, the owner or the group.
    /// - `NotSupported`: the project ID is not 0 and the format has no projects.
    fn set_attr(&self, ino: Ino, change: &SetAttr) -> Result<Attr>;

    /// Sets the size in one atomic change, even if the change frees many blocks. Allocates nothing. Discards the data
    /// past the new size.
    ///
    /// If the file grows again, the discarded range reads as zeros, with one exception. If the last block is mapped,
    /// its bytes past the end of the file are undefined. A caller that grows a file must therefore write zeros to
    /// these bytes first.
    ///
    /// # Errors
    ///
    /// 1. `IsDirectory`: `ino` is a directory.
    /// 2. `Invalid`: `ino` is not a regular file.
    /// 3. `FileTooBig`: `size` exceeds the limit of the format.
    fn truncate(&self, layout: &ExclusiveLayout<'_>, ino: Ino, size: u64) -> Result<()>;

    /// Begins a write to `range`. Returns a ticket with the place of the data and the state of the file before the
    /// write. The caller transfers the data, and passes the ticket to [`end_write`](Self::end_write). If the extent of
    /// the ticket is `Driver`, the caller drops the ticket and calls [`write`](Self::write) instead.
    ///
    /// This call only reserves blocks: until `end_write`, readers and a crash see the old contents. Dropping the ticket
    /// releases the blocks. A block that was a hole or unwritten has undefined contents: the caller writes the whole
    /// [frame](WriteTicket::frame), with zeros around the data. A caller that writes after a gap must also have zeroed
    /// the rest of the old last block.
    ///
    /// The driver holds no lock while the ticket exists.
    ///
    /// # Errors
    ///
    /// 1. `IsDirectory`: `ino` is a directory.
    /// 2. `Invalid`: `ino` is not a regular file, or `range` is empty.
    /// 3. `FileTooBig`: `range.end` exceeds `file_size_max` rounded up to a block.
    /// 4. `NoSpace`: not even the first block can be allocated.
    fn begin_write<'a>(
        &'a self,
        layout: &'a Layout<'_>,
        ino: Ino,
        range: Range<u64>,
    ) -> Result<WriteTicket<'a>>;

    /// Returns another ticket for a write whose ticket was [detached](WriteTicket::detach). A caller that cannot store
    /// tickets, such as the page cache of a kernel, needs this method. `range` is a part of that write. The caller
    /// passes the ticket to `end_write` to publish this part, or drops the ticket to release its blocks.
    fn resume_write<'a>(&'a self, layout: &'a Layout<'_>, ino: Ino, range: Range<u64>) -> WriteTicket<'a>;

    /// Publishes the data of `ticket`. The caller must have written the data to the device. All blocks that the range
    /// of the ticket touches become part of the file. If the file ends before the end of the range, its size becomes
    /// the end of the range. On failure, the driver releases the blocks that it reserved for the ticket.
    ///
    /// `mtime` becomes `when`. `ctime` also becomes `when`, unless `ctime` is later. A caller that accepted the data
    /// earlier passes the result of [`now`](Self::now) at that time. A caller that maintains the times itself passes
    /// [`WriteTicket::mtime`].
    fn end_write(&self, ticket: WriteTicket<'_>, when: TimeChange) -> Result<()>;

    /// Writes data for which `begin_write` returned `Driver`, or for which `map` returned `Driver` for the whole
    /// range. Bytes of the file that were never written read as zeros afterwards. Extends the size to the end of the
    /// written data if that is larger. Returns the number of bytes written, which is at least 1 unless `bytes` is
    /// empty.
    ///
    /// # Errors
    ///
    /// As for `begin_write`.
    fn write(&self, layout: &Layout<'_>, ino: Ino, offset: u64, bytes: &[u8]) -> Result<usize>;

    /// Turns `range` into a hole. The size does not change. `range` must consist of whole blocks or reach the end of
    /// the file.
    ///
    /// The change is atomic if all its extents fit into one transaction. Otherwise, it is a sequence of transactions.
    /// During the call, and after a failure or a crash, each block is unchanged or a hole.
    ///
    /// # Errors
    ///
    /// 1. `IsDirectory`: `ino` is a directory.
    /// 2. `Invalid`: `ino` is not a regular file, or `range` covers a part of a block.
    /// 3. `NotSupported`: the format has no holes.
    fn punch(&self, layout: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()>;

    /// Allocates every block that `range` touches. Holes become unwritten or zeroed blocks: they read as zeros, and
    /// writing to them needs no further space. With [`Size::Grow`], the caller must first write zeros to the bytes
    /// between the old end of the file and the end of its last block.
    ///
    /// The call is a sequence of changes, of which the last one changes the size. After `NoSpace` or a crash, only
    /// some of the blocks may be allocated.
    ///
    /// # Errors
    ///
    /// 1. `IsDirectory`: `ino` is a directory.
    /// 2. `Invalid`: `ino` is not a regular file, or `range` is empty.
    /// 3. `NotSupported`: the driver cannot allocate space in advance.
    /// 4. `FileTooBig`: `range.end` exceeds `file_size_max`.
    /// 5. `NoSpace`: not enough blocks are free.
    fn allocate(&self, layout: &Layout<'_>, ino: Ino, range: Range<u64>, size: Size) -> Result<()>;

    /// Makes `range` read as zeros, with blocks allocated as by [`allocate`](Self::allocate). `range` must consist of
    /// whole blocks or reach the end of the file.
    ///
    /// The call is a sequence of changes, as for `allocate`. During the call, and after a failure, each block is
    /// unchanged or zero.
    ///
    /// # Errors
    ///
    /// 1. `IsDirectory`: `ino` is a directory.
    /// 2. `Invalid`: `ino` is not a regular file, or `range` is empty or covers a part of a block.
    /// 3. `NotSupported`: the driver cannot allocate space in advance.
    /// 4. `FileTooBig`: as for `allocate`.
    /// 5. `NoSpace`: not enough blocks are free.
    fn zero_range(&self, layout: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>, size: Size)
    -> Result<()>;

    /// Removes `range` from the file. The data after `range` moves to `range.start`, and the size shrinks by the
    /// length of `range`.
    ///
    /// The change is atomic if the extents to move fit into one transaction. Otherwise, after a failure or a crash,
    /// the file has its old size, and a part of the following data has moved.
    ///
    /// # Errors
    ///
    /// 1. `IsDirectory`: `ino` is a directory.
    /// 2. `Invalid`: `ino` is not a regular file. Or: `range` is empty, covers a part of a block, or reaches the end
    ///    of the file (use `truncate` instead).
    /// 3. `NotSupported`: the driver cannot move data within a file.
    fn collapse(&self, layout: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()>;

    /// Inserts a hole at `range.start` that is as long as `range`. The data at and after `range.start` moves to
    /// `range.end`, and the size grows by the length of `range`.
    ///
    /// The change is atomic if the extents to move fit into one transaction. Otherwise, after a failure or a crash,
    /// the file has its new size, and a part of the following data has moved.
    ///
    /// # Errors
    ///
    /// 1. `IsDirectory`: `ino` is a directory.
    /// 2. `Invalid`: `ino` is not a regular file. Or: `range` is empty, covers a part of a block, or starts at or
    ///    past the end of the file.
    /// 3. `NotSupported`: the driver cannot move data within a file.
    /// 4. `FileTooBig`: the new size exceeds the limit of the format.
    /// 5. `NoSpace`: no space is left for the mapping of the file.
    fn insert(&self, layout: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()>;

    /// Returns the current time of the clock that the driver uses for timestamps.
    fn now(&self) -> Timestamp;

    /// Returns once `ino`, its data and its names are on stable storage. If a parent directory was renamed since the
    /// last sync, the stable storage may still contain the old name of that directory. After a write error, every
    /// call returns the write error.
    fn sync_file(&self, ino: Ino) -> Result<()>;

    /// [Syncs](Self::sync_file) all `inos`, for callers that wait at the same time. A driver with a journal needs
    /// only one commit for all inodes.
    ///
    /// # Errors
    ///
    /// The error of one of the inodes. Whether each inode is on stable storage is then unspecified.
    fn sync_files(&self, inos: &[Ino]) -> Result<()> {
        inos.iter().try_for_each(|&ino| self.sync_file(ino))
    }

    /// Returns once all changes that were made before the call are on stable storage.
    fn sync(&self) -> Result<()>;

    /// Writes all changes to their final place on stable storage and marks the volume clean, like an unmount.
    ///
    /// Afterwards, the volume can still be read, and [`FileSystem::writable`](crate::FileSystem::writable) returns
    /// `None`. No other change may run at the same time. Inodes without a name may be freed, even if they are in use.
    /// A volume that is dropped without `close` is in the same state as after a crash.
    ///
    /// # Errors
    ///
    /// As for `sync`.
    fn close(&self) -> Result<()>;
}
