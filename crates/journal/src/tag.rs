//! The tags of a descriptor block, which identify the blocks that follow it in the log.
//!
//! Layout: tags follow the header of 12 bytes, until a tag with `LAST_TAG` or the end of the block (without
//! its tail). A tag has 8 bytes, 4 more with 64-bit block numbers, and 2 more with v2 checksums, which jbd2
//! reserves by mistake and never uses. With v3 checksums, a tag always has 16 bytes. A UUID of 16 bytes
//! follows each tag without `SAME_UUID`.
//! Source: Linux `include/linux/jbd2.h`, `fs/jbd2/journal.c` (`journal_tag_bytes`), `fs/jbd2/recovery.c`.

use bitflags::bitflags;
use obento_base::Cursor;
use obento_base::wire::be::U32;
use obento_base::wire::{join, to_u64};

use crate::Checksums;
use crate::raw::{RawBlockTail, RawHeader, RawTag, RawTag3};

bitflags! {
    /// `t_flags`
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct TagFlags: u16 {
        /// The block starts with the magic number of the journal, which is replaced by zeros in the log.
        const ESCAPE = 0x1;
        /// No UUID follows.
        const SAME_UUID = 0x2;
        /// The block was deleted by this transaction. Unused in practice.
        const DELETED = 0x4;
        /// No tag follows.
        const LAST_TAG = 0x8;
        const _ = !0;
    }
}

/// Length of the UUID that follows a tag.
const UUID_LEN: usize = 16;

/// The layout of tags in the descriptor blocks of a journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TagLayout {
    checksums: Checksums,
    wide: bool,
}

impl TagLayout {
    /// Returns the layout for these checksums. `wide` selects 64-bit block numbers.
    pub const fn new(checksums: Checksums, wide: bool) -> Self {
        Self { checksums, wide }
    }

    /// Returns the length of a tag in bytes, without the UUID.
    pub const fn tag_len(self) -> usize {
        match (self.checksums, self.wide) {
            (Checksums::V3, _) => 16,
            (Checksums::V2, true) => 14,
            (Checksums::V2, false) => 10,
            (_, true) => 12,
            (_, false) => 8,
        }
    }

    /// Returns the number of bytes at the end of a descriptor or revoke block that are not records.
    pub const fn tail_len(self) -> usize {
        if self.checksums.in_blocks() { size_of::<RawBlockTail>() } else { 0 }
    }

    /// Returns a control block without its tail.
    pub(crate) fn body(self, block: &[u8]) -> &[u8] {
        block.get(..block.len().saturating_sub(self.tail_len())).unwrap_or_default()
    }

    /// Returns the tags of a descriptor block.
    pub fn tags(self, block: &[u8]) -> Tags<'_> {
        let mut cursor = Cursor::new(self.body(block));
        let ended = cursor.take(size_of::<RawHeader>()).is_none();
        Tags { layout: self, cursor, ended }
    }
}

/// A tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag {
    /// Offset of the tag in the descriptor block.
    pub offset: u32,
    /// Block number on the volume.
    pub block: u64,
    /// Flags.
    pub flags: TagFlags,
    /// Checksum of the block; 16 bits with v2, 0 without checksums.
    pub checksum: u32,
}

impl Tag {
    /// Returns whether `computed` matches the stored part of the checksum.
    pub(crate) fn matches(&self, checksums: Checksums, computed: u32) -> bool {
        match checksums {
            Checksums::V3 => self.checksum == computed,
            Checksums::V2 => self.checksum == computed & u32::from(u16::MAX),
            Checksums::None | Checksums::V1 => true,
        }
    }
}

/// An iterator over the tags of a descriptor block, in the order of the blocks that follow it in the log.
#[derive(Clone, Debug)]
pub struct Tags<'a> {
    layout: TagLayout,
    cursor: Cursor<'a>,
    ended: bool,
}

impl Tags<'_> {
    fn decode(&mut self) -> Option<Tag> {
        let offset = u32::try_from(to_u64(self.cursor.position())).ok()?;
        let mut tag = Cursor::new(self.cursor.take(self.layout.tag_len())?);
        if self.layout.checksums == Checksums::V3 {
            let raw = tag.take_raw::<RawTag3>()?;
            let high = if self.layout.wide { raw.t_blocknr_high.get() } else { 0 };
            let flags = TagFlags::from_bits_retain(u16::try_from(raw.t_flags.get() & 0xffff).ok()?);
            let block = join(raw.t_blocknr.get(), high);
            return Some(Tag { offset, block, flags, checksum: raw.t_checksum.get() });
        }
        let raw = tag.take_raw::<RawTag>()?;
        let high = if self.layout.wide { tag.take_raw::<U32>()?.get() } else { 0 };
        let flags = TagFlags::from_bits_retain(raw.t_flags.get());
        let checksum = if self.layout.checksums == Checksums::V2 { raw.t_checksum.get().into() } else { 0 };
        Some(Tag { offset, block: join(raw.t_blocknr.get(), high), flags, checksum })
    }
}

impl Iterator for Tags<'_> {
    type Item = Tag;

    fn next(&mut self) -> Option<Tag> {
        if self.ended {
            return None;
        }
        let tag = self.decode()?;
        let cut = !tag.flags.contains(TagFlags::SAME_UUID) && self.cursor.take(UUID_LEN).is_none();
        self.ended = cut || tag.flags.contains(TagFlags::LAST_TAG);
        Some(tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn blocks(layout: TagLayout, bytes: &[u8]) -> Vec<(u32, u64)> {
        layout.tags(bytes).map(|tag| (tag.offset, tag.block)).collect()
    }

    #[test]
    fn each_layout_has_its_own_tag_size() {
        for (checksums, wide, len) in [
            (Checksums::None, false, 8),
            (Checksums::V1, true, 12),
            (Checksums::V2, false, 10),
            (Checksums::V2, true, 14),
            (Checksums::V3, false, 16),
            (Checksums::V3, true, 16),
        ] {
            let layout = TagLayout::new(checksums, wide);
            let mut bytes = std::vec![0; 12];
            for (block, flags) in [(5_u32, 0_u16), (6, 2), (7, 10)] {
                let mut tag = std::vec![0; len];
                tag[..4].copy_from_slice(&block.to_be_bytes());
                tag[6..8].copy_from_slice(&flags.to_be_bytes());
                bytes.extend(tag);
                bytes.extend(if flags & 2 == 0 { &[0xee; 16][..] } else { &[] });
            }
            bytes.resize(512, 0xff);
            let at = |n: usize| u32::try_from(n).unwrap();
            let expected = [(12, 5), (at(12 + len + 16), 6), (at(12 + 2 * len + 16), 7)];
            assert_eq!(blocks(layout, &bytes), expected, "{layout:?}");
        }
    }

    #[test]
    fn tags_end_where_the_tail_begins() {
        let mut block = std::vec![0; 12 + 3 * 16];
        for tag in block[12..].chunks_mut(16) {
            tag[7] = 2;
        }
        assert_eq!(TagLayout::new(Checksums::V3, true).tags(&block).count(), 2);
        assert_eq!(TagLayout::new(Checksums::None, false).tags(&block[..11]).count(), 0);
    }

    #[test]
    fn high_halves_count_only_with_64_bit_block_numbers() {
        let mut block = std::vec![0xff; 64];
        block[12..24].copy_from_slice(&[0, 0, 0, 1, 0, 0, 0, 10, 0, 0, 0, 9]);
        assert_eq!(blocks(TagLayout::new(Checksums::None, true), &block), [(12, 0x9_0000_0001)]);
        assert_eq!(blocks(TagLayout::new(Checksums::None, false), &block), [(12, 1)]);
        assert_eq!(blocks(TagLayout::new(Checksums::V3, false), &block), [(12, 1)]);
    }
}
