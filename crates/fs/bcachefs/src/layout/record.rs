//! The records of the journal, which the super block contains too.
//!
//! Source: Linux `fs/bcachefs/bcachefs_format.h` (`struct jset_entry`).

use alloc::vec::Vec;

use super::bytes::{u8_at, u16_at, u64_at};
use crate::btree::key::OwnedKey;

/// Types of records (`BCH_JSET_ENTRY_TYPES`).
pub mod kind {
    pub const BTREE_KEYS: u8 = 0;
    pub const BTREE_ROOT: u8 = 1;
    pub const BLACKLIST: u8 = 3;
    pub const BLACKLIST_V2: u8 = 4;
    pub const WRITE_BUFFER_KEYS: u8 = 11;
}

/// A record with keys.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its type.
    pub kind: u8,
    /// Number of the tree.
    pub tree: u8,
    /// Level of the keys, or of the root.
    pub level: u8,
    /// The keys.
    pub keys: Vec<OwnedKey>,
    /// A range of sequence numbers that were skipped.
    pub skipped: Option<(u64, u64)>,
}

impl Entry {
    /// Returns whether the record contains the root of a tree.
    pub fn is_root(&self) -> bool {
        self.kind == kind::BTREE_ROOT && !self.keys.is_empty()
    }
}

/// Decodes the records in `bytes`. The first one that does not fit ends the list.
pub fn entries(bytes: &[u8], is_big_endian: bool) -> impl Iterator<Item = Entry> + '_ {
    let mut rest = bytes;
    core::iter::from_fn(move || {
        let len = usize::from(u16_at(rest, 0)?).checked_mul(8)?.checked_add(8)?;
        let bytes = rest.get(8..len)?;
        let (tree, level, record) = (u8_at(rest, 2)?, u8_at(rest, 3)?, u8_at(rest, 4)?);
        rest = rest.get(len..)?;
        let mut entry = Entry { kind: record, tree, level, keys: Vec::new(), skipped: None };
        match record {
            kind::BTREE_KEYS | kind::BTREE_ROOT | kind::WRITE_BUFFER_KEYS => {
                let mut keys = bytes;
                while let Some((key, len)) = OwnedKey::decode(keys, is_big_endian) {
                    entry.keys.push(key);
                    keys = keys.get(len..).unwrap_or_default();
                }
            }
            kind::BLACKLIST => entry.skipped = u64_at(bytes, 0).map(|seq| (seq, seq.saturating_add(1))),
            // The end is inclusive here (`journal_entry_blacklist_v2_validate`).
            kind::BLACKLIST_V2 => {
                entry.skipped =
                    u64_at(bytes, 0).zip(u64_at(bytes, 8)).map(|(start, end)| (start, end.saturating_add(1)));
            }
            _ => {}
        }
        Some(entry)
    })
}
