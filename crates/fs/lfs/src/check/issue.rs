//! The inconsistencies of a volume: one variant for each kind, with its location.

use alloc::vec::Vec;

use obento_base::{Error, Quantity};
use obento_driver::{about_inode, escaped_name};

obento_driver::issues! {
    // The volume.
    /// A super block or a checkpoint cannot be used.
    SuperBlock { why: Error } Damage "super-block", "{why}";
    /// The volume was not unmounted; what follows the checkpoint is used.
    NotClean { segments: u64 } Note "not-clean",
        "after the checkpoint: {}", Quantity::new(*segments, "partial segment");

    // Inodes.
    /// An inode cannot be read.
    Inode { ino: u64, why: Error } Damage "inode", "{}", about_inode(ino, why);
    /// The type of an inode is unknown.
    Mode { ino: u64, mode: u16 } Damage "mode", "inode {ino}: the mode 0{mode:o} contains no known file type";
    /// A block is outside of the volume.
    Outside { ino: u64, address: u64 } Damage "block-outside",
        "inode {ino}: address {address} is outside of the data of the volume";
    /// Two files have the same block, or a file has it twice.
    Shared { ino: u64, address: u64 } Damage "block-shared", "inode {ino}: address {address} is used more than once";
    /// The number of blocks of an inode is wrong.
    Blocks { ino: u64, found: u64, expected: u64 } Damage "block-count",
        "inode {ino}: the block count is {found}, should be {expected}";
    /// A file is longer than its addresses can be.
    Size { ino: u64, size: u64 } Damage "size", "inode {ino}: its size {size} is impossible";
    /// A symbolic link has an invalid target.
    Target { ino: u64 } Damage "target", "inode {ino}: its target is invalid";

    // Names.
    /// A directory is damaged.
    Directory { ino: u64, why: Error } Damage "directory", "{why}";
    /// The bytes of a name are no name.
    Name { ino: u64, name: Vec<u8> } Damage "bad-name",
        "directory {ino}: '{}' is not a valid name", escaped_name(name);
    /// A name refers to an inode that is not in use.
    Dangling { ino: u64, name: Vec<u8>, found: u64 } Damage "dangling-name",
        "directory {ino}: '{}' refers to inode {found}, which is not in use", escaped_name(name);
    /// The type in an entry is not that of the inode.
    EntryType { ino: u64, name: Vec<u8> } Damage "entry-type",
        "directory {ino}: the type of '{}' is not that of its inode", escaped_name(name);
    /// `.` or `..` is missing or wrong.
    Dots { ino: u64, found: u64, expected: u64 } Damage "dots",
        "directory {ino}: its '.' or '..' refers to inode {found}, expected {expected}";
    /// A directory has two names.
    SecondName { ino: u64, name: Vec<u8>, found: u64 } Damage "second-name",
        "directory {ino}: '{}' is a further name of directory {found}", escaped_name(name);
    /// The link count is wrong.
    Links { ino: u64, found: u64, expected: u64 } Damage "link-count",
        "inode {ino}: link count is {found}, should be {expected}";
    /// An inode in use has no name.
    Orphan { ino: u64 } Damage "no-name", "inode {ino} has no name";
}
