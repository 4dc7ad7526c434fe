//! The operations that change a volume.
//!
//! The driver sets `mtime` and `ctime` from the clock that it was opened with. `vfs` sets `atime` through
//! `set_attr`, and passes the time of a delayed write to `end_write`. `vfs` also checks permissions,
//! rejects names that are too long, orders renames, and prevents a directory from becoming its own
//! descendant.

use core::ops::Range;

use bitflags::bitflags;
use obento_base::{
    Attr, DeviceNumber, Error, FileFlags, FileKind, Generation, Ino, Mode, Name, Result, Timestamp,
};

use crate::{ExclusiveLayout, Extent, Layout};

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
    /// Returns the attributes of such an inode, without names and contents, for a format that stores all
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
    /// This time, truncated to the resolution of the format. A time outside of the range of the format
    /// fails with `OutOfRange`, or becomes the nearest time in the range for formats where Linux does that
    /// (FAT).
    At(Timestamp),
}

impl TimeChange {
    /// Returns the time, where `now` is the current time.
    pub fn moment(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Now => now,
            Self::At(moment) => moment,
        }
    }

    /// Records in `attr` that the data changed at this time. The change time never moves backwards, since
    /// the attributes may have changed after the data.
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
    /// Birth time. Ignored if the format has no birth time, or none that can be set.
    pub btime: Option<TimeChange>,
    /// File flags. Flags that the format computes are ignored.
    pub flags: Option<FileFlags>,
    /// Project ID for quotas. A value other than 0 fails with `NotSupported` if the format has no project
    /// IDs.
    pub project: Option<u32>,
}

impl SetAttr {
    /// Applies the changes to `attr` and updates its change time, for a format that stores all attributes.
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

    /// Checks the project ID for a format without projects.
    ///
    /// # Errors
    ///
    /// - `NotSupported`: the project ID is not 0.
    pub fn expect_no_project(&self) -> Result<()> {
        if self.project.unwrap_or(0) == 0 { Ok(()) } else { Err(Error::NotSupported) }
    }
}

bitflags! {
    /// Flags of `rename`. They exclude each other.
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

/// The kind of file whose name is removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Victim {
    /// Any file except a directory.
    File,
    /// An empty directory.
    EmptyDirectory,
}

/// Whether an inode that is about to lose a name is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Usage {
    /// The inode is in use; its user will call `forget`.
    Used,
    /// The inode is not in use and will not be before the call returns. The `forget` of its last user has
    /// returned.
    Unused,
}

/// A function that a driver calls with the attributes of an inode before it removes a name of that inode.
/// If the function returns an error, the driver keeps the name and returns the error. The driver may hold
/// locks, so the function must not call the driver.
pub type AskUsage<'a> = dyn FnMut(&Attr) -> Result<Usage> + 'a;

/// A volume that is open for writing.
///
/// Each call is one atomic change, also with respect to crashes, unless its documentation says otherwise.
/// In addition to its documented errors, every method fails with `ReadOnly` once the volume has become
/// read-only after a write error, or has been closed. A method for space allocation that fails with
/// `NotSupported` for all files need not check its range first.
pub trait WritableFileSystem: Send + Sync {
    /// Creates an inode and its entry in `dir`. The caller must call `forget` once. A new directory has
    /// link count 2 and increases the link count of `dir`. Files and directories inherit the flags
    /// `NO_DUMP` and `NO_ATIME` from `dir` if the format has them, and other flags that the format defines
    /// as inherited.
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

    /// Removes a name. Calls `ask` once, after it has found the inode and before it changes anything.
    ///
    /// Afterwards `lookup(dir, name)` returns `NotFound`, the link count is one less, and a removed
    /// directory accepts no new entries. An inode in use can be read and written until its `forget`. An
    /// inode that is not in use and has no other name is freed, as by `forget`.
    ///
    /// # Errors
    ///
    /// 1. `NotDirectory`: `dir` is not a directory.
    /// 2. `NotFound`: `name` does not exist in `dir`.
    /// 3. The error that `ask` returned.
    /// 4. `IsDirectory`: the name refers to a directory, for [`Victim::File`].
    /// 5. `NotDirectory`: the name does not refer to a directory, for [`Victim::EmptyDirectory`].
    /// 6. `NotEmpty`: the directory is not empty, for [`Victim::EmptyDirectory`].
    fn remove(&self, dir: Ino, name: &Name, victim: Victim, ask: &mut AskUsage<'_>) -> Result<()>;

    /// [Removes](Self::remove) the name of a file that the caller has looked up. The caller must still call
    /// `forget`.
    fn unlink(&self, dir: Ino, name: &Name) -> Result<()> {
        self.remove(dir, name, Victim::File, &mut |_| Ok(Usage::Used))
    }

    /// [Removes](Self::remove) a directory that the caller has looked up. The caller must still call
    /// `forget`.
    fn rmdir(&self, dir: Ino, name: &Name) -> Result<()> {
        self.remove(dir, name, Victim::EmptyDirectory, &mut |_| Ok(Usage::Used))
    }

    /// Moves a name. An existing file at the new name is removed as by `unlink` or `rmdir`. A moved
    /// directory gets its new parent. If both names refer to the same inode, both stay.
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

    /// Changes all given attributes or none, and returns the new attributes.
    ///
    /// # Errors
    ///
    /// - `OutOfRange`: the format cannot store a time, the owner or the group.
    /// - `NotSupported`: the project ID is not 0 and the format has no projects.
    fn set_attr(&self, ino: Ino, change: &SetAttr) -> Result<Attr>;

    /// Sets the size in one atomic change, even if that frees many blocks. Data past the new size is
    /// discarded; nothing is allocated. If the file grows again, the discarded range reads as zeros, except
    /// for the rest of the last block if that block is mapped: a caller that grows a file must zero that
    /// rest first.
    ///
    /// # Errors
    ///
    /// 1. `IsDirectory`: `ino` is a directory.
    /// 2. `Invalid`: `ino` is not a regular file.
    /// 3. `FileTooBig`: `size` exceeds the limit of the format.
    fn truncate(&self, layout: &ExclusiveLayout<'_>, ino: Ino, size: u64) -> Result<()>;

    /// Returns where to write the data at `range.start`, as one extent that starts there: `Mapped`, or
    /// `Driver` for [`write`](Self::write).
    ///
    /// This call only reserves blocks: until `end_write`, readers and a crash see the old contents. A block
    /// that was a hole or unwritten has undefined contents. The caller must zero the part of it that
    /// `range` does not cover, and therefore asks for whole blocks.
    ///
    /// # Errors
    ///
    /// 1. `IsDirectory`: `ino` is a directory.
    /// 2. `Invalid`: `ino` is not a regular file, or `range` is empty.
    /// 3. `FileTooBig`: `range.end` exceeds `file_size_max` rounded up to a block.
    /// 4. `NoSpace`: not even the first block can be allocated.
    fn map_for_write(&self, layout: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent>;

    /// Publishes data written through `map_for_write`, after the I/O has completed: all blocks that
    /// `written` touches become part of the file. The size becomes at least `written.end`. On failure, the
    /// reservation of these blocks is released.
    ///
    /// `mtime` becomes `when`, and so does `ctime` unless it is already later. A caller that accepted the
    /// data earlier passes the result of [`now`](Self::now) at that time.
    fn end_write(&self, layout: &Layout<'_>, ino: Ino, written: Range<u64>, when: TimeChange) -> Result<()>;

    /// Releases blocks that `map_for_write` reserved and the caller did not write.
    fn abandon(&self, layout: &Layout<'_>, ino: Ino, range: Range<u64>);

    /// Writes data for which `map_for_write` returned `Driver`, or for which `map` returned `Driver` for
    /// the whole range. Zeroes what it must, extends the size to the end of the written data, and returns
    /// the number of bytes written, which is at least one unless `bytes` is empty.
    ///
    /// # Errors
    ///
    /// As for `map_for_write`.
    fn write(&self, layout: &Layout<'_>, ino: Ino, offset: u64, bytes: &[u8]) -> Result<usize>;

    /// Turns `range` into a hole. The size does not change. `range` must consist of whole blocks or reach
    /// the end of the file.
    ///
    /// The change is atomic if all its extents fit into one transaction. Otherwise it is a sequence of
    /// transactions: during it, and after a failure or a crash, each block is unchanged or a hole.
    ///
    /// # Errors
    ///
    /// 1. `IsDirectory`: `ino` is a directory.
    /// 2. `Invalid`: `ino` is not a regular file, or `range` covers a part of a block.
    /// 3. `NotSupported`: the format has no holes.
    fn punch(&self, layout: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()>;

    /// Allocates every block that `range` touches. Holes become unwritten or zeroed blocks: they read as
    /// zeros, and writing them needs no further space. With [`Size::Grow`], the caller must have zeroed the
    /// rest of the old last block.
    ///
    /// This is a sequence of changes: after `NoSpace` or a crash, a part of the blocks may be allocated.
    /// The size changes last.
    ///
    /// # Errors
    ///
    /// 1. `IsDirectory`: `ino` is a directory.
    /// 2. `Invalid`: `ino` is not a regular file, or `range` is empty.
    /// 3. `NotSupported`: the driver cannot allocate space in advance.
    /// 4. `FileTooBig`: `range.end` exceeds `file_size_max`.
    /// 5. `NoSpace`: not enough blocks are free.
    fn allocate(&self, layout: &Layout<'_>, ino: Ino, range: Range<u64>, size: Size) -> Result<()>;

    /// Makes `range` read as zeros, with blocks allocated as by [`allocate`](Self::allocate). `range` must
    /// consist of whole blocks or reach the end of the file.
    ///
    /// This is a sequence of changes, like `allocate`. During it and after a failure, each block is
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

    /// Removes `range` from the file: the data after it moves down, and the size shrinks by its length.
    ///
    /// The change is atomic if the extents to move fit into one transaction. Otherwise, after a failure or
    /// a crash, the size is the old one and a part of the following data has moved.
    ///
    /// # Errors
    ///
    /// 1. `IsDirectory`: `ino` is a directory.
    /// 2. `Invalid`: `ino` is not a regular file; `range` is empty, covers a part of a block, or reaches
    ///    the end of the file (use `truncate` for that).
    /// 3. `NotSupported`: the driver cannot move data within a file.
    fn collapse(&self, layout: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()>;

    /// Inserts a hole at `range.start` that is as long as `range`: the data at and after that position
    /// moves up, and the size grows.
    ///
    /// The change is atomic if the extents to move fit into one transaction. Otherwise, after a failure or
    /// a crash, the size is the new one and a part of the following data has moved.
    ///
    /// # Errors
    ///
    /// 1. `IsDirectory`: `ino` is a directory.
    /// 2. `Invalid`: `ino` is not a regular file; `range` is empty, covers a part of a block, or starts at
    ///    or past the end of the file.
    /// 3. `NotSupported`: the driver cannot move data within a file.
    /// 4. `FileTooBig`: the new size exceeds the limit of the format.
    /// 5. `NoSpace`: the mapping cannot grow.
    fn insert(&self, layout: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()>;

    /// Returns the current time of the clock that the driver uses for timestamps.
    fn now(&self) -> Timestamp;

    /// Returns once `ino`, its data and its names are on stable storage. A directory above it that was
    /// renamed since may still have its old name. After a write error, every call fails with that error.
    fn sync_file(&self, ino: Ino) -> Result<()>;

    /// [Syncs](Self::sync_file) all `inos`, for callers that wait at the same time: a journal needs one
    /// commit for all of them.
    ///
    /// # Errors
    ///
    /// The error of one of the inodes. Each of the inodes may then be on stable storage or not.
    fn sync_files(&self, inos: &[Ino]) -> Result<()> {
        inos.iter().try_for_each(|&ino| self.sync_file(ino))
    }

    /// Returns once all changes so far are on stable storage.
    fn sync(&self) -> Result<()>;

    /// Writes all changes to their final place on stable storage and marks the volume clean, as an unmount
    /// does.
    ///
    /// Afterwards the volume can still be read, and [`FileSystem::writable`](crate::FileSystem::writable)
    /// returns `None`. No other change may run at the same time. Inodes without a name may be freed, even
    /// if they are in use. A volume that is dropped without `close` is in the state of a volume after a
    /// crash.
    ///
    /// # Errors
    ///
    /// As for `sync`.
    fn close(&self) -> Result<()>;
}
