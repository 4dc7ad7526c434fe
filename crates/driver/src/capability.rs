//! Capabilities that some formats have.

use alloc::vec::Vec;

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
    /// - `NoData`: the inode has no such attribute.
    fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>>;

    /// Passes the name of every attribute to `sink`, in the order in which the format stores them. Omits the
    /// attributes that Linux hides from `listxattr(2)`.
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
    /// 6. `NoSpace`: the volume or the inode has no room.
    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()>;

    /// Removes the attribute `name`.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `NoData`: the inode has no such attribute.
    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()>;
}

/// The operation that discards the free space of a volume.
pub trait Trim: Send + Sync {
    /// Writes all changes to stable storage, then discards free ranges of the device that are at least
    /// `min_len` bytes long. Returns the number of discarded bytes. Free space cannot be allocated while it
    /// is being discarded.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `Device`: the device failed.
    /// 3. `Corrupt`: a part of the volume is damaged. The driver has processed the rest.
    fn trim(&self, min_len: u64) -> Result<u64>;
}

/// Renames that leave a whiteout, as `RENAME_WHITEOUT` of rename(2). Union file systems such as overlayfs
/// require them of their upper layer.
pub trait Whiteouts: Send + Sync {
    /// [Moves a name](crate::WritableFileSystem::rename), and gives the old name to a new inode with the attributes of
    /// `whiteout`, in one atomic change. The old name exists at every moment. If both names refer to the same inode,
    /// both stay and no inode is created.
    ///
    /// # Errors
    ///
    /// 1. `Invalid`: `flags` contain `EXCHANGE`.
    /// 2. The errors of [`rename`](crate::WritableFileSystem::rename).
    /// 3. `NoSpace`: no inode is free.
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
    /// Gives the volume another label, durably and in one atomic change. An empty label removes the label.
    /// [`FileSystem::info`](crate::FileSystem::info) returns the new label afterwards.
    ///
    /// # Errors
    ///
    /// 1. `Invalid`: the format cannot store the label.
    /// 2. `Device`: the device failed.
    fn set_label(&self, label: &[u8]) -> Result<()>;
}

/// Files without a name, as `O_TMPFILE` creates them (open(2)).
pub trait Nameless: Send + Sync {
    /// Creates a regular file with link count 0. Its attributes are those of a file that is created in `dir`.
    ///
    /// The caller must call `forget` once. If the file has no name by then, `forget` frees the file. If a crash
    /// occurs before the file has a name, the next open for writing frees the file.
    ///
    /// # Errors
    ///
    /// 1. `NotDirectory`: `dir` is not a directory.
    /// 2. `NotFound`: `dir` was removed.
    /// 3. `NoSpace`: no inode is free.
    fn create_nameless(&self, dir: Ino, node: &NewNode<'_>) -> Result<Attr>;

    /// Gives the file `ino`, whose link count is 0, a name.
    ///
    /// # Errors
    ///
    /// 1. `NotDirectory`: `dir` is not a directory.
    /// 2. `Invalid`: `ino` is a directory or has a name.
    /// 3. `NotFound`: `dir` was removed.
    /// 4. `Exists`: `name` exists in `dir`.
    /// 5. `NoSpace`: the directory cannot grow.
    fn name(&self, ino: Ino, dir: Ino, name: &Name) -> Result<Attr>;
}

/// Passing an open volume to another process, which continues to use it.
///
/// A driver offers this capability only if every inode number and generation has the same meaning in both processes.
pub trait Handover: Send + Sync {
    /// Writes all changes to their final place on stable storage. Frees no inode that is in use, and does not mark
    /// the volume clean. Returns the part of the driver's state that is not stored on the volume, for
    /// [`HandoverState::state`].
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
/// The process adds its changes to a redo log that survives it ([`OpenOptions::redo`](crate::OpenOptions::redo)). The
/// next process opens the volume with this log and [`OpenOptions::adopt`](crate::OpenOptions::adopt). It then finds all
/// published changes.
///
/// One thread at a time changes the volume, except for access times.
pub trait Failover: Send + Sync {
    /// Starts an operation that must not be divided. Its changes become durable only after [`publish`](Self::publish),
    /// which the thread calls next. The thread waits for no other thread that changes the volume.
    ///
    /// # Errors
    ///
    /// - `ReadOnly`: the volume cannot be changed.
    fn hold(&self) -> Result<()>;

    /// Adds all changes that were made before to the redo log, and ends the operation.
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

/// Operations on many files in one call, for drivers whose calls are expensive. For all other drivers, `vfs` performs
/// the same operations one by one.
pub trait Bulk: Send + Sync {
    /// Creates `files` in `dir`. For each file in turn, the effect is that of
    /// [`create`](crate::WritableFileSystem::create), `write` and `set_attr`. Returns one result per file, in the
    /// same order.
    ///
    /// If the creation of a file fails, that file does not exist afterwards. The failure does not affect the other
    /// files. The caller must not call `forget` for the created files.
    ///
    /// # Errors
    ///
    /// The result of a file is one of the errors of the three methods, or:
    ///
    /// - `ReadOnly`: the volume cannot be changed.
    /// - `Invalid`: the contents are longer than [`NEW_FILE_MAX`].
    fn create_files(&self, dir: Ino, files: &[NewFile<'_>]) -> Vec<Result<()>>;
}
