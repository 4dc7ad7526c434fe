//! A device that contains only a journal.
//!
//! Layout: a super block in the format of ext2 at byte 1024, so that tools recognise the device. The super
//! block of the journal is in the block after it. The block numbers of the journal are those of the device.
//! Source: Linux `fs/ext4/super.c` (`ext4_get_journal_blkdev`), Documentation/filesystems/ext4/journal.rst,
//! "External Journal".

use obento_base::wire::le::{U16, U32};
use obento_base::wire::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};
use obento_base::{Corrupt, Result, Structure};
use obento_block::BlockDevice;

/// Offset of the super block in the format of ext2.
const LABEL_OFFSET: u64 = 1024;
/// `EXT4_SUPER_MAGIC`
const LABEL_MAGIC: u16 = 0xef53;
/// `EXT4_FEATURE_INCOMPAT_JOURNAL_DEV`
const JOURNAL_DEV: u32 = 0x8;
/// `EXT4_MAX_BLOCK_LOG_SIZE` less `EXT4_MIN_BLOCK_LOG_SIZE`: 64 KiB.
const MAX_LOG_BLOCK_SIZE: u32 = 6;

/// The fields of `struct ext4_super_block` that the device uses, little-endian.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawLabel {
    /// 0x0
    s_inodes_count: U32,
    /// 0x4
    s_blocks_count_lo: U32,
    /// 0x8
    unused_8: [u8; 16],
    /// 0x18
    s_log_block_size: U32,
    /// 0x1C
    unused_1c: [u8; 28],
    /// 0x38
    s_magic: U16,
    /// 0x3A
    unused_3a: [u8; 38],
    /// 0x60
    s_feature_incompat: U32,
    /// 0x64
    s_feature_ro_compat: U32,
    /// 0x68
    s_uuid: [u8; 16],
}
const _: () = assert!(size_of::<RawLabel>() == 0x78);

/// The properties of a journal device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExternalJournal {
    /// UUID of the device. A file system refers to the device by this UUID.
    pub uuid: [u8; 16],
    /// Block size in bytes.
    pub block_size: u32,
    /// Number of blocks of the device.
    pub len: u32,
}

impl ExternalJournal {
    /// Reads the super block of the device. Returns `None` if the device is not a journal device. Fails with
    /// `Corrupt` if the block size is invalid, and with the errors of the device.
    pub fn probe(device: &dyn BlockDevice) -> Result<Option<Self>> {
        let mut raw = RawLabel::new_zeroed();
        if device.len() < LABEL_OFFSET.saturating_mul(2) {
            return Ok(None);
        }
        device.read_at(LABEL_OFFSET, raw.as_mut_bytes())?;
        if raw.s_magic.get() != LABEL_MAGIC || raw.s_feature_incompat.get() & JOURNAL_DEV == 0 {
            return Ok(None);
        }
        let log = raw.s_log_block_size.get();
        let Some(block_size) = 1024_u32.checked_shl(log).filter(|_| log <= MAX_LOG_BLOCK_SIZE) else {
            let (structure, field, found) = (Structure::SuperBlock, "s_log_block_size", log.into());
            return Err(Corrupt::Field { structure, field, block: 1, offset: 0x18, found }.into());
        };
        Ok(Some(Self { uuid: raw.s_uuid, block_size, len: raw.s_blocks_count_lo.get() }))
    }

    /// Returns the block that contains the super block of the journal.
    pub fn super_block(&self) -> u32 {
        // The ext2 super block is in block 1 if blocks have 1 KiB, otherwise in block 0.
        if self.block_size == 1024 { 2 } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obento_block::MemDevice;
    use std::vec;

    #[test]
    fn a_label_contains_uuid_and_block_size_and_an_ordinary_volume_has_no_label() {
        let mut bytes = vec![0; 8192];
        bytes[1024 + 0x38..][..2].copy_from_slice(&[0x53, 0xef]);
        bytes[1024 + 0x4] = 2;
        bytes[1024 + 0x18] = 2;
        bytes[1024 + 0x68..][..16].copy_from_slice(&[7; 16]);
        assert_eq!(ExternalJournal::probe(&MemDevice::new(bytes.clone())), Ok(None));
        bytes[1024 + 0x60] = 8;
        let label = ExternalJournal { uuid: [7; 16], block_size: 4096, len: 2 };
        assert_eq!(ExternalJournal::probe(&MemDevice::new(bytes)), Ok(Some(label)));
    }
}
