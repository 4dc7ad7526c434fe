//! The map files of GNU ddrescue, and a device whose unfinished ranges cannot be read.
//!
//! Source: the GNU ddrescue manual, "Mapfile structure".

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use obento::Error;
use obento::base::DeviceError;
use obento::block::{BlockDevice, Overlay};

/// The error number of a range that the map does not list as finished (ENODATA).
const UNFINISHED: i32 = 61;

/// Describes why a range could not be read.
pub fn reason(error: &Error) -> String {
    match error {
        Error::Device(DeviceError::Read { offset, len, errno: UNFINISHED }) => {
            let last = offset.saturating_add(len.saturating_sub(1));
            format!("the map does not list the bytes {offset} to {last} as finished")
        }
        error => error.to_string(),
    }
}

/// The ranges that were read, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Map {
    /// Disjoint, not adjacent, sorted.
    finished: Vec<Range<u64>>,
}

impl Map {
    /// Parses a map file. Ranges that it does not list count as not read.
    ///
    /// # Errors
    ///
    /// A line is malformed, or the ranges are not in order; the text names the line.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(index) = text.lines().position(|line| line.len() > MAX_LINE && !line.starts_with('#')) {
            return Err(format!("line {} has more than {MAX_LINE} bytes", index + 1));
        }
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
        let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        // The first line is the state of ddrescue.
        let (at, state) = lines.next().ok_or("the file has no lines")?;
        let mut words = state.split_whitespace();
        let is_state = words.next().is_some_and(|word| number(word).is_some())
            && words.next().is_some_and(|word| word.len() == 1);
        if !is_state {
            return Err(format!("line {at} is not the state line of a map file: '{state}'"));
        }
        let (mut finished, mut end) = (Vec::<Range<u64>>::new(), 0);
        for (at, line) in lines {
            let malformed = || format!("line {at} is malformed: '{line}'");
            let words: Vec<&str> = line.split_whitespace().collect();
            let [start, len, status] = words.as_slice() else { return Err(malformed()) };
            let (start, len) = number(start).zip(number(len)).ok_or_else(malformed)?;
            let next = start.checked_add(len).ok_or_else(malformed)?;
            if start < end || !matches!(*status, "+" | "-" | "*" | "/" | "?") {
                return Err(malformed());
            }
            end = next;
            match finished.last_mut() {
                _ if *status != "+" => {}
                Some(last) if last.end == start => last.end = next,
                _ => finished.push(start..next),
            }
        }
        Ok(Self { finished })
    }

    /// Adds `range` to the finished ranges.
    fn finish(&mut self, range: Range<u64>) {
        let first = self.finished.partition_point(|known| known.end < range.start);
        let end = self.finished.partition_point(|known| known.start <= range.end).max(first);
        let joined = self.finished[first..end]
            .iter()
            .fold(range, |joined, known| joined.start.min(known.start)..joined.end.max(known.end));
        self.finished.splice(first..end, [joined]);
    }

    /// Returns the first part of `range` that was not read. The part may extend past the end of `range`.
    fn first_bad(&self, range: Range<u64>) -> Option<Range<u64>> {
        let after = self.finished.partition_point(|finished| finished.end <= range.start);
        let (start, next) = match self.finished.get(after) {
            Some(found) if found.start <= range.start => (found.end, self.finished.get(after + 1)),
            found => (range.start, found),
        };
        (start < range.end).then(|| start..next.map_or(u64::MAX, |next| next.start))
    }
}

/// Parses a number in C syntax: decimal, or hexadecimal after `0x`.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A device of which only the finished ranges of a map can be read.
pub struct BadRanges {
    device: Arc<dyn BlockDevice>,
    map: RwLock<Map>,
    /// Whether the device is a copy that a repair changes. What is written can be read.
    is_copy: bool,
    zeros: Mutex<Zeros>,
}

/// Which bad bytes read as zeros. A read of the others fails.
#[derive(Default)]
struct Zeros {
    all: bool,
    /// The ranges of reads that failed before.
    reads: Vec<Range<u64>>,
    /// The last read that failed.
    failed: Option<Range<u64>>,
    /// The bad ranges that were read as zeros.
    filled: Vec<Range<u64>>,
    /// The number of filled ranges at which they are merged.
    merge_at: usize,
}

impl Zeros {
    /// Adds a range that was read as zeros. A list that has at least [`MERGE_MIN`] ranges, and has doubled since it was last
    /// merged, is merged again. Repeated reads of the same bytes therefore add no memory: the list has at most
    /// `MERGE_MIN` ranges, or twice the number of separate ranges that the last merge left. A bad range of the map that
    /// is read in separate blocks counts once for each block.
    fn fill(&mut self, range: Range<u64>) {
        if self.filled.len() >= self.merge_at.max(MERGE_MIN) {
            self.filled = merged(std::mem::take(&mut self.filled));
            self.merge_at = self.filled.len().saturating_mul(2);
        }
        self.filled.push(range);
    }
}

/// The least number of ranges that are merged.
const MERGE_MIN: usize = 4096;

/// The longest line of a map, in bytes. The three columns of ddrescue have fewer than 50.
const MAX_LINE: usize = 200;

/// The most reads that are repeated with zeros until a volume opens.
const MAX_READS: usize = 200;

impl BadRanges {
    pub fn new(device: Arc<dyn BlockDevice>, map: Map) -> Self {
        Self { device, map: RwLock::new(map), is_copy: false, zeros: Mutex::default() }
    }

    /// Returns a copy in memory that can be changed. The rest of a bad range stays bad after a change of a part.
    pub fn copy(&self) -> Self {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner).clone();
        Self { is_copy: true, ..Self::new(Arc::new(Overlay::new(self.device.clone())), map) }
    }

    /// Runs `work` while all bad bytes read as zeros. Returns the bad ranges that were read, sorted and disjoint.
    pub fn with_zeros<T>(&self, work: impl FnOnce() -> T) -> (T, Vec<Range<u64>>) {
        self.zeros().all = true;
        let done = work();
        let zeros = std::mem::take(&mut *self.zeros());
        (done, merged(zeros.filled))
    }

    /// Repeats `work` until it succeeds. After each failure, the last read that failed returns zeros for its bad bytes, so
    /// that a volume opens like one whose bad sectors were overwritten. Other copies of what is bad are still used.
    /// Returns the bad ranges that were read as zeros, sorted and disjoint.
    pub fn with_few_zeros<T, E>(&self, work: impl Fn() -> Result<T, E>) -> (Result<T, E>, Vec<Range<u64>>) {
        let done = loop {
            // Only the ranges that the last attempt read are reported.
            self.zeros().filled.clear();
            let done = work();
            let mut zeros = self.zeros();
            match zeros.failed.take() {
                Some(failed) if done.is_err() && zeros.reads.len() < MAX_READS => zeros.reads.push(failed),
                _ => break done,
            }
        };
        let zeros = std::mem::take(&mut *self.zeros());
        (done, merged(zeros.filled))
    }

    fn zeros(&self) -> MutexGuard<'_, Zeros> {
        self.zeros.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a read of `range` returns zeros for bad bytes, and records that it fails otherwise.
    fn reads_zeros(&self, range: Range<u64>) -> bool {
        let mut zeros = self.zeros();
        let is_known = |known: &Range<u64>| known.start <= range.start && range.end <= known.end;
        let reads_zeros = zeros.all || zeros.reads.iter().any(is_known);
        if !reads_zeros {
            zeros.failed = Some(range);
        }
        reads_zeros
    }

    /// Returns the first bad range from `offset` on that a read of `len` bytes meets.
    fn first_bad(&self, offset: u64, len: u64) -> Option<Range<u64>> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let bad = map.first_bad(offset..offset.saturating_add(len))?;
        Some(bad.start..bad.end.min(self.len()).max(bad.start))
    }

    /// Reads the finished bytes, and fills the others with zeros.
    fn read_with_zeros(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let mut at = 0;
        while at < buf.len() {
            let (start, left) = (offset.saturating_add(at as u64), buf.len() - at);
            let bad = self.first_bad(start, left as u64);
            let within = |end: u64| usize::try_from(end.saturating_sub(start)).unwrap_or(left).min(left);
            let good = bad.as_ref().map_or(left, |bad| within(bad.start));
            if good > 0 {
                self.device.read_at(start, &mut buf[at..at + good])?;
            }
            at += good;
            if let Some(bad) = bad {
                let lost = within(bad.end).saturating_sub(good).max(1).min(buf.len() - at);
                buf[at..at + lost].fill(0);
                self.zeros().fill(bad.start..bad.start.saturating_add(lost as u64));
                at += lost;
            }
        }
        Ok(())
    }
}

/// Returns the ranges in order. Ranges that overlap or touch become one range.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut merged = Vec::<Range<u64>>::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

impl BlockDevice for BadRanges {
    fn len(&self) -> u64 {
        self.device.len()
    }

    fn sector_size(&self) -> u32 {
        self.device.sector_size()
    }

    fn is_read_only(&self) -> bool {
        !self.is_copy
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let len = buf.len() as u64;
        if offset.checked_add(len).is_none_or(|end| end > self.len()) {
            return self.device.read_at(offset, buf);
        }
        match self.first_bad(offset, len) {
            None => self.device.read_at(offset, buf),
            Some(_) if self.reads_zeros(offset..offset.saturating_add(len)) => {
                self.read_with_zeros(offset, buf)
            }
            // The length of the whole bad range allows the caller to skip exactly this range.
            Some(bad) => {
                let (offset, len) = (bad.start, bad.end - bad.start);
                Err(DeviceError::Read { offset, len, errno: UNFINISHED }.into())
            }
        }
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        if !self.is_copy {
            return Err(DeviceError::ReadOnly.into());
        }
        self.device.write_at(offset, buf)?;
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        map.finish(offset..offset.saturating_add(buf.len() as u64));
        Ok(())
    }

    fn flush(&self) -> Result<(), Error> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use obento::block::MemDevice;

    use super::*;

    #[test]
    fn unlisted_and_unfinished_ranges_are_not_read() {
        let text = "# Mapfile. Created by GNU ddrescue version 1.27\n# current_pos  current_status  current_pass\n\
                    0x00030000     +               1\n#      pos        size  status\n\
                    0x00000000  0x00010000  +\n0x00010000  0x00000200  -\n0x00010200  4096  +\n\
                    0x00011200  0x00001000  +\n0x00020000  0x00010000  ?\n";
        let map = Map::parse(text).unwrap();
        assert_eq!(map.finished, [0..0x10000, 0x10200..0x12200]);
        for good in [0..0x10000, 0x10200..0x12200, 5..5, 0x10000..0x10000] {
            assert_eq!(map.first_bad(good.clone()), None, "{good:?}");
        }
        assert_eq!(map.first_bad(0xffff..0x10001), Some(0x10000..0x10200));
        assert_eq!(map.first_bad(0x10100..0x10110), Some(0x10100..0x10200));
        assert_eq!(map.first_bad(0x12000..0x12400), Some(0x12200..u64::MAX));
        assert_eq!(map.first_bad(1 << 40..1 << 41), Some(1 << 40..u64::MAX));
    }

    #[test]
    fn bad_bytes_are_errors_or_zeros_and_all_others_are_read() {
        let bytes: Vec<u8> = (0..8192_u32).map(|at| at.to_le_bytes()[0] | 1).collect();
        let map = Map::parse("0 + 1\n0 700 +\n700 300 -\n1000 2000 +\n3000 96 *\n3096 3000 +\n").unwrap();
        let bad = BadRanges::new(Arc::new(MemDevice::read_only(bytes.clone())), map);
        let mut read = vec![0; 8192];
        let error = bad.read_at(10, &mut read[..1000]).unwrap_err();
        assert_eq!(error, DeviceError::Read { offset: 700, len: 300, errno: UNFINISHED }.into());
        let (done, filled) = bad.with_zeros(|| bad.read_at(0, &mut read));
        done.unwrap();
        assert_eq!(filled, [700..1000, 3000..3096, 6096..8192]);
        let expected = |at: usize| {
            let is_bad = filled.iter().any(|range| range.contains(&(at as u64)));
            if is_bad { 0 } else { bytes[at] }
        };
        assert!((0..8192).all(|at| read[at] == expected(at)));
        assert!(bad.read_at(5000, &mut read[..2000]).is_err());
        assert!(bad.with_zeros(|| bad.read_at(8000, &mut read[..200])).0.is_err(), "past the end");
    }

    #[test]
    fn the_list_of_zeros_has_no_more_ranges_than_a_few_times_the_map() {
        use std::fmt::Write as _;

        const RANGES: usize = 3 * MERGE_MIN;
        let mut text = "0 + 1\n".to_owned();
        (0..RANGES).for_each(|at| writeln!(text, "{} 1 +", 2 * at).unwrap());
        let map = Map::parse(&text).unwrap();
        let bad = BadRanges::new(Arc::new(MemDevice::read_only(vec![1; 2 * RANGES])), map);
        let mut read = vec![0; 2 * RANGES];
        let ((), filled) = bad.with_zeros(|| {
            for _ in 0..5 {
                bad.read_at(0, &mut read).unwrap();
            }
            assert!(bad.zeros().filled.len() <= 2 * RANGES);
        });
        assert_eq!(filled.len(), RANGES);
        assert!(read.iter().enumerate().all(|(at, byte)| usize::from(*byte) == (at + 1) % 2));
    }

    #[test]
    fn written_ranges_of_a_copy_can_be_read() {
        let map = Map::parse("0 + 1\n0 10 +\n20 10 +\n40 10 +\n60 10 +\n").unwrap();
        for (written, expected) in [
            (12..15, vec![0..10, 12..15, 20..30, 40..50, 60..70]),
            (10..20, vec![0..30, 40..50, 60..70]),
            (25..41, vec![0..10, 20..50, 60..70]),
            (5..45, vec![0..50, 60..70]),
            (22..24, vec![0..10, 20..30, 40..50, 60..70]),
            (80..90, vec![0..10, 20..30, 40..50, 60..70, 80..90]),
        ] {
            let mut map = map.clone();
            map.finish(written.clone());
            assert_eq!(map.finished, expected, "{written:?}");
        }
    }

    #[test]
    fn malformed_maps_are_rejected() {
        for text in [
            "",
            "# only\n",
            "hello\n",
            "0 +\n0 1 x\n",
            "0 +\n5 5 +\n0 1 +\n",
            "0 +\n0 +\n",
            "0 +\n1 18446744073709551615 +\n",
        ] {
            assert!(Map::parse(text).is_err(), "{text:?}");
        }
        let long = format!("0 + 1\n0 {} +\n", "1".repeat(1000));
        assert_eq!(Map::parse(&long), Err("line 2 has more than 200 bytes".to_owned()));
    }
}
