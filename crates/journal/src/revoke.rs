//! Revoke blocks: lists of blocks of the volume that a transaction freed. Older copies of these blocks must
//! not be replayed.
//!
//! Layout: the header, the number of bytes used (including the header), then block numbers of 4 bytes, or
//! of 8 bytes with 64-bit block numbers. Source: Linux `fs/jbd2/recovery.c` (`scan_revoke_records`).

use obento_base::wire::be::{U32, U64};
use obento_base::wire::to_usize;
use obento_base::{Corrupt, Cursor, Result, Structure};

use crate::raw::RawRevokeHeader;
use crate::super_block::{Incompat, SuperBlock};

/// An iterator over the block numbers of a revoke block.
#[derive(Clone, Debug)]
pub struct Revokes<'a> {
    cursor: Cursor<'a>,
    wide: bool,
}

impl<'a> Revokes<'a> {
    /// Creates an iterator for the revoke block `bytes` from block `block` of the device. Fails with
    /// `Corrupt` if the number of used bytes exceeds the block.
    pub fn new(super_block: &SuperBlock, bytes: &'a [u8], block: u64) -> Result<Self> {
        let structure = Structure::Journal;
        let body = super_block.tag_layout().body(bytes);
        let mut cursor = Cursor::new(body);
        let header = cursor.take_raw::<RawRevokeHeader>();
        let used = header.map_or(0, |header| header.r_count.get());
        let records = body.get(..to_usize(used.into()));
        let Some(records) = records else {
            let found = used.into();
            return Err(Corrupt::Field { structure, field: "r_count", block, offset: 0xc, found }.into());
        };
        let records = records.get(size_of::<RawRevokeHeader>()..).unwrap_or_default();
        Ok(Self { cursor: Cursor::new(records), wide: super_block.incompat.contains(Incompat::BITS_64) })
    }
}

impl Iterator for Revokes<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.wide {
            self.cursor.take_raw::<U64>().map(|block| block.get())
        } else {
            self.cursor.take_raw::<U32>().map(|block| block.get().into())
        }
    }
}
