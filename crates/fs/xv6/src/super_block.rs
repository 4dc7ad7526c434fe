//! The length of the volume and the locations of its parts.
//!
//! Layout in blocks: 0 zeros, 1 the super block, the log, the inodes, the bitmap, the data.
//! Invariant: the parts are contiguous, so a block number determines the use of the block.
//! Invariant: the super block is written when the volume is created and never again, so a power cut cannot
//! tear it.

use obento_base::crc::crc32c;
use obento_base::wire::{FromBytes as _, IntoBytes as _, to_u64};
use obento_base::{Corrupt, Result, Structure};
use obento_block::BlockDevice;
use obento_driver::{Decoded, Probe};
use obento_inodes::Geometry;

use crate::raw::{BLOCK, LOG_MAX, MAGIC, RawInode, RawSuperBlock, VARIANT};

/// Block size as a power of two, and size of an inode in bytes.
pub(crate) const BLOCK_BITS: u32 = 12;
const INODE_BITS: u32 = 8;
const _: () = assert!(BLOCK == 1 << BLOCK_BITS && size_of::<RawInode>() == 1 << INODE_BITS);
/// Inodes per block: `IPB` of xv6.
pub(crate) const INODES_PER_BLOCK: u32 = 1 << (BLOCK_BITS - INODE_BITS);
/// Bits per block: `BPB` of xv6.
pub(crate) const BITS_PER_BLOCK: u32 = 8 << BLOCK_BITS;
/// Maximum number of blocks that a change touches besides the bitmap. These are two directories with their blocks of
/// numbers, four inodes, and the blocks of numbers for 16 MiB of data.
pub(crate) const CHANGE_MAX: u32 = 40;
/// The block of the super block.
pub(crate) const SUPER: u32 = 1;
/// The first block of the log.
pub(crate) const LOG_START: u32 = 2;

/// The validated super block, which implements the traits of the format.
#[derive(Clone, Debug)]
pub struct SuperBlock {
    /// The bytes.
    pub raw: RawSuperBlock,
    /// Locations of the parts.
    pub geometry: Geometry,
}

impl SuperBlock {
    /// Reads the super block. Returns `None` if the device has none of this layout. Fails with the errors
    /// of the device.
    pub(crate) fn read(device: &dyn BlockDevice) -> Result<Option<RawSuperBlock>> {
        let (mut before, mut bytes) = ([0; BLOCK], [0; size_of::<RawSuperBlock>()]);
        if device.len() < to_u64(BLOCK.saturating_mul(2)) {
            return Ok(None);
        }
        device.read_at(0, &mut before)?;
        device.read_at(to_u64(BLOCK), &mut bytes)?;
        // Most formats have their signature there: a later format has left this super block behind.
        let is_over = before.iter().any(|&byte| byte != 0);
        let raw = RawSuperBlock::read_from_bytes(&bytes).ok().filter(|_| !is_over);
        Ok(raw.filter(|raw| raw.magic.get() == MAGIC && raw.variant.get() == VARIANT))
    }

    /// Validates the super block that `probe` contains, or that of `device`. Fails with `Corrupt`, and with the errors
    /// of the device.
    pub(crate) fn of(device: &dyn BlockDevice, probe: Option<&Probe>) -> Result<Self> {
        let (structure, block) = (Structure::SuperBlock, SUPER.into());
        let magic = Corrupt::Magic { structure, block, found: 0, expected: MAGIC.into() };
        let raw = Decoded::of(probe, || Ok(Self::read(device)?.ok_or(magic)?))?;
        Ok(Self::decode(raw)?)
    }

    /// Validates a super block. Fails with `Corrupt`.
    pub fn decode(raw: RawSuperBlock) -> Result<Self, Corrupt> {
        let (structure, block) = (Structure::SuperBlock, u64::from(SUPER));
        let (found, expected) = (raw.checksum.get(), checksum(&raw));
        if found != expected {
            return Err(Corrupt::Checksum { structure, block, found, expected });
        }
        let wrong = |field, offset, found: u32| {
            Err(Corrupt::Field { structure, field, block, offset, found: found.into() })
        };
        let (size, inodes, log_len) = (raw.size.get(), raw.ninodes.get(), raw.nlog.get());
        let bitmap_len = size.div_ceil(BITS_PER_BLOCK);
        let inode_start = LOG_START.saturating_add(log_len);
        let bitmap_start = inode_start.saturating_add(inodes.div_ceil(INODES_PER_BLOCK));
        let data_start = bitmap_start.saturating_add(bitmap_len);
        let log_min = bitmap_len.saturating_add(CHANGE_MAX).saturating_add(1);
        match () {
            () if to_u64(LOG_MAX) < u64::from(log_len) || log_len < log_min => wrong("nlog", 16, log_len),
            () if inodes < 2 => wrong("ninodes", 12, inodes),
            () if raw.logstart.get() != LOG_START => wrong("logstart", 20, raw.logstart.get()),
            () if raw.inodestart.get() != inode_start => wrong("inodestart", 24, raw.inodestart.get()),
            () if raw.bmapstart.get() != bitmap_start => wrong("bmapstart", 28, raw.bmapstart.get()),
            () if size <= data_start => wrong("size", 4, size),
            () if raw.nblocks.get() != size.saturating_sub(data_start) => {
                wrong("nblocks", 8, raw.nblocks.get())
            }
            () => {
                let (log, block_bits, inode_bits) = (LOG_START..inode_start, BLOCK_BITS, INODE_BITS);
                let geometry = Geometry {
                    block_bits,
                    inode_bits,
                    size,
                    log,
                    inode_start,
                    inodes,
                    bitmap_start,
                    data_start,
                };
                Ok(Self { raw, geometry })
            }
        }
    }
}

/// Returns the label without its padding.
pub(crate) fn label(raw: &RawSuperBlock) -> &[u8] {
    raw.label.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// Returns the correct checksum of `raw`.
pub(crate) fn checksum(raw: &RawSuperBlock) -> u32 {
    let bytes = raw.as_bytes();
    crc32c(u32::MAX, bytes.get(..bytes.len().saturating_sub(4)).unwrap_or_default())
}
