//! Reads the bytes of a damaged file.
//!
//! Invariant: every byte of the range is passed to the caller once, in order. Unreadable bytes are passed as zeros
//! and reported.

use std::ops::Range;

use obento_base::Error;
use obento_vfs::Node;

/// Number of bytes per read: enough to amortise the cost of a call, and few enough to stay in a processor
/// cache.
pub const CHUNK: usize = 256 << 10;
/// Bytes that the first skip leaves out. It is a multiple of the block size of a format, or divides it.
const SKIP: u64 = 4096;
/// The divisor of the loss that limits the next skip. A file that is damaged everywhere is finished after
/// some thousand steps, whatever its size.
const SKIP_SHARE: u64 = 16;
/// The length up to which a skip may grow at first.
const SKIP_FREELY: u64 = 1 << 20;

/// A range of a file that could not be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unread {
    /// The bytes of the file that were not read.
    pub range: Range<u64>,
    /// The reason.
    pub error: Error,
}

/// The unreadable ranges of a file. Adjacent ranges are merged.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Losses {
    ranges: Vec<Unread>,
    /// Bytes to skip at the next failure.
    skip: u64,
}

/// The most ranges that are reported. The last range is extended to include any further ones.
const MAX_LOSSES: usize = 64;

impl Losses {
    /// Returns the ranges, in order.
    pub fn into_ranges(self) -> Vec<Unread> {
        self.ranges
    }

    /// Records that the bytes at `at` cannot be read. Returns the number of bytes to skip; the skip does not
    /// pass `end`.
    pub fn skip(&mut self, at: u64, end: u64, error: Error) -> u64 {
        let lost = self.ranges.last().filter(|last| last.range.end == at).map(|last| at - last.range.start);
        let follows = lost.is_some();
        self.skip = match lost {
            Some(lost) => (self.skip * 2).clamp(SKIP, SKIP_FREELY.max(lost / SKIP_SHARE)),
            None => SKIP,
        };
        let next = (at - at % SKIP).saturating_add(self.skip).min(end);
        let full = self.ranges.len() >= MAX_LOSSES;
        match self.ranges.last_mut() {
            Some(last) if follows || full => last.range.end = next,
            _ => self.ranges.push(Unread { range: at..next, error }),
        }
        next.saturating_sub(at)
    }
}

/// Passes the bytes of `range` to `take`, in order. Passes zeros for unreadable bytes, and records them in
/// `losses`. Fails with the errors of `take`.
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
            // The file ends before its size: another thread changes it. The missing bytes are zeros.
            Ok(0) => return zeros(range.end - at, &mut buffer, take),
            Ok(len) => {
                take(&buffer[..len])?;
                at += len as u64;
                step = (step * 2).min(CHUNK);
            }
            // Part of the range may be readable.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::{Piece, Toy, dir, toy};

    fn read_all(pieces: Vec<Piece>) -> (Vec<u8>, Vec<Range<u64>>) {
        let volume = toy([(2, dir(&[("file", 3)])), (3, Toy::File(pieces))]);
        let node = volume.vfs().node(obento_base::Ino(3)).unwrap();
        let (mut bytes, mut losses) = (Vec::new(), Losses::default());
        let size = node.attr().unwrap().size;
        read(&node, 0..size, &mut losses, |chunk| {
            bytes.extend_from_slice(chunk);
            Ok::<(), ()>(())
        })
        .unwrap();
        assert_eq!(bytes.len() as u64, size);
        (bytes, losses.into_ranges().into_iter().map(|unread| unread.range).collect())
    }

    #[test]
    fn bytes_around_lost_ones_are_read_to_the_last() {
        let (bytes, lost) = read_all(vec![Piece::Mapped(1, 5000), Piece::Lost(4096), Piece::Inside("tail")]);
        assert!(bytes[..5000].iter().all(|&byte| byte == 1));
        // Up to the end of the last lost block.
        assert_eq!((lost.len(), &lost[0]), (1, &(5000..9100)));
        let (bytes, lost) = read_all(vec![
            Piece::Lost(4096),
            Piece::Mapped(2, 100),
            Piece::Unmapped(5),
            Piece::Mapped(3, 9000),
        ]);
        assert_eq!((bytes[4096], bytes[4195], bytes[8192], lost.len()), (2, 2, 3, 2));
    }

    #[test]
    fn the_loss_of_a_huge_file_takes_few_steps() {
        let (size, mut losses, mut at, mut steps) = (1 << 44, Losses::default(), 0, 0);
        while at < size {
            at += losses.skip(at, size, Error::OutOfRange);
            steps += 1;
        }
        assert!(steps < 2000, "{steps}");
        assert_eq!(losses.into_ranges().len(), 1);
    }
}
