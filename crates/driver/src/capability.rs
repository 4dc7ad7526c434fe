//! Capabilities that some formats have.

use alloc::vec::Vec;

use obento_base::{Ino, Result};

use crate::XattrMode;

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
