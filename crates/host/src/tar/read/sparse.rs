//! Maps of sparse files: GNU's old header, and the pax formats 0.0, 0.1 and 1.0.

use std::io::Read;
use std::ops::Range;

use obento_base::wire::to_u64;

use super::member::Member;
use super::pax::{MemberRecords, decimal};
use super::{BLOCK, Block, MAX_RUNS, TarError, TarReader, field};

const BAD_MAP: &str = "the map of holes is damaged";

impl<R: Read> TarReader<R> {
    /// Reads the map in a header of type `S` and in the blocks that follow it.
    pub(super) fn old_map(&mut self, block: &Block, member: &mut Member) -> Result<(), TarError> {
        let stored = self.left;
        let mut runs = Vec::new();
        let mut more = block[482] != 0;
        let mut sound = old_runs(&block[386..482], &mut runs);
        while more {
            let mut next = [0; BLOCK];
            if self.fill(&mut next)? < BLOCK {
                return Err(TarError::Truncated { offset: self.offset });
            }
            more = next[504] != 0;
            sound = sound && runs.len() < MAX_RUNS && old_runs(&next[..504], &mut runs);
        }
        let size = field::number(&block[483..495]).and_then(|size| u64::try_from(size).ok());
        // The size of the data does not include the blocks of the map.
        self.finish_map(member, if sound { Some(runs) } else { None }, size, stored)
    }

    /// Reads the map in the records, if they contain one.
    pub(super) fn pax_map(&mut self, records: &MemberRecords, member: &mut Member) -> Result<(), TarError> {
        if records.get("GNU.sparse.major") == Some(b"1") {
            let size = records.number("GNU.sparse.realsize").flatten();
            let runs = self.map_before_data()?;
            return self.finish_map(member, runs, size, self.left);
        }
        let Some(size) = records.number("GNU.sparse.size") else { return Ok(()) };
        let runs = match records.get("GNU.sparse.map") {
            Some(map) => pairs(map.split(|&byte| byte == b',').map(decimal)),
            None => {
                let runs = &records.own.runs;
                let in_turn = runs.iter().enumerate().all(|(at, (is_offset, _))| *is_offset == (at % 2 == 0));
                let numbers = runs.iter().map(|(_, value)| decimal(value));
                if in_turn { pairs(numbers) } else { None }
            }
        };
        self.finish_map(member, runs, size, self.left)
    }

    /// Reads the map of format 1.0, in lines before the data, padded to a block.
    fn map_before_data(&mut self) -> Result<Option<Vec<(u64, u64)>>, TarError> {
        let mut lines = Lines { number: Vec::new(), numbers: Vec::new() };
        loop {
            let mut block = [0; BLOCK];
            let mut len = 0;
            while len < BLOCK {
                match self.read_data(block.get_mut(len..).unwrap_or_default())? {
                    0 => return Ok(None),
                    more => len += more,
                }
            }
            match lines.take(&block) {
                Some(true) => break,
                Some(false) => {}
                None => return Ok(None),
            }
        }
        Ok(pairs(lines.numbers.into_iter().skip(1).map(Some)))
    }

    fn finish_map(
        &mut self,
        member: &mut Member,
        runs: Option<Vec<(u64, u64)>>,
        size: Option<u64>,
        stored: u64,
    ) -> Result<(), TarError> {
        let ranges = runs.zip(size).and_then(|(runs, size)| Some((ranges(&runs, size, stored)?, size)));
        let Some((ranges, size)) = ranges else {
            return Err(TarError::Unfit { path: std::mem::take(&mut member.path), reason: BAD_MAP });
        };
        member.size = size;
        member.map = Some(ranges);
        Ok(())
    }
}

/// Adds the pairs of a header. Returns whether they are numbers.
fn old_runs(field: &[u8], runs: &mut Vec<(u64, u64)>) -> bool {
    for pair in field.chunks_exact(24) {
        let (offset, len) = pair.split_at(12);
        if offset.first() == Some(&0) {
            return true;
        }
        let number = |field| field::number(field).and_then(|number| u64::try_from(number).ok());
        let (Some(offset), Some(len)) = (number(offset), number(len)) else { return false };
        runs.push((offset, len));
    }
    true
}

fn pairs(mut numbers: impl Iterator<Item = Option<u64>>) -> Option<Vec<(u64, u64)>> {
    let mut pairs = Vec::new();
    while let Some(offset) = numbers.next() {
        pairs.push((offset?, numbers.next()??));
        if pairs.len() > MAX_RUNS {
            return None;
        }
    }
    Some(pairs)
}

/// Converts the runs to ranges, if they are in order, within `size` bytes, and cover the stored bytes.
fn ranges(runs: &[(u64, u64)], size: u64, stored: u64) -> Option<Vec<Range<u64>>> {
    let (mut before, mut sum, mut ranges) = (0, 0_u64, Vec::with_capacity(runs.len()));
    for &(offset, len) in runs {
        let end = offset.checked_add(len)?;
        if offset < before || end > size {
            return None;
        }
        sum = sum.checked_add(len)?;
        before = end;
        if len > 0 {
            ranges.push(offset..end);
        }
    }
    // Some programs pad the data of the last run.
    (sum <= stored && stored - sum < to_u64(BLOCK)).then_some(ranges)
}

/// Decimal numbers, one in each line: the number of pairs, then offsets and lengths.
struct Lines {
    number: Vec<u8>,
    numbers: Vec<u64>,
}

impl Lines {
    /// Adds a block. Returns whether it was the last, or `None` if it is not a map.
    fn take(&mut self, block: &Block) -> Option<bool> {
        for &byte in block {
            if byte != b'\n' {
                self.number.push(byte);
                if self.number.len() > 20 {
                    return None;
                }
                continue;
            }
            self.numbers.push(decimal(&self.number)?);
            self.number.clear();
            let pairs = usize::try_from(*self.numbers.first()?).ok().filter(|&pairs| pairs <= MAX_RUNS)?;
            if self.numbers.len() == 1 + 2 * pairs {
                return Some(true);
            }
        }
        Some(false)
    }
}
