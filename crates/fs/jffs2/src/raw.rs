//! The nodes as they are on flash.
//!
//! Every node starts with a header of 12 bytes at a multiple of 4, and never crosses the end of an erase block.
//! Checksums are CRC-32 (IEEE, reflected) that starts with 0 and is not inverted.
//! Source: Linux `include/uapi/linux/jffs2.h`.

use obento_base::crc::crc32_le;

use crate::order::Order;

/// `JFFS2_MAGIC_BITMASK`.
pub const MAGIC: u16 = 0x1985;
/// Length of a header.
pub const HEADER: usize = 12;
/// Length of an inode node before its data (`jffs2_raw_inode`).
pub const INODE: usize = 68;
/// Length of a directory entry before its name (`jffs2_raw_dirent`).
pub const DIRENT: usize = 40;
/// Length of an extended attribute before its name (`jffs2_raw_xattr`).
pub const XATTR: usize = 32;
/// Length of a reference to an extended attribute (`jffs2_raw_xref`).
pub const XREF: usize = 28;
/// Length of a summary before its entries (`jffs2_raw_summary`).
pub const SUMMARY: usize = 32;
/// Longest name (`JFFS2_MAX_NAME_LEN`).
pub const NAME_MAX: u8 = 254;

/// Types of nodes, with the bits for readers that do not support them.
pub mod kind {
    /// `JFFS2_NODE_ACCURATE`: cleared on flash when a node becomes obsolete.
    pub const ACCURATE: u16 = 0x2000;
    /// `JFFS2_COMPAT_MASK`.
    pub const COMPATIBILITY: u16 = 0xc000;
    /// `JFFS2_FEATURE_INCOMPAT`: a reader that does not support the node must refuse the volume.
    pub const INCOMPATIBLE: u16 = 0xc000;
    /// `JFFS2_NODETYPE_DIRENT`.
    pub const DIRENT: u16 = 0xe001;
    /// `JFFS2_NODETYPE_INODE`.
    pub const INODE: u16 = 0xe002;
    /// `JFFS2_NODETYPE_CLEANMARKER`.
    pub const CLEAN_MARKER: u16 = 0x2003;
    /// `JFFS2_NODETYPE_PADDING`.
    pub const PADDING: u16 = 0x2004;
    /// `JFFS2_NODETYPE_SUMMARY`.
    pub const SUMMARY: u16 = 0x2006;
    /// `JFFS2_NODETYPE_XATTR`.
    pub const XATTR: u16 = 0xe008;
    /// `JFFS2_NODETYPE_XREF`.
    pub const XREF: u16 = 0xe009;
}

/// Fields by their offsets.
pub mod field {
    /// `nodetype`.
    pub const KIND: usize = 2;
    /// `totlen`.
    pub const LEN: usize = 4;
    /// `hdr_crc`.
    pub const HEADER_CRC: usize = 8;

    /// Fields of `jffs2_raw_inode`.
    pub mod inode {
        pub const INO: usize = 12;
        pub const VERSION: usize = 16;
        pub const MODE: usize = 20;
        pub const UID: usize = 24;
        pub const GID: usize = 26;
        pub const SIZE: usize = 28;
        pub const ATIME: usize = 32;
        pub const MTIME: usize = 36;
        pub const CTIME: usize = 40;
        pub const OFFSET: usize = 44;
        pub const STORED: usize = 48;
        pub const LEN: usize = 52;
        pub const CODEC: usize = 56;
        pub const DATA_CRC: usize = 60;
        /// Covers the node up to `DATA_CRC`.
        pub const NODE_CRC: usize = 64;
    }

    /// Fields of `jffs2_raw_dirent`.
    pub mod dirent {
        pub const PARENT: usize = 12;
        pub const VERSION: usize = 16;
        pub const INO: usize = 20;
        pub const TIME: usize = 24;
        pub const NAME_LEN: usize = 28;
        pub const TYPE: usize = 29;
        /// Covers the node up to the four bytes of the type.
        pub const NODE_CRC: usize = 32;
        pub const NAME_CRC: usize = 36;
    }

    /// Fields of `jffs2_raw_xattr`.
    pub mod xattr {
        pub const ID: usize = 12;
        pub const VERSION: usize = 16;
        pub const PREFIX: usize = 20;
        pub const NAME_LEN: usize = 21;
        pub const VALUE_LEN: usize = 22;
        pub const DATA_CRC: usize = 24;
        /// Covers the node up to here.
        pub const NODE_CRC: usize = 28;
    }

    /// Fields of `jffs2_raw_xref`.
    pub mod xref {
        pub const INO: usize = 12;
        pub const ID: usize = 16;
        pub const SEQUENCE: usize = 20;
        /// Covers the node up to here.
        pub const NODE_CRC: usize = 24;
    }

    /// Fields of `jffs2_raw_summary`.
    pub mod summary {
        pub const ENTRIES_CRC: usize = 24;
        /// Covers the node up to `ENTRIES_CRC`.
        pub const NODE_CRC: usize = 28;
    }
}

/// The checksum of JFFS2.
pub fn crc(bytes: &[u8]) -> u32 {
    crc32_le(0, bytes)
}

/// The start of a node, whose checksum is valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Type, with the bit `ACCURATE`.
    pub kind: u16,
    /// Whether the node is obsolete.
    pub is_obsolete: bool,
    /// Length in bytes, with the header and without padding.
    pub len: u32,
}

/// The reason why four bytes do not start a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoHeader {
    /// There is no magic number.
    Magic,
    /// There is a magic number, and the checksum is wrong.
    Checksum {
        /// Stored checksum.
        found: u32,
        /// Computed checksum.
        expected: u32,
    },
}

impl Header {
    /// Decodes the header at the start of `bytes`.
    pub fn decode(order: Order, bytes: &[u8]) -> Result<Self, NoHeader> {
        let fields = || {
            let magic = order.u16(bytes, 0)?;
            let kind = order.u16(bytes, field::KIND)?;
            let (len, found) = (order.u32(bytes, field::LEN)?, order.u32(bytes, field::HEADER_CRC)?);
            Some((magic, kind, len, found))
        };
        let Some((MAGIC, stored, len, found)) = fields() else { return Err(NoHeader::Magic) };
        let kind = stored | kind::ACCURATE;
        // The checksum is that of the node before it became obsolete.
        let expected = crc(&start(order, kind, len));
        if found != expected {
            return Err(NoHeader::Checksum { found, expected });
        }
        Ok(Self { kind, is_obsolete: stored & kind::ACCURATE == 0, len })
    }
}

/// Returns the header before its checksum.
pub fn start(order: Order, kind: u16, len: u32) -> [u8; 8] {
    let ([a, b], [c, d], [e, f, g, h]) = (order.bytes16(MAGIC), order.bytes16(kind), order.bytes32(len));
    [a, b, c, d, e, f, g, h]
}
