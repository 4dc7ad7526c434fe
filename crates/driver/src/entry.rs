//! Entries of a directory, as a driver hands them up.

use core::ops::ControlFlow;

use obento_base::{FileKind, Ino, Name, Result};

/// A place in a directory from which a listing can go on.
///
/// Invariant: never 0 but for the start, below 2^63, and still right after other entries came and went: a hash or an
/// offset of the format, never an index into a list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Cookie(pub u64);

impl Cookie {
    /// The start of every directory.
    pub const START: Self = Self(0);
}

/// One entry. `.` and `..` are not entries: hosts that want them make them from the inode and its parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirEntry<'a> {
    /// The name.
    pub name: &'a Name,
    /// The inode it names.
    pub ino: Ino,
    /// Its kind, if the format keeps it in the entry and the value is a kind.
    pub kind: Option<FileKind>,
    /// Where a listing goes on after this entry.
    pub next: Cookie,
}

/// Takes the entries of a listing one by one and says whether it wants more. A damaged block is an `Err` among the
/// entries, after which the rest of the directory follows.
pub type EntrySink<'s> = dyn FnMut(Result<DirEntry<'_>>) -> ControlFlow<()> + 's;
