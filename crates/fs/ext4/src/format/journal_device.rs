//! A device that contains only a journal for other volumes: `-O journal_dev`.
//!
//! On disk: a super block like that of a volume, with the feature `journal_dev`, and the journal's own super block in
//! the next block. Source: e2fsprogs `misc/mke2fs.c` `create_journal_dev`; `lib/ext2fs/mkjournal.c`
//! `ext2fs_get_journal_params`.
#![allow(clippy::arithmetic_side_effects, reason = "a journal has at most `MAX_BLOCKS` blocks")]

use obento_base::wire::{FromZeros, IntoBytes, split};
use obento_block::BlockDevice;
use obento_driver::{Contents, FormatError, Formatted};

use super::draft::{Identity, set_extra_isize, set_habits, set_identity};
use super::journal::{JournalSize, MAX_BLOCKS, MIN_BLOCKS, journal_label};
use super::options::RequestedSettings;
use super::output::Output;
use super::usage::Defaults;
use crate::checksum::Crc;
use crate::feature::{Compat, Incompat, RoCompat, names};
use crate::raw::RawSuperBlock;
use crate::size::BlockSize;
use crate::super_block::{MAGIC, PRIMARY_OFFSET};

/// A new journal device.
pub(super) struct JournalDevice {
    raw: RawSuperBlock,
    block_size: BlockSize,
    size: JournalSize,
    lazy: bool,
}

impl JournalDevice {
    /// Plans the device. Fails with `TooSmall` or `TooLarge`.
    pub fn new(wishes: &RequestedSettings, identity: &Identity, len: u64) -> Result<Self, FormatError> {
        let defaults = Defaults::new(wishes.usage.as_deref(), len)?;
        let block_size = wishes.block_size.unwrap_or(defaults.block_size);
        let blocks = block_size.whole(len);
        if blocks < MIN_BLOCKS {
            return Err(FormatError::TooSmall { what: "a journal", len });
        }
        let max = block_size.len(MAX_BLOCKS);
        if blocks > MAX_BLOCKS {
            return Err(FormatError::TooLarge { len, max });
        }
        // Fast commits depend on the volumes that use it.
        let size = JournalSize { log: blocks, fast_commits: 0 };
        let raw = super_block(wishes, identity, block_size, blocks);
        Ok(Self { raw, block_size, size, lazy: wishes.lazy_journal })
    }

    /// Returns the block of the volume's super block. The journal's follows it.
    fn label_block(&self) -> u64 {
        u64::from(self.block_size == BlockSize::MIN)
    }

    /// Returns a description of the result.
    pub fn describe(&self, label: &[u8]) -> Formatted {
        let incompat = Incompat::from_bits_retain(self.raw.s_feature_incompat.get());
        let ro_compat = RoCompat::from_bits_retain(self.raw.s_feature_ro_compat.get());
        Formatted {
            // The type that a probe returns.
            fs_type: "jbd",
            label: label.to_vec(),
            uuid: self.raw.s_uuid,
            block_size: self.block_size.bytes(),
            blocks: self.size.blocks(),
            journal_blocks: self.size.blocks(),
            features: names(Compat::empty(), incompat, ro_compat),
            ..Formatted::default()
        }
    }

    /// Writes the device, the super block last. Fails if the device fails.
    pub fn write(&self, device: &dyn BlockDevice, contents: Contents) -> Result<(), FormatError> {
        let mut output = Output::new(device)?;
        let byte = |block: u64| self.block_size.len(block);
        let len = byte(self.size.blocks());
        let is_clean = match contents {
            Contents::Zeros => true,
            Contents::Unknown => output.punch(0..len)?,
            Contents::Preserved => false,
        };
        let journal = self.label_block() + 1;
        if !is_clean {
            output.zero(0..if self.lazy { byte(journal + 1) } else { len })?;
        }
        let first = u32::try_from(journal + 1).unwrap_or(0);
        let label = journal_label(self.block_size.bytes(), self.size, 0, first, &self.raw.s_uuid);
        output.write(byte(journal), label.as_bytes())?;
        output.flush()?;
        output.write(PRIMARY_OFFSET, self.raw.as_bytes())?;
        Ok(output.flush()?)
    }
}

fn super_block(
    wishes: &RequestedSettings,
    identity: &Identity,
    block_size: BlockSize,
    blocks: u64,
) -> RawSuperBlock {
    let mut raw = RawSuperBlock::new_zeroed();
    let log = block_size.log();
    let (low, high) = split(blocks);
    raw.s_blocks_count_lo.set(low);
    raw.s_blocks_count_hi.set(high);
    raw.s_log_block_size.set(log);
    raw.s_log_cluster_size.set(log);
    raw.s_first_data_block.set(u32::from(log == 0));
    let per_group = block_size.bits().min((1 << 16) - 8);
    raw.s_blocks_per_group.set(per_group);
    raw.s_clusters_per_group.set(per_group);
    raw.s_magic.set(MAGIC);
    raw.s_state.set(1);
    raw.s_max_mnt_count.set(u16::MAX);
    raw.s_rev_level.set(1);
    raw.s_first_ino.set(11);
    let inode_size = wishes.inode_size.unwrap_or(256);
    raw.s_inode_size.set(u16::try_from(inode_size).unwrap_or(u16::MAX));
    set_extra_isize(&mut raw);
    set_identity(&mut raw, identity);
    set_habits(&mut raw, wishes);
    raw.s_feature_incompat.set(Incompat::JOURNAL_DEV.bits());
    if wishes.features.keeps(RoCompat::METADATA_CSUM) {
        raw.s_feature_ro_compat.set(RoCompat::METADATA_CSUM.bits());
        raw.s_checksum_type = 1;
        let bytes = raw.as_bytes();
        let sum = Crc::new(!0).add(bytes.get(..bytes.len() - 4).unwrap_or_default()).get();
        raw.s_checksum.set(sum);
    }
    raw
}
