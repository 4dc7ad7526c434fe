//! The log: the newest versions of some blocks. They are valid if the header is valid.
//!
//! Layout: a header with the numbers of the blocks, then the blocks. The log contains one commit at a time.
//! Invariant: the checksum of the header covers the header and the blocks. One flush therefore makes a commit durable,
//! in whatever order the device writes.
//! Invariant: the log is written only after the blocks of the previous commit are in their home locations and
//! flushed. A log with a wrong checksum can therefore be ignored.
//! Invariant: when a later commit gives a block to a file, the block is no longer in the log, so replay never
//! overwrites a file. (jbd2, whose log contains many commits, needs revoke records for that.)
//!
//! Source: xv6-riscv `kernel/log.c` (`struct logheader`); all fields except the first are ours.

use alloc::vec::Vec;

use obento_base::Result;
use obento_base::crc::crc32c;
use obento_base::wire::le::{U32, U64};
use obento_base::wire::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, to_usize};
use obento_block::BlockDevice;

use crate::Geometry;

/// Magic number of a written log: `oblg`.
pub const LOG_MAGIC: u32 = 0x676c_626f;

/// The start of the first block of the log. The numbers of the following blocks come after it.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct RawLogHeader {
    /// Number of blocks: `n` of xv6.
    pub n: U32,
    /// [`LOG_MAGIC`].
    pub magic: U32,
    /// Number of the commit.
    pub sequence: U64,
    /// CRC-32C of the header block, with this field set to 0, and of all following blocks.
    pub checksum: U32,
    /// 0.
    pub reserved: U32,
}
const _: () = assert!(size_of::<RawLogHeader>() == 24);

/// Returns the number of blocks that a header of `block_size` bytes can describe.
pub const fn log_max(block_size: usize) -> usize {
    block_size.saturating_sub(size_of::<RawLogHeader>()) / 4
}

/// The contents of the log.
#[derive(Debug, Default)]
pub(crate) struct Logged {
    pub(crate) sequence: u64,
    /// The home location and the contents of each block.
    pub(crate) blocks: Vec<(u32, Vec<u8>)>,
}

/// Reads the log. If the header is invalid, the log is empty. Fails with `NoMemory`, or if the device fails.
pub(crate) fn read(device: &dyn BlockDevice, geometry: &Geometry) -> Result<Logged> {
    let mut header = read_block(device, geometry, geometry.log.start)?;
    let Some((mut raw, homes)) = decode(&header, geometry) else { return Ok(Logged::default()) };
    let expected = raw.checksum.get();
    let mut blocks = Vec::new();
    for (at, home) in geometry.log.clone().skip(1).zip(homes) {
        blocks.push((home, read_block(device, geometry, at)?));
    }
    raw.checksum.set(0);
    header.iter_mut().zip(raw.as_bytes()).for_each(|(to, from)| *to = *from);
    let found = blocks.iter().fold(crc32c(u32::MAX, &header), |sum, (_, bytes)| crc32c(sum, bytes));
    Ok(if found == expected { Logged { sequence: raw.sequence.get(), blocks } } else { Logged::default() })
}

fn read_block(device: &dyn BlockDevice, geometry: &Geometry, number: u32) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(geometry.block_size())?;
    bytes.resize(geometry.block_size(), 0);
    device.read_at(geometry.offset_of(number), &mut bytes)?;
    Ok(bytes)
}

/// Returns the header and the places that it contains, if it is plausible.
fn decode(bytes: &[u8], geometry: &Geometry) -> Option<(RawLogHeader, Vec<u32>)> {
    let (raw, rest) = RawLogHeader::read_from_prefix(bytes).ok()?;
    let len = to_usize(raw.n.get().into());
    if raw.magic.get() != LOG_MAGIC || len > geometry.log_room() {
        return None;
    }
    let homes = rest.chunks_exact(4).filter_map(|chunk| Some(u32::from_le_bytes(chunk.try_into().ok()?)));
    let homes: Vec<u32> = homes.take(len).collect();
    // Blocks before the tables and the log itself are never logged.
    let first = geometry.inode_start.min(geometry.bitmap_start);
    let can_be = |home| (first..geometry.size).contains(home) && !geometry.log.contains(home);
    homes.iter().all(can_be).then_some((raw, homes))
}

/// Writes a commit. It is durable once the device is flushed. Fails if the device fails.
pub(crate) fn write<B: AsRef<[u8]>>(
    device: &dyn BlockDevice,
    geometry: &Geometry,
    sequence: u64,
    blocks: &[(u32, B)],
) -> Result<()> {
    let len = u32::try_from(blocks.len()).unwrap_or(u32::MAX);
    let mut raw = RawLogHeader { n: len.into(), ..RawLogHeader::default() };
    raw.magic.set(LOG_MAGIC);
    raw.sequence.set(sequence);
    let homes = blocks.iter().flat_map(|(home, _)| home.to_le_bytes());
    let mut header: Vec<u8> = raw.as_bytes().iter().copied().chain(homes).collect();
    header.resize(geometry.block_size(), 0);
    let sum = blocks.iter().fold(crc32c(u32::MAX, &header), |sum, (_, bytes)| crc32c(sum, bytes.as_ref()));
    raw.checksum.set(sum);
    header.iter_mut().zip(raw.as_bytes()).for_each(|(to, from)| *to = *from);
    for (at, (_, bytes)) in geometry.log.clone().skip(1).zip(blocks) {
        device.write_at(geometry.offset_of(at), bytes.as_ref())?;
    }
    device.write_at(geometry.offset_of(geometry.log.start), &header)
}

/// Durably empties the log. The blocks of the last commit must be in their home locations and flushed. Fails
/// if the device fails.
pub(crate) fn clear(device: &dyn BlockDevice, geometry: &Geometry) -> Result<()> {
    device.write_at(geometry.offset_of(geometry.log.start), &[0; size_of::<RawLogHeader>()])?;
    device.flush()
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use obento_block::MemDevice;

    use super::*;

    fn geometry() -> Geometry {
        Geometry {
            block_bits: 10,
            inode_bits: 6,
            size: 64,
            log: 2..6,
            inode_start: 6,
            inodes: 16,
            bitmap_start: 7,
            data_start: 8,
        }
    }

    /// Returns what is read after a commit of blocks with these places.
    fn logged(homes: &[u32]) -> Logged {
        let device = MemDevice::new(vec![0; 64 << 10]);
        let blocks: Vec<_> = homes.iter().map(|&home| (home, [7_u8; 1024])).collect();
        write(&device, &geometry(), 5, &blocks).unwrap();
        read(&device, &geometry()).unwrap()
    }

    #[test]
    fn a_commit_is_read_as_it_was_written_and_a_log_that_was_cleared_is_empty() {
        let found = logged(&[6, 63, 8]);
        assert_eq!((found.sequence, found.blocks.len()), (5, 3));
        assert!(
            found.blocks.iter().zip([6, 63, 8]).all(|((to, bytes), home)| *to == home && *bytes == [7; 1024])
        );
        let device = MemDevice::new(vec![0; 64 << 10]);
        write(&device, &geometry(), 5, &[(6, [7; 1024])]).unwrap();
        clear(&device, &geometry()).unwrap();
        assert!(read(&device, &geometry()).unwrap().blocks.is_empty());
    }

    #[test]
    fn a_log_with_unloggable_or_too_many_blocks_is_ignored() {
        for homes in [&[1][..], &[6, 5], &[6, 64], &[6, u32::MAX], &[8, 9, 10, 11]] {
            assert!(logged(homes).blocks.is_empty(), "{homes:?}");
        }
    }

    #[test]
    fn a_log_with_one_wrong_byte_is_ignored() {
        let device = MemDevice::new(vec![0; 64 << 10]);
        write(&device, &geometry(), 5, &[(6, [7; 1024]), (8, [9; 1024])]).unwrap();
        let sound = device.snapshot();
        for at in [2048, 2052, 2056, 2064, 2072, 2079, 2100, 3072, 5119] {
            let mut bytes = sound.clone();
            bytes[at] ^= 1;
            assert!(read(&MemDevice::new(bytes), &geometry()).unwrap().blocks.is_empty(), "{at}");
        }
    }
}
