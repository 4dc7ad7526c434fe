//! Nodes with verified checksums, reduced to the fields that are needed later.
//!
//! Source: Linux `include/uapi/linux/jffs2.h`, `fs/jffs2/readinode.c` (`read_dnode`, `read_direntry`), `fs/jffs2/scan.c`
//! (`jffs2_scan_xattr_node`).

use alloc::vec::Vec;

use obento_base::wire::{to_u64, to_usize};

use crate::order::Order;
use crate::raw::{self, crc, field};
use crate::scan::Fault;

/// A valid node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Node {
    /// Attributes and a part of the data of a file.
    Inode(Inode),
    /// A name.
    Dirent(Dirent),
    /// An extended attribute.
    Xattr(Xattr),
    /// The use of an extended attribute by a file.
    Xref(Xref),
}

/// An inode node. The other attributes are read from the device when they are needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inode {
    /// Inode number.
    pub ino: u32,
    /// Version: the highest one is the newest.
    pub version: u32,
    /// Position of the node.
    pub at: u32,
    /// First byte of the file that the node contains.
    pub offset: u32,
    /// Number of bytes of the file.
    pub len: u32,
    /// Number of bytes of data in the node.
    pub stored: u32,
    /// Size of the file.
    pub size: u32,
    /// Type and permissions.
    pub mode: u16,
    /// Codec of the data.
    pub codec: u8,
}

/// Compares `stored` with the checksum of `covered`.
fn verify(what: &'static str, covered: &[u8], found: u32) -> Result<(), Fault> {
    let expected = crc(covered);
    if found == expected { Ok(()) } else { Err(Fault::Checksum { what, found, expected }) }
}

/// Returns a length of bytes with its padding.
fn padded(len: u64) -> u64 {
    len.next_multiple_of(4)
}

impl Inode {
    /// Decodes a node of `len` bytes. The checksum of the data is not verified.
    pub fn decode(order: Order, at: u32, bytes: &[u8], len: u32) -> Result<Self, Fault> {
        use field::inode;
        let word = |at| order.u32(bytes, at).unwrap_or(0);
        verify("node", bytes.get(..inode::DATA_CRC).unwrap_or_default(), word(inode::NODE_CRC))?;
        let node = Self {
            ino: word(inode::INO),
            version: word(inode::VERSION),
            at,
            offset: word(inode::OFFSET),
            len: word(inode::LEN),
            stored: word(inode::STORED),
            size: word(inode::SIZE),
            // Linux reads the lower half: the type of the field is wider than its values.
            mode: u16::try_from(word(inode::MODE) & 0xffff).unwrap_or(0),
            codec: bytes.get(inode::CODEC).copied().unwrap_or(0),
        };
        let whole = to_u64(raw::INODE).saturating_add(node.stored.into());
        if padded(whole) != padded(len.into()) {
            return Err(Fault::Field { field: "csize", found: node.stored.into() });
        }
        if node.offset > node.size {
            return Err(Fault::Field { field: "offset", found: node.offset.into() });
        }
        if node.ino == 0 {
            return Err(Fault::Field { field: "ino", found: 0 });
        }
        Ok(node)
    }

    /// Returns the position of the data.
    pub fn data_at(&self) -> u64 {
        u64::from(self.at).saturating_add(to_u64(raw::INODE))
    }

    /// Returns the end of the range of the file that the node contains.
    pub fn end(&self) -> u64 {
        u64::from(self.offset).saturating_add(self.len.into())
    }
}

/// A directory entry node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dirent {
    /// Inode number of the directory.
    pub parent: u32,
    /// Version within the directory.
    pub version: u32,
    /// Inode that the name refers to; 0 removes the name.
    pub ino: u32,
    /// Time of the change, or 0.
    pub time: u32,
    /// Position of the node.
    pub at: u32,
    /// Type of the inode (`DT_`).
    pub kind: u8,
    /// Name.
    pub name: Vec<u8>,
}

impl Dirent {
    /// Decodes a node.
    pub fn decode(order: Order, at: u32, bytes: &[u8]) -> Result<Self, Fault> {
        use field::dirent;
        let word = |at| order.u32(bytes, at).unwrap_or(0);
        verify("node", bytes.get(..dirent::NODE_CRC).unwrap_or_default(), word(dirent::NODE_CRC))?;
        let name_len = bytes.get(dirent::NAME_LEN).copied().unwrap_or(0);
        let end = raw::DIRENT.saturating_add(name_len.into());
        let wrong = Fault::Field { field: "nsize", found: name_len.into() };
        let name = bytes.get(raw::DIRENT..end).ok_or(wrong)?;
        let stored = u64::from(order.u32(bytes, field::LEN).unwrap_or(0));
        if padded(to_u64(end)) != padded(stored) || name_len > raw::NAME_MAX {
            return Err(wrong);
        }
        verify("name", name, word(dirent::NAME_CRC))?;
        Ok(Self {
            parent: word(dirent::PARENT),
            version: word(dirent::VERSION),
            ino: word(dirent::INO),
            time: word(dirent::TIME),
            at,
            kind: bytes.get(dirent::TYPE).copied().unwrap_or(0),
            name: name.to_vec(),
        })
    }
}

/// An extended attribute, which several files may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Xattr {
    /// Number of the attribute.
    pub id: u32,
    /// Version: the highest one is the newest.
    pub version: u32,
    /// Position of the node.
    pub at: u32,
    /// Namespace.
    pub prefix: u8,
    /// Length of the name. A NUL follows it.
    pub name_len: u8,
    /// Length of the value.
    pub value_len: u16,
}

impl Xattr {
    /// Decodes a node of `len` bytes. The checksum of the data is not verified.
    pub fn decode(order: Order, at: u32, bytes: &[u8], len: u32) -> Result<Self, Fault> {
        use field::xattr;
        let word = |at| order.u32(bytes, at).unwrap_or(0);
        verify("node", bytes.get(..xattr::NODE_CRC).unwrap_or_default(), word(xattr::NODE_CRC))?;
        let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
        let node = Self {
            id: word(xattr::ID),
            version: word(xattr::VERSION),
            at,
            prefix: byte(xattr::PREFIX),
            name_len: byte(xattr::NAME_LEN),
            value_len: order.u16(bytes, xattr::VALUE_LEN).unwrap_or(0),
        };
        let whole = raw::XATTR.saturating_add(node.data_len());
        if padded(to_u64(whole)) != padded(len.into()) {
            return Err(Fault::Field { field: "value_len", found: node.value_len.into() });
        }
        Ok(node)
    }

    /// Returns the position of the name.
    pub fn data_at(&self) -> u64 {
        u64::from(self.at).saturating_add(to_u64(raw::XATTR))
    }

    /// Returns the length of name, NUL and value.
    pub fn data_len(&self) -> usize {
        let len = u64::from(self.name_len).saturating_add(1).saturating_add(self.value_len.into());
        to_usize(len)
    }
}

/// The use of an extended attribute by a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Xref {
    /// Inode number of the file.
    pub ino: u32,
    /// Number of the attribute.
    pub id: u32,
    /// Sequence number, without the lowest bit.
    pub sequence: u32,
    /// Whether the file uses the attribute no longer: the lowest bit of the sequence number.
    pub is_removed: bool,
}

impl Xref {
    /// Decodes a node.
    pub fn decode(order: Order, bytes: &[u8]) -> Result<Self, Fault> {
        use field::xref;
        let word = |at| order.u32(bytes, at).unwrap_or(0);
        verify("node", bytes.get(..xref::NODE_CRC).unwrap_or_default(), word(xref::NODE_CRC))?;
        let len = word(field::LEN);
        if to_usize(len.into()) != raw::XREF {
            return Err(Fault::Field { field: "totlen", found: len.into() });
        }
        let sequence = word(xref::SEQUENCE);
        Ok(Self {
            ino: word(xref::INO),
            id: word(xref::ID),
            sequence: sequence & !1,
            is_removed: sequence & 1 == 1,
        })
    }
}
