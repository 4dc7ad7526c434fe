//! Blocks: the unit of checksums and of writes.
//!
//! ```text
//! offset  0  u32  CRC-32C of bytes 4 to 4095
//!         4  u16  number of bytes of records
//!         6  u16  number of records
//!         8  u64  sequence number of the first record
//!        16  i64  time of the first record in microseconds since 1970
//!        24       records
//! ```
//!
//! All integers are little-endian. Invariant: a record never crosses a block, so that a torn block loses its
//! own records only.

use alloc::vec::Vec;

use obento_base::crc::crc32c;

use crate::record::Record;

/// Length of a block in bytes.
pub const BLOCK: usize = 4096;
/// Length of the checksum of a block.
const SUM: usize = size_of::<u32>();
/// Length of the header of a block.
pub(crate) const HEADER: usize = 24;

/// A block to which records are added.
#[derive(Debug, Default)]
pub(crate) struct BlockBuilder {
    records: Vec<u8>,
    /// The encoded block as it was last written; empty if it was not.
    encoded: Vec<u8>,
    /// Number of bytes of records in `encoded`. Zeros follow them.
    encoded_len: usize,
    zeros: ZeroTail,
    count: u16,
    first: u64,
    start: i64,
    last: i64,
}

impl BlockBuilder {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of records.
    pub(crate) fn count(&self) -> u64 {
        self.count.into()
    }

    pub(crate) fn clear(&mut self) {
        self.records.clear();
        self.count = 0;
        let end = HEADER.saturating_add(self.encoded_len);
        self.encoded.get_mut(HEADER..end).into_iter().for_each(|records| records.fill(0));
        self.encoded_len = 0;
    }

    /// Returns the encoded block, which the caller passes to [`restore`](Self::restore) afterwards. A block that is
    /// written again at each sync is not copied and not filled again: only records that were added since are.
    pub(crate) fn take_encoded(&mut self) -> Vec<u8> {
        let mut block = core::mem::take(&mut self.encoded);
        block.resize(BLOCK, 0);
        let end = HEADER.saturating_add(self.records.len());
        let added = block.get_mut(HEADER.saturating_add(self.encoded_len)..end);
        let records = self.records.get(self.encoded_len..);
        if let Some((to, from)) = added.zip(records) {
            to.copy_from_slice(from);
        }
        self.encoded_len = self.records.len();
        let header = self.header();
        if let Some((sum, body)) = block.split_first_chunk_mut() {
            body.first_chunk_mut().into_iter().for_each(|start| *start = header);
            *sum = self.zeros.sum(body, end.saturating_sub(SUM)).to_le_bytes();
        }
        block
    }

    /// Takes back the encoded block.
    pub(crate) fn restore(&mut self, encoded: Vec<u8>) {
        self.encoded = encoded;
    }

    /// Returns the header after the checksum.
    fn header(&self) -> [u8; HEADER - SUM] {
        let [l0, l1] = u16::try_from(self.records.len()).unwrap_or(u16::MAX).to_le_bytes();
        let [c0, c1] = self.count.to_le_bytes();
        let [f0, f1, f2, f3, f4, f5, f6, f7] = self.first.to_le_bytes();
        let [s0, s1, s2, s3, s4, s5, s6, s7] = self.start.to_le_bytes();
        [l0, l1, c0, c1, f0, f1, f2, f3, f4, f5, f6, f7, s0, s1, s2, s3, s4, s5, s6, s7]
    }

    /// Adds `record`. Returns whether it fits.
    pub(crate) fn push(&mut self, sequence: u64, time: i64, record: &Record<'_>) -> bool {
        if self.is_empty() {
            (self.first, self.start, self.last) = (sequence, time, time);
        }
        let before = self.records.len();
        // A clock that was set back does not move the records back.
        let elapsed = u64::try_from(time.saturating_sub(self.last)).unwrap_or(0);
        record.encode(elapsed, &mut self.records);
        let fits = self.records.len() <= BLOCK.saturating_sub(HEADER);
        match self.count.checked_add(1) {
            Some(count) if fits => {
                (self.count, self.last) = (count, time.max(self.last));
                true
            }
            _ => {
                self.records.truncate(before);
                false
            }
        }
    }

    /// Appends the encoded block to `out`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.reserve(BLOCK);
        out.extend_from_slice(&[0; SUM]);
        out.extend_from_slice(&self.header());
        out.extend_from_slice(&self.records);
        complete(start, out);
    }
}

/// The unit of zeros that a checksum skips.
const SKIPPED: usize = 64;

/// Checksums of blocks that end with zeros, which are not read: `n` zero bytes multiply the checksum by `x^(8n)`.
#[derive(Debug)]
struct ZeroTail {
    /// The factors for multiples of [`SKIPPED`] bytes.
    factors: Vec<u32>,
}

impl Default for ZeroTail {
    fn default() -> Self {
        // The highest bit is the coefficient of x^0.
        let one = 1_u32.rotate_right(1);
        let unit = (0..SKIPPED.saturating_mul(8)).fold(one, |factor, _| times_x(factor));
        let factors = core::iter::successors(Some(one), |&factor| Some(multiply(factor, unit)));
        Self { factors: factors.take(BLOCK.div_ceil(SKIPPED)).collect() }
    }
}

impl ZeroTail {
    /// Returns the checksum of `bytes`, in which only zeros follow the first `len` bytes.
    fn sum(&self, bytes: &[u8], len: usize) -> u32 {
        let units = bytes.len().saturating_sub(len).checked_div(SKIPPED).unwrap_or(0);
        let (Some(&factor), Some((read, _))) = (
            self.factors.get(units),
            bytes.split_at_checked(bytes.len().saturating_sub(units.saturating_mul(SKIPPED))),
        ) else {
            return crc32c(!0, bytes);
        };
        multiply(crc32c(!0, read), factor)
    }
}

/// Multiplies a polynomial by x, modulo the reflected polynomial of CRC-32C.
fn times_x(value: u32) -> u32 {
    let carry = if value & 1 == 0 { 0 } else { 0x82f6_3b78 };
    value.wrapping_shr(1) ^ carry
}

fn multiply(one: u32, other: u32) -> u32 {
    let (mut product, mut other) = (0, other);
    for power in 0..u32::BITS {
        if one.rotate_left(power) & 1_u32.rotate_right(1) != 0 {
            product ^= other;
        }
        other = times_x(other);
    }
    product
}

/// Appends the block with these bytes after its checksum to `out`.
pub(crate) fn seal(body: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; SUM]);
    out.extend_from_slice(body);
    complete(start, out);
}

/// Fills the block at `start` of `out` with zeros, and stores its checksum.
fn complete(start: usize, out: &mut Vec<u8>) {
    out.resize(start.saturating_add(BLOCK), 0);
    if let Some((sum, body)) = out.get_mut(start..).and_then(|block| block.split_first_chunk_mut()) {
        *sum = crc32c(!0, body).to_le_bytes();
    }
}

/// Returns the bytes after the checksum, if it matches.
pub(crate) fn verify(block: &[u8]) -> Option<&[u8]> {
    let (sum, body) = block.get(..BLOCK)?.split_first_chunk()?;
    (u32::from_le_bytes(*sum) == crc32c(!0, body)).then_some(body)
}

/// The records of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block<'a> {
    pub(crate) count: u16,
    pub(crate) first: u64,
    pub(crate) start: i64,
    pub(crate) records: &'a [u8],
}

impl<'a> Block<'a> {
    /// Decodes a block. Returns `None` if it is damaged.
    pub(crate) fn decode(block: &'a [u8]) -> Option<Self> {
        verify(block).and_then(Self::decode_body)
    }

    /// Decodes a block whose checksum was verified.
    pub(crate) fn decode_verified(block: &'a [u8]) -> Option<Self> {
        Self::decode_body(block.get(SUM..)?)
    }

    fn decode_body(body: &'a [u8]) -> Option<Self> {
        let (len, rest) = body.split_first_chunk()?;
        let (count, rest) = rest.split_first_chunk()?;
        let (first, rest) = rest.split_first_chunk()?;
        let (start, rest) = rest.split_first_chunk()?;
        Some(Self {
            count: u16::from_le_bytes(*count),
            first: u64::from_le_bytes(*first),
            start: i64::from_le_bytes(*start),
            records: rest.get(..u16::from_le_bytes(*len).into())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::actor::ActorId;
    use crate::record::Mark;

    #[test]
    fn a_block_that_grows_is_encoded_as_one_that_is_encoded_once() {
        let mut grows = BlockBuilder::default();
        for round in 0..3 {
            let mut count: u64 = 0;
            loop {
                let record = Record::Mark(Mark::Lost(count << (count % 60)));
                if !grows.push(count + round, 7, &record) {
                    break;
                }
                count += 1;
                let mut expected = Vec::new();
                grows.encode(&mut expected);
                if count.is_multiple_of(round + 1) {
                    let encoded = grows.take_encoded();
                    assert!(encoded == expected, "{round} {count}");
                    grows.restore(encoded);
                }
            }
            assert!(count > 100);
            grows.clear();
            let actor = ActorId(3);
            let file =
                crate::record::FileId { ino: obento_base::Ino(5), generation: obento_base::Generation(1) };
            assert!(grows.push(9, 9, &Record::Source { actor, file, name: &[b'n'; 200] }));
            let mut expected = Vec::new();
            grows.encode(&mut expected);
            assert!(grows.take_encoded() == expected);
            grows.clear();
        }
    }

    #[test]
    fn zeros_that_are_not_read_are_part_of_a_checksum() {
        let zeros = ZeroTail::default();
        for len in 0..=BLOCK - SUM {
            let mut bytes = vec![0; BLOCK - SUM];
            bytes.iter_mut().take(len).enumerate().for_each(|(at, byte)| *byte = (at * 7 + len) as u8);
            assert_eq!(zeros.sum(&bytes, len), crc32c(!0, &bytes), "{len}");
        }
    }
}
