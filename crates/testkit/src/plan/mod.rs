//! Plans: operations on names and files, to be done to any volume, or to a folder of the host.

mod act;
mod bounded;
pub mod catalogue;
mod host;
mod random;
mod shrink;

use std::fmt;
use std::ops::Range;

use obento_base::FileKind;
use obento_driver::{RenameFlags, Size, XattrMode};

pub use act::Actor;
pub(crate) use act::{new_node, target};
pub use bounded::Bounds;
pub use host::act_on_host;
pub use random::{Limits, random, random_over};
pub use shrink::shrink;

/// What to do with a range of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Space {
    /// Take blocks for it.
    Allocate(Size),
    /// Make it zeros with blocks.
    Zero(Size),
    /// Make it a hole.
    Punch,
    /// Cut it out.
    Collapse,
    /// Put a hole before it.
    Insert,
}

/// One operation. Paths are relative to the root.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// A new inode of any kind but a symbolic link.
    Create(String, FileKind, u16),
    /// A symbolic link with a target of this length.
    Symlink(String, usize),
    /// The first gets the second for another name.
    Link(String, String),
    /// A regular file of the root that has no name and is kept open.
    Nameless,
    /// Writes so many bytes at an offset of the last of these.
    WriteNameless(u64, usize),
    /// Gives the last of these its first name, and closes it.
    Name(String),
    /// Removes a name that is not a directory's.
    Unlink(String),
    /// Removes an empty directory.
    Rmdir(String),
    /// Moves a name.
    Rename(String, String, RenameFlags),
    /// Writes so many bytes at an offset; which, the number of the operation says.
    Write(String, u64, usize),
    /// Writes so many bytes at the end: those that the operation would write at 0.
    Append(String, usize),
    /// Sets the size.
    Truncate(String, u64),
    /// Takes, gives back or moves space.
    Space(String, Space, Range<u64>),
    /// Sets an attribute to a value of this length.
    SetXattr(String, String, usize, XattrMode),
    /// Removes an attribute.
    RemoveXattr(String, String),
    /// Sets the permissions.
    Chmod(String, u16),
    /// Sets owner and group.
    Chown(String, u32, u32),
    /// Sets the time of the last change of the data, in seconds.
    Utime(String, i64),
    /// Sets both times to now, which who may write may do as well.
    Touch(String),
    /// Sets the flags that a user sets, to these bits.
    Flags(String, u32),
    /// The file and the names that lead to it are to survive.
    Fsync(String),
    /// Everything is to survive.
    Sync,
    /// Opens a file and keeps it open.
    Hold(String),
    /// Closes the files that are kept open, the last first.
    Release,
}

impl Op {
    /// The file whose bytes or size it changes in more than one step.
    pub fn changes_data_of(&self) -> Option<&str> {
        match self {
            Self::Write(path, ..)
            | Self::Append(path, ..)
            | Self::Truncate(path, ..)
            | Self::Space(path, ..) => Some(path),
            _ => None,
        }
    }
}

/// A list of operations with a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// What it is called: `rename-over`, `random-17`.
    pub name: String,
    /// What is done.
    pub ops: Vec<Op>,
    /// So many operations at the begin are durable before the rest, and the same in other plans: cuts during them are
    /// judged there.
    pub setup: usize,
}

impl Plan {
    /// A plan of `ops`.
    pub fn new(name: impl Into<String>, ops: impl IntoIterator<Item = Op>) -> Self {
        Self { name: name.into(), ops: ops.into_iter().collect(), setup: 0 }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:", self.name)?;
        self.ops.iter().enumerate().try_for_each(|(n, op)| writeln!(f, "  {n}: {op:?}"))
    }
}

/// The bytes that operation `number` writes at `at`: no other writes the same, and none are zeros.
pub fn bytes(number: usize, at: u64, len: usize) -> Vec<u8> {
    let end = at + len as u64;
    let words = at / 8..end.div_ceil(8);
    let word = |n: u64| {
        let mixed = (n.wrapping_add(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ (number as u64 + 1).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (mixed ^ mixed >> 29 | 0x0101_0101_0101_0101).to_le_bytes()
    };
    let all: Vec<u8> = words.flat_map(word).collect();
    let skip = (at % 8) as usize;
    all[skip..skip + len].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_tell_which_operation_wrote_them_and_where() {
        let all = bytes(3, 0, 100);
        assert_eq!(bytes(3, 37, 50), all[37..87]);
        assert!(bytes(4, 0, 100) != all && !all.contains(&0));
        assert!(all[..8] != all[8..16]);
    }
}
