//! The last lines or bytes of a file, without holding the rest of it.

use std::collections::VecDeque;
use std::ops::Range;

use memchr::{memchr_iter, memrchr_iter};
use obento::{Error, Node};

use super::stream::CHUNK;

/// The most runs of a file that are listed. The rest of a more fragmented file counts as one run of data.
const RUNS: usize = 1 << 16;

/// A part of a file: the bytes of a unit, and how many of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Amount {
    Bytes(u64),
    /// Lines that end with the byte.
    Lines(u64, u8),
}

/// Returns the offset of the last `amount` of a regular file. A last line without its end counts as a line.
///
/// # Errors
///
/// The bytes cannot be read.
pub fn start_of_last(node: &Node, amount: Amount) -> Result<u64, Error> {
    let size = node.attr()?.size;
    let (mut left, end) = match amount {
        Amount::Bytes(count) => return Ok(size.saturating_sub(count)),
        Amount::Lines(0, _) => return Ok(size),
        Amount::Lines(count, end) => (count, end),
    };
    let mut buffer = vec![0; CHUNK];
    // The last byte ends the last line or belongs to it.
    for (range, is_hole) in runs(node, size.saturating_sub(1))?.into_iter().rev() {
        if is_hole {
            let ends = if end == 0 { range.end - range.start } else { 0 };
            if ends >= left {
                return Ok(range.end - left + 1);
            }
            left -= ends;
            continue;
        }
        let mut at = range.end;
        while at > range.start {
            let start = at.saturating_sub(CHUNK as u64).max(range.start);
            let bytes = &mut buffer[..usize::try_from(at - start).unwrap_or(CHUNK)];
            read_exact(node, start, bytes)?;
            for position in memrchr_iter(end, bytes) {
                left -= 1;
                if left == 0 {
                    return Ok(start + position as u64 + 1);
                }
            }
            at = start;
        }
    }
    Ok(0)
}

/// Returns the runs of the first `size` bytes, and whether each is a hole.
fn runs(node: &Node, size: u64) -> Result<Vec<(Range<u64>, bool)>, obento::Error> {
    let (mut runs, mut at) = (Vec::new(), 0);
    while at < size {
        if runs.len() == RUNS {
            runs.push((at..size, false));
            break;
        }
        let Some(run) = node.run(at, size - at)? else { break };
        let next = at + run.len();
        runs.push((at..next, run.span().is_zeros()));
        at = next;
    }
    Ok(runs)
}

fn read_exact(node: &Node, at: u64, bytes: &mut [u8]) -> Result<(), obento::Error> {
    let mut done = 0;
    while done < bytes.len() {
        match node.read_at(at + done as u64, &mut bytes[done..])? {
            // Another process shortened the file: the missing bytes are zeros.
            0 => {
                bytes[done..].fill(0);
                break;
            }
            len => done += len,
        }
    }
    Ok(())
}

/// The end of a stream whose length is not known: it holds the last bytes or lines and little more.
pub struct Window {
    amount: Amount,
    chunks: VecDeque<(Vec<u8>, u64)>,
    /// The bytes or the line ends in `chunks`.
    held: u64,
}

impl Window {
    pub fn new(amount: Amount) -> Self {
        Self { amount, chunks: VecDeque::new(), held: 0 }
    }

    /// Adds bytes, and passes bytes that cannot be among the last ones to `before`.
    pub fn push<E>(&mut self, bytes: &[u8], mut before: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let (wanted, count) = match self.amount {
            Amount::Bytes(wanted) => (wanted, bytes.len()),
            // One more, because the last line may lack its end.
            Amount::Lines(wanted, end) => (wanted.saturating_add(1), memchr_iter(end, bytes).count()),
        };
        self.chunks.push_back((bytes.to_vec(), count as u64));
        self.held += count as u64;
        while let Some((_, count)) = self.chunks.front().filter(|(_, count)| self.held - count >= wanted) {
            self.held -= count;
            let (bytes, _) = self.chunks.pop_front().unwrap_or_default();
            before(&bytes)?;
        }
        Ok(())
    }

    /// Returns the held bytes, and where the last bytes or lines start in them.
    pub fn finish(self) -> (Vec<u8>, usize) {
        let bytes = self.chunks.into_iter().map(|(bytes, _)| bytes).collect::<Vec<_>>().concat();
        let start = match self.amount {
            Amount::Bytes(count) => bytes.len().saturating_sub(usize::try_from(count).unwrap_or(usize::MAX)),
            Amount::Lines(0, _) => bytes.len(),
            Amount::Lines(count, end) => {
                let inner = &bytes[..bytes.len().saturating_sub(1)];
                let nth = usize::try_from(count - 1).unwrap_or(usize::MAX);
                memrchr_iter(end, inner).nth(nth).map_or(0, |at| at + 1)
            }
        };
        (bytes, start)
    }
}
