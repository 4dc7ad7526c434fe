//! The operations that change a volume: see [`WritableFileSystem`].

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
    /// Permission bits. The caller has already applied the umask.
    pub mode: Mode,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number. The driver ignores it unless the inode is a device.
    pub rdev: DeviceNumber,
    /// Target of a symbolic link; empty for other kinds.
    pub target: &'a [u8],
}

impl NewNode<'_> {
    /// Returns the attributes of a new inode that has no name and no contents, for a format that stores all
    /// attributes. All times are `now`.
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
    /// This time, truncated to the resolution of the format. If the time is outside of the range of the
    /// format, the call fails with `OutOfRange`. Exception: if Linux stores the nearest time in the range,
    /// the driver does the same (FAT, exFAT, ext4, kernel engine).
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

    /// Updates the times in `attr` after a change of the data, and increments the change counter. `mtime`
    /// becomes the time of this change. `ctime` becomes the same time. Exception: with [`At`](Self::At), a
    /// later `ctime` stays, because the attributes may have changed after the data.
    pub fn touch_data(self, attr: &mut Attr, now: Timestamp) {
        let Self::At(moment) = self else { return attr.touch_data(now) };
        attr.touch(moment.max(attr.ctime));
        attr.mtime = moment;
    }
}

/// The attributes to change. `None` leaves an attribute unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttr {
    /// Permission bits. A driver may ignore those of a symbolic link, as Linux does.
    pub mode: Option<Mode>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Access time.
    pub atime: Option<TimeChange>,
    /// Modification time.
    pub mtime: Option<TimeChange>,
    /// Change time, for tools that restore a tree. `None` uses the clock of the driver. The driver ignores
    /// the value if the format stores no change time, or if the driver cannot set the change time (kernel
    /// engine, NFS, FUSE).
    pub ctime: Option<TimeChange>,
    /// Birth time. The driver ignores the value if the format stores no birth time, or if the birth time cannot be
    /// changed.
    pub btime: Option<TimeChange>,
    /// File flags. The driver ignores flags that the format computes. A driver whose format stores no flags
    /// ignores all flags (FAT, exFAT), or fails with `NotSupported` if a flag is set (NFS, FUSE). The caller
    /// compares these flags with the flags that [`set_attr`](WritableFileSystem::set_attr) returns, and
    /// reports the flags that are not stored.
    pub flags: Option<FileFlags>,
    /// Project ID for quotas. A value other than 0 fails with `NotSupported` if the format stores no project IDs.
    pub project: Option<u32>,
}

impl SetAttr {
    /// Applies the changes to `attr`, for a format that stores all attributes. If a field other than `atime`
    /// is set, also increments the change counter, and sets the change time to `now` or to the given `ctime`.
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
    /// Flags of `rename`. At most one flag may be set. A call with both flags fails with `Invalid`.
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
    /// The size becomes the end of the range, if the end is greater than the size.
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

/// The kind of file that `remove` accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemovalKind {
    /// Any file except a directory.
    File,
    /// An empty directory.
    EmptyDirectory,
}

/// Whether an inode is in use: the result of the function [`AskUsage`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Usage {
    /// The inode is in use. The caller of `remove` calls `forget` for the inode later.
    Used,
    /// The inode is not in use, and no use begins before `remove` returns. If the inode was in use earlier, the caller
    /// has called `forget` for the inode, and the call has returned.
    Unused,
}

/// A function that a driver calls with the attributes of an inode, before the driver removes a name of the
/// inode. If the function returns an error, the driver changes nothing and returns that error. The function
/// must neither call the driver nor wait for a thread that calls the driver, since the driver may hold locks.
pub type AskUsage<'a> = dyn FnMut(&Attr) -> Result<Usage> + 'a;

/// A volume that is open for writing.
///
/// Each call is one atomic change, unless the method documents a sequence of changes. No other thread sees
/// only a part of an atomic change. [`Limits::crash`](crate::Limits::crash) defines the state after a crash.
///
/// All ranges, offsets and sizes are in bytes of the file. A *block* has
/// [`StatFs::block_size`](crate::StatFs::block_size) bytes.
///
/// # Duties of the caller
///
/// The driver sets `mtime` and `ctime` from [`OpenOptions::clock`](crate::OpenOptions::clock). Exception: the
/// kernel engine, and the servers of NFS and FUSE volumes, use their own clocks for most changes. The driver
/// does not check permissions. The caller (`vfs`):
///
/// - checks permissions, and enforces the flags `IMMUTABLE` and `APPEND`;
/// - rejects names that are longer than [`Limits::name_max`](crate::Limits::name_max);
/// - runs only one rename between directories at a time;
/// - prevents a rename that would make a directory its own descendant;
/// - sets `atime` through `set_attr`;
/// - holds the layout lock as [`LayoutLock`](crate::LayoutLock) requires.
///
/// # State after an error
///
/// If a method fails with an error of its list, the call has changed nothing, unless the method documents
/// another state. After `Corrupt`, `Device` or `NoMemory`, the change may be present in full, in part, or not
/// at all. A driver may make the volume read-only after such an error.
///
/// # Errors of every change
///
/// - `ReadOnly`: the volume was closed, or became read-only because of a write error, or because of damage
///   (ext4 with `errors=remount-ro`). This error takes precedence over every other error of the class
///   [`Refused`](obento_base::Error::Refused), such as `NotFound`. Exception: a driver that never supports a
///   method may return another error of that method. [`sync_file`](Self::sync_file),
///   [`sync_files`](Self::sync_files), [`sync`](Self::sync) and [`close`](Self::close) document their own
///   errors.
/// - `QuotaExceeded`: the caller asked for limits ([`QuotaLimits`](crate::QuotaLimits)), and the method would
///   exceed one. The driver returns this error wherever it may return `NoSpace`, and from
///   [`set_attr`](Self::set_attr) for a new owner, group or project. After this error, the volume is in the
///   state that the method documents for `NoSpace`.
/// - `NotPermitted`: the method changes the data of a file that fs-verity protects (ext4). The driver checks
///   this error after the type of the inode.
///
/// # Exceptions to the order of errors
///
/// - A driver that never supports `punch`, `allocate`, `zero_range`, `collapse` or `insert` may return
///   `NotSupported` before it checks the inode and the range.
/// - The kernel engine and the FUSE driver return `FileTooBig` before `NotSupported` (`allocate`, `zero_range`).
///   For a range that ends after `file_size_max`, they also return `FileTooBig` from `punch`.
/// - If the index of a directory is full, ext4 returns `NoSpace` directly after the check of the new name
///   (`create`, `link`, `rename`).
pub trait WritableFileSystem: Send + Sync {
    /// Creates an inode and its entry in `dir`. Returns the attributes of the inode. After success, the inode
    /// is in use: the caller must call `forget` after its last use.
    ///
    /// If the format counts subdirectories, a new directory has link count 2, and the link count of `dir`
    /// increases by 1. The inode inherits from `dir` the flags `NO_DUMP` and `NO_ATIME`, if the format has
    /// these flags, and the flags that the format defines as inherited. A driver whose format stores no
    /// owners ignores `node.uid` and `node.gid`.
    ///
    /// # Errors
    ///
    /// 1. `NotDirectory`: `dir` is not a directory.
    /// 2. `NotFound`: `dir` was removed.
    /// 3. `Exists`: `name` exists in `dir`.
    /// 4. `Invalid`: the inode is a symbolic link with an empty target.
    /// 5. `NameTooLong`: the target of the symbolic link is longer than `symlink_max`.
    /// 6. `OutOfRange`: the format cannot store the owner, the group or the device number.
    /// 7. `TooManyLinks`: the inode is a directory, and `dir` has the maximum number of subdirectories.
    /// 8. `NoSpace`: no inode or block is free.
    ///
    /// The position of these errors depends on the driver:
    ///
    /// - `NotPermitted`: the format cannot store the kind of the inode.
    /// - `Invalid`: the format cannot store the name.
    fn create(&self, dir: Ino, name: &Name, node: &NewNode<'_>) -> Result<Attr>;

    /// Creates the name `name` in `dir` for the existing inode `ino`. Returns the new attributes of `ino`.
    /// If `ino` was in use, it stays in use, and one call of `forget` after its last use is sufficient.
    ///
    /// # Errors
    ///
    /// 1. `NotDirectory`: `dir` is not a directory.
    /// 2. `NotPermitted`: `ino` is a directory.
    /// 3. `NotFound`: `dir` was removed, or `ino` has no name left.
    /// 4. `Exists`: `name` exists in `dir`.
    /// 5. `TooManyLinks`: `ino` has the maximum link count.
    /// 6. `CrossDevice`: `dir` requires the project of its entries (`PROJECT_INHERIT`), and `ino` has another project.
    /// 7. `NoSpace`: the directory cannot grow.
    ///
    /// The position of this error depends on the driver:
    ///
    /// - `Invalid`: the format cannot store the name.
    fn link(&self, ino: Ino, dir: Ino, name: &Name) -> Result<Attr>;

    /// Removes the entry `name` from `dir`. Calls `ask` once, after the driver has found the inode of the
    /// entry and before the driver changes anything.
    ///
    /// After success:
    ///
    /// - `lookup(dir, name)` fails with `NotFound`.
    /// - The link count of a removed file is one less, and the link count of a removed directory is 0.
    /// - If the format counts subdirectories, removing a directory decreases the link count of `dir` by 1.
    /// - A removed directory accepts no new entries.
    /// - If `ask` returned [`Usage::Used`], the caller can read and write the inode until it calls `forget`.
    ///   Exception: an NFS server, a FUSE server, or Linux on HFS may free the file with its last name. A later
    ///   use of the inode then fails, on NFS with `Stale`.
    /// - If `ask` returned [`Usage::Unused`] and the inode has no other name, the driver has freed the inode.
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

    /// [Removes](Self::remove) the name of a file that is in use. The caller must still call `forget`.
    fn unlink(&self, dir: Ino, name: &Name) -> Result<()> {
        self.remove(dir, name, RemovalKind::File, &mut |_| Ok(Usage::Used))
    }

    /// [Removes](Self::remove) a directory that is in use. The caller must still call `forget`.
    fn rmdir(&self, dir: Ino, name: &Name) -> Result<()> {
        self.remove(dir, name, RemovalKind::EmptyDirectory, &mut |_| Ok(Usage::Used))
    }

    /// Moves the entry `name` of the directory `from` to the name `new_name` in the directory `to`. A
    /// directory that moves to another directory gets that directory as its parent.
    ///
    /// If `new_name` exists, its inode loses the name as in [`unlink`](Self::unlink) or
    /// [`rmdir`](Self::rmdir). The caller must therefore have looked up `new_name` before the call, and must
    /// call `forget` for the replaced inode later. With `EXCHANGE`, the two entries exchange their inodes
    /// instead, and no inode loses a name.
    ///
    /// If both names refer to the same inode and `flags` do not contain `NO_REPLACE`, the call succeeds and changes
    /// nothing. Exception: if both names are spellings of one entry, the driver may replace the spelling (FAT).
    ///
    /// # Errors
    ///
    /// 1. `Invalid`: both flags are set.
    /// 2. `NotDirectory`: `from` or `to` is not a directory.
    /// 3. `NotFound`: `name` does not exist in `from`, or `to` was removed.
    /// 4. `Exists`: `new_name` exists, with `NO_REPLACE`.
    /// 5. `NotFound`: `new_name` does not exist, with `EXCHANGE`.
    /// 6. `CrossDevice`: `to` requires the project of its entries (`PROJECT_INHERIT`), and the inode of `name` has
    ///    another project. With `EXCHANGE`, the same applies to `from` and the inode of `new_name`.
    /// 7. `IsDirectory`: an inode that is not a directory would replace a directory.
    /// 8. `NotDirectory`: a directory would replace an inode that is not a directory.
    /// 9. `NotEmpty`: the directory to replace is not empty.
    /// 10. `TooManyLinks`: a directory would get another parent, and the new parent would exceed the maximum
    ///     number of subdirectories.
    /// 11. `NoSpace`: the directory `to` cannot grow.
    ///
    /// The position of these errors depends on the driver:
    ///
    /// - `Invalid`: the format cannot store `new_name`.
    /// - `NotSupported`: `flags` contain `EXCHANGE`, and the format or the server cannot exchange names
    ///   (kernel engine, NFS, FUSE).
    fn rename(&self, from: Ino, name: &Name, to: Ino, new_name: &Name, flags: RenameFlags) -> Result<()>;

    /// Changes all given attributes or none. Returns the stored attributes after the change. [`SetAttr`]
    /// documents which values a driver may ignore.
    ///
    /// Exception: the kernel engine and the FUSE driver change owner, mode, flags and times one after the
    /// other. If a step fails, the attributes of the earlier steps have their new values.
    ///
    /// # Errors
    ///
    /// - `NotPermitted`: the format stores no owners, and the owner or the group would change.
    /// - `OutOfRange`: the format cannot store a time ([`TimeChange::At`]), the owner or the group.
    /// - `NotSupported`: the project ID is not 0 and the format has no projects. Or: the driver does not
    ///   support the combination of flags, or does not support flags (NFS, FUSE).
    /// - `NotDirectory`: the flag `CASEFOLD` of an inode that is not a directory would change.
    /// - `NotEmpty`: the flag `CASEFOLD` of a directory with entries would change.
    fn set_attr(&self, ino: Ino, change: &SetAttr) -> Result<Attr>;

    /// Sets the size to `size` bytes in one atomic change, even if the change frees many blocks. Discards the
    /// data past the new size. Allocates no blocks, with two exceptions: a file grows in a format without
    /// [`HOLES`](crate::StoredProperties::HOLES), or inline data no longer fits into its inode.
    ///
    /// If the file grows again, the discarded range reads as zeros, with one exception. If the last block is
    /// mapped, its bytes past the end of the file are unspecified. A caller must therefore write zeros to these bytes
    /// before it grows the file.
    ///
    /// # Errors
    ///
    /// 1. `IsDirectory`: `ino` is a directory.
    /// 2. `Invalid`: `ino` is not a regular file.
    /// 3. `FileTooBig`: `size` exceeds `file_size_max`, or the limit of the mapping of this file.
    /// 4. `NoSpace`: a block must be allocated, and no block is free.
    fn truncate(&self, layout: &ExclusiveLayout<'_>, ino: Ino, size: u64) -> Result<()>;

    /// Begins a write to `range`, which need not consist of whole blocks. Returns a ticket with the place of
    /// the data and the state of the file before the write. The ticket may cover only the start of `range`.
    /// The caller transfers the data, and passes the ticket to [`end_write`](Self::end_write). If the extent
    /// of the ticket is `Driver`, the caller drops the ticket and calls [`write`](Self::write) instead.
    ///
    /// This call only reserves blocks. The blocks become part of the file in `end_write`. Until then, a
    /// reader and an open after a crash find the old mapping. Dropping the ticket releases the blocks. Exception: if
    /// the data of a file is inline and no longer fits into the inode, this call moves the data to a block (ext4).
    ///
    /// A block that was a hole or unwritten has unspecified contents. The caller therefore writes the whole
    /// [frame](WriteTicket::frame), with zeros around the data. If `range` starts after the last block of the
    /// file, the caller also zeroes the bytes of that block after the end of the file. The caller writes these zeros
    /// before it calls `end_write`.
    ///
    /// Several writes of a file may be open at the same time if no block is in two of their ranges. They may end in any
    /// order. An open write keeps its blocks if another write is dropped, or if the file grows by `write` or
    /// [`allocate`](Self::allocate). If the write of a later range ends first, the range of an open write reads as
    /// zeros until this write ends.
    ///
    /// A change that needs the exclusive layout lock may release the blocks of a [detached](WriteTicket::detach)
    /// ticket. The caller must not write to these blocks afterwards.
    ///
    /// The ticket borrows the shared layout guard of the caller. The driver holds no lock of its own while the ticket
    /// exists.
    ///
    /// # Errors
    ///
    /// 1. `IsDirectory`: `ino` is a directory.
    /// 2. `Invalid`: `ino` is not a regular file, or `range` is empty.
    /// 3. `FileTooBig`: `range.end` exceeds `file_size_max`, or the limit of the mapping of this file. A
    ///    driver may round the limit up to a whole block before it compares (ext4, FAT, tmpfs, kernel engine).
    /// 4. `NoSpace`: not even the first block can be allocated.
    fn begin_write<'a>(
        &'a self,
        layout: &'a Layout<'_>,
        ino: Ino,
        range: Range<u64>,
    ) -> Result<WriteTicket<'a>>;

    /// Returns another ticket for a write whose ticket was [detached](WriteTicket::detach). A caller that cannot store
    /// tickets, such as the page cache of a kernel, needs this method. `range` must be a part of that write. The driver
    /// does not check `range` before `end_write`. The caller passes the ticket to `end_write` to publish this part, or
    /// drops the ticket to release its blocks.
    fn resume_write<'a>(&'a self, layout: &'a Layout<'_>, ino: Ino, range: Range<u64>) -> WriteTicket<'a>;

    /// Publishes the data of `ticket`. The caller must have written the data to the device, and must still
    /// hold the layout guard that the ticket borrows. All blocks that the range of the ticket touches become
    /// part of the file. If the file ends before the end of the range, its size becomes the end of the range.
    ///
    /// `mtime` becomes `when`. `ctime` also becomes `when`, unless `when` is [`TimeChange::At`] and `ctime` is later.
    /// Exception: if a write changes neither the mapping nor the size, a driver may keep times less than 4 ms earlier
    /// than `when` (ext4).
    ///
    /// A caller that accepted the data earlier passes the time of acceptance, which [`now`](Self::now) returned then. A
    /// caller that maintains the times itself passes [`WriteTicket::mtime`].
    ///
    /// # Errors
    ///
    /// After an error of this list, the file is unchanged. After `Corrupt`, `Device` or `NoMemory`, the
    /// change may be present in full, in part, or not at all. After any error, the driver has released the
    /// blocks that it reserved for the ticket and that are not part of the file. Exception: after `Device`,
    /// these blocks may stay allocated.
    ///
    /// 1. `IsDirectory`: the inode of the ticket is a directory. Only a ticket of `resume_write` can have such an
    ///    inode.
    /// 2. `Invalid`: the inode is not a regular file. Only a ticket of `resume_write` can have such an inode.
    /// 3. `FileTooBig`: the range of the ticket ends after `file_size_max` (FAT). `begin_write` accepts such a range
    ///    if it ends in the same block as the limit. The caller must therefore check the limit itself.
    /// 4. `Invalid`: a block of the range is neither part of the file nor reserved (ext4, FAT, exFAT), or the
    ///    driver never maps data for writing. In the last case, a driver may return `NotSupported` instead
    ///    (NFS, FUSE).
    /// 5. `NoSpace`: the mapping of the file needs another block, and no block is free (ext4). The blocks of the data
    ///    were reserved by `begin_write`. [`WriteTicket::reserve_mapping`] excludes this error.
    fn end_write(&self, ticket: WriteTicket<'_>, when: TimeChange) -> Result<()>;

    /// Writes data for which `begin_write` returned `Driver`, or for which `map` returned `Driver` for the
    /// whole range. Bytes between the old end of the file and `offset` read as zeros afterwards. If the
    /// written data ends after the end of the file, the size becomes the end of the written data. Returns the
    /// number of bytes written, which is at least 1 unless `bytes` is empty.
    ///
    /// # Errors
    ///
    /// 1. `IsDirectory`: `ino` is a directory.
    /// 2. `Invalid`: `ino` is not a regular file.
    /// 3. `FileTooBig`: `offset` is at or past `file_size_max`. A driver may also fail if only the end of `bytes` is
    ///    past the limit (ext4). The caller must therefore shorten `bytes`.
    /// 4. `Invalid`: `begin_write` would return `Mapped` (ext4). Other drivers write such data.
    /// 5. `NoSpace`: no byte can be written, because no block is free.
    fn write(&self, layout: &Layout<'_>, ino: Ino, offset: u64, bytes: &[u8]) -> Result<usize>;

    /// Writes data as [`write`](Self::write) does, and sets the times of the inode as [`end_write`](Self::end_write)
    /// does for `when`. Returns `None`, and writes nothing, in these cases:
    ///
    /// - The driver cannot write the data and set the times in one change.
    /// - `begin_write` would return `Mapped`, and `when` is not `Now`.
    ///
    /// After `None`, the caller calls `begin_write`. If that call returns `Driver`, the caller calls `write`, and then
    /// sets the times with `set_attr`.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    fn write_delayed(
        &self,
        layout: &Layout<'_>,
        ino: Ino,
        offset: u64,
        bytes: &[u8],
        when: TimeChange,
    ) -> Result<Option<usize>> {
        let _ = (layout, ino, offset, bytes, when);
        Ok(None)
    }

    /// Turns `range` into a hole. The size does not change. `range` must not be empty. It must start at the
    /// start of a block. It must end at the end of a block, or at or past the end of the file.
    ///
    /// The change is atomic if all its extents fit into one transaction. Otherwise, it is a sequence of transactions.
    /// During the call, and after a failure or a crash, each block is unchanged or a hole.
    ///
    /// # Errors
    ///
    /// 1. `IsDirectory`: `ino` is a directory.
    /// 2. `Invalid`: `ino` is not a regular file, or `range` covers a part of a block before the end of the
    ///    file. A driver may also return this error for an empty `range`.
    /// 3. `NotSupported`: the format has no holes.
    /// 4. `NoSpace`: the mapping of the file needs another block, and no block is free.
    fn punch(&self, layout: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()>;

    /// Allocates every block that `range` touches. Holes become unwritten or zeroed blocks. These blocks read as zeros,
    /// and a write to them needs no further space. With [`Size::Grow`], the caller must first write zeros to the bytes
    /// between the old end of the file and the end of its last block.
    ///
    /// The call is a sequence of changes. The last change sets the size. After an error or a crash, only some
    /// of the blocks may be allocated. After `NoSpace`, ext4 keeps these blocks, as Linux does, and FAT and
    /// exFAT free them.
    ///
    /// # Errors
    ///
    /// 1. `IsDirectory`: `ino` is a directory.
    /// 2. `Invalid`: `ino` is not a regular file, or `range` is empty.
    /// 3. `NotSupported`: the driver cannot allocate space in advance for this file, or, with [`Size::Keep`], past the
    ///    end of the file.
    /// 4. `FileTooBig`: `range.end` exceeds `file_size_max`.
    /// 5. `NoSpace`: not enough blocks are free.
    fn allocate(&self, layout: &Layout<'_>, ino: Ino, range: Range<u64>, size: Size) -> Result<()>;

    /// Makes `range` read as zeros, with blocks allocated as by [`allocate`](Self::allocate). `range` must
    /// start at the start of a block. It must end at the end of a block, or at or past the end of the file.
    /// `size` has the same effect as in `allocate`.
    ///
    /// The call is a sequence of changes, as for `allocate`. During the call, and after a failure or a crash, each
    /// block is unchanged or reads as zeros.
    ///
    /// # Errors
    ///
    /// 1. `IsDirectory`: `ino` is a directory.
    /// 2. `Invalid`: `ino` is not a regular file, or `range` is empty, or `range` covers a part of a block
    ///    before the end of the file.
    /// 3. `NotSupported`: the driver cannot allocate space in advance.
    /// 4. `FileTooBig`: `range.end` exceeds `file_size_max`.
    /// 5. `NoSpace`: not enough blocks are free.
    fn zero_range(&self, layout: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>, size: Size)
    -> Result<()>;

    /// Removes `range` from the file. The data after `range` moves to `range.start`, and the size shrinks by the
    /// length of `range`.
    ///
    /// The change is atomic if the extents to move fit into one transaction. Otherwise, after a failure or a crash,
    /// the file has its old size, and a part of the following data has moved.
    ///
    /// A crash can undo moves that are not durable. `begin_write` waits until they are. A host that overwrites mapped
    /// blocks without `begin_write` must call `sync_file` first.
    ///
    /// # Errors
    ///
    /// 1. `IsDirectory`: `ino` is a directory.
    /// 2. `Invalid`: `ino` is not a regular file. Or: `range` is empty, covers a part of a block, or reaches
    ///    the end of the file (use `truncate` instead). With the feature `bigalloc` of ext4, `range` must
    ///    consist of whole clusters.
    /// 3. `NotSupported`: the driver cannot move data within a file.
    /// 4. `NoSpace`: the mapping of the file needs another block, and no block is free.
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
    /// 2. `Invalid`: `ino` is not a regular file. Or: `range` is empty, covers a part of a block, or starts
    ///    at or past the end of the file. With the feature `bigalloc` of ext4, `range` must consist of whole
    ///    clusters.
    /// 3. `NotSupported`: the driver cannot move data within a file.
    /// 4. `FileTooBig`: the new size exceeds `file_size_max`, or blocks past the end of the file would move past the
    ///    limit of the mapping.
    /// 5. `NoSpace`: the mapping of the file needs another block, and no block is free.
    fn insert(&self, layout: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()>;

    /// Returns the current time of the clock that the driver uses for timestamps. After `close`, the value is
    /// unspecified.
    fn now(&self) -> Timestamp;

    /// Returns once `ino`, its data and its names are on stable storage, as they were at the start of the
    /// call or later. This includes all data that `end_write` has published. If a parent directory was
    /// renamed since the last sync, the stable storage may still contain the old name of that directory.
    ///
    /// # Errors
    ///
    /// - The error that made the volume read-only, which usually is `Device`. Every later call returns the
    ///   same error.
    /// - `ReadOnly`: the volume was closed. A driver may also succeed, since nothing is left to write.
    fn sync_file(&self, ino: Ino) -> Result<()>;

    /// [Syncs](Self::sync_file) all `inos` in one call. A driver with a journal needs only one commit for all
    /// inodes.
    ///
    /// # Errors
    ///
    /// The error of [`sync_file`](Self::sync_file) for one of the inodes. Each of the inodes may then be on
    /// stable storage or not.
    fn sync_files(&self, inos: &[Ino]) -> Result<()> {
        inos.iter().try_for_each(|&ino| self.sync_file(ino))
    }

    /// Returns once all changes that were made before the call are on stable storage.
    ///
    /// # Errors
    ///
    /// As for [`sync_file`](Self::sync_file).
    fn sync(&self) -> Result<()>;

    /// Writes all changes to their final location on stable storage and marks the volume clean, like an
    /// unmount.
    ///
    /// The caller must ensure that no other change runs at the same time. The driver may free inodes without a name,
    /// even if they are in use. A later use of such an inode may then fail with `Stale`.
    ///
    /// After success, the volume can still be read, and [`FileSystem::writable`](crate::FileSystem::writable) returns
    /// `None`. After an error, `writable` may still return `Some`. A volume that is dropped without `close` is in the
    /// same state as after a crash.
    ///
    /// # Errors
    ///
    /// As for [`sync`](Self::sync). If an earlier error made the volume read-only, returns this error.
    fn close(&self) -> Result<()>;
}
