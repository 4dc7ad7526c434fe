//! The map files of GNU ddrescue, and a device whose unfinished ranges cannot be read.
//!
//! Source: the GNU ddrescue manual, "Mapfile structure".

use std::ops::Range;
use std::sync::Arc;

use obento::Error;
use obento::base::DeviceError;
use obento::block::BlockDevice;

/// The error number of a range that the map does not list as finished (ENODATA). Reading an image fails with no other
/// cause for this number.
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

    /// Returns whether all bytes of `range` were read.
    fn contains(&self, range: Range<u64>) -> bool {
        let after = self.finished.partition_point(|finished| finished.end <= range.start);
        range.is_empty()
            || self
                .finished
                .get(after)
                .is_some_and(|found| found.start <= range.start && range.end <= found.end)
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
    map: Map,
}

impl BadRanges {
    pub fn new(device: Arc<dyn BlockDevice>, map: Map) -> Self {
        Self { device, map }
    }
}

impl BlockDevice for BadRanges {
    fn len(&self) -> u64 {
        self.device.len()
    }

    fn sector_size(&self) -> u32 {
        self.device.sector_size()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let len = buf.len() as u64;
        match self.map.contains(offset..offset.saturating_add(len)) {
            true => self.device.read_at(offset, buf),
            false => Err(DeviceError::Read { offset, len, errno: UNFINISHED }.into()),
        }
    }

    fn write_at(&self, _offset: u64, _buf: &[u8]) -> Result<(), Error> {
        Err(DeviceError::ReadOnly.into())
    }

    fn flush(&self) -> Result<(), Error> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlisted_and_unfinished_ranges_are_not_read() {
        let text = "# Mapfile. Created by GNU ddrescue version 1.27\n# current_pos  current_status  current_pass\n\
                    0x00030000     +               1\n#      pos        size  status\n\
                    0x00000000  0x00010000  +\n0x00010000  0x00000200  -\n0x00010200  4096  +\n\
                    0x00011200  0x00001000  +\n0x00020000  0x00010000  ?\n";
        let map = Map::parse(text).unwrap();
        assert_eq!(map.finished, [0..0x10000, 0x10200..0x12200]);
        assert!(map.contains(0..0x10000) && map.contains(0x10200..0x12200) && map.contains(5..5));
        assert!(
            !map.contains(0xffff..0x10001)
                && !map.contains(0x12000..0x12400)
                && !map.contains(1 << 40..1 << 41)
        );
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
    }
}
