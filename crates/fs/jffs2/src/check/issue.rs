//! The inconsistencies of a volume: one variant for each kind, with its location.
//!
//! `offset` is the position of a node in the image.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use obento_base::Quantity;
use obento_driver::escaped_name;

obento_driver::issues! {
    // Nodes.
    /// Bytes start like a node, and the checksum of the header is wrong.
    Header { offset: u32, found: u32, expected: u32 } Damage "header-crc",
        "byte {offset}: the header of a node has the checksum {found:#x}, computed {expected:#x}";
    /// A checksum of a node is wrong.
    Checksum { offset: u32, node: &'static str, part: &'static str, found: u32, expected: u32 } Damage "node-crc",
        "byte {offset}: the {}{node} node has the checksum {found:#x}, computed {expected:#x}", part_of(part);
    /// A field of a node is invalid.
    Field { offset: u32, node: &'static str, field: &'static str, found: u64 } Damage "node-field",
        "byte {offset}: {field} of the {node} node is {found}";
    /// A node runs past the end of the image.
    Truncated { offset: u32, len: u32 } Damage "node-length",
        "byte {offset}: a node of {} extends past the end of the image", Quantity::new((*len).into(), "byte");
    /// A node of a type that no version of the format has.
    UnknownNode { offset: u32, kind: u16 } Note "unknown-node",
        "byte {offset}: a node has the unknown type {kind:#x}";
    /// A node of a type without which the volume cannot be used.
    IncompatibleNode { offset: u32, kind: u16 } Damage "incompatible-node",
        "byte {offset}: a node has the unknown type {kind:#x}, which a reader of the volume must support";
    /// Bytes that are not erased and belong to no node.
    Garbage { offset: u32, len: u32 } Note "garbage",
        "byte {offset}: a run of {} is neither erased nor part of a node",
        Quantity::new((*len).into(), "byte");

    // Files.
    /// A name refers to an inode without nodes.
    Dangling { offset: u32, ino: u32, dir: u32, name: Vec<u8> } Damage "dangling-name",
        "directory {dir}: '{}' refers to inode {ino}, which does not exist", escaped_name(name);
    /// A name is in an inode that is no directory of the volume.
    MissingParent { offset: u32, ino: u32, dir: u32, name: Vec<u8> } Damage "missing-parent",
        "inode {ino}: its name '{}' is in inode {dir}, which is not a directory of the volume",
        escaped_name(name);
    /// A directory has two names.
    SecondName { offset: u32, ino: u32, dir: u32, name: Vec<u8> } Damage "second-name",
        "directory {dir}: '{}' is a further name of directory {ino}", escaped_name(name);
    /// The bytes of a name are no name.
    BadName { offset: u32, ino: u32, dir: u32, name: Vec<u8> } Damage "bad-name",
        "directory {dir}: '{}' is not a valid name", escaped_name(name);
    /// The type in an entry is not that of the inode.
    WrongType { offset: u32, ino: u32, dir: u32, name: Vec<u8>, found: u8 } Damage "entry-type",
        "directory {dir}: the entry '{}' has the type {found}, but inode {ino} has another type",
        escaped_name(name);
    /// A directory has entries and no inode node.
    NoInode { ino: u32 } Damage "no-inode", "directory {ino} has entries, but no inode node";
    /// The type of an inode is unknown.
    UnknownType { ino: u32, mode: u16 } Damage "mode", "inode {ino}: the mode 0{mode:o} contains no known file type";
    /// Data cannot be decompressed.
    Data { ino: u32, offset: u32, codec: u8, why: &'static str } Damage "data",
        "inode {ino}: the data at byte {offset}, with codec {codec}, {why}";
    /// A file is shorter than its newest node says.
    Short { ino: u32, found: u64, expected: u32 } Damage "size",
        "inode {ino} has {}, but its newest node records {expected}", Quantity::new(*found, "byte");
    /// A symbolic link or a device has an invalid value.
    Value { ino: u32 } Damage "value", "inode {ino}: its target or device number is invalid";
    /// A file uses an extended attribute that does not exist.
    DanglingXattr { ino: u32, id: u32 } Damage "dangling-xattr",
        "inode {ino} uses extended attribute {id}, which does not exist";
}

/// Returns a part of a node in a sentence: nothing for the node itself, which has a checksum of its own fields.
pub(super) fn part_of(part: &str) -> String {
    if part == "node" { String::new() } else { format!("{part} of the ") }
}
