//! Repairs of attributes whose values are in inodes of their own: reference counts, hashes and sizes, which are
//! derived from the value.
//!
//! Invariant: a wrong hash costs no attribute: the existing value is kept, and Linux reads no value with wrong
//! hashes.
//! Source: Linux `fs/ext4/xattr.c` `ext4_xattr_inode_verify_hashes`, `ext4_xattr_rehash`.

use alloc::vec::Vec;
use core::mem::offset_of;

use obento_base::wire::{FromBytes, split};
use obento_base::{Ino, Result};

use super::super::attributes::in_block;
use super::edits::Edits;
use crate::raw::{RawInode, RawInodeExtra, RawXattrEntry, RawXattrHeader};
use crate::unit::VolBlock;
use crate::xattr::{AttributeArea, AttributeEntry, block_hash, entry_hash};

impl Edits {
    /// Sets the reference count of a value.
    pub(super) fn set_value_users(&mut self, ino: u32, count: u64) -> Result<()> {
        let (low, high) = split(count);
        self.inode(ino, |raw| {
            raw.l_i_version.set(low);
            raw.i_ctime.set(high);
        })
    }

    /// Updates the hashes of attributes whose value is in inode `value`.
    pub(super) fn set_value_hash(&mut self, ino: u32, block: u64, value: u32, hash: u32) -> Result<()> {
        self.edit_entries(ino, block, &|area| new_hashes(area, value, hash))
    }

    /// Updates the sizes of attributes whose value is in inode `value`.
    pub(super) fn set_value_size(&mut self, ino: u32, block: u64, value: u32, size: u32) -> Result<()> {
        self.edit_entries(ino, block, &|area| new_sizes(area, value, size))
    }

    /// Writes words of the attributes in an inode (block 0) or in a block, whose hash is updated.
    fn edit_entries(
        &mut self,
        ino: u32,
        block: u64,
        words: &dyn Fn(&AttributeArea<'_>) -> Vec<(usize, u32)>,
    ) -> Result<()> {
        if block == 0 {
            return self.edit_record(ino, |record| {
                let rest = record.get(size_of::<RawInode>()..).unwrap_or_default();
                let extra =
                    RawInodeExtra::ref_from_prefix(rest).map_or(0, |(raw, _)| raw.i_extra_isize.get());
                // After the magic number.
                let start = size_of::<RawInode>().saturating_add(extra.into()).saturating_add(4);
                if let Some(bytes) = record.get_mut(start..) {
                    let found =
                        words(&AttributeArea { ino: Ino(ino.into()), block: 0, base: 0, bytes, table: 0 });
                    put_words(bytes, found);
                }
            });
        }
        self.block(VolBlock(block), |bytes| {
            let found = words(&in_block(ino, block, bytes));
            put_words(bytes, found);
            let area = in_block(ino, block, bytes);
            let hash = block_hash(area.entries().flatten().map(|entry| entry.raw.e_hash.get()));
            if let Ok((header, _)) = RawXattrHeader::mut_from_prefix(bytes) {
                header.h_hash.set(hash);
            }
        })?;
        self.seal_xattr_block(VolBlock(block), |_| {})
    }
}

/// Returns the entries whose value is in inode `value`.
fn entries_of<'a>(area: &AttributeArea<'a>, value: u32) -> impl Iterator<Item = AttributeEntry<'a>> {
    area.entries().flatten().filter(move |entry| entry.raw.e_value_inum.get() == value)
}

/// Returns the places and the new hashes of attributes whose value has the hash `hash`.
fn new_hashes(area: &AttributeArea<'_>, value: u32, hash: u32) -> Vec<(usize, u32)> {
    let place = |entry: &AttributeEntry<'_>| entry.offset.saturating_add(offset_of!(RawXattrEntry, e_hash));
    entries_of(area, value)
        .map(|entry| (place(&entry), entry_hash(entry.name, core::iter::once(hash))))
        .collect()
}

/// Returns the places of the sizes of a value, and the size.
fn new_sizes(area: &AttributeArea<'_>, value: u32, size: u32) -> Vec<(usize, u32)> {
    let place =
        |entry: AttributeEntry<'_>| entry.offset.saturating_add(offset_of!(RawXattrEntry, e_value_size));
    entries_of(area, value).map(|entry| (place(entry), size)).collect()
}

fn put_words(bytes: &mut [u8], words: Vec<(usize, u32)>) {
    for (at, word) in words {
        let place = bytes.get_mut(at..).unwrap_or_default();
        place.iter_mut().zip(word.to_le_bytes()).for_each(|(to, from)| *to = from);
    }
}
