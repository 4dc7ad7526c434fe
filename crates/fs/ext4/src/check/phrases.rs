//! The parts of messages that depend on the values of an issue.

use alloc::format;
use alloc::string::String;

use obento_base::Quantity;
use obento_driver::escaped_name;

use super::reason::HeaderField;
use crate::map::check::MAGIC;

/// Returns a name in quotes, with control characters escaped.
pub(super) fn shown(name: &[u8]) -> String {
    format!("'{}'", escaped_name(name))
}

/// Returns a mode as `ls` and `chmod` write it: octal with a leading 0.
pub(super) fn octal(mode: u16) -> String {
    if mode == 0 { "0".into() } else { format!("0{mode:o}") }
}

/// Returns the number of transactions that must be replayed, in a sentence.
pub(super) fn to_replay(transactions: u64) -> String {
    match transactions {
        0 => "the journal is marked for replay, but contains no transactions".into(),
        _ => format!("the journal contains {} to replay", Quantity::new(transactions, "transaction")),
    }
}

/// Returns the name of a node of an extent tree. The root is in the inode and has block 0.
pub(super) fn extent_node(block: u64) -> String {
    if block == 0 { "the extent node in the inode".into() } else { format!("extent node {block}") }
}

/// Returns a field of the header of an extent node, with the correct value if it is fixed.
pub(super) fn header_value(field: HeaderField, found: u64) -> String {
    match field {
        HeaderField::Magic => format!("{found:#x}, expected {MAGIC:#x}"),
        HeaderField::Depth | HeaderField::Entries | HeaderField::Max => format!("{found}"),
    }
}

/// Returns how an entry of `dir` refers to `found`, which no name may refer to.
pub(super) fn refers(dir: u32, found: u32) -> String {
    if found == dir {
        "refers to the directory itself".into()
    } else {
        format!("refers to the invalid inode {found}")
    }
}

/// Returns the name of a file type in a directory entry.
pub(super) fn kind(code: u8) -> String {
    let name = match code {
        1 => "regular file",
        2 => "directory",
        3 => "character device",
        4 => "block device",
        5 => "FIFO",
        6 => "socket",
        7 => "symbolic link",
        _ => return format!("{code}"),
    };
    name.into()
}

/// Returns a Linux error number, which is stored as a negative number.
pub(super) fn negated(errno: u32) -> i32 {
    errno.cast_signed().wrapping_neg()
}

/// Returns the meaning of the bits of `len` blocks or inodes, for the text after their numbers.
pub(super) fn marked(len: u64, stored: u8) -> &'static str {
    match (len == 1, stored == 0) {
        (true, true) => "is marked free, but is in use",
        (true, false) => "is marked in use, but is free",
        (false, true) => "are marked free, but are in use",
        (false, false) => "are marked in use, but are free",
    }
}

/// Formats the parent of a directory: nothing if it has none.
pub(super) fn of_parent(parent: u32) -> String {
    if parent == 0 { String::new() } else { format!(" (parent {parent})") }
}

/// Formats a run: `block 5`, `2 blocks from 5 on`.
pub(super) fn run(thing: &str, first: u64, len: u64) -> String {
    if len == 1 { format!("{thing} {first}") } else { format!("{len} {thing}s from {first} on") }
}
