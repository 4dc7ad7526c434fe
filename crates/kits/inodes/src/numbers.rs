//! Sets of block numbers, and the edited blocks of a change.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use obento_base::Result;
use obento_block::Edit;

/// A set of block numbers. The keys have 64 bits, as those of the sets in other drivers, so that a kernel
/// module contains the code of one kind of set.
#[derive(Debug, Default)]
pub(crate) struct BlockSet(BTreeSet<u64>);

impl BlockSet {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        self.0.contains(&number.into())
    }

    pub(crate) fn insert(&mut self, number: u32) {
        self.0.insert(number.into());
    }

    pub(crate) fn remove(&mut self, number: u32) {
        self.0.remove(&number.into());
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the numbers in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().filter_map(|&number| u32::try_from(number).ok())
    }
}

/// The blocks that a change has edited, sorted by their numbers. There are at most as many as the log has
/// blocks.
#[derive(Default)]
pub(crate) struct Edits<'v>(pub(crate) Vec<(u32, Edit<'v>)>);

impl<'v> Edits<'v> {
    fn place(&self, number: u32) -> core::result::Result<usize, usize> {
        self.0.binary_search_by_key(&number, |(known, _)| *known)
    }

    /// Returns the edit of a block.
    pub(crate) fn get(&self, number: u32) -> Option<&Edit<'v>> {
        self.0.get(self.place(number).ok()?).map(|(_, edit)| edit)
    }

    /// Returns the edit of a block, which `start` begins if the block has no edit.
    pub(crate) fn get_or_start(
        &mut self,
        number: u32,
        start: impl FnOnce() -> Result<Edit<'v>>,
    ) -> Result<&mut [u8]> {
        let place = match self.place(number) {
            Ok(place) => place,
            Err(place) => {
                self.0.insert(place, (number, start()?));
                place
            }
        };
        Ok(self.0.get_mut(place).map(|(_, edit)| &mut **edit).unwrap_or_default())
    }

    /// Replaces the edit of a block.
    pub(crate) fn insert(&mut self, number: u32, edit: Edit<'v>) {
        self.remove(number);
        let place = self.0.partition_point(|(known, _)| *known < number);
        self.0.insert(place, (number, edit));
    }

    /// Cancels the edit of a block.
    pub(crate) fn remove(&mut self, number: u32) {
        self.0.retain(|(known, _)| *known != number);
    }
}
