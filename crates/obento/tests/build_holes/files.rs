//! Random files of data, zeros and holes, with lengths near the limits at which a format stores a file
//! differently.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use obento_testkit::mutants::Random;

/// The longest file. Longer files reveal nothing more.
const LONGEST: u64 = 3 << 20;
/// Lengths at which the storage changes: the space in an inode, sectors, blocks.
const LIMITS: [u64; 10] = [1, 60, 156, 512, 1024, 2048, 4096, 12 << 10, 48 << 10, 64 << 10];
/// Numbers of extents at which a map gets one more level or node, with blocks of 1 and 4 KiB.
const EXTENTS: [u64; 6] = [4, 5, 84, 85, 340, 341];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fill {
    Data,
    Zeros,
    Hole,
}

/// The description of a file.
#[derive(Clone, Debug)]
pub struct Sketch {
    /// The path from the root, without a slash.
    pub path: String,
    salt: u64,
    runs: Vec<(Fill, u64)>,
}

impl Sketch {
    fn ranges(&self) -> impl Iterator<Item = (Fill, Range<u64>)> {
        let mut end = 0;
        self.runs.iter().map(move |&(fill, len)| {
            let start = end;
            end += len;
            (fill, start..end)
        })
    }

    pub fn size(&self) -> u64 {
        self.runs.iter().map(|(_, len)| len).sum()
    }

    pub fn content(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size() as usize];
        for (_, range) in self.ranges().filter(|(fill, _)| *fill == Fill::Data) {
            let part = &mut bytes[range.start as usize..range.end as usize];
            part.iter_mut().zip(range).for_each(|(to, at)| {
                *to = ((at.wrapping_mul(31) ^ (at >> 9)).wrapping_add(self.salt) % 255) as u8 + 1;
            });
        }
        bytes
    }

    /// Returns the ranges that are not holes, in order and separated by holes.
    pub fn data(&self) -> Vec<Range<u64>> {
        merged(self.ranges().filter(|(fill, range)| *fill != Fill::Hole && !range.is_empty()).map(|(_, r)| r))
    }

    /// Writes the file to the host.
    pub fn write(&self, root: &Path) -> io::Result<()> {
        let file = File::create(root.join(&self.path))?;
        file.set_len(self.size())?;
        let bytes = self.content();
        for range in self.data() {
            file.write_all_at(&bytes[range.start as usize..range.end as usize], range.start)?;
        }
        Ok(())
    }
}

/// Merges adjacent ranges, which are in order.
pub fn merged(ranges: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut all: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match all.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => all.push(range),
        }
    }
    all
}

/// Returns the data ranges of a host file, or `None` if a build need not look: `stat(2)` shows no hole.
pub fn data_on_host(path: &Path) -> Option<Vec<Range<u64>>> {
    let file = File::open(path).unwrap();
    let meta = file.metadata().unwrap();
    if meta.blocks() * 512 >= meta.len() || meta.len() < 4096 {
        return None;
    }
    let (mut ranges, mut at) = (Vec::new(), 0);
    while let Ok(start) = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) {
        at = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(start)).unwrap();
        ranges.push(start..at);
    }
    Some(ranges)
}

fn length(random: &mut Random, unit: u64, fill: Fill) -> u64 {
    match random.below(12) {
        0..=2 => LIMITS[random.below(10) as usize] + random.below(3) - 1,
        3..=5 => unit * (1 + random.below(4)) + random.below(3) - 1,
        6 | 7 => unit * (1 + random.below(4)),
        8 | 9 => 1 + random.below(3 * unit),
        10 if fill == Fill::Hole => 1 + random.below(LONGEST),
        _ => 1 + random.below(600),
    }
}

fn runs(random: &mut Random, unit: u64) -> Vec<(Fill, u64)> {
    let mut some = |fill: Fill| (fill, length(random, unit, fill));
    let data = some(Fill::Data);
    let (hole, zeros) = (some(Fill::Hole), some(Fill::Zeros));
    match random.below(12) {
        0 => Vec::new(),
        1 => vec![data],
        2 => vec![hole],
        3 | 4 => vec![data, hole],
        5 => vec![hole, data],
        6 => vec![data, zeros, hole],
        7 => {
            let fits = EXTENTS.into_iter().filter(|count| count * 2 * unit <= LONGEST);
            let counts: Vec<u64> = fits.collect();
            let count = counts.get(random.below(6) as usize).or(counts.last()).copied().unwrap_or(2);
            let tooth = [(Fill::Data, 1 + random.below(unit)), (Fill::Hole, 2 * unit)];
            tooth.repeat(count as usize)
        }
        _ => {
            let count = 2 + random.below(6);
            let fills = [Fill::Data, Fill::Zeros, Fill::Hole];
            let runs = (0..count).map(|_| {
                let fill = fills[random.below(3) as usize];
                (fill, length(random, unit, fill))
            });
            runs.collect()
        }
    }
}

/// Returns files for a volume that allocates in units of `unit` bytes.
pub fn tree(random: &mut Random, unit: u64) -> Vec<Sketch> {
    let count = 1 + random.below(6);
    let one = |at| {
        let folder = if random.below(3) == 0 { "d/" } else { "" };
        let mut runs = runs(random, unit);
        let mut left = LONGEST;
        runs.iter_mut().for_each(|(_, len)| {
            *len = left.min(*len);
            left -= *len;
        });
        Sketch { path: format!("{folder}f{at}"), salt: random.number(), runs }
    };
    (0..count).map(one).collect()
}
