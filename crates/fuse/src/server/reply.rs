//! The results of requests.

use obento_base::{Attr, Errno};

/// A result, or the number of an error.
pub(crate) type Reply<T> = Result<T, Errno>;

/// The inode that a name refers to.
pub(crate) struct Found {
    /// The node ID of the inode.
    pub(crate) id: u64,
    pub(crate) attr: Attr,
    /// Whether the kernel may cache the name.
    pub(crate) stays: bool,
}
