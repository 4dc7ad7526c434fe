//! Recovery onto the device, for a volume that is opened for writing.
//!
//! The blocks are written to their home locations, followed by a flush. Then the log is marked empty, followed by a
//! flush. If a crash occurs before the second flush, the log is replayed again.

use obento_base::{DeviceError, Error, Feature, Result, Timestamp};
use obento_block::{Block, BlockDevice, Source};

use super::JournalWriter;
use super::encode::Encoder;
use super::label::Label;
use crate::{Journal, Replayed, Summary, Tid};

impl Journal {
    /// Replays the log onto `volume`, a device of `volume_blocks` blocks, and marks the log empty. Writes nothing if
    /// nothing must be replayed.
    ///
    /// # Errors
    ///
    /// 1. The errors of [`Journal::replay_index`].
    /// 2. `Corrupt`: blocks or transactions are lost because of damage. Nothing was written.
    /// 3. `Device`: a device failed.
    pub fn recover(&mut self, volume: &dyn BlockDevice, volume_blocks: u64) -> Result<Summary> {
        let summary = self.replay_onto(volume, volume_blocks)?;
        if self.super_block().needs_replay() {
            // Skip one number, as jbd2 does, so that an old transaction in the log is never mistaken for a
            // later one.
            self.mark_empty(summary.next.next(), summary.head)?;
        }
        Ok(summary)
    }

    /// Performs the first half of [`Journal::recover`]: writes the newest copy of each block to its home
    /// location, and flushes `volume`. Does not mark the log empty. Fails as [`Journal::recover`] does.
    pub fn replay_onto(&self, volume: &dyn BlockDevice, volume_blocks: u64) -> Result<Summary> {
        let replayed = self.replay_index(volume_blocks)?;
        if let Some(damage) = replayed.damage {
            return Err(damage);
        }
        self.bring_home(volume, &replayed)?;
        Ok(replayed.summary)
    }

    /// Recovers as [`Journal::recover`] does, for a repair. Discards damaged blocks and transactions, replays
    /// all other blocks, and returns the first damage. If the damage makes the whole log unusable, replays
    /// nothing. The log is empty afterwards in both cases.
    ///
    /// # Errors
    ///
    /// - `Unsupported`: the log contains more different blocks than the replay supports.
    /// - `NoMemory`: memory is exhausted.
    /// - `Device`: a device failed.
    pub fn recover_sound_part(
        &mut self,
        volume: &dyn BlockDevice,
        volume_blocks: u64,
    ) -> Result<(Summary, Option<Error>)> {
        let replayed = match self.replay_index(volume_blocks) {
            // Only damage justifies discarding the log, such as a place past the end of the device.
            Err(
                error @ (Error::Unsupported(_) | Error::NoMemory | Error::Device(DeviceError::Read { .. })),
            ) => return Err(error),
            Err(damage) => Replayed { summary: self.past_all(), damage: Some(damage), ..Replayed::default() },
            Ok(replayed) => replayed,
        };
        self.bring_home(volume, &replayed)?;
        let Replayed { summary, damage, .. } = replayed;
        if self.super_block().needs_replay() {
            let next = if damage.is_some() { self.past_all().next } else { summary.next.next() };
            self.mark_empty(next, summary.head)?;
        }
        Ok((summary, damage))
    }

    /// Returns the summary of an empty replay, with a next transaction number that cannot be in the log:
    /// each transaction has at least two blocks.
    fn past_all(&self) -> Summary {
        let (first, log) = (self.super_block().sequence, self.super_block().log());
        let next = Tid(first.0.wrapping_add(log.end.saturating_sub(log.start)));
        Summary { first, next, head: log.start, ..Summary::default() }
    }

    /// Writes every copy to its home location on stable storage.
    fn bring_home(&self, volume: &dyn BlockDevice, replayed: &Replayed) -> Result<()> {
        if replayed.index.is_empty() {
            return Ok(());
        }
        let block_size = self.super_block().block_size;
        let mut buffer = self.block_buffer()?;
        let mut gather = crate::gather::Gather::new(volume, block_size);
        for (&number, source) in &replayed.index {
            self.read_source(source, &mut buffer)?;
            gather.put_copy(number, &buffer)?;
        }
        gather.finish()?;
        volume.flush()
    }

    /// Performs the second half of [`Journal::recover`]: marks the log empty, and flushes the device of the
    /// journal. The next transaction has the number `next` or a later number. `head` is the block of the
    /// journal at which the log continues.
    ///
    /// # Errors
    ///
    /// - `Device`: the device failed.
    pub fn mark_empty(&mut self, next: Tid, head: u32) -> Result<()> {
        let mut label = Label::read(self)?;
        label.set_empty(next, head);
        label.write(self, self.super_block())?;
        self.device().flush()?;
        self.set_empty(next, head);
        Ok(())
    }

    /// Appends `blocks` to the log as one durable transaction. `summary` must be the result of
    /// [`Journal::replay_onto`]. If a crash occurs during the call, the log contains all of the blocks or
    /// none. Returns the arguments for [`Journal::mark_empty`]. The caller writes all blocks to their home
    /// locations before it calls `mark_empty`.
    ///
    /// # Errors
    ///
    /// 1. `Unsupported`: the blocks do not fit into the log, or the log has checksums of version 1. Nothing was
    ///    written.
    /// 2. `Device`: the device failed. The transaction may be incomplete; a replay then ignores it.
    pub fn append(self, summary: &Summary, blocks: &[Block], now: Timestamp) -> Result<(Tid, u32)> {
        let space = Encoder::new(self.super_block()).space(blocks.len(), 0);
        if space >= self.super_block().log().len() {
            return Err(Error::Unsupported(Feature::Named("more changes at once than the journal holds")));
        }
        let mut writer = JournalWriter::after(self, summary)?;
        writer.write(blocks, &[])?;
        writer.write_commit_in_order(now)?;
        // As in `recover`: one number is skipped.
        Ok((writer.next().next(), writer.head()))
    }

    /// Clears the error of the journal on stable storage. The caller must have recorded the error in the volume
    /// (`jbd2_journal_clear_err`).
    ///
    /// # Errors
    ///
    /// - `Device`: the device failed.
    pub fn clear_error(&self) -> Result<()> {
        let mut label = Label::read(self)?;
        label.clear_error();
        label.write(self, self.super_block())?;
        self.device().flush()
    }

    fn read_source(&self, source: &Source, buffer: &mut [u8]) -> Result<()> {
        let offset = source.block.saturating_mul(self.super_block().block_size.into());
        self.device().read_at(offset, buffer)?;
        if let Some(first) = source.first
            && let Some(start) = buffer.get_mut(..first.len())
        {
            start.copy_from_slice(&first);
        }
        Ok(())
    }
}
