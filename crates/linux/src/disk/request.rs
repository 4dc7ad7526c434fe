//! The requests to a disk.
//!
//! Source: Virtual I/O Device (VIRTIO) 1.2, 5.2 "Block Device".

use std::ops::Range;

use obento_base::Error;
use obento_base::wire::{to_u64, to_usize};
use obento_block::BlockDevice;

use super::DISCARD_SECTORS;
use super::memory::Memory;
use super::queue::{Chain, MemoryRange};

/// Bytes of a sector, whatever the block size.
pub const SECTOR: u64 = 512;
/// The most bytes of one request: more than the kernel ever requests.
const BYTES_MAX: u64 = 64 << 20;

/// Bytes of a segment of a discard.
const SEGMENT: usize = 16;

/// Types of requests.
mod kind {
    pub const IN: u32 = 0;
    pub const OUT: u32 = 1;
    pub const FLUSH: u32 = 4;
    pub const GET_ID: u32 = 8;
    pub const DISCARD: u32 = 11;
    pub const WRITE_ZEROES: u32 = 13;
}

/// `VIRTIO_BLK_S_*`.
const OK: u8 = 0;
const IO_ERROR: u8 = 1;
const UNSUPPORTED: u8 = 2;

/// The reason why a request is refused.
enum Refused {
    Unknown,
    Device(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Device(error)
    }
}

/// Executes the request in `chain` and writes its status; bytes pass through `buffer`. Returns the number of bytes that were
/// written into the chain, and the error of the device, if any.
pub fn serve(
    device: &dyn BlockDevice,
    memory: &Memory,
    chain: &Chain,
    buffer: &mut Vec<u8>,
) -> (u32, Option<Error>) {
    let Some((status, ranges)) = chain.ranges.split_last() else { return (0, None) };
    let (state, len, failure) = match act(device, memory, ranges, buffer) {
        Some(Ok(len)) => (OK, len, None),
        Some(Err(Refused::Unknown)) => (UNSUPPORTED, 0, None),
        Some(Err(Refused::Device(error))) => (IO_ERROR, 0, Some(error)),
        None => (IO_ERROR, 0, None),
    };
    let reported = status.is_output && status.len > 0 && memory.write(status.address, &[state]).is_some();
    (len.saturating_add(u32::from(reported)), failure)
}

/// Returns `None` for an invalid request.
fn act(
    device: &dyn BlockDevice,
    memory: &Memory,
    ranges: &[MemoryRange],
    buffer: &mut Vec<u8>,
) -> Option<Result<u32, Refused>> {
    let (head, rest) = ranges.split_first()?;
    let raw: [u8; 16] = memory.number(head.address).filter(|_| head.len == 16 && !head.is_output)?;
    let [k0, k1, k2, k3, _, _, _, _, sector @ ..] = raw;
    let at = u64::from_le_bytes(sector).checked_mul(SECTOR)?;
    match u32::from_le_bytes([k0, k1, k2, k3]) {
        kind::IN => read(device, memory, (at, rest), buffer),
        kind::OUT => write(device, memory, (at, rest), buffer),
        kind::FLUSH => device.flush().into_answer(),
        kind::GET_ID => Some(Ok(0)),
        kind::DISCARD => device.discard(range(memory, rest)?).into_answer(),
        kind::WRITE_ZEROES => zero(device, range(memory, rest)?).into_answer(),
        _ => Some(Err(Refused::Unknown)),
    }
}

trait IntoAnswer {
    fn into_answer(self) -> Option<Result<u32, Refused>>;
}

impl IntoAnswer for obento_base::Result<()> {
    fn into_answer(self) -> Option<Result<u32, Refused>> {
        Some(self.map(|()| 0).map_err(Refused::from))
    }
}

fn total(ranges: &[MemoryRange]) -> Option<u64> {
    Some(ranges.iter().map(|range| u64::from(range.len)).sum()).filter(|len| *len <= BYTES_MAX)
}

/// Returns the first bytes of `buffer`, which retains its memory between requests.
fn room(buffer: &mut Vec<u8>, len: u64) -> &mut [u8] {
    let len = to_usize(len);
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
    &mut buffer[..len]
}

fn read(
    device: &dyn BlockDevice,
    memory: &Memory,
    (at, into): (u64, &[MemoryRange]),
    buffer: &mut Vec<u8>,
) -> Option<Result<u32, Refused>> {
    let len = total(into)?;
    let bytes = room(buffer, len);
    if let Err(error) = device.read_at(at, bytes) {
        return Some(Err(error.into()));
    }
    let mut rest = &*bytes;
    for range in into {
        let (part, more) = rest.split_at_checked(to_usize(range.len.into()))?;
        memory.write(range.address, part).filter(|()| range.is_output)?;
        rest = more;
    }
    Some(Ok(u32::try_from(len).ok()?))
}

fn write(
    device: &dyn BlockDevice,
    memory: &Memory,
    (at, from): (u64, &[MemoryRange]),
    buffer: &mut Vec<u8>,
) -> Option<Result<u32, Refused>> {
    let bytes = room(buffer, total(from)?);
    device.write_at(at, gather(memory, from, bytes)?).into_answer()
}

/// Fills `bytes` from the ranges `from`, which have the same length.
fn gather<'b>(memory: &Memory, from: &[MemoryRange], bytes: &'b mut [u8]) -> Option<&'b [u8]> {
    let mut rest = &mut *bytes;
    for range in from {
        let (part, more) = rest.split_at_mut_checked(to_usize(range.len.into()))?;
        memory.read(range.address, part).filter(|()| !range.is_output)?;
        rest = more;
    }
    rest.is_empty().then_some(())?;
    Some(bytes)
}

/// Returns the range to discard or zero: sector, number of sectors, flags. Only one segment and the offered number of sectors are accepted.
fn range(memory: &Memory, from: &[MemoryRange]) -> Option<Range<u64>> {
    let mut segment = [0; SEGMENT];
    let bytes = gather(memory, from, &mut segment)?;
    let (sector, rest) = bytes.split_first_chunk()?;
    let start = u64::from_le_bytes(*sector).checked_mul(SECTOR)?;
    let sectors =
        Some(u32::from_le_bytes(*rest.first_chunk()?)).filter(|sectors| *sectors <= DISCARD_SECTORS)?;
    Some(start..start.checked_add(u64::from(sectors) * SECTOR)?)
}

fn zero(device: &dyn BlockDevice, range: Range<u64>) -> obento_base::Result<()> {
    if device.punch(range.clone())? {
        return Ok(());
    }
    let zeros = vec![0; 1 << 20];
    let mut at = range.start;
    while at < range.end {
        let len = (range.end - at).min(to_u64(zeros.len()));
        device.write_at(at, &zeros[..to_usize(len)])?;
        at += len;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
