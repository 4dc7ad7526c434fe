//! Reads the bytes of a damaged file.
//!
//! Invariant: every byte of the range is passed to the caller once, in order. Unreadable bytes are passed as zeros
//! and reported.

use std::ops::Range;

use obento_base::{DeviceError, Error};
use obento_driver::Span;
use obento_vfs::Node;

/// Number of bytes per read: enough to amortise the cost of a call, and few enough to stay in a processor
/// cache.
pub const CHUNK: usize = 256 << 10;
/// Length of a read after a failure: the shortest sector of a medium.
const SECTOR: u64 = 512;
/// Length of the reads that find the first unreadable sector.
const PAGE: u64 = 4096;
/// The divisor of the loss that limits the next step. A file that is damaged everywhere is finished after
/// some thousand steps, whatever its size.
const STEP_SHARE: u64 = 16;
/// The length up to which a step may grow at first.
const STEP_FREELY: u64 = 1 << 20;

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
}

/// Maximum number of ranges that are reported. The last range also includes all further ranges.
const MAX_LOSSES: usize = 64;

impl Losses {
    /// Returns the ranges, in order.
    pub fn into_ranges(self) -> Vec<Unread> {
        self.ranges
    }

    /// Records that `range` cannot be read. The ranges are recorded in ascending order.
    fn add(&mut self, range: Range<u64>, error: Error) {
        let full = self.ranges.len() >= MAX_LOSSES;
        match self.ranges.last_mut() {
            Some(last) if full || last.range.end == range.start => last.range.end = range.end,
            _ => self.ranges.push(Unread { range, error }),
        }
    }

    /// Records that the location of the bytes at `at` cannot be determined. Returns the length of the bytes with this
    /// error; they do not pass `end`.
    pub fn skip_unmapped(&mut self, node: &Node, at: u64, end: u64, error: Error) -> u64 {
        let next = end_of_loss(at..end, |at| node.run(at, 1).is_err());
        self.add(at..next, error);
        next.saturating_sub(at)
    }

    /// Records that the bytes at `at` cannot be read. Returns the length of the unreadable bytes; they do not pass
    /// `end`.
    fn skip_unread(&mut self, node: &Node, at: u64, end: u64, error: Error) -> u64 {
        let next = match known_loss(node, at..end, &error) {
            Some(len) => at.saturating_add(len),
            None => {
                let mut sector = [0; SECTOR as usize];
                let sector = &mut sector;
                end_of_loss(at..end, |at| {
                    let want = usize::try_from(end - at).map_or(sector.len(), |left| left.min(sector.len()));
                    node.read_at(at, &mut sector[..want]).is_err()
                })
            }
        };
        self.add(at..next, error);
        next.saturating_sub(at)
    }
}

/// Returns the number of unreadable bytes at the start of `range`, if the device reports more of them than were
/// requested.
fn known_loss(node: &Node, range: Range<u64>, error: &Error) -> Option<u64> {
    let Error::Device(DeviceError::Read { len, .. }) = *error else { return None };
    let run = node.run(range.start, range.end - range.start).ok()??;
    let len = len.min(run.len());
    // The device may report a range that begins before this one.
    let ends_there = || node.read_at(range.start + len - 1, &mut [0]).is_err();
    (len > SECTOR && matches!(run.span(), Span::Mapped(_)) && ends_there()).then_some(len)
}

/// Returns the end of the loss at the start of `range`. `fails` returns whether the byte at an offset is lost. The
/// steps become longer with the loss, and the end between two steps is found by bisection, to the sector.
fn end_of_loss(range: Range<u64>, mut fails: impl FnMut(u64) -> bool) -> u64 {
    let Range { start, end } = range;
    let sector_after = |at: u64| (at - at % SECTOR).saturating_add(SECTOR).min(end);
    // All bytes before `lost` are lost.
    let (mut lost, mut step) = (sector_after(start), SECTOR);
    while lost < end {
        let last = (end - 1) - (end - 1) % SECTOR;
        let next = lost.saturating_add(step - SECTOR).min(last).max(lost);
        if fails(next) {
            lost = sector_after(next);
            step = (step * 2).min(STEP_FREELY.max((lost - start) / STEP_SHARE));
            continue;
        }
        // The byte at `found` can be read.
        let mut found = next;
        while lost < found {
            let middle = lost + (found - lost) / 2 / SECTOR * SECTOR;
            match fails(middle) {
                true => lost = sector_after(middle),
                false => found = middle,
            }
        }
        return found;
    }
    end
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
            Err(_) if want as u64 > PAGE => step = PAGE as usize,
            Err(_) if want as u64 > SECTOR - at % SECTOR => step = (SECTOR - at % SECTOR) as usize,
            Err(error) => {
                let len = losses.skip_unread(node, at, range.end, error);
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
        let (size, mut steps) = (1 << 44, 0);
        let end = end_of_loss(0..size, |_| {
            steps += 1;
            true
        });
        assert!(steps < 2000, "{steps}");
        assert_eq!(end, size);
    }

    #[test]
    fn a_loss_ends_at_the_sector_in_which_it_ends() {
        for start in [0, 512, 700, 40_960] {
            for len in [1, 512, 513, 4096, 8192, 70_000, 1 << 20, 5 << 20] {
                for rest in [0, 1, 512, 5000, 1 << 20, 9 << 20] {
                    let (bad, end) = (start..start + len, start + len + rest);
                    let found = end_of_loss(start..end, |at| {
                        let sector = at - at % SECTOR;
                        sector < bad.end && sector + SECTOR > bad.start
                    });
                    assert_eq!(found, bad.end.next_multiple_of(SECTOR).min(end), "{bad:?} of {end}");
                }
            }
        }
    }

    #[test]
    fn unaligned_and_short_losses_cost_their_sectors() {
        let pieces = |lost| vec![Piece::Mapped(1, 1536), Piece::Lost(lost), Piece::Mapped(2, 3 << 20)];
        for lost in [512, 4096, 8192, 131_072, 1 << 20] {
            assert_eq!(read_all(pieces(lost)).1, core::slice::from_ref(&(1536..1536 + lost)), "{lost}");
        }
    }
}
