//! Capabilities that some formats have.

use alloc::vec::Vec;

use obento_base::{Attr, Ino, Name, Result, Timestamp};

use crate::{NewNode, XattrMode};

/// Extended attributes. Names carry their name space as Linux spells it: `user.note`, `security.capability`,
/// `system.posix_acl_access`; values are the bytes that Linux's `getxattr(2)` gives, ACLs included.
pub trait Xattrs: Send + Sync {
    /// The value of attribute `name`. Errors: NoData.
    fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>>;

    /// Hands the name of every attribute to `sink`, in the format's order. An attribute whose name the format
    /// stores but Linux would not list is left out.
    fn list_xattrs(&self, ino: Ino, sink: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// Sets attribute `name`. Errors, the first that holds: ReadOnly; NotSupported for a name space the format
    /// lacks; Exists or NoData as `mode` asks; OutOfRange for a name or value too long; NoSpace.
    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()>;

    /// Removes attribute `name`. Errors, the first that holds: ReadOnly; NoData.
    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()>;
}

/// Telling the device what it need not keep.
pub trait Trim: Send + Sync {
    /// Brings all changes to stable storage, and discards what is free on the device in runs of at least `min_len`
    /// bytes. Answers how many bytes it was. Errors, the first that holds: ReadOnly; those of the device; Corrupt for
    /// damaged parts of the volume, after the rest was done. What is free cannot be had for moments meanwhile.
    fn trim(&self, min_len: u64) -> Result<u64>;
}

/// Files that have no name yet, as `O_TMPFILE` makes them (open(2)).
pub trait Nameless: Send + Sync {
    /// Makes a regular file with link count 0, as a file of `dir` but for the name. Errors, the first that holds:
    /// NotDirectory; NotFound if `dir` was removed; NoSpace. The caller owes one `forget`, with which it is free, as after
    /// a crash, unless it got a name before.
    fn create_nameless(&self, dir: Ino, node: &NewNode<'_>) -> Result<Attr>;

    /// Gives `ino`, whose link count is 0, a name. Errors, the first that holds: NotDirectory; Invalid if `ino` is a
    /// directory or has a name; NotFound if `dir` was removed; Exists; NoSpace.
    fn name(&self, ino: Ino, dir: Ino, name: &Name) -> Result<Attr>;
}

/// The most bytes of a [`NewFile`].
pub const NEW_FILE_MAX: usize = 1 << 20;

/// A new regular file, with all that is in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewFile<'a> {
    /// Its name.
    pub name: &'a Name,
    /// What it is, of kind `Regular`.
    pub node: NewNode<'a>,
    /// Its bytes, at most [`NEW_FILE_MAX`].
    pub bytes: &'a [u8],
    /// When it was read last; `None` for the driver's clock.
    pub atime: Option<Timestamp>,
    /// When it was written last; `None` for the driver's clock.
    pub mtime: Option<Timestamp>,
}

/// Many files in one call, for drivers to which a call is dear. `vfs` does the same one by one where there is none.
pub trait Bulk: Send + Sync {
    /// Makes `files` in `dir`, as [`create`](crate::WritableFileSystem::create), `write` and `set_attr` would one after the other,
    /// and answers for each in this order. One that cannot be made wholly is not there, and the others are. Errors of each: those
    /// of the three; ReadOnly; Invalid for one that is too long. Nobody owes a `forget` for them.
    fn create_files(&self, dir: Ino, files: &[NewFile<'_>]) -> Vec<Result<()>>;
}
