//! The log: the newest versions of some blocks, all of which are the volume's once the header says so.
//!
//! Layout: a header with the numbers of the blocks, then the blocks. There is one commit in the log at a time.
//! Invariant: the header speaks for the blocks behind it by a checksum over both, so that one flush makes a commit
//! durable whatever of it the device writes first.
//! Invariant: the log is written only once the blocks of the commit before are home and flushed; so a log whose checksum
//! is wrong is one that nobody needs.
//! Invariant: a block that a later commit gives to a file is not in the log by then, so that replaying never writes over
//! a file. (jbd2, whose log holds many commits, needs revoke records for that.)
//!
//! Source: xv6-riscv `kernel/log.c`; the checksum is ours.

use alloc::vec::Vec;

use obento_base::Result;
use obento_base::crc::crc32c;
use obento_base::wire::{FromBytes as _, IntoBytes as _, to_u64, to_usize};
use obento_block::BlockDevice;

use crate::raw::{BLOCK, LOG_MAGIC, RawLogHeader};
use crate::super_block::{LOG_START, SuperBlock};

/// What the log holds.
#[derive(Debug, Default)]
pub(crate) struct Logged {
    pub(crate) sequence: u64,
    /// Where each block belongs, and its bytes.
    pub(crate) blocks: Vec<(u32, Vec<u8>)>,
}

/// Where block `number` starts on the device.
pub(crate) fn offset_of(number: u32) -> u64 {
    u64::from(number).saturating_mul(to_u64(BLOCK))
}

/// Reads the log; it is empty if its header does not speak for it. Errors: those of the device; NoMemory.
pub(crate) fn read(device: &dyn BlockDevice, sb: &SuperBlock) -> Result<Logged> {
    let mut header = read_block(device, LOG_START)?;
    let Some((mut raw, homes)) = decode(&header, sb) else { return Ok(Logged::default()) };
    let expected = raw.checksum.get();
    let mut blocks = Vec::new();
    for (at, home) in (LOG_START.saturating_add(1)..).zip(homes) {
        blocks.push((home, read_block(device, at)?));
    }
    raw.checksum.set(0);
    header.iter_mut().zip(raw.as_bytes()).for_each(|(to, from)| *to = *from);
    let found = blocks.iter().fold(crc32c(u32::MAX, &header), |sum, (_, bytes)| crc32c(sum, bytes));
    Ok(if found == expected { Logged { sequence: raw.sequence.get(), blocks } } else { Logged::default() })
}

fn read_block(device: &dyn BlockDevice, number: u32) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(BLOCK)?;
    bytes.resize(BLOCK, 0);
    device.read_at(offset_of(number), &mut bytes)?;
    Ok(bytes)
}

/// The header and the homes it names, if it can be one.
fn decode(bytes: &[u8], sb: &SuperBlock) -> Option<(RawLogHeader, Vec<u32>)> {
    let (raw, rest) = RawLogHeader::read_from_prefix(bytes).ok()?;
    if raw.magic.get() != LOG_MAGIC || raw.n.get() > sb.log_room() {
        return None;
    }
    let homes = rest.chunks_exact(4).filter_map(|chunk| Some(u32::from_le_bytes(chunk.try_into().ok()?)));
    let homes: Vec<u32> = homes.take(to_usize(raw.n.get().into())).collect();
    // Neither the super block nor the log itself is ever logged.
    homes.iter().all(|home| (sb.inode_start..sb.size).contains(home)).then_some((raw, homes))
}

/// Writes a commit. It is one once the device was flushed. Errors: those of the device.
pub(crate) fn write<B: AsRef<[u8]>>(
    device: &dyn BlockDevice,
    sequence: u64,
    blocks: &[(u32, B)],
) -> Result<()> {
    let mut raw = RawLogHeader { n: count(blocks.len()).into(), ..RawLogHeader::default() };
    raw.magic.set(LOG_MAGIC);
    raw.sequence.set(sequence);
    let homes = blocks.iter().flat_map(|(home, _)| home.to_le_bytes());
    let mut header: Vec<u8> = raw.as_bytes().iter().copied().chain(homes).collect();
    header.resize(BLOCK, 0);
    let sum = blocks.iter().fold(crc32c(u32::MAX, &header), |sum, (_, bytes)| crc32c(sum, bytes.as_ref()));
    raw.checksum.set(sum);
    header.iter_mut().zip(raw.as_bytes()).for_each(|(to, from)| *to = *from);
    for (at, (_, bytes)) in (LOG_START.saturating_add(1)..).zip(blocks) {
        device.write_at(offset_of(at), bytes.as_ref())?;
    }
    device.write_at(offset_of(LOG_START), &header)
}

/// Makes the log empty, on stable storage. The blocks of the last commit are home and flushed. Errors: those of the device.
pub(crate) fn clear(device: &dyn BlockDevice) -> Result<()> {
    device.write_at(offset_of(LOG_START), &[0; size_of::<RawLogHeader>()])?;
    device.flush()
}

fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
