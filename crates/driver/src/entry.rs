//! Directory entries, as a driver passes them to its caller.

use core::ops::ControlFlow;

use obento_base::{FileKind, Ino, Name, Result};

/// A position in a directory at which a listing can continue.
///
/// Invariant: a cookie is 0 only at the start of the directory, and is less than 2^63. A cookie stays valid
/// when entries are created or removed, including the entries before and after the position. On a volume that
/// can change, a cookie is therefore never an index into a list of the entries. Drivers use a hash or an
/// offset from the disk, a number that never changes for an entry (tmpfs), or the cookie of a server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Cookie(pub u64);

impl Cookie {
    /// The start of every directory.
    pub const START: Self = Self(0);
}

/// A directory entry. A driver never passes the entries `.` and `..`. A host that needs these entries creates
/// them from the directory and its [parent](crate::FileSystem::parent).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirEntry<'a> {
    /// Name of the entry.
    pub name: &'a Name,
    /// Inode that the name refers to.
    pub ino: Ino,
    /// Kind of the inode. `None` if the entry stores no valid kind; the caller then calls `getattr`.
    pub kind: Option<FileKind>,
    /// Position after this entry: a listing from here continues with the next entry.
    pub next: Cookie,
}

/// A function that receives the entries of a listing, one per call. The function returns `ControlFlow::Break` to
/// end the listing. If a block of the directory is damaged, the driver passes an `Err`, and then continues
/// with the entries that it can read.
pub type EntrySink<'s> = dyn FnMut(Result<DirEntry<'_>>) -> ControlFlow<()> + 's;
