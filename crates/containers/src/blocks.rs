//! Formats whose table has one entry per block of the disk: dynamic VHD, VHDX and VDI.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::Result;
use obento_base::wire::{to_u64, to_usize};
use obento_block::BlockDevice;

use crate::layout::{Extent, Layout, Place};

/// A table of blocks. Entry `e` is the location `base + e * unit` of a block in the file.
#[derive(Debug)]
pub(crate) struct Blocks {
    /// The size of the disk in bytes.
    pub len: u64,
    /// The size of a block in bytes; not 0.
    pub block: u64,
    /// One entry per block. Blocks past the end of the table read as zeros.
    pub entries: Vec<u32>,
    pub unit: u64,
    pub base: u64,
}

/// The entry of a block that reads as zeros.
pub(crate) const UNALLOCATED: u32 = u32::MAX;

impl Blocks {
    /// Returns the location of byte `inside` of block `index`.
    fn place(&self, index: u64, inside: u64) -> Place {
        match self.entries.get(to_usize(index)).copied() {
            None | Some(UNALLOCATED) => Place::Zeros,
            // Saturates, so that the read fails: no file is that long.
            Some(entry) => Place::Data(
                u64::from(entry).saturating_mul(self.unit).saturating_add(self.base).saturating_add(inside),
            ),
        }
    }
}

impl Layout for Blocks {
    fn len(&self) -> u64 {
        self.len
    }

    fn locate(&self, _file: &Arc<dyn BlockDevice>, offset: u64, want: u64) -> Result<Extent> {
        let index = offset.checked_div(self.block).unwrap_or(0);
        let inside = offset.checked_rem(self.block).unwrap_or(0);
        let place = self.place(index, inside);
        let mut len = self.block.saturating_sub(inside);
        // Neighbours in the disk that are neighbours in the file are one extent.
        for index in index.saturating_add(1).. {
            let joined = match place {
                Place::Data(at) => Place::Data(at.saturating_add(len)),
                other => other,
            };
            let past = index >= to_u64(self.entries.len());
            if len >= want || self.place(index, 0) != joined || (past && place != Place::Zeros) {
                break;
            }
            if past {
                len = want;
            } else {
                len = len.saturating_add(self.block);
            }
        }
        Ok(Extent { len, place })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obento_block::MemDevice;

    #[test]
    fn neighbours_in_disk_and_file_are_one_extent() {
        let file: Arc<dyn BlockDevice> = Arc::new(MemDevice::read_only(Vec::new()));
        let entries = Vec::from([3, 4, 6, UNALLOCATED, UNALLOCATED, 0]);
        let blocks = Blocks { len: 80, block: 10, entries, unit: 10, base: 2 };
        let at = |offset, want| blocks.locate(&file, offset, want).unwrap();
        assert_eq!(at(5, 100), Extent { len: 15, place: Place::Data(37) });
        assert_eq!(at(5, 5), Extent { len: 5, place: Place::Data(37) });
        assert_eq!(at(20, 100), Extent { len: 10, place: Place::Data(62) });
        assert_eq!(at(31, 100), Extent { len: 19, place: Place::Zeros });
        assert_eq!(at(50, 100), Extent { len: 10, place: Place::Data(2) });
        assert_eq!(at(60, 20), Extent { len: 20, place: Place::Zeros });
    }
}
