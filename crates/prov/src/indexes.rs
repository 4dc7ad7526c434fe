//! The files with the indexes of ended segments.
//!
//! Invariant: an index is never necessary. One that cannot be written is missing, and readers decode its segment instead.
//! An index is written without a sync: after a power failure it is complete, or its checksum is wrong.

use alloc::vec::Vec;

use obento_base::wire::to_u64;
use obento_base::{Error, Result};
use obento_vfs::Node;

use crate::block::BLOCK;
use crate::files::{Files, SEGMENT_MAX};
use crate::index::{Index, Stamp, index_name, index_number};
use crate::owned::OwnedInodes;
use crate::segment::segment_name;

/// Greatest length of the index of a short segment, which is longer in proportion.
const SHORT_INDEX: u64 = to_u64(BLOCK).saturating_mul(4);

/// Returns the length of a segment that has `len` bytes together with its index.
pub(crate) fn segment_with_index(len: u64) -> u64 {
    len.saturating_sub(len.div_ceil(5).max(SHORT_INDEX))
}

/// Returns the greatest length of the index of a segment of `segment` bytes.
fn limit(segment: u64) -> u64 {
    segment.checked_div(4).unwrap_or(0).max(SHORT_INDEX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_and_its_index_have_the_length_of_both() {
        for len in (SHORT_INDEX..1 << 20).step_by(4096).chain([5 << 20, u64::MAX / 2]) {
            let segment = segment_with_index(len);
            assert!(segment + limit(segment) <= len, "{len}");
        }
    }
}

/// The indexes in the directory of the log.
#[derive(Debug)]
pub(crate) struct Indexes {
    /// The numbers of the segments with an index.
    present: Vec<u32>,
    /// The numbers of indexes without segments. A crash between the removals of both, or a removal that failed, leaves them.
    orphans: Vec<u32>,
    /// The numbers of segments of earlier mounts whose indexes were not verified yet, in descending order.
    unverified: Vec<u32>,
}

impl Indexes {
    /// Finds the indexes of the segments `kept`. The inodes of the indexes are added to `inos`.
    pub(crate) fn of(files: &Files, kept: &[u32], inos: &OwnedInodes) -> Result<Self> {
        let present = files.numbers(index_number)?;
        // No user can reach an index that cannot be found.
        let nodes = present.iter().filter_map(|&number| files.find(&index_name(number)).ok());
        nodes.for_each(|node| inos.insert(node.ino()));
        // The newest segment continues, and the compacted edges have no index.
        let ended = kept.split_last().map(|(_, ended)| ended).unwrap_or_default();
        let unverified = ended.iter().rev().copied().filter(|&number| number != 0).collect();
        let orphans =
            present.iter().copied().filter(|number| !ended.contains(number) || *number == 0).collect();
        Ok(Self { present, orphans, unverified })
    }

    /// Removes the indexes that had no segments when the log was opened. This is not done at that time, since a log that
    /// is adopted must not change the volume then.
    pub(crate) fn remove_orphans(&mut self, files: &Files, inos: &OwnedInodes) {
        core::mem::take(&mut self.orphans).into_iter().for_each(|number| self.remove(number, files, inos));
    }

    /// Writes the index of a segment that ended. Also verifies the index of one segment of an earlier mount, and replaces
    /// it if it is missing, damaged or stale.
    pub(crate) fn add(
        &mut self,
        number: u32,
        segment: &Node,
        files: &Files,
        segment_len: u64,
        inos: &OwnedInodes,
    ) {
        let _ = self.write(number, segment, files, segment_len, inos);
        let Some(older) = self.unverified.pop() else { return };
        let Ok(segment) = files.find(&segment_name(older)) else { return };
        if !self.is_valid(older, &segment, files) {
            let _ = self.write(older, &segment, files, segment_len, inos);
        }
    }

    fn write(
        &mut self,
        number: u32,
        segment: &Node,
        files: &Files,
        segment_len: u64,
        inos: &OwnedInodes,
    ) -> Result<()> {
        // A full volume has no room for any index.
        if !files.has_room_for(to_u64(BLOCK)) {
            return Err(Error::NoSpace);
        }
        let bytes = Files::read(segment, SEGMENT_MAX)?;
        let index = Index::of(&bytes, &mut |_| ()).encode(&bytes).ok_or(Error::Invalid)?;
        self.remove(number, files, inos);
        let len = to_u64(index.len());
        if len > limit(segment_len) || !files.has_room_for(len) {
            return Err(Error::NoSpace);
        }
        let node = files.create(&index_name(number))?;
        inos.insert(node.ino());
        self.present.push(number);
        Files::write(&node, 0, &index).inspect_err(|_| self.remove(number, files, inos))
    }

    fn is_valid(&self, number: u32, segment: &Node, files: &Files) -> bool {
        let read = || {
            let bytes = Files::read(&files.find(&index_name(number))?, SEGMENT_MAX)?;
            let stamp = Stamp::of_file(segment)?.ok_or(Error::Invalid)?;
            Ok::<_, Error>(Index::decode(&bytes, stamp).is_ok())
        };
        self.present.contains(&number) && read().unwrap_or(false)
    }

    /// Removes the index of a segment.
    pub(crate) fn remove(&mut self, number: u32, files: &Files, inos: &OwnedInodes) {
        self.unverified.retain(|&own| own != number);
        if !self.present.contains(&number) {
            return;
        }
        let name = index_name(number);
        // While the node is in use, its number cannot become that of a user's file.
        let node = files.find(&name).ok();
        if files.remove(&name).is_ok() {
            self.present.retain(|&own| own != number);
            node.iter().for_each(|node| inos.remove(node.ino()));
        }
    }
}
