//! The log of a disk's writes and flushes in the format of dm-log-writes, which QEMU records (`blklogwrites`).
//!
//! A test can write numbers to a sector that no file system uses. These writes become marks ([`Event::Mark`]), so that the
//! log shows which calls had returned before a write.
//! Source: Linux `Documentation/admin-guide/device-mapper/log-writes.rst`, QEMU `block/blklogwrites.c`.

use std::io::{self, Read};
use std::sync::Arc;

use crate::record::Event;

/// The first bytes of a log, `WRITE_LOG_MAGIC`.
const MAGIC: u64 = 0x006a_7366_7773_6872;
/// The bits of an entry's flags.
const FLUSH: u64 = 1 << 0;
const FUA: u64 = 1 << 1;
const DISCARD: u64 = 1 << 2;

/// The first bytes of the sector of a mark.
const MARK: [u8; 8] = *b"obentomk";
/// Number of bytes that are written for a mark.
pub const MARK_LEN: usize = 512;

/// The mark after the volume of a plan was unmounted.
pub const UNMOUNTED: u64 = 1 << 39;
/// The mark at the end of a plan.
pub const END: u64 = 1 << 40;

/// Returns the bytes that a test writes at the offset of marks.
pub fn mark(number: u64) -> [u8; MARK_LEN] {
    let mut bytes = [0; MARK_LEN];
    bytes[..8].copy_from_slice(&MARK);
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Reads a log. Writes at byte `marks` of the disk become marks. A discard becomes a write of arbitrary bytes, as in a
/// [`RecordDevice`](crate::record::RecordDevice).
///
/// # Errors
///
/// `InvalidData`: the log has another format, ends within an entry, or contains one of these entries:
///
/// - an entry that forces its write to stable storage (`FUA`). Such a write promises nothing about earlier writes, and no
///   [`Event`] expresses that. QEMU logs none for a disk with a write-back cache,
/// - an entry with other unknown flags,
/// - an entry without bytes and without a flush,
/// - a write that overlaps `marks` or the bytes after it, and is not a mark.
pub fn read(mut log: impl Read, marks: u64) -> io::Result<Vec<Event>> {
    let header = numbers::<4>(&mut log)?;
    let sector = header[3] & u64::from(u32::MAX);
    let is_known = header[0] == MAGIC && header[1] == 1 && (512..=4096).contains(&sector);
    ensure(is_known && sector.is_power_of_two(), "not a log of writes")?;
    skip(&mut log, sector - 32)?;
    let mut events = Vec::new();
    for _ in 0..header[2] {
        let [first, count, flags, _] = numbers::<4>(&mut log)?;
        skip(&mut log, sector - 32)?;
        ensure(flags & FUA == 0, "a write is forced to stable storage (FUA)")?;
        ensure(flags & !(FLUSH | DISCARD) == 0, "an entry has unknown flags")?;
        ensure(count > 0 || flags & FLUSH != 0, "an entry contains no bytes and no flush")?;
        // A request can combine a flush of the earlier writes with a write.
        events.extend((flags & FLUSH != 0).then_some(Event::Flush));
        let (offset, len) = (first * sector, count * sector);
        ensure(offset == marks || offset + len <= marks, "a write is behind the volume")?;
        if flags & DISCARD != 0 {
            events.push(Event::discard(offset, len));
        } else if count > 0 {
            let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
            log.read_exact(&mut bytes)?;
            events.push(if offset == marks { marked(&bytes)? } else { write(offset, &bytes) });
        }
    }
    Ok(events)
}

/// Divides a log into the parts from a mark 0 to [`END`]. The other events prepare a volume, and are left out.
///
/// # Errors
///
/// `InvalidData`: a part has no [`END`], or a mark is outside the parts.
pub fn parts(events: Vec<Event>) -> io::Result<Vec<Vec<Event>>> {
    let (mut parts, mut open) = (Vec::new(), None::<Vec<Event>>);
    for event in events {
        match (event, &mut open) {
            (Event::Mark(0), None) => open = Some(vec![Event::Mark(0)]),
            (Event::Mark(0), Some(_)) => return Err(invalid("a plan begins before the end of another one")),
            (Event::Mark(mark), None) => return Err(invalid(&format!("mark {mark} is outside the plans"))),
            (Event::Mark(mark), Some(_)) if mark as u64 == END => parts.extend(open.take()),
            (event, Some(part)) => part.push(event),
            (_, None) => {}
        }
    }
    ensure(open.is_none(), "the last plan has no end")?;
    Ok(parts)
}

fn write(offset: u64, bytes: &[u8]) -> Event {
    Event::Write { offset, bytes: Arc::from(bytes) }
}

fn marked(bytes: &[u8]) -> io::Result<Event> {
    ensure(bytes.starts_with(&MARK), "a file system writes to the sector of marks")?;
    let number = u64::from_le_bytes(*bytes[8..].first_chunk().unwrap_or(&[0; 8]));
    Ok(Event::Mark(usize::try_from(number).map_err(io::Error::other)?))
}

fn numbers<const N: usize>(log: &mut impl Read) -> io::Result<[u64; N]> {
    let mut numbers = [0; N];
    for number in &mut numbers {
        let mut bytes = [0; 8];
        log.read_exact(&mut bytes)?;
        *number = u64::from_le_bytes(bytes);
    }
    Ok(numbers)
}

fn skip(log: &mut impl Read, len: u64) -> io::Result<()> {
    let skipped = io::copy(&mut log.take(len), &mut io::sink())?;
    ensure(skipped == len, "the log ends within an entry")
}

fn ensure(is_right: bool, why: &str) -> io::Result<()> {
    if is_right { Ok(()) } else { Err(invalid(why)) }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(log: &mut Vec<u8>, numbers: [u64; 4], data: &[u8]) {
        log.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        log.resize(log.len().next_multiple_of(512), 0);
        log.extend(data);
    }

    #[test]
    fn a_part_begins_with_mark_0_and_ends_before_the_end_mark() {
        let [first, second] = [1, 2].map(|mark| vec![Event::Mark(0), Event::Mark(mark), Event::Flush]);
        let end = [Event::Mark(END as usize), Event::Flush];
        let events = [&[Event::Flush][..], &first, &end, &second, &end].concat();
        assert_eq!(parts(events).unwrap(), [first, second]);
    }

    #[test]
    fn a_part_without_an_end_and_a_mark_outside_the_parts_are_rejected() {
        let end = END as usize;
        for marks in [&[0, 1][..], &[0, 1, 0, end], &[5, 0, end], &[0, end, 7], &[end]] {
            parts(marks.iter().copied().map(Event::Mark).collect()).unwrap_err();
        }
    }

    #[test]
    fn an_entry_that_promises_nothing_known_is_rejected() {
        let rejected = |numbers: [u64; 4]| {
            let mut log = Vec::new();
            entry(&mut log, [MAGIC, 1, 1, 512], &[]);
            entry(&mut log, numbers, &[7; 512]);
            read(&log[..], 51_200).is_err()
        };
        assert!(!rejected([8, 1, 0, 0]));
        assert!(rejected([8, 1, FUA, 0]) && rejected([8, 1, FLUSH | FUA, 0]), "FUA");
        assert!(rejected([8, 1, 1 << 3, 0]), "unknown flags");
        assert!(rejected([8, 0, 0, 0]) && rejected([8, 0, DISCARD, 0]), "no bytes");
        assert!(rejected([100, 1, 0, 0]) && rejected([101, 1, 0, 0]), "not a mark");
    }

    #[test]
    fn writes_flushes_discards_and_marks_are_in_the_order_of_the_log() {
        let mut log = Vec::new();
        entry(&mut log, [MAGIC, 1, 5, 512], &[]);
        entry(&mut log, [8, 2, 0, 0], &[7; 1024]);
        entry(&mut log, [0, 0, FLUSH, 0], &[]);
        entry(&mut log, [100, 1, 0, 0], &mark(42));
        entry(&mut log, [16, 1, FLUSH, 0], &[9; 512]);
        entry(&mut log, [24, 8, DISCARD, 0], &[]);
        let events = read(&log[..], 51_200).unwrap();
        let written = |offset, byte, len| Event::Write { offset, bytes: vec![byte; len].into() };
        let expected = [
            written(4096, 7, 1024),
            Event::Flush,
            Event::Mark(42),
            Event::Flush,
            written(8192, 9, 512),
            Event::discard(12_288, 4096),
        ];
        assert_eq!(events, expected);
        assert!(read(&log[..log.len() - 1], 51_200).is_err());
        assert!(read(&[0; 512][..], 51_200).is_err());
    }
}
