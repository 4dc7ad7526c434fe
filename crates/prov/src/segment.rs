//! Segments: a header block, and blocks of records.
//!
//! The writer never overwrites the only durable version of a block. A block that grew after a sync is
//! therefore in the segment twice, and a decoder skips records whose sequence numbers it has passed.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::block::{BLOCK, Block, seal, verify};
use crate::record::Record;

const MAGIC: &[u8; 8] = b"OBENPROV";
const VERSION: u32 = 1;

/// The header of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// UUID of the volume; zeros if the format has none.
    pub volume: [u8; 16],
    /// Number of the segment, starting at 1.
    pub number: u32,
    /// Sequence number of the first record.
    pub first: u64,
    /// Identifies the boot of the system that created the segment.
    pub boot: [u8; 16],
}

impl Header {
    /// Returns the encoded block.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(BLOCK);
        body.extend_from_slice(MAGIC);
        body.extend_from_slice(&VERSION.to_le_bytes());
        body.extend_from_slice(&self.volume);
        body.extend_from_slice(&self.number.to_le_bytes());
        body.extend_from_slice(&self.first.to_le_bytes());
        body.extend_from_slice(&self.boot);
        let mut block = Vec::with_capacity(BLOCK);
        seal(&body, &mut block);
        block
    }

    /// Decodes the header of a segment.
    ///
    /// # Errors
    ///
    /// 1. `Checksum`: the block is damaged or incomplete.
    /// 2. `Magic`: the file is not a segment.
    /// 3. `Version`: the format is newer.
    pub fn decode(segment: &[u8]) -> Result<Self, Damage> {
        let body = verify(segment).ok_or(Damage::Checksum { block: 0 })?;
        let rest = body.strip_prefix(MAGIC).ok_or(Damage::Magic)?;
        let fields = || {
            let (version, rest) = rest.split_first_chunk()?;
            let (volume, rest) = rest.split_first_chunk()?;
            let (number, rest) = rest.split_first_chunk()?;
            let (first, rest) = rest.split_first_chunk()?;
            let boot = *rest.first_chunk()?;
            let (number, first) = (u32::from_le_bytes(*number), u64::from_le_bytes(*first));
            Some((u32::from_le_bytes(*version), Self { volume: *volume, number, first, boot }))
        };
        match fields() {
            Some((VERSION, header)) => Ok(header),
            Some((version, _)) => Err(Damage::Version(version)),
            None => Err(Damage::Checksum { block: 0 }),
        }
    }

    /// Checks that a file with the name of segment `number` is that segment.
    ///
    /// # Errors
    ///
    /// 1. `Number`: the header belongs to another segment.
    pub fn expect_number(&self, number: u32) -> Result<(), Damage> {
        if self.number == number { Ok(()) } else { Err(Damage::Number(self.number)) }
    }
}

/// A part of a segment that cannot be decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// The file is not a segment.
    Magic,
    /// The segment has a newer format.
    Version(u32),
    /// The file has the name of another segment, and this is its number.
    Number(u32),
    /// The checksum of this block is wrong: its records are lost.
    Checksum {
        /// Number of the block in the segment.
        block: u64,
    },
    /// The block has a valid checksum and contains bytes that are no record.
    Record {
        /// Number of the block in the segment.
        block: u64,
    },
}

impl core::fmt::Display for Damage {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Magic => f.write_str("the file is not a provenance segment"),
            Self::Version(version) => write!(f, "version {version} of the format is not supported"),
            Self::Number(number) => write!(f, "the file contains segment {number}"),
            Self::Checksum { block } => write!(f, "block {block} is damaged: its records are lost"),
            Self::Record { block } => write!(f, "block {block} contains an invalid record"),
        }
    }
}

/// A record with its number and time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// Sequence number: increases by one from record to record. Gaps are lost records or a crash.
    pub sequence: u64,
    /// Time in microseconds since 1970.
    pub time: i64,
    /// What happened.
    pub record: Record<'a>,
}

/// The records of a segment in the order of their sequence numbers, and its damaged blocks.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    rest: &'a [u8],
    /// Number of the next block.
    block: u64,
    current: Option<Block<'a>>,
    next: u64,
}

impl<'a> Entries<'a> {
    /// Returns the records of a segment. The header is decoded separately, so that a damaged one does not
    /// hide the records.
    pub fn new(segment: &'a [u8]) -> Self {
        Self { rest: segment.get(BLOCK..).unwrap_or_default(), block: 1, current: None, next: 0 }
    }

    /// Returns the records of blocks in the middle of a segment. Skips records with numbers before `next`.
    pub(crate) fn of_blocks(blocks: &'a [u8], next: u64) -> Self {
        Self { rest: blocks, block: 0, current: None, next }
    }

    /// Returns the number of the block of the last record.
    pub(crate) fn block(&self) -> u64 {
        self.block.saturating_sub(1)
    }

    /// Continues with `segment`, which follows the segment that was read.
    #[must_use]
    pub fn followed_by(self, segment: &'a [u8]) -> Self {
        Self { next: self.next, ..Self::new(segment) }
    }

    /// Returns the sequence number after the last record.
    pub fn next_sequence(&self) -> u64 {
        self.next
    }

    /// Proceeds to the next block. Returns `None` at the end of the segment.
    fn advance(&mut self) -> Option<Result<(), Damage>> {
        if self.rest.is_empty() {
            return None;
        }
        let (block, rest) = self.rest.split_at_checked(BLOCK).unwrap_or((self.rest, &[]));
        let number = self.block;
        (self.rest, self.block) = (rest, number.saturating_add(1));
        // A block that was allocated and never written.
        if block.iter().all(|&byte| byte == 0) {
            return Some(Ok(()));
        }
        self.current = Block::decode(block);
        Some(self.current.map(drop).ok_or(Damage::Checksum { block: number }))
    }

    /// Returns the next record of the current block.
    fn step(&mut self, block: Block<'a>) -> Option<Result<Entry<'a>, Damage>> {
        self.current = None;
        let Some(count) = block.count.checked_sub(1) else {
            let damage = Damage::Record { block: self.block.saturating_sub(1) };
            return (!block.records.is_empty()).then_some(Err(damage));
        };
        let damage = Damage::Record { block: self.block.saturating_sub(1) };
        let (record, elapsed, records) = match Record::decode(block.records) {
            Some(decoded) => decoded,
            None => return Some(Err(damage)),
        };
        let time = block.start.saturating_add_unsigned(elapsed);
        let sequence = block.first;
        self.current = Some(Block { count, first: sequence.saturating_add(1), start: time, records });
        if sequence < self.next {
            return None;
        }
        self.next = sequence.saturating_add(1);
        Some(Ok(Entry { sequence, time, record }))
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.current {
                Some(block) => {
                    if let Some(entry) = self.step(block) {
                        return Some(entry);
                    }
                }
                None => {
                    if let Err(damage) = self.advance()? {
                        return Some(Err(damage));
                    }
                }
            }
        }
    }
}

/// Returns the name of a segment. It fits into the 14 bytes of the shortest names that a driver supports.
pub fn segment_name(number: u32) -> String {
    format!("{number:08x}.prv")
}

/// Returns the number of the segment with this name.
pub fn segment_number(name: &[u8]) -> Option<u32> {
    number_of(name, b".prv", segment_name)
}

/// Returns the number in front of `suffix`, if `to_name` returns this name for it. Other digits, as in `+0000001.prv`, are
/// not a number: the file would not be found under its name.
pub(crate) fn number_of(name: &[u8], suffix: &[u8], to_name: fn(u32) -> String) -> Option<u32> {
    let digits = core::str::from_utf8(name.strip_suffix(suffix)?).ok()?;
    let number = u32::from_str_radix(digits, 16).ok()?;
    (to_name(number).as_bytes() == name).then_some(number)
}
