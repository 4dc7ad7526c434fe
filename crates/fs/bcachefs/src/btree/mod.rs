//! B-trees: keys, nodes, and the trees with the keys of the journal.

pub mod format;
pub mod key;
pub mod node;
pub mod tree;

/// Numbers of the trees (`BCH_BTREE_IDS`, Linux `fs/bcachefs/bcachefs_format.h`).
pub mod id {
    /// Data of files.
    pub const EXTENTS: u8 = 0;
    /// Inodes.
    pub const INODES: u8 = 1;
    /// Names.
    pub const DIRENTS: u8 = 2;
    /// Extended attributes.
    pub const XATTRS: u8 = 3;
    /// Buckets.
    pub const ALLOC: u8 = 4;
    /// Extents that several files share.
    pub const REFLINK: u8 = 7;
    /// Subvolumes.
    pub const SUBVOLUMES: u8 = 8;
    /// Versions of subvolumes.
    pub const SNAPSHOTS: u8 = 9;

    /// Returns the name of a tree, for messages.
    pub fn name(id: u8) -> &'static &'static str {
        match id {
            EXTENTS => &"extents",
            INODES => &"inodes",
            DIRENTS => &"dirents",
            XATTRS => &"xattrs",
            ALLOC => &"alloc",
            REFLINK => &"reflink",
            SUBVOLUMES => &"subvolumes",
            SNAPSHOTS => &"snapshots",
            _ => &"other",
        }
    }
}
