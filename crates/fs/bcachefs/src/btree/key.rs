//! Keys and their positions.
//!
//! Source: Linux `fs/bcachefs/bcachefs_format.h` (`struct bpos`, `struct bkey`, `BCH_BKEY_TYPES`), `bkey.c`
//! (`bch2_bkey_swab_key`), `extents.c` (`bch2_ptr_swab`).

use alloc::vec::Vec;

use crate::layout::bytes::{slice, u8_at, u32_at, u64_at};

/// Types of keys.
pub mod kind {
    pub const DELETED: u8 = 0;
    pub const WHITEOUT: u8 = 1;
    pub const ERROR: u8 = 2;
    pub const HASH_WHITEOUT: u8 = 4;
    pub const BTREE_PTR: u8 = 5;
    pub const EXTENT: u8 = 6;
    pub const RESERVATION: u8 = 7;
    pub const INODE: u8 = 8;
    pub const DIRENT: u8 = 10;
    pub const XATTR: u8 = 11;
    pub const REFLINK_P: u8 = 15;
    pub const REFLINK_V: u8 = 16;
    pub const INLINE_DATA: u8 = 17;
    pub const BTREE_PTR_V2: u8 = 18;
    pub const INDIRECT_INLINE_DATA: u8 = 19;
    pub const ALLOC_V2: u8 = 20;
    pub const SUBVOLUME: u8 = 21;
    pub const SNAPSHOT: u8 = 22;
    pub const INODE_V2: u8 = 23;
    pub const ALLOC_V3: u8 = 24;
    pub const ALLOC_V4: u8 = 27;
    pub const INODE_V3: u8 = 29;
    pub const ACCOUNTING: u8 = 34;
    pub const EXTENT_WHITEOUT: u8 = 36;
}

/// Bytes of an unpacked key (`BKEY_U64s`).
pub const KEY_LEN: usize = 40;
/// Bytes of a position.
const POS_LEN: usize = 20;
/// Where the fields of a key start, after length, format and type (`KEY_PACKED_BITS_START`).
const HEADER: usize = 3;

/// A position in a tree. An extent ends at its position.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Pos {
    /// Number of the inode, or of what the tree contains.
    pub inode: u64,
    /// Sector, hash, or number.
    pub offset: u64,
    /// Version of the subvolume.
    pub snapshot: u32,
}

impl Pos {
    /// The first position.
    pub const MIN: Self = Self::new(0, 0, 0);
    /// The last position.
    pub const MAX: Self = Self::new(u64::MAX, u64::MAX, u32::MAX);

    /// Creates a position.
    pub const fn new(inode: u64, offset: u64, snapshot: u32) -> Self {
        Self { inode, offset, snapshot }
    }

    /// Returns the next position, if one exists.
    pub fn next(self) -> Option<Self> {
        if let Some(snapshot) = self.snapshot.checked_add(1) {
            return Some(Self { snapshot, ..self });
        }
        if let Some(offset) = self.offset.checked_add(1) {
            return Some(Self::new(self.inode, offset, 0));
        }
        Some(Self::new(self.inode.checked_add(1)?, 0, 0))
    }

    /// Decodes a position in little-endian order.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self::new(u64_at(bytes, 12)?, u64_at(bytes, 4)?, u32_at(bytes, 0)?))
    }

    /// Decodes a position in either order.
    pub fn decode_in(bytes: &[u8], is_big_endian: bool) -> Option<Self> {
        let mut word: [u8; POS_LEN] = bytes.first_chunk().copied()?;
        if is_big_endian {
            word.reverse();
        }
        Self::decode(&word)
    }
}

/// A key and its value.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// Position.
    pub pos: Pos,
    /// Sectors of an extent.
    pub size: u32,
    /// Type.
    pub kind: u8,
    /// Value, in little-endian order.
    pub value: &'a [u8],
}

/// A key that owns its value.
#[derive(Clone, Debug)]
pub struct OwnedKey {
    /// Position.
    pub pos: Pos,
    /// Sectors of an extent.
    pub size: u32,
    /// Type.
    pub kind: u8,
    /// Value, in little-endian order.
    pub value: Vec<u8>,
}

impl OwnedKey {
    /// Decodes an unpacked key with its value, and returns its length too.
    pub fn decode(bytes: &[u8], is_big_endian: bool) -> Option<(Self, usize)> {
        let len = usize::from(u8_at(bytes, 0)?).checked_mul(8)?;
        let value = bytes.get(KEY_LEN..len)?;
        let (pos, size) = decode_fields(bytes, is_big_endian)?;
        let (kind, mut value) = (u8_at(bytes, 2)?, value.to_vec());
        if is_big_endian {
            swap_value(kind, &mut value);
        }
        Some((Self { pos, size, kind, value }, len))
    }

    /// Returns the key without ownership.
    pub fn borrow(&self) -> Key<'_> {
        Key { pos: self.pos, size: self.size, kind: self.kind, value: &self.value }
    }
}

/// Decodes position and size of an unpacked key.
pub fn decode_fields(bytes: &[u8], is_big_endian: bool) -> Option<(Pos, u32)> {
    let mut key: [u8; KEY_LEN] = bytes.first_chunk().copied()?;
    if is_big_endian {
        // The fields are in the opposite order, as all bytes are (`bch2_bkey_swab_key`).
        key.get_mut(HEADER..)?.reverse();
    }
    Some((Pos::decode(slice(&key, 20, POS_LEN)?)?, u32_at(&key, 16)?))
}

/// Converts a value from big-endian to little-endian order. Only pointers and positions have the order of the machine;
/// other values are always little-endian.
pub fn swap_value(kind: u8, value: &mut [u8]) {
    let start = match kind {
        kind::EXTENT | kind::BTREE_PTR => 0,
        kind::REFLINK_V => 8,
        kind::BTREE_PTR_V2 => {
            // mem_ptr, seq, sectors_written and flags precede the position.
            if let Some(pos) = value.get_mut(20..40) {
                pos.reverse();
            }
            40
        }
        _ => return,
    };
    let words = value.get_mut(start..).unwrap_or_default();
    for word in words.chunks_exact_mut(8) {
        word.reverse();
    }
    swap_checksums(words);
}

/// Converts the checksums in the entries of an extent, whose order within their words differs (`bch2_ptr_swab`).
fn swap_checksums(mut rest: &mut [u8]) {
    while let Some(first) = u64_at(rest, 0) {
        let words = match first.trailing_zeros() {
            1 => {
                if let Some(sum) = rest.get_mut(4..8) {
                    sum.reverse();
                }
                1
            }
            2 => {
                // csum_hi is the top of the first word, csum_lo the second.
                if let Some(high) = rest.get_mut(6..8) {
                    high.reverse();
                }
                if let Some(low) = rest.get_mut(8..16) {
                    low.reverse();
                }
                2
            }
            3 => {
                for word in rest.chunks_exact_mut(8).take(3).skip(1) {
                    word.reverse();
                }
                3
            }
            0 | 4..=6 => 1,
            _ => return,
        };
        let Some(next) = rest.get_mut(usize::saturating_mul(words, 8)..) else { return };
        rest = next;
    }
}
