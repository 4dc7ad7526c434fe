//! Directory entries, as a driver passes them to its caller.

use core::ops::ControlFlow;

use obento_base::{FileKind, Ino, Name, Result};

/// A position in a directory at which a listing can continue.
///
/// Invariant: a cookie is 0 only at the start of the directory, and is less than 2^63. A cookie stays valid when
/// other entries are created or removed. The format defines a cookie as a hash or an offset; a cookie is never an
/// index into a list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Cookie(pub u64);

impl Cookie {
    /// The start of every directory.
    pub const START: Self = Self(0);
}

/// A directory entry. `.` and `..` are not entries. A host that needs them creates them from the inode and its
/// parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirEntry<'a> {
    /// Name of the entry.
    pub name: &'a Name,
    /// Inode that the name refers to.
    pub ino: Ino,
    /// Kind of the inode, if the entry stores a valid kind.
    pub kind: Option<FileKind>,
    /// Position of the next entry.
    pub next: Cookie,
}

/// A function that receives the entries of a listing one by one. It returns `ControlFlow::Break` to end the listing.
/// A damaged block is passed as an `Err`; the rest of the directory follows.
pub type EntrySink<'s> = dyn FnMut(Result<DirEntry<'_>>) -> ControlFlow<()> + 's;
