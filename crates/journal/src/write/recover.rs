//! Recovery onto the device, for a volume that is opened for changes.
//!
//! Order: the blocks go to their homes, a flush, the log is marked empty, a flush. A crash in between replays again.

use obento_base::{Error, Feature, Result, Timestamp};
use obento_block::{Block, BlockDevice, Source};

use super::JournalWriter;
use super::encode::Encoder;
use super::label::Label;
use crate::{Journal, Replayed, Summary, Tid};

impl Journal {
    /// Replays the log onto `volume`, a device of `volume_blocks` blocks, and marks it empty. Nothing is written
    /// where there is nothing to replay. Errors: as [`Journal::replay_index`]; the damage that costs blocks or
    /// transactions, and then nothing was written; those of the devices.
    pub fn recover(&mut self, volume: &dyn BlockDevice, volume_blocks: u64) -> Result<Summary> {
        let summary = self.replay_onto(volume, volume_blocks)?;
        if self.super_block().needs_replay() {
            // One is left out, as jbd2 does, so that nothing that is still in the log is taken for a later one.
            self.mark_empty(summary.next.next(), summary.head)?;
        }
        Ok(summary)
    }

    /// The first half of [`Journal::recover`]: what the log holds is in its home and on stable storage afterwards.
    pub fn replay_onto(&self, volume: &dyn BlockDevice, volume_blocks: u64) -> Result<Summary> {
        let replayed = self.replay_index(volume_blocks)?;
        if let Some(damage) = replayed.damage {
            return Err(damage);
        }
        self.bring_home(volume, &replayed)?;
        Ok(replayed.summary)
    }

    /// As [`Journal::recover`], for who mends: damage costs the blocks and transactions that it is in, and no more, and
    /// is answered; the log is empty afterwards. Errors: Unsupported; those of the devices while something is written.
    pub fn recover_sound_part(
        &mut self,
        volume: &dyn BlockDevice,
        volume_blocks: u64,
    ) -> Result<(Summary, Option<Error>)> {
        let replayed = match self.replay_index(volume_blocks) {
            Err(error @ Error::Unsupported(_)) => return Err(error),
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

    /// Nothing replayed, and a next transaction that the log, which has two blocks for each at least, cannot hold.
    fn past_all(&self) -> Summary {
        let (first, log) = (self.super_block().sequence, self.super_block().log());
        let next = Tid(first.0.wrapping_add(log.end.saturating_sub(log.start)));
        Summary { first, next, head: log.start, ..Summary::default() }
    }

    /// Writes every copy to its home, durably.
    fn bring_home(&self, volume: &dyn BlockDevice, replayed: &Replayed) -> Result<()> {
        if replayed.index.is_empty() {
            return Ok(());
        }
        let block_size = self.super_block().block_size;
        let mut buffer = self.block_buffer()?;
        let mut gather = crate::gather::Gather::new(volume, block_size);
        for (&number, source) in &replayed.index {
            self.read_source(source, &mut buffer)?;
            gather.put(number, &buffer)?;
        }
        gather.finish()?;
        volume.flush()
    }

    /// The second half: the log is empty from now on; the next transaction in it will be `next` or a later one.
    pub fn mark_empty(&mut self, next: Tid, head: u32) -> Result<()> {
        let mut label = Label::read(self)?;
        label.set_empty(next, head);
        label.write(self, self.super_block())?;
        self.device().flush()?;
        self.set_empty(next, head);
        Ok(())
    }

    /// Puts `blocks` into the log as one transaction, durably, once [`Journal::replay_onto`] has brought home all that
    /// was in it and answered `summary`. A crash in between leaves none of it. Errors, before anything is written: Unsupported if they
    /// are more than the log holds, or its checksums are of version 1; those of the device.
    pub fn append(self, summary: &Summary, blocks: &[Block], now: Timestamp) -> Result<()> {
        let space = Encoder::new(self.super_block()).space(blocks.len(), 0);
        if space >= self.super_block().log().len() {
            return Err(Error::Unsupported(Feature::Named("more changes at once than the journal holds")));
        }
        let mut writer = JournalWriter::after(self, summary)?;
        writer.write(blocks, &[])?;
        writer.device().flush()?;
        writer.write_commit(now)?;
        writer.device().flush()
    }

    /// Forgets, durably, that it was given up: for who has marked the volume instead (`jbd2_journal_clear_err`).
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
