//! Older versions of blocks, in the log of the journal.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use obento_base::Result;
use obento_journal::{Journal, OldCopy};

use crate::volume::Volume;

/// The number of transactions that a dirty log may be ahead of the number in its super block.
const AHEAD: u32 = 1 << 30;

/// The age of a version of a block: a smaller one is newer. In contrast to transaction numbers, ages are ordered.
pub(super) type Age = u32;

/// The copies in the log of the journal; none for a volume without one.
pub(super) struct OldBlocks {
    journal: Option<Journal>,
    copies: BTreeMap<u64, Vec<OldCopy>>,
}

impl OldBlocks {
    /// Finds all copies. Fails with `NoMemory`.
    pub(super) fn read(volume: &Volume) -> Result<Self> {
        let journal = volume.journal().ok().flatten();
        let copies = match &journal {
            Some(journal) => journal.old_copies(volume.super_block().blocks_count)?,
            None => BTreeMap::new(),
        };
        Ok(Self { journal, copies })
    }

    /// Passes each copy to `visit`, with its block on the volume. The newest copy of a block is first.
    pub(super) fn each(&self, mut visit: impl FnMut(u64, Age, &[u8])) {
        for (&block, copies) in &self.copies {
            for copy in copies.iter().rev() {
                if let Some(bytes) = self.bytes(copy) {
                    visit(block, self.age(copy), &bytes);
                }
            }
        }
    }

    /// Returns the newest copy of `block` that is not newer than `age`.
    pub(super) fn version(&self, block: u64, age: Age) -> Option<Vec<u8>> {
        let copies = self.copies.get(&block)?;
        copies.iter().rev().find(|copy| self.age(copy) >= age).and_then(|copy| self.bytes(copy))
    }

    fn age(&self, copy: &OldCopy) -> Age {
        let next = self.journal.as_ref().map_or(0, |journal| journal.super_block().sequence.0);
        next.wrapping_add(AHEAD).wrapping_sub(copy.tid.0)
    }

    fn bytes(&self, copy: &OldCopy) -> Option<Vec<u8>> {
        let journal = self.journal.as_ref()?;
        let mut bytes = journal.block_buffer().ok()?;
        journal.read_copy(copy, &mut bytes).ok()?;
        Some(bytes)
    }
}
