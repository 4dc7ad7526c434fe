//! A journal that is open for reading.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Corrupt, Error, Feature, Result, Structure};
use obento_block::BlockDevice;

use crate::{ExternalJournal, Runs, SuperBlock, Tid};

/// A journal: its super block, its log, and their locations.
pub struct Journal {
    device: Arc<dyn BlockDevice>,
    runs: Runs,
    /// The block of the journal that contains its super block.
    at: u32,
    super_block: SuperBlock,
}

impl Journal {
    /// Opens the journal in the blocks `runs` of `device`, whose blocks have `block_size` bytes, for reading.
    /// Reads the super block. Writes nothing.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: a block of the device occurs twice in `runs`, or the first block of the journal is a
    ///   hole.
    /// - `Device`: the device failed.
    /// - The errors of [`SuperBlock::decode`].
    pub fn open(device: Arc<dyn BlockDevice>, block_size: u32, runs: Runs) -> Result<Self> {
        Self::open_at(device, block_size, runs, 0)
    }

    /// Opens the journal on the journal device `device`. The file system has blocks of `block_size` bytes,
    /// and `uuid` is the UUID of the journal device in its super block.
    ///
    /// # Errors
    ///
    /// 1. The errors of [`ExternalJournal::probe`].
    /// 2. `Invalid`: the device contains no journal, a journal with another UUID, or a journal with another block size.
    /// 3. The errors of [`Journal::open`].
    /// 4. `Unsupported`: several file systems share the journal.
    pub fn open_external(device: Arc<dyn BlockDevice>, block_size: u32, uuid: [u8; 16]) -> Result<Self> {
        let label = ExternalJournal::probe(&device)?.ok_or(Error::Invalid)?;
        if label.uuid != uuid || label.block_size != block_size {
            return Err(Error::Invalid);
        }
        let journal = Self::open_at(device, block_size, Runs::identity(label.len), label.super_block())?;
        if journal.super_block.users > 1 {
            return Err(Error::Unsupported(Feature::Named("a journal shared by several file systems")));
        }
        Ok(journal)
    }

    fn open_at(device: Arc<dyn BlockDevice>, block_size: u32, runs: Runs, at: u32) -> Result<Self> {
        runs.check_distinct()?;
        let mut bytes = [0; SuperBlock::LEN];
        let block = locate(&runs, at)?;
        device.read_at(block.saturating_mul(block_size.into()), &mut bytes)?;
        let super_block = SuperBlock::decode(&bytes, block, block_size, runs.len())?;
        Ok(Self { device, runs, at, super_block })
    }

    /// Returns the super block.
    pub fn super_block(&self) -> &SuperBlock {
        &self.super_block
    }

    /// Records that the log was marked empty.
    pub(crate) fn set_empty(&mut self, next: Tid, head: u32) {
        (self.super_block.sequence, self.super_block.start, self.super_block.head) = (next, 0, head);
    }

    /// Returns the block of the device that contains the super block of the journal. Fails with `Corrupt` if
    /// that block of the journal is in a hole.
    pub fn super_block_place(&self) -> Result<u64> {
        self.locate(self.at)
    }

    /// Returns the device of the journal.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Returns the locations of the blocks of the journal.
    pub fn runs(&self) -> &Runs {
        &self.runs
    }

    /// Returns the block of the device that contains block `at` of the journal. Fails with `Corrupt` if `at` is in a
    /// hole or past the end.
    pub fn locate(&self, at: u32) -> Result<u64> {
        locate(&self.runs, at)
    }

    /// Reads block `at` of the journal into `buf`, which has the size of a block.
    ///
    /// # Errors
    ///
    /// 1. `Corrupt`: `at` is in a hole or past the end.
    /// 2. `Device`: the device failed.
    pub fn read(&self, at: u32, buf: &mut [u8]) -> Result<()> {
        let block = self.locate(at)?;
        self.device.read_at(block.saturating_mul(self.super_block.block_size.into()), buf)
    }

    /// Allocates a buffer of zeros for one block. Fails with `NoMemory`.
    pub fn block_buffer(&self) -> Result<Vec<u8>> {
        let len = to_usize(self.super_block.block_size.into());
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(len)?;
        buffer.resize(len, 0);
        Ok(buffer)
    }
}

fn locate(runs: &Runs, at: u32) -> Result<u64> {
    runs.find(at).ok_or_else(|| {
        let (len, start) = (to_u64(1), 0);
        Corrupt::BlockRange { structure: Structure::Journal, at: at.into(), start, len }.into()
    })
}
