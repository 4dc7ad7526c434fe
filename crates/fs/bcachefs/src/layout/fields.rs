//! The fields of the super block that vary in length.
//!
//! Source: Linux `fs/bcachefs/bcachefs_format.h` (`BCH_SB_FIELDS`), `sb-members_format.h`,
//! `journal_seq_blacklist_format.h`, `sb-clean.c`.

use alloc::vec::Vec;

use obento_base::wire::to_usize;

use super::bytes::{slice, u16_at, u32_at, u64_at};
use super::record::{Entry, entries};

/// The numbers of the fields.
mod kind {
    pub const JOURNAL: u32 = 0;
    pub const MEMBERS_V1: u32 = 1;
    pub const CLEAN: u32 = 6;
    pub const BLACKLIST: u32 = 8;
    pub const JOURNAL_V2: u32 = 9;
    pub const MEMBERS_V2: u32 = 11;
}

/// Bytes of `struct bch_member` in the first version of the field.
const MEMBER_V1: usize = 56;

/// A device of the volume (`struct bch_member`).
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// `nbuckets`
    pub buckets: u64,
    /// `first_bucket`
    pub first_bucket: u16,
    /// `bucket_size`
    pub bucket_sectors: u16,
}

/// `struct bch_sb_field_clean`
#[derive(Clone, Debug)]
pub struct Clean {
    /// The roots of the B-trees.
    pub roots: Vec<Entry>,
}

/// The fields, each with its number and its contents.
#[derive(Clone, Copy)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Creates the list from the bytes after the fixed part.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the contents of a field, without its header of 8 bytes.
    fn get(self, kind: u32) -> Option<&'a [u8]> {
        let mut rest = self.0;
        while let Some(words) = u32_at(rest, 0) {
            let len = to_usize(u64::from(words).saturating_mul(8));
            let field = rest.get(8..len)?;
            if u32_at(rest, 4)? == kind {
                return Some(field);
            }
            rest = rest.get(len..)?;
        }
        None
    }

    /// Returns the description of a device.
    pub fn member(self, device: u8) -> Option<Member> {
        let found = match self.get(kind::MEMBERS_V2) {
            Some(field) => {
                let len = usize::from(u16_at(field, 0)?);
                slice(field, usize::from(device).checked_mul(len)?.checked_add(8)?, len)?
            }
            None => {
                slice(self.get(kind::MEMBERS_V1)?, usize::from(device).checked_mul(MEMBER_V1)?, MEMBER_V1)?
            }
        };
        let (first_bucket, bucket_sectors) = (u16_at(found, 24)?, u16_at(found, 26)?);
        Some(Member { buckets: u64_at(found, 16)?, first_bucket, bucket_sectors })
    }

    /// Returns pairs of 64-bit numbers.
    fn pairs(self, kind: u32) -> Option<Vec<(u64, u64)>> {
        let pairs = self.get(kind)?.chunks_exact(16);
        Some(pairs.filter_map(|pair| u64_at(pair, 0).zip(u64_at(pair, 8))).collect())
    }

    /// Returns the buckets of the journal.
    pub fn journal(self) -> Vec<(u64, u64)> {
        self.pairs(kind::JOURNAL_V2).unwrap_or_else(|| {
            let field = self.get(kind::JOURNAL).unwrap_or_default();
            field.chunks_exact(8).filter_map(|word| Some((u64_at(word, 0)?, 1))).collect()
        })
    }

    /// Returns the ranges of sequence numbers that were skipped.
    pub fn blacklist(self) -> Vec<(u64, u64)> {
        self.pairs(kind::BLACKLIST).unwrap_or_default()
    }

    /// Returns the roots of a clean volume.
    pub fn clean(self, is_big_endian: bool) -> Option<Clean> {
        let field = self.get(kind::CLEAN)?;
        let roots = entries(field.get(16..)?, is_big_endian).filter(Entry::is_root).collect();
        Some(Clean { roots })
    }
}
