//! The directories of a sound volume, and the entries that refer to clusters.

use alloc::vec;
use alloc::vec::Vec;

use obento_base::Error;
use obento_base::wire::{FromBytes as _, IntoBytes as _, to_usize};
use obento_block::BlockDevice;
use obento_clusters::Entry;
use obento_driver::ResizeResult;

use super::table::AllocationTable;
use crate::inode::{Attributes, Kind};
use crate::raw::RawEntry;
use crate::super_block::SuperBlock;
use crate::super_block::{Root, Width};
use crate::unit::{Cluster, ENTRY_LEN};

/// A part of a directory: a cluster, or the whole root directory of FAT12 and FAT16.
pub struct Part {
    /// The cluster; `None` for the root directory between the FATs and the clusters.
    pub cluster: Option<Cluster>,
    /// The byte offset on the volume.
    pub start: u64,
    pub bytes: Vec<u8>,
}

impl Part {
    /// Calls `change` for each entry that refers to a cluster, with its offset in the part and the first cluster.
    /// Stores the number that `change` returns. Returns whether the directory continues after the part.
    pub fn change(
        &mut self,
        width: Width,
        change: &mut dyn FnMut(u64, &RawEntry, Cluster) -> Option<Cluster>,
    ) -> ResizeResult<bool> {
        let places = (0..).step_by(to_usize(ENTRY_LEN));
        for (at, entry) in places.zip(self.bytes.chunks_exact_mut(to_usize(ENTRY_LEN))) {
            let mut raw = RawEntry::read_from_bytes(entry).map_err(|_| Error::Invalid)?;
            match raw.kind() {
                Kind::End => return Ok(false),
                Kind::Free | Kind::LongName | Kind::Label => continue,
                Kind::Dots | Kind::File => {}
            }
            let Some(first) = raw.first(width) else { continue };
            if let Some(new) = change(at, &raw, first) {
                raw.set_first(Some(new));
                entry.copy_from_slice(raw.as_bytes());
            }
        }
        Ok(true)
    }
}

/// Reads the directories of the volume that `sb` and `table` describe, and calls `visit` for each part that contains
/// entries. Fails if the device or `visit` fails.
pub fn each(
    device: &dyn BlockDevice,
    sb: &SuperBlock,
    table: &AllocationTable,
    visit: &mut dyn FnMut(Part) -> ResizeResult<()>,
) -> ResizeResult<()> {
    let mut pending = Vec::new();
    let mut read = |cluster, start, len: u64, pending: &mut Vec<Cluster>| {
        let mut part = Part { cluster, start, bytes: vec![0; to_usize(len)] };
        device.read_at(start, &mut part.bytes)?;
        let goes_on = part.change(sb.width, &mut |_, raw, first| {
            let is_dir = raw.kind() == Kind::File && raw.attributes().contains(Attributes::DIRECTORY);
            pending.extend(is_dir.then_some(first));
            None
        })?;
        visit(part)?;
        Ok::<bool, obento_driver::ResizeError>(goes_on)
    };
    match sb.root {
        Root::Region { start, len } => {
            read(None, start, len, &mut pending)?;
        }
        Root::Chain(first) => pending.push(first),
    }
    // Each cluster has one owner, so that the walk ends; the bound holds also if the volume changes during the walk.
    let mut left = sb.clusters;
    while let Some(first) = pending.pop() {
        let mut next = Some(first);
        while let Some(cluster) = next {
            left = left.checked_sub(1).ok_or(Error::Invalid)?;
            let start = sb.offset_of(cluster).ok_or(Error::Invalid)?;
            let goes_on = read(Some(cluster), start, sb.cluster_size.into(), &mut pending)?;
            next = match table.entry(cluster) {
                Entry::Next(next) if goes_on => Some(next),
                _ => None,
            };
        }
    }
    Ok(())
}
