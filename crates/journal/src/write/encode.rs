//! Encoding of the control blocks of a transaction.
//!
//! Source: Linux `fs/jbd2/commit.c` (`jbd2_journal_commit_transaction`, `journal_submit_commit_record`),
//! `fs/jbd2/revoke.c` (`write_one_revoke_record`), `include/linux/jbd2.h`.

use alloc::vec::Vec;

use obento_base::Timestamp;
use obento_base::wire::be::{U16, U32, U64};
use obento_base::wire::{FromZeros, IntoBytes, split, to_u64, to_usize};

use crate::raw::{self, RawCommit, RawHeader, RawRevokeHeader, RawTag, RawTag3};
use crate::{Checksums, SuperBlock, Tag, TagFlags, TagLayout, Tid, checksum};

/// The first bytes of a block that must be escaped in the log.
const MAGIC: [u8; 4] = raw::MAGIC.to_be_bytes();

/// The encoder for the control blocks of a journal.
#[derive(Clone, Debug)]
pub(super) struct Encoder {
    block_size: usize,
    layout: TagLayout,
    checksums: Checksums,
    /// Seed of the checksums.
    seed: u32,
    uuid: [u8; 16],
    wide: bool,
}

impl Encoder {
    pub(super) fn new(super_block: &SuperBlock) -> Self {
        Self {
            block_size: to_usize(super_block.block_size.into()),
            layout: super_block.tag_layout(),
            checksums: super_block.checksums(),
            seed: super_block.seed(),
            uuid: super_block.uuid,
            wide: super_block.is_wide(),
        }
    }

    /// Returns the number of tags in a full descriptor block. Linux closes a block when another tag and a
    /// UUID do not fit.
    pub(super) fn tags_per_block(&self) -> usize {
        const FIXED: usize = size_of::<RawHeader>() + 2 * size_of::<[u8; 16]>();
        let room = self.block_size.saturating_sub(FIXED).saturating_sub(self.layout.tail_len());
        room.checked_div(self.layout.tag_len()).unwrap_or(0).max(1)
    }

    /// Returns the number of block numbers in a full revoke block.
    pub(super) fn revokes_per_block(&self) -> usize {
        let fixed = size_of::<RawRevokeHeader>().saturating_add(self.layout.tail_len());
        let room = self.block_size.saturating_sub(fixed);
        room.checked_div(self.revoke_len()).unwrap_or(0).max(1)
    }

    /// Returns the number of blocks of the log that a transaction needs, including its commit block.
    pub(super) fn space(&self, blocks: usize, revoked: usize) -> usize {
        let descriptors = blocks.div_ceil(self.tags_per_block());
        let revokes = revoked.div_ceil(self.revokes_per_block());
        blocks.saturating_add(descriptors).saturating_add(revokes).saturating_add(1)
    }

    /// Returns the tag for `bytes`, the contents of block `number` of the volume. The tag records whether
    /// the block must be escaped.
    pub(super) fn tag(&self, tid: Tid, number: u64, bytes: &[u8]) -> Tag {
        let escaped = bytes.starts_with(&MAGIC);
        let checksum = match (self.checksums.in_blocks(), escaped) {
            (false, _) => 0,
            (true, false) => checksum::data_block(self.seed, tid, bytes),
            (true, true) => checksum::escaped_block(self.seed, tid, bytes),
        };
        let flags = if escaped { TagFlags::ESCAPE } else { TagFlags::empty() };
        Tag { offset: 0, block: number, flags, checksum }
    }

    /// Encodes the descriptor block for `tags`, at most [`Encoder::tags_per_block`].
    pub(super) fn descriptor(&self, tid: Tid, tags: &[Tag], block: &mut Vec<u8>) {
        begin(block, raw::DESCRIPTOR_BLOCK, tid);
        let last = tags.len().saturating_sub(1);
        for (index, tag) in tags.iter().enumerate() {
            let mut flags = tag.flags;
            flags.set(TagFlags::SAME_UUID, index > 0);
            flags.set(TagFlags::LAST_TAG, index == last);
            self.put_tag(&Tag { flags, ..*tag }, block);
            if index == 0 {
                block.extend_from_slice(&self.uuid);
            }
        }
        self.close(block);
    }

    fn put_tag(&self, tag: &Tag, block: &mut Vec<u8>) {
        let end = block.len().saturating_add(self.layout.tag_len());
        let (low, high) = split(tag.block);
        let (low, high) = (U32::new(low), U32::new(if self.wide { high } else { 0 }));
        if self.checksums == Checksums::V3 {
            let (t_flags, t_checksum) = (U32::new(tag.flags.bits().into()), U32::new(tag.checksum));
            let tag = RawTag3 { t_blocknr: low, t_flags, t_blocknr_high: high, t_checksum };
            block.extend_from_slice(tag.as_bytes());
        } else {
            // v2 stores the low half.
            let half = u16::try_from(tag.checksum & u32::from(u16::MAX)).unwrap_or(0);
            let (t_checksum, t_flags) = (U16::new(half), U16::new(tag.flags.bits()));
            block.extend_from_slice(RawTag { t_blocknr: low, t_checksum, t_flags }.as_bytes());
            if self.wide {
                block.extend_from_slice(high.as_bytes());
            }
        }
        block.resize(end, 0);
    }

    /// Encodes the revoke block for `numbers`, at most [`Encoder::revokes_per_block`].
    pub(super) fn revoke(&self, tid: Tid, numbers: &[u64], block: &mut Vec<u8>) {
        begin(block, raw::REVOKE_BLOCK, tid);
        let used = numbers.len().saturating_mul(self.revoke_len());
        let used = used.saturating_add(size_of::<RawRevokeHeader>());
        let count = u32::try_from(to_u64(used)).unwrap_or(u32::MAX);
        block.extend_from_slice(U32::new(count).as_bytes());
        for &number in numbers {
            if self.wide {
                block.extend_from_slice(U64::new(number).as_bytes());
            } else {
                block.extend_from_slice(U32::new(split(number).0).as_bytes());
            }
        }
        self.close(block);
    }

    /// Encodes the commit block.
    pub(super) fn commit(&self, tid: Tid, now: Timestamp, block: &mut Vec<u8>) {
        let mut commit = RawCommit::new_zeroed();
        commit.h_commit_sec = U64::new(u64::try_from(now.secs()).unwrap_or(0));
        commit.h_commit_nsec = U32::new(now.nanos());
        begin(block, raw::COMMIT_BLOCK, tid);
        block.extend_from_slice(commit.as_bytes().get(size_of::<RawHeader>()..).unwrap_or_default());
        block.resize(self.block_size, 0);
        if self.checksums.in_blocks() {
            let sum = checksum::commit_block(self.seed, block);
            put_u32(block, checksum::COMMIT_FIELD, sum);
        }
    }

    fn revoke_len(&self) -> usize {
        if self.wide { size_of::<U64>() } else { size_of::<U32>() }
    }

    /// Pads a descriptor or revoke block with zeros and adds its checksum.
    fn close(&self, block: &mut Vec<u8>) {
        debug_assert!(block.len().saturating_add(self.layout.tail_len()) <= self.block_size);
        block.resize(self.block_size, 0);
        if self.checksums.in_blocks() {
            let sum = checksum::control_block(self.seed, block);
            put_u32(block, self.block_size.saturating_sub(self.layout.tail_len()), sum);
        }
    }
}

fn begin(block: &mut Vec<u8>, kind: u32, tid: Tid) {
    block.clear();
    let (h_magic, h_blocktype) = (U32::new(raw::MAGIC), U32::new(kind));
    let header = RawHeader { h_magic, h_blocktype, h_sequence: U32::new(tid.0) };
    block.extend_from_slice(header.as_bytes());
}

pub(super) fn put_u32(block: &mut [u8], at: usize, value: u32) {
    if let Some(field) = block.get_mut(at..at.saturating_add(size_of::<u32>())) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Checksums;

    #[test]
    fn a_descriptor_block_has_as_many_tags_as_that_of_linux() {
        let count = |checksums, wide, block_size| {
            let layout = TagLayout::new(checksums, wide);
            Encoder { block_size, layout, checksums, seed: 0, uuid: [0; 16], wide }.tags_per_block()
        };
        // A block continues while another tag, a UUID and the tail fit (Linux 6.1, fs/jbd2/commit.c,
        // `space_left`).
        for (checksums, wide, tag, tail) in
            [(Checksums::None, false, 8, 0), (Checksums::V2, true, 14, 4), (Checksums::V3, true, 16, 4)]
        {
            for block_size in [1024, 4096] {
                let (mut left, mut tags) = (block_size - 12 - tag - 16, 1);
                while left >= tag + 16 + tail {
                    (left, tags) = (left - tag, tags + 1);
                }
                assert_eq!(count(checksums, wide, block_size), tags, "{checksums:?}, {block_size}");
            }
        }
    }
}
