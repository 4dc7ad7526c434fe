//! Blocks that two files use: at most one of the files has its own data there.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use obento::Volume;
use obento::base::{Attr, FileKind, Ino};
use obento::driver::Span;

/// A set of bytes of the device.
#[derive(Default)]
struct ByteSet(BTreeMap<u64, u64>);

impl ByteSet {
    /// Returns the parts of `range` in the set.
    fn parts(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let first = self.0.range(..=range.start).next_back().map_or(range.start, |(&start, _)| start);
        let ranges = self.0.range(first..range.end);
        let parts = ranges.map(|(&start, &end)| start.max(range.start)..end.min(range.end));
        parts.filter(|part| !part.is_empty()).collect()
    }

    fn insert(&mut self, range: Range<u64>) {
        let Range { mut start, mut end } = range;
        while let Some((&first, &last)) = self.0.range(..=end).next_back().filter(|&(_, &last)| last >= start)
        {
            self.0.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        self.0.insert(start, end);
    }
}

/// The blocks of the files of a damaged volume.
pub struct SharedBlocks {
    volume: Volume,
    used: ByteSet,
    shared: ByteSet,
    /// The files that were added.
    added: HashSet<Ino>,
}

impl SharedBlocks {
    /// Returns `None` if files of the volume may share blocks.
    pub fn new(volume: &Volume) -> Option<Self> {
        let info = volume.info();
        let is_own = matches!(info.probe.fs_type, "ext2" | "ext3" | "ext4" | "vfat" | "exfat")
            && !info.features.iter().any(|feature| feature == "shared_blocks");
        let (used, shared, added) = Default::default();
        is_own.then(|| Self { volume: volume.clone(), used, shared, added })
    }

    /// Adds the blocks of a file, unless they were added before. Returns the range of the file from the first block that
    /// another file uses to the last one.
    pub fn add(&mut self, attr: &Attr) -> Option<Range<u64>> {
        if attr.kind != FileKind::Regular || !self.added.insert(attr.ino) {
            return None;
        }
        let Self { volume, used, shared, .. } = self;
        let mut found: Option<Range<u64>> = None;
        let is_endless = for_each_run(volume, attr, |at, bytes| {
            for part in used.parts(&bytes) {
                extend(&mut found, in_file(at, &bytes, &part));
                shared.insert(part);
            }
            used.insert(bytes);
        });
        to_end(found, attr, is_endless)
    }

    /// Returns whether two files use a block.
    pub fn is_any_shared(&self) -> bool {
        !self.shared.0.is_empty()
    }

    /// Returns the range of the file from the first block that another file uses to the last one, when all files were
    /// added.
    pub fn shared(&self, attr: &Attr) -> Option<Range<u64>> {
        let mut found = None;
        let is_endless = for_each_run(&self.volume, attr, |at, bytes| {
            for part in self.shared.parts(&bytes) {
                extend(&mut found, in_file(at, &bytes, &part));
            }
        });
        to_end(found, attr, is_endless)
    }
}

/// Passes the runs of blocks of a regular file up to the first error to `visit`: the offset in the file, and the bytes of
/// the device. Ends after as many bytes as the device has, because a hostile map uses blocks repeatedly without end.
/// Returns whether the file has more of them.
fn for_each_run(volume: &Volume, attr: &Attr, mut visit: impl FnMut(u64, Range<u64>)) -> bool {
    let node = volume.vfs().node(attr.ino).ok().filter(|_| attr.kind == FileKind::Regular);
    let Some(node) = node else { return false };
    let (mut at, mut mapped, mut device_len) = (0, 0_u64, u64::MAX);
    while at < attr.size
        && mapped <= device_len
        && let Ok(Some(run)) = node.run(at, attr.size - at)
    {
        if let Span::Mapped(offset) = run.span() {
            visit(at, offset..offset.saturating_add(run.len()));
            mapped = mapped.saturating_add(run.len());
            device_len = run.device().map_or(0, |device| device.len());
        }
        at = at.saturating_add(run.len().max(1));
    }
    mapped > device_len
}

/// Extends the range to the end of a file that uses blocks repeatedly.
fn to_end(found: Option<Range<u64>>, attr: &Attr, is_endless: bool) -> Option<Range<u64>> {
    found.map(|Range { start, end }| start..if is_endless { attr.size } else { end })
}

/// Returns the range of the file in `part` of the run `bytes` from offset `at` on.
fn in_file(at: u64, bytes: &Range<u64>, part: &Range<u64>) -> Range<u64> {
    let start = at.saturating_add(part.start - bytes.start);
    start..start.saturating_add(part.end - part.start)
}

fn extend(found: &mut Option<Range<u64>>, part: Range<u64>) {
    let known = found.take().unwrap_or_else(|| part.clone());
    *found = Some(known.start.min(part.start)..known.end.max(part.end));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_bytes_joins_ranges_and_finds_parts() {
        let mut set = ByteSet::default();
        for range in [10..20, 40..50, 20..30, 5..8] {
            set.insert(range);
        }
        assert_eq!(set.0.clone().into_iter().collect::<Vec<_>>(), [(5, 8), (10, 30), (40, 50)]);
        assert!(set.parts(&(30..40)).is_empty() && set.parts(&(8..10)).is_empty());
        assert_eq!(set.parts(&(6..45)), [6..8, 10..30, 40..45]);
        assert_eq!(set.parts(&(12..15)), std::slice::from_ref(&(12..15)));
        set.insert(0..60);
        assert_eq!(set.0.into_iter().collect::<Vec<_>>(), [(0, 60)]);
    }
}
