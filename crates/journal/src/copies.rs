//! Older versions of blocks of the volume: every copy that the log still contains. This includes the copies
//! of transactions whose blocks have been written to their home locations.
//!
//! The log is a ring, and a checkpoint only moves its start. Descriptors and copies before the start therefore stay in
//! the log until later transactions overwrite them. A copy counts as overwritten in these cases:
//!
//! - Its block contains a control block, or cannot be read.
//! - Its checksum differs from the checksum in the tag (`CSUM_V2`, `CSUM_V3`).
//! - An earlier copy of the same descriptor counts as overwritten.
//!
//! Invariant: there are at most as many copies as the log has blocks, because each block of the log belongs to at most
//! one copy.
//! Source: Linux `fs/jbd2/commit.c` `jbd2_journal_commit_transaction`; `fs/jbd2/checkpoint.c`.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use obento_base::Result;
use obento_base::wire::FromBytes;

use crate::log::data_mismatch;
use crate::raw::{DESCRIPTOR_BLOCK, MAGIC, RawHeader};
use crate::tag::TagFlags;
use crate::{Journal, Tag, Tid};

/// A copy of a block of the volume in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OldCopy {
    /// The transaction that wrote the block.
    pub tid: Tid,
    /// Block of the journal that contains the copy.
    pub at: u32,
    /// Whether the block began with the magic number of the journal. If so, the copy begins with zeros
    /// instead.
    is_escaped: bool,
}

impl Journal {
    /// Returns all copies in the log. The keys of the map are block numbers of the volume. `volume_blocks` is
    /// the number of blocks of the volume. The copies of a block are sorted by transaction, the newest last.
    /// Skips descriptors that cannot be read.
    ///
    /// # Errors
    ///
    /// - `NoMemory`: memory is exhausted.
    pub fn old_copies(&self, volume_blocks: u64) -> Result<BTreeMap<u64, Vec<OldCopy>>> {
        let mut newest: BTreeMap<u32, (u64, OldCopy)> = BTreeMap::new();
        let mut block = self.block_buffer()?;
        for at in self.super_block().log() {
            if self.read(at, &mut block).is_err() {
                continue;
            }
            let Ok((header, _)) = RawHeader::ref_from_prefix(&block) else { break };
            if header.h_magic.get() != MAGIC || header.h_blocktype.get() != DESCRIPTOR_BLOCK {
                continue;
            }
            let tid = Tid(header.h_sequence.get());
            self.copies_of(at, tid, &block, &mut newest)?;
        }
        let mut copies: BTreeMap<u64, Vec<OldCopy>> = BTreeMap::new();
        for (block, copy) in newest.into_values().filter(|(block, _)| *block < volume_blocks) {
            let list = copies.entry(block).or_default();
            list.try_reserve(1)?;
            let before = list.partition_point(|other| !other.tid.is_after(copy.tid));
            list.insert(before, copy);
        }
        Ok(copies)
    }

    /// Adds the copies of the descriptor `block` at `at`. If two descriptors describe the same block of the log, the
    /// block belongs to the later transaction.
    fn copies_of(
        &self,
        at: u32,
        tid: Tid,
        block: &[u8],
        newest: &mut BTreeMap<u32, (u64, OldCopy)>,
    ) -> Result<()> {
        let log = self.super_block().log();
        let mut buffer = self.block_buffer()?;
        let mut next = at;
        for tag in self.super_block().tag_layout().tags(block) {
            next = next.saturating_add(1);
            if next >= log.end {
                next = log.start;
            }
            if next == at || !self.is_copy(next, tid, &tag, &mut buffer) {
                break;
            }
            let copy = OldCopy { tid, at: next, is_escaped: tag.flags.contains(TagFlags::ESCAPE) };
            let is_newer = newest.get(&next).is_none_or(|(_, other)| tid.is_after(other.tid));
            if is_newer {
                newest.insert(next, (tag.block, copy));
            }
        }
        Ok(())
    }

    /// Returns whether block `at` of the log still is the copy that `tag` describes.
    fn is_copy(&self, at: u32, tid: Tid, tag: &Tag, buffer: &mut [u8]) -> bool {
        if self.read(at, buffer).is_err() {
            return false;
        }
        let sb = self.super_block();
        let is_control = buffer.first_chunk() == Some(&MAGIC.to_be_bytes());
        let checksums = sb.checksums();
        let is_sound =
            !checksums.in_blocks() || data_mismatch(checksums, sb.seed(), tid, tag, buffer).is_none();
        !is_control && is_sound
    }

    /// Reads a copy into `buf`, with the contents that the block had on the volume. `buf` has the size of a block.
    ///
    /// # Errors
    ///
    /// - `Device`: the device failed.
    pub fn read_copy(&self, copy: &OldCopy, buf: &mut [u8]) -> Result<()> {
        self.read(copy.at, buf)?;
        if let Some(first) = buf.first_chunk_mut().filter(|_| copy.is_escaped) {
            *first = MAGIC.to_be_bytes();
        }
        Ok(())
    }
}
