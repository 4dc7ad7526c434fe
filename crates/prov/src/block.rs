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
        out.extend_from_slice(&u16::try_from(self.records.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&self.first.to_le_bytes());
        out.extend_from_slice(&self.start.to_le_bytes());
        out.extend_from_slice(&self.records);
        complete(start, out);
    }
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
