//! Directory entries that have other contents on disk until all other entries are written.

use alloc::vec::Vec;
use core::ops::Range;

use crate::sectors::Sectors;
use crate::unit::{ENTRY_LEN, Slot};

/// The contents of late entries on disk, by their slots. The map has the type of [`Sectors`], so that a kernel
/// module contains the code of one map.
#[derive(Default)]
pub struct LateEntries(Sectors);

impl LateEntries {
    /// Returns whether no entry is late.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the entry at `slot` is late.
    pub fn contains(&self, slot: Slot) -> bool {
        self.0.contains_key(&slot.0)
    }

    /// Records that the entry at `slot` is `shown` on disk. An entry that is late already keeps its contents on
    /// disk.
    pub fn show(&mut self, slot: Slot, shown: [u8; 32]) {
        if !self.contains(slot) {
            self.0.insert(slot.0, Vec::from(shown));
        }
    }

    /// Returns the late entries, and their contents on disk.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &[u8])> {
        self.0.iter().map(|(&slot, shown)| (Slot(slot), shown.as_slice()))
    }

    /// Forgets the late entries in `range` of the device.
    pub(crate) fn forget(&mut self, range: &Range<u64>) {
        let slots = range.start / ENTRY_LEN..range.end / ENTRY_LEN;
        while let Some((&slot, _)) = self.0.range(slots.clone()).next() {
            self.0.remove(&slot);
        }
    }

    /// Forgets all late entries.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
