//! Reading the bytes of a file as far as they can be read.
//!
//! Invariant: every byte of the range is handed over once, in order; those that cannot be read as zeros, and told.

use std::ops::Range;

use obento_base::Error;
use obento_vfs::Node;

/// Bytes read at once: long enough to hide the cost of a call, short enough to stay in a CPU's cache.
pub const CHUNK: usize = 256 << 10;
/// What is skipped first where bytes cannot be read; every format's blocks are at least this long or divide it.
const SKIP: u64 = 4096;
/// What is skipped at most, after one failure followed another: a large damaged file must not take for ever.
const MAX_SKIP: u64 = 1 << 20;

/// Bytes of a file that could not be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unread {
    /// Which.
    pub range: Range<u64>,
    /// Why.
    pub error: Error,
}

/// What of a file could not be read, adjoining ranges as one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Losses {
    ranges: Vec<Unread>,
    /// How much is skipped at the next failure.
    skip: u64,
}

/// More ranges are told as one that reaches from the last of these to the last that was lost.
const MAX_LOSSES: usize = 64;

impl Losses {
    /// The ranges, in order.
    pub fn into_ranges(self) -> Vec<Unread> {
        self.ranges
    }

    /// Notes that the bytes at `at` cannot be read; answers how many to leave out, at most up to `end`.
    pub fn skip(&mut self, at: u64, end: u64, error: Error) -> u64 {
        let follows = self.ranges.last().is_some_and(|last| last.range.end == at);
        self.skip = if follows { (self.skip * 2).clamp(SKIP, MAX_SKIP) } else { SKIP };
        let next = (at - at % SKIP).saturating_add(self.skip).min(end);
        let full = self.ranges.len() >= MAX_LOSSES;
        match self.ranges.last_mut() {
            Some(last) if follows || full => last.range.end = next,
            _ => self.ranges.push(Unread { range: at..next, error }),
        }
        next.saturating_sub(at)
    }
}

/// Hands the bytes of `range` to `take`, in order.
pub fn read<E>(
    node: &Node,
    range: Range<u64>,
    losses: &mut Losses,
    mut take: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(CHUNK);
    let (mut buffer, mut at, mut step) = (vec![0; len.min(CHUNK)], range.start, CHUNK);
    while at < range.end {
        let want = usize::try_from(range.end - at).unwrap_or(CHUNK).min(buffer.len()).min(step);
        match node.read_at(at, &mut buffer[..want]) {
            // The file ends before its size said: it is changing. What is missing is zeros.
            Ok(0) => return zeros(range.end - at, &mut buffer, take),
            Ok(len) => {
                take(&buffer[..len])?;
                at += len as u64;
                step = (step * 2).min(CHUNK);
            }
            // Part of it may be readable.
            Err(_) if want as u64 > SKIP => step = SKIP as usize,
            Err(error) => {
                let len = losses.skip(at, range.end, error);
                zeros(len, &mut buffer, &mut take)?;
                at += len;
            }
        }
    }
    Ok(())
}

fn zeros<E>(mut len: u64, buffer: &mut [u8], mut take: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
    buffer.fill(0);
    while len > 0 {
        let part = usize::try_from(len).unwrap_or(CHUNK).min(buffer.len());
        take(&buffer[..part])?;
        len -= part as u64;
    }
    Ok(())
}
