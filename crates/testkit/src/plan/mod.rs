//! Plans: sequences of operations on names and files, for any volume and for a folder of the host.

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
pub use host::{HostActor, act_on_host};
pub use random::{Limits, random, random_over};
pub use shrink::shrink;

/// An operation on a range of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Space {
    /// Allocate blocks.
    Allocate(Size),
    /// Zero the range with allocated blocks.
    Zero(Size),
    /// Turn the range into a hole.
    Punch,
    /// Remove the range.
    Collapse,
    /// Insert a hole before the range.
    Insert,
}

/// One operation. Paths are relative to the root.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// Creates an inode of any kind except a symbolic link.
    Create(String, FileKind, u16),
    /// Creates a symbolic link with a target of this length.
    Symlink(String, usize),
    /// Creates the second name for the file with the first name.
    Link(String, String),
    /// Creates a regular file of user 0 without a name, and keeps it open.
    Nameless,
    /// Writes this number of bytes at an offset of the last file without a name.
    WriteNameless(u64, usize),
    /// Gives the last file without a name its first name, and closes it.
    Name(String),
    /// Removes the name of a file that is not a directory.
    Unlink(String),
    /// Removes an empty directory.
    Rmdir(String),
    /// Renames a file.
    Rename(String, String, RenameFlags),
    /// Writes this number of bytes at an offset. The number of the operation determines the bytes.
    Write(String, u64, usize),
    /// Appends this number of bytes: those that the operation would write at 0.
    Append(String, usize),
    /// Sets the size.
    Truncate(String, u64),
    /// Allocates, frees or moves space.
    Space(String, Space, Range<u64>),
    /// Sets an attribute to a value of this length.
    SetXattr(String, String, usize, XattrMode),
    /// Removes an attribute.
    RemoveXattr(String, String),
    /// Sets the permissions.
    Chmod(String, u16),
    /// Sets owner and group.
    Chown(String, u32, u32),
    /// Sets the time of the last change of data, in seconds.
    Utime(String, i64),
    /// Sets both times to now, as a caller who may write can do.
    Touch(String),
    /// Sets the flags that a user can set, to these bits.
    Flags(String, u32),
    /// Syncs the file, and the names that refer to it.
    Fsync(String),
    /// Syncs everything.
    Sync,
    /// Opens a file and keeps it open.
    Hold(String),
    /// Closes the open files, the last one first.
    Release,
}

impl Op {
    /// Returns the file whose data or size the operation changes in more than one step.
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
    /// The name: `rename-over`, `random-17`.
    pub name: String,
    /// The operations.
    pub ops: Vec<Op>,
    /// The number of operations at the start that are durable before the rest. They are the same in other plans, which
    /// test power failures during them.
    pub setup: usize,
}

impl Plan {
    /// Returns a plan of `ops`.
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

/// Returns the bytes that operation `number` writes at `at`. No other operation writes the same bytes, and none are
/// zeros.
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
    fn bytes_identify_the_operation_that_wrote_them_and_their_place() {
        let all = bytes(3, 0, 100);
        assert_eq!(bytes(3, 37, 50), all[37..87]);
        assert!(bytes(4, 0, 100) != all && !all.contains(&0));
        assert!(all[..8] != all[8..16]);
    }
}
