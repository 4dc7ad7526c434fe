//! Capabilities that some formats have.

use alloc::vec::Vec;

use obento_base::{Attr, Ino, Name, Result, Timestamp};

use crate::{NewNode, XattrMode};

/// Extended attributes. Names include the namespace in Linux spelling: `user.note`, `security.capability`,
/// `system.posix_acl_access`. Values are the bytes that Linux returns from `getxattr(2)`, also for access
/// control lists.
pub trait Xattrs: Send + Sync {
    /// Returns the value of the attribute `name`.
    ///
    /// # Errors
    ///
    /// - `NoData`: the inode has no such attribute.
    fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>>;

    /// Passes the name of every attribute to `sink`, in the order of the format. Attributes that Linux does
    /// not list are omitted.
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

/// Discarding the free space of a volume.
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

/// Files without a name, as `O_TMPFILE` creates them (open(2)).
pub trait Nameless: Send + Sync {
    /// Creates a regular file with link count 0. Its attributes are those of a file created in `dir`. The
    /// caller must call `forget` once; unless the file has been named by then, that frees the file. A crash
    /// also frees it.
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

/// Operations on many files in one call, for drivers where a call is expensive. For other drivers, `vfs`
/// performs the same operations one by one.
pub trait Bulk: Send + Sync {
    /// Creates `files` in `dir`, with the effect of [`create`](crate::WritableFileSystem::create), `write`
    /// and `set_attr` for each file in turn. Returns one result per file, in the same order. A file whose
    /// creation fails does not exist afterwards; the other files do. No `forget` is due for the created
    /// files.
    ///
    /// # Errors
    ///
    /// Each result has the errors of the three methods, `ReadOnly`, or `Invalid` if the contents are too
    /// long.
    fn create_files(&self, dir: Ino, files: &[NewFile<'_>]) -> Vec<Result<()>>;
}
