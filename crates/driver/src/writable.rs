//! Changes to a volume.
//!
//! The driver stamps `mtime` and `ctime` from the clock it was opened with; `vfs` stamps `atime` by `set_attr`, and tells
//! `end_write` the moment of a write that it delayed.
//! Permissions, `NameTooLong`, the order of renames and "no directory below itself" are decided by `vfs`, above.

use core::ops::Range;

use bitflags::bitflags;
use obento_base::{
    Attr, DeviceNumber, Error, FileFlags, FileKind, Generation, Ino, Mode, Name, Result, Timestamp,
};

use crate::{ExclusiveLayout, Extent, Layout};

/// What a new inode is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewNode<'a> {
    /// Its kind.
    pub kind: FileKind,
    /// Permission bits, after the caller's umask.
    pub mode: Mode,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The number of a device node; ignored for other kinds.
    pub rdev: DeviceNumber,
    /// The target of a symbolic link; empty for other kinds.
    pub target: &'a [u8],
}

impl NewNode<'_> {
    /// The attributes of such an inode without a name and without a byte, for a format that keeps all of them.
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

/// What a new inode gets of its directory's flags, unless the format says something else: Linux `SHMEM_FL_INHERITED`.
pub const INHERITED: FileFlags = FileFlags::NO_DUMP.union(FileFlags::NO_ATIME);

/// A new value for a timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeChange {
    /// The driver's clock.
    Now,
    /// This moment, cut to the format's granularity. One before the first that the format holds, or after the last, is
    /// OutOfRange, or becomes the nearest, as Linux has it for FAT.
    At(Timestamp),
}

impl TimeChange {
    /// The moment that it says.
    pub fn moment(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Now => now,
            Self::At(moment) => moment,
        }
    }

    /// Notes in `attr` a change of the data that was made then, since when the attributes may have changed.
    pub fn touch_data(self, attr: &mut Attr, now: Timestamp) {
        let Self::At(moment) = self else { return attr.touch_data(now) };
        attr.touch(moment.max(attr.ctime));
        attr.mtime = moment;
    }
}

/// Which attributes to change; `None` leaves one as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<Mode>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub atime: Option<TimeChange>,
    /// Last change of the data.
    pub mtime: Option<TimeChange>,
    /// Last change; for tools that restore a tree, otherwise the driver's clock.
    pub ctime: Option<TimeChange>,
    /// Creation. Left as it is where the format has no such time, or none that can be set.
    pub btime: Option<TimeChange>,
    /// Per-file flags; those that the format computes itself are ignored.
    pub flags: Option<FileFlags>,
    /// Project for quotas. Any but 0 is NotSupported where there are none.
    pub project: Option<u32>,
}

impl SetAttr {
    /// Changes `attr` so, and stamps the change, for a format that keeps all of it.
    pub fn apply(&self, attr: &mut Attr, now: Timestamp) {
        // Reading a file is no change of it.
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

    /// For a format without projects. Errors: NotSupported for any but 0.
    pub fn expect_no_project(&self) -> Result<()> {
        if self.project.unwrap_or(0) == 0 { Ok(()) } else { Err(Error::NotSupported) }
    }
}

bitflags! {
    /// How `rename` treats what stands at the new name; the two exclude each other.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct RenameFlags: u32 {
        /// Exists if anything does.
        const NO_REPLACE = 1;
        /// The two names change places.
        const EXCHANGE = 2;
    }
}

/// Whether the size of a file moves when space is taken past its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// It stays.
    Keep,
    /// It becomes the end of the range, if that is more.
    Grow,
}

impl Size {
    /// The size of a file of `size` bytes once space was taken for `range`.
    pub fn after(self, size: u64, range: &Range<u64>) -> u64 {
        match self {
            Self::Keep => size,
            Self::Grow => size.max(range.end),
        }
    }
}

/// Whether an attribute may, must or must not exist before it is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XattrMode {
    /// Either.
    Set,
    /// Exists if it does.
    Create,
    /// NoData if it does not.
    Replace,
}

/// What may lose a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Victim {
    /// Anything but a directory.
    File,
    /// An empty directory.
    EmptyDirectory,
}

/// Whether anybody uses an inode that is about to lose a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Usage {
    /// Somebody does, and owes its `forget`.
    Used,
    /// Nobody does, nor will before the call comes back; the last `forget` came back, too.
    Unused,
}

/// Is asked about the inode that a name leads to, before it loses the name. Its error refuses that, and is what the call
/// answers. It calls no driver, because the one that asks may hold locks.
pub type AskUsage<'a> = dyn FnMut(&Attr) -> Result<Usage> + 'a;

/// A volume that is open for changes.
///
/// Each call is one change: it is there wholly or not at all, also after a crash, unless its documentation says
/// otherwise. Any of them can also answer `ReadOnly`, once the volume turned read-only after a write error or was closed.
/// One that answers NotSupported for every file (of those that take or move space) need not look at a range first.
pub trait WritableFileSystem: Send + Sync {
    /// Makes an inode and names it in `dir`. Errors, the first that holds: NotDirectory; NotFound if `dir` was
    /// removed; Exists; Invalid for an empty target; NameTooLong for a target over `symlink_max`; OutOfRange for an
    /// owner that the format cannot hold; TooManyLinks for a directory; NoSpace. The caller owes one `forget`. A directory starts with link count 2 and counts in `dir`'s.
    /// Of `dir`'s flags a file and a directory get `NO_DUMP` and `NO_ATIME`, where the format has them, and what else it
    /// hands on.
    fn create(&self, dir: Ino, name: &Name, node: &NewNode<'_>) -> Result<Attr>;

    /// Gives `ino` another name. Errors, the first that holds: NotDirectory; NotPermitted if `ino` is a directory;
    /// NotFound if `dir` was removed or `ino` has no name left; Exists; TooManyLinks; NoSpace.
    fn link(&self, ino: Ino, dir: Ino, name: &Name) -> Result<Attr>;

    /// Removes a name, having asked `ask` once it is known to which inode it leads. Errors, the first that holds:
    /// NotDirectory for `dir`; NotFound; those of `ask`; IsDirectory for [`Victim::File`]; NotDirectory and NotEmpty for
    /// [`Victim::EmptyDirectory`]. Afterwards `lookup(dir, name)` is NotFound, the link count is one less, and nothing can be
    /// created in what was a directory. An inode in use still reads and writes until its `forget`; one that nobody uses
    /// and that has no other name is free, as after `forget`.
    fn remove(&self, dir: Ino, name: &Name, victim: Victim, ask: &mut AskUsage<'_>) -> Result<()>;

    /// [`remove`](Self::remove) of a file that the caller has looked up, so that it owes the `forget`.
    fn unlink(&self, dir: Ino, name: &Name) -> Result<()> {
        self.remove(dir, name, Victim::File, &mut |_| Ok(Usage::Used))
    }

    /// [`remove`](Self::remove) of a directory that the caller has looked up, so that it owes the `forget`.
    fn rmdir(&self, dir: Ino, name: &Name) -> Result<()> {
        self.remove(dir, name, Victim::EmptyDirectory, &mut |_| Ok(Usage::Used))
    }

    /// Moves a name. Errors, the first that holds: Invalid for both flags at once; NotDirectory; NotFound;
    /// with `NO_REPLACE`, Exists; with `EXCHANGE`, NotFound for the new name; IsDirectory when a directory would be
    /// replaced by something else; NotDirectory the other way round; NotEmpty; TooManyLinks; NoSpace. Two names of
    /// one inode are left as they are. A directory that moves gets its new parent. What is replaced is removed as by
    /// `unlink` or `rmdir`.
    fn rename(&self, from: Ino, name: &Name, to: Ino, new_name: &Name, flags: RenameFlags) -> Result<()>;

    /// Changes attributes, all or none. Answers what they are now. Errors: OutOfRange for a time or owner the format
    /// cannot hold; NotSupported for a project where there are none.
    fn set_attr(&self, ino: Ino, change: &SetAttr) -> Result<Attr>;

    /// Sets the size, at once however much that frees. Bytes past it are gone; nothing is allocated. If the file grows again they read as zeros, but
    /// for the rest of a last block that is mapped: whoever lets a file grow zeroes it first. Errors, the first that
    /// holds: IsDirectory; Invalid for what is no regular file; FileTooBig.
    fn truncate(&self, layout: &ExclusiveLayout<'_>, ino: Ino, size: u64) -> Result<()>;

    /// Where to write the bytes from `range.start` on: one run that starts there, `Mapped`, or `Driver` which means
    /// [`write`](Self::write). Only reserves: until `end_write`, a reader and a crash see the old contents. A block that
    /// was a hole or unwritten holds anything: the caller zeroes what of it `range` leaves out, so it asks for whole
    /// blocks. Errors, the first that holds: IsDirectory; Invalid, also for an empty range; FileTooBig if `range.end`
    /// is past `file_size_max` rounded up to a block; NoSpace if not even the first block can be had.
    fn map_for_write(&self, layout: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent>;

    /// Publishes what was written through `map_for_write`, after the I/O came back: every block that `written`
    /// touches. Moves the size up to `written.end`. If it fails, what was reserved for them is given back. `mtime` becomes
    /// `when`, which is a moment of [`now`](Self::now) if the bytes were taken before; so does `ctime`, unless it is later.
    fn end_write(&self, layout: &Layout<'_>, ino: Ino, written: Range<u64>, when: TimeChange) -> Result<()>;

    /// Gives back what `map_for_write` reserved and nobody wrote.
    fn abandon(&self, layout: &Layout<'_>, ino: Ino, range: Range<u64>);

    /// Writes bytes that `map_for_write` called `Driver`, or `map` all of them; zeroes what it must, moves the size up to
    /// their end, and answers how many of them, at least one unless there are none. Errors: as `map_for_write`.
    fn write(&self, layout: &Layout<'_>, ino: Ino, offset: u64, bytes: &[u8]) -> Result<usize>;

    /// Makes `range`, which is whole blocks or reaches the end of the file, a hole within the unchanged size. Errors,
    /// the first that holds: IsDirectory; Invalid for what is no regular file, and for parts of blocks; NotSupported.
    /// One change where it has no more pieces than a transaction holds; else a row of them: meanwhile, and after a
    /// failure or a crash, each block is as it was or a hole.
    fn punch(&self, layout: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()>;

    /// Sees to it that every block which `range` touches is there: what was a hole reads as zeros and can be written
    /// without asking for space. Not one change but a row of them: after NoSpace or a crash a part may be there, and the
    /// size moves last. Errors, the first that holds: IsDirectory; Invalid for what is no regular file, and for an empty
    /// range; NotSupported; FileTooBig if `range.end` is past `file_size_max`; NoSpace. With [`Size::Grow`] the caller
    /// has zeroed the rest of the old last block.
    fn allocate(&self, layout: &Layout<'_>, ino: Ino, range: Range<u64>, size: Size) -> Result<()>;

    /// Makes `range`, which is whole blocks or reaches the end of the file, read as zeros, with blocks that are there as
    /// after [`allocate`](Self::allocate). A row of changes, like it; meanwhile and after a failure each block is as it
    /// was or zeros. Errors, the first that holds: IsDirectory; Invalid for what is no regular file, for an empty range
    /// and for parts of blocks; NotSupported; FileTooBig as with `allocate`; NoSpace.
    fn zero_range(&self, layout: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>, size: Size)
    -> Result<()>;

    /// Cuts `range` out of the file: what follows moves down and the size shrinks by its length. Errors, the first that
    /// holds: IsDirectory; Invalid for what is no regular file, for an empty range, for parts of blocks, and if `range`
    /// reaches the end of the file (that is `truncate`); NotSupported. One change where no more pieces move than a
    /// transaction holds; else, if it fails midway or a crash ends it, the size is the old one and a part of what
    /// follows has moved.
    fn collapse(&self, layout: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()>;

    /// Puts a hole of `range`'s length at its start: what was there and behind it moves up and the size grows. Errors, the
    /// first that holds: IsDirectory; Invalid for what is no regular file, for an empty range, for parts of blocks, and if
    /// `range` starts at or past the end of the file; NotSupported; FileTooBig; NoSpace. One change where no more
    /// pieces move than a transaction holds; else, if it fails midway or a crash ends it, the size is the new one and a
    /// part of what follows has moved.
    fn insert(&self, layout: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()>;

    /// The time by the clock that changes are stamped by.
    fn now(&self) -> Timestamp;

    /// Returns once `ino`, its data and its own names are on stable storage; what a directory above it came to be called
    /// since may not be. Reports a write error to
    /// every caller after it.
    fn sync_file(&self, ino: Ino) -> Result<()>;

    /// [`sync_file`](Self::sync_file) for all of `inos`, for many who wait at once: a journal does it by one commit. Errors:
    /// one of theirs; then any may be on stable storage or not.
    fn sync_files(&self, inos: &[Ino]) -> Result<()> {
        inos.iter().try_for_each(|&ino| self.sync_file(ino))
    }

    /// Returns once every change so far is on stable storage.
    fn sync(&self) -> Result<()>;

    /// Brings every change to where it belongs on stable storage and marks the volume clean, as an unmount does.
    /// Afterwards the volume still reads, and [`FileSystem::writable`](crate::FileSystem::writable) is `None`. A volume that
    /// is dropped without it is as after a crash. No other change may run meanwhile; what has no name any more may be
    /// gone afterwards, even if it was in use. Errors: those that `sync` tells.
    fn close(&self) -> Result<()>;
}
