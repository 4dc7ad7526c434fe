//! Mends of attributes whose values are in inodes of their own: counts of users, and hashes, which follow the value.
//!
//! Invariant: a hash that is wrong costs no attribute: the value is what there is, and Linux reads none whose hashes are not
//! its own.
//! Source: Linux `fs/ext4/xattr.c` `ext4_xattr_inode_verify_hashes`, `ext4_xattr_rehash`.

use alloc::vec::Vec;
use core::mem::offset_of;

use obento_base::wire::{FromBytes, split};
use obento_base::{Ino, Result};

use super::super::attributes::in_block;
use super::super::issue::Issue;
use super::edits::Edits;
use crate::raw::{RawInode, RawInodeExtra, RawXattrEntry, RawXattrHeader};
use crate::unit::VolBlock;
use crate::xattr::{Area, block_hash, entry_hash};

impl Edits {
    /// Mends what an attribute or an inode says of a value; false for another issue.
    pub(super) fn mend_value(&mut self, issue: &Issue) -> Result<bool> {
        match *issue {
            Issue::ValueUsers { ino, expected, .. } => {
                let (low, high) = split(expected);
                self.inode(ino, |raw| {
                    raw.l_i_version.set(low);
                    raw.i_ctime.set(high);
                })?;
            }
            Issue::ValueHash { ino, expected, .. } => self.inode(ino, |raw| raw.i_atime.set(expected))?,
            Issue::XattrValueHash { ino, block: 0, value, expected, .. } => {
                self.edit_record(ino, |record| {
                    let rest = record.get(size_of::<RawInode>()..).unwrap_or_default();
                    let extra =
                        RawInodeExtra::ref_from_prefix(rest).map_or(0, |(raw, _)| raw.i_extra_isize.get());
                    // Behind the magic number.
                    let start = size_of::<RawInode>().saturating_add(extra.into()).saturating_add(4);
                    if let Some(bytes) = record.get_mut(start..) {
                        let area = Area { ino: Ino(ino.into()), block: 0, base: 0, bytes, table: 0 };
                        let hashes = new_hashes(&area, value, expected);
                        put_hashes(bytes, hashes);
                    }
                })?;
            }
            Issue::XattrValueHash { ino, block, value, expected, .. } => {
                self.block(VolBlock(block), |bytes| {
                    let hashes = new_hashes(&in_block(ino, block, bytes), value, expected);
                    put_hashes(bytes, hashes);
                    let area = in_block(ino, block, bytes);
                    let hash = block_hash(area.entries().flatten().map(|entry| entry.raw.e_hash.get()));
                    if let Ok((header, _)) = RawXattrHeader::mut_from_prefix(bytes) {
                        header.h_hash.set(hash);
                    }
                })?;
                self.seal_xattr_block(VolBlock(block), |_| {})?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// The places of the entries whose value is in inode `value` and has this hash, and the hashes that they are to have.
fn new_hashes(area: &Area<'_>, value: u32, hash: u32) -> Vec<(usize, u32)> {
    let entries = area.entries().flatten().filter(|entry| entry.raw.e_value_inum.get() == value);
    entries.map(|entry| (entry.offset, entry_hash(entry.name, core::iter::once(hash)))).collect()
}

fn put_hashes(bytes: &mut [u8], hashes: Vec<(usize, u32)>) {
    for (offset, hash) in hashes {
        let at = offset.saturating_add(offset_of!(RawXattrEntry, e_hash));
        let place = bytes.get_mut(at..).unwrap_or_default();
        place.iter_mut().zip(hash.to_le_bytes()).for_each(|(to, from)| *to = from);
    }
}
