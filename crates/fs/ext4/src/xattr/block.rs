//! A block of attributes as bytes: header, hash, user count, checksum.
//!
//! Layout: [`RawXattrHeader`], then a table in the form of [`Form::Block`].
//! Source: Linux fs/ext4/xattr.c `ext4_xattr_block_set`, `ext4_xattr_block_csum`, `ext4_xattr_cmp`.

use alloc::vec::Vec;

use obento_base::{Error, Result};
use zerocopy::{FromBytes, IntoBytes};

use super::MAGIC;
use super::table::{Form, Table};
use crate::checksum::Crc;
use crate::raw::RawXattrHeader;
use crate::unit::VolBlock;

/// `EXT4_XATTR_REFCOUNT_MAX`.
pub(crate) const USERS_MAX: u32 = 1024;

/// Returns the bytes of a block with `table` and one user, without its checksum. Fails with `NoMemory` or `NoSpace`.
pub(super) fn encode(table: &Table<'_>, block_size: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(block_size)?;
    bytes.resize(block_size, 0);
    table.encode(&mut bytes).ok_or(Error::NoSpace)?;
    let header = RawXattrHeader {
        h_magic: MAGIC.into(),
        h_refcount: 1.into(),
        h_blocks: 1.into(),
        h_hash: table.hash().into(),
        h_checksum: 0.into(),
        h_reserved: [0.into(); 3],
    };
    let place = bytes.get_mut(..Form::Block.header()).ok_or(Error::NoSpace)?;
    place.copy_from_slice(header.as_bytes());
    Ok(bytes)
}

/// Returns the header, or `None` for bytes that are not a block of attributes.
pub(super) fn header(bytes: &[u8]) -> Option<&RawXattrHeader> {
    let (header, _) = RawXattrHeader::ref_from_prefix(bytes).ok()?;
    (header.h_magic.get() == MAGIC && header.h_blocks.get() == 1).then_some(header)
}

/// Sets the number of inodes that use the block.
pub(super) fn set_users(bytes: &mut [u8], users: u32) {
    if let Ok((header, _)) = RawXattrHeader::mut_from_prefix(bytes) {
        header.h_refcount.set(users);
    }
}

/// Sets the checksum of a block at `number`: over its number and its bytes, with a checksum of 0.
pub(super) fn set_checksum(bytes: &mut [u8], number: VolBlock, seed: u32) {
    if let Ok((header, _)) = RawXattrHeader::mut_from_prefix(bytes) {
        header.h_checksum.set(0);
    }
    let sum = Crc::new(seed).add(&number.0.to_le_bytes()).add(bytes).get();
    if let Ok((header, _)) = RawXattrHeader::mut_from_prefix(bytes) {
        header.h_checksum.set(sum);
    }
}
