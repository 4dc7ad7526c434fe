//! Capabilities that some open volumes have.

use alloc::vec::Vec;
use core::ops::Range;

use obento_base::{Attr, Ino, Name, Result, Timestamp};

use crate::{NewNode, RenameFlags, XattrMode};

/// Extended attributes.
///
/// A name includes the namespace in the spelling of Linux: `user.note`, `security.capability`,
/// `system.posix_acl_access`. A value consists of the bytes that Linux returns from `getxattr(2)`. This includes the
/// values of access control lists.
pub trait Xattrs: Send + Sync {
    /// Returns the value of the attribute `name`.
    ///
    /// # Errors
    ///
    /// - `NotSupported`: the format does not support the namespace. Some drivers return `NoData` instead.
    /// - `NoData`: the inode has no such attribute.
    fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>>;

    /// Passes the name of every attribute to `sink`, including the namespace. The names are in the order in
    /// which the format stores the attributes. Omits the attributes that Linux hides from `listxattr(2)`. If
    /// the call fails, `sink` may have received some of the names. `sink` must not call the file system,
    /// since the driver may hold locks.
    fn list_xattrs(&self, ino: Ino, sink: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// Sets the attribute `name`.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `NotSupported`: the format does not support the namespace.
    /// 3. `Exists`: the attribute exists and `mode` is [`XattrMode::Create`].
    /// 4. `NoData`: the attribute does not exist and `mode` is [`XattrMode::Replace`].
    /// 5. `OutOfRange`: the name or the value is too long.
    /// 6. `Invalid`: the value is not a valid access control list, if the format converts such lists (ext4).
    /// 7. `NoSpace`: the volume or the inode has too little free space for the attribute.
    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()>;

    /// Removes the attribute `name`.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `NotSupported`: as for [`get_xattr`](Self::get_xattr).
    /// 3. `NoData`: the inode has no such attribute.
    /// 4. `NoSpace`: several inodes share a block of attributes, and no block is free for a copy.
    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()>;
}

/// The operation that discards the free space of a volume.
pub trait Trim: Send + Sync {
    /// Writes all changes to stable storage, then discards the free ranges of the device that are at least
    /// `min_len` bytes long. Returns the number of discarded bytes. Other threads may change the volume
    /// during the call: the driver allocates no block of a range while it discards the range.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `Device`: the device failed.
    /// 3. `NotSupported`: the kernel cannot discard the free space of volumes of this type (kernel engine).
    /// 4. `Corrupt`: a part of the volume is damaged. The driver has discarded the free ranges of all other parts.
    fn trim(&self, min_len: u64) -> Result<u64> {
        self.trim_within(0..u64::MAX, min_len)
    }

    /// Does the same as [`trim`](Self::trim), but only for the free blocks that are completely within
    /// `range`. The range is in bytes of the device.
    ///
    /// # Errors
    ///
    /// 1. `NotSupported`: the driver can discard only the free space of the whole volume, and `range` is not
    ///    `0..u64::MAX` (kernel engine).
    /// 2. The errors of [`trim`](Self::trim).
    fn trim_within(&self, range: Range<u64>, min_len: u64) -> Result<u64>;
}

/// Divides `place` into units of `unit` bytes. The first unit starts at the start of `place`, and the last
/// unit may be shorter. Returns the units that are completely within `range`, as one range.
pub fn whole_units(place: &Range<u64>, range: &Range<u64>, unit: u64) -> Range<u64> {
    let skipped = range.start.saturating_sub(place.start).checked_next_multiple_of(unit).unwrap_or(u64::MAX);
    let start = place.start.saturating_add(skipped).min(place.end);
    let end = range.end.min(place.end).max(start);
    let len = end.saturating_sub(start);
    // The last unit of a place may be shorter.
    let cut = if end == place.end { 0 } else { len.checked_rem(unit).unwrap_or(0) };
    start..end.saturating_sub(cut)
}

/// Renames that leave a whiteout, as `RENAME_WHITEOUT` of rename(2) does. A union file system such as overlayfs uses
/// these renames on its upper layer.
pub trait Whiteouts: Send + Sync {
    /// [Moves a name](crate::WritableFileSystem::rename), and gives the old name to a new inode with the
    /// attributes of `whiteout`, in one atomic change. The old name exists at every moment. The new inode is
    /// not in use after the call. If both names refer to the same inode, the call changes nothing and creates
    /// no inode.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `Invalid`: `flags` contain `EXCHANGE`.
    /// 3. The errors of [`rename`](crate::WritableFileSystem::rename).
    /// 4. `NoSpace`: no inode is free.
    fn rename_leaving(
        &self,
        from: Ino,
        name: &Name,
        to: Ino,
        new_name: &Name,
        flags: RenameFlags,
        whiteout: &NewNode<'_>,
    ) -> Result<()>;
}

/// Volumes whose label can change while they are in use, as `FS_IOC_SETFSLABEL` does (ioctl_setfslabel(2)).
pub trait Relabel: Send + Sync {
    /// Sets the label in one atomic change. The new label is on stable storage when the call returns. An
    /// empty label removes the existing label.
    /// [`FileSystem::info`](crate::FileSystem::info) returns the new label afterwards.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `Invalid`: the format cannot store the label.
    /// 3. `Device`: the device failed.
    fn set_label(&self, label: &[u8]) -> Result<()>;
}

/// Files without a name, as `O_TMPFILE` creates them (open(2)).
pub trait Nameless: Send + Sync {
    /// Creates a regular file with link count 0. Returns its attributes. `node.kind` must be `Regular`. The
    /// file inherits the same flags from `dir` as a file that [`create`](crate::WritableFileSystem::create)
    /// creates in `dir`.
    ///
    /// After success, the inode is in use: the caller must call `forget` after its last use. If the file then
    /// has no name, `forget` frees the file. If a crash occurs before the file has a name, the next open for
    /// writing frees the file.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `NotDirectory`: `dir` is not a directory.
    /// 3. `NotFound`: `dir` was removed.
    /// 4. `NoSpace`: no inode is free.
    fn create_nameless(&self, dir: Ino, node: &NewNode<'_>) -> Result<Attr>;

    /// Gives the file `ino`, which must have link count 0, the name `name` in `dir`. Returns the new
    /// attributes of the file.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `NotDirectory`: `dir` is not a directory.
    /// 3. `Invalid`: `ino` is a directory or has a name.
    /// 4. `NotFound`: `dir` was removed.
    /// 5. `Exists`: `name` exists in `dir`.
    /// 6. `CrossDevice`: `dir` requires the project of its entries (`PROJECT_INHERIT`), and `ino` has another project.
    /// 7. `NoSpace`: the directory cannot grow.
    fn name(&self, ino: Ino, dir: Ino, name: &Name) -> Result<Attr>;
}

/// Passing an open volume to another process, which uses the volume from then on.
///
/// A driver offers this capability only if every inode number and generation has the same meaning in both processes.
pub trait Handover: Send + Sync {
    /// Writes all changes to their final location on stable storage. Frees no inode that is in use, and does
    /// not mark the volume clean. Returns the part of the driver's state that is not stored on the volume,
    /// for [`HandoverState::state`].
    ///
    /// The volume remains usable. Another process may open the volume with
    /// [`OpenOptions::adopt`](crate::OpenOptions::adopt). If this process makes no change before then, the other
    /// process finds the same files, including files without a name.
    ///
    /// [`HandoverState::state`]: crate::HandoverState::state
    ///
    /// # Errors
    ///
    /// As for [`sync`](crate::WritableFileSystem::sync).
    fn prepare(&self) -> Result<Vec<u8>>;
}

/// Continuing to use a volume after the failure of the process that had it open.
///
/// The driver adds every published change to a redo log that is stored outside of the process
/// ([`OpenOptions::redo`](crate::OpenOptions::redo)). The next process opens the volume with this log and
/// [`OpenOptions::adopt`](crate::OpenOptions::adopt), and then finds all published changes.
///
/// The caller must ensure that at most one thread changes the volume at a time. Changes of access times are exempt.
pub trait Failover: Send + Sync {
    /// Starts an operation whose changes must become durable together. The changes become durable only after
    /// [`publish`](Self::publish). The thread that called `hold` must call `publish` when the operation has ended.
    /// Until then, this thread must not wait for another thread that changes the volume.
    ///
    /// # Errors
    ///
    /// - `ReadOnly`: the volume cannot be changed.
    fn hold(&self) -> Result<()>;

    /// Adds all earlier changes to the redo log. If [`hold`](Self::hold) started an operation, ends that operation.
    ///
    /// # Errors
    ///
    /// 1. The error that made the volume read-only.
    /// 2. The errors of [`RedoLog::append`](obento_block::RedoLog::append).
    fn publish(&self) -> Result<()>;
}

/// Maximum length of the contents of a [`NewFile`] in bytes.
pub const NEW_FILE_MAX: usize = 1 << 20;

/// A new regular file with its contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewFile<'a> {
    /// Name of the file.
    pub name: &'a Name,
    /// Attributes of the file. Its kind is `Regular`.
    pub node: NewNode<'a>,
    /// Contents of the file, at most [`NEW_FILE_MAX`] bytes.
    pub bytes: &'a [u8],
    /// Access time; `None` uses the clock of the driver.
    pub atime: Option<Timestamp>,
    /// Modification time; `None` uses the clock of the driver.
    pub mtime: Option<Timestamp>,
}

/// Operations on many files in one call, for drivers whose calls are expensive. For all other drivers, `vfs` calls the
/// driver once for each operation.
pub trait Bulk: Send + Sync {
    /// Creates `files` in `dir`. For each file in turn, the effect is that of
    /// [`create`](crate::WritableFileSystem::create), `write` and `set_attr`. Returns one result per file, in the
    /// same order.
    ///
    /// If the creation of a file fails, that file does not exist afterwards. The failure does not affect the
    /// other files. The created files are not in use after the call.
    ///
    /// # Errors
    ///
    /// The result of a file is one of the errors of the three methods, or:
    ///
    /// - `ReadOnly`: the volume cannot be changed.
    /// - `Invalid`: the contents are longer than [`NEW_FILE_MAX`].
    fn create_files(&self, dir: Ino, files: &[NewFile<'_>]) -> Vec<Result<()>>;
}
