//! The open volume: one lock, and the commits.
//!
//! Locking: one lock for all metadata, held shared for reads and exclusively for changes. Transfers of mapped data
//! never take it. `held` and the cache are leaves.
//! Invariant: after a failed commit, nothing more is written, and every later sync returns the error. The
//! device then contains the previous commit or the failed one; the log determines which.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::{Error, Result, Timestamp};
use obento_block::{BlockDevice, Cache};
use obento_driver::Notice;
use obento_env::Clock;
use obento_env::sync::{Mutex, RwLock};

use crate::numbers::BlockSet;
use crate::{Inodes, Op, log};

/// Counts that are computed when the volume is opened, and then updated by each change.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) free_blocks: u32,
    pub(crate) free_inodes: u32,
    /// Where the search for the next free block starts.
    pub(crate) next_block: u32,
    pub(crate) next_inode: u32,
}

/// The state that changes while the volume is open.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) counters: Counters,
    pub(crate) sequence: u64,
    /// Blocks whose newest version is only in the cache.
    pub(crate) dirty: BlockSet,
    /// Time of the oldest uncommitted change.
    since: Option<Timestamp>,
    /// The reason why changes are refused.
    failed: Option<Error>,
    closed: bool,
}

/// An open volume of the format `F`. It implements the contract.
pub struct Volume<F> {
    pub(crate) format: F,
    pub(crate) cache: Cache,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) commit_interval: i64,
    pub(crate) is_writable: bool,
    pub(crate) notices: Vec<Notice>,
    pub(crate) state: RwLock<State>,
    /// Blocks that were freed since the last commit.
    pub(crate) held: Mutex<BlockSet>,
}

impl<F: Inodes> Volume<F> {
    pub(crate) fn device(&self) -> &dyn BlockDevice {
        &**self.cache.device()
    }

    /// Reads the volume. Fails with the errors of `look`.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Op<'_, F>) -> Result<T>) -> Result<T> {
        let state = self.state.read();
        look(&Op::new(self, state.counters))
    }

    /// Changes the volume completely or not at all. If `act` fails because freed space is not available
    /// before a commit, commits and runs `act` again. Fails with `ReadOnly`, or with the errors of `act`.
    pub(crate) fn change<T>(&self, mut act: impl FnMut(&mut Op<'_, F>) -> Result<T>) -> Result<T> {
        let mut state = self.state.write();
        self.expect_writable(&state)?;
        let now = self.clock.now();
        if state.since.is_some_and(|since| now.secs().saturating_sub(since.secs()) >= self.commit_interval) {
            self.commit(&mut state)?;
        }
        let mut op = Op::new(self, state.counters);
        let mut acted = act(&mut op);
        if matches!(acted, Err(Error::NoSpace)) && !self.held.lock().is_empty() {
            drop(op);
            self.commit(&mut state)?;
            op = Op::new(self, state.counters);
            acted = act(&mut op);
        }
        let answer = acted?;
        self.publish(&mut state, op, now)?;
        Ok(answer)
    }

    /// Fails with `ReadOnly` if the volume cannot be changed.
    fn expect_writable(&self, state: &State) -> Result<()> {
        let can = self.is_writable && !state.closed && state.failed.is_none();
        if can { Ok(()) } else { Err(Error::ReadOnly) }
    }

    /// Makes a change visible. Fails with the errors of the commit that makes room for it in the log.
    fn publish(&self, state: &mut State, op: Op<'_, F>, now: Timestamp) -> Result<()> {
        let room = self.format.geometry().log_room();
        let more = op.edits.0.iter().filter(|(number, _)| !state.dirty.contains(*number)).count();
        if state.dirty.len().saturating_add(more) > room {
            self.commit(state)?;
        }
        // The format's log is long enough for any single change.
        if op.edits.0.len() > room {
            return Err(Error::NoSpace);
        }
        for (number, edit) in op.edits.0 {
            edit.publish(0);
            state.dirty.insert(number);
            state.since.get_or_insert(now);
        }
        // Otherwise the commit would overwrite the data of the next file that gets these blocks.
        for &number in &op.freed {
            self.cache.forget(number.into());
            state.dirty.remove(number);
        }
        let mut held = self.held.lock();
        op.freed.into_iter().for_each(|number| held.insert(number));
        drop(held);
        state.counters = op.counters;
        Ok(())
    }

    /// Makes all changes durable. After a device error, every later call fails with the same error.
    pub(crate) fn commit(&self, state: &mut State) -> Result<()> {
        if let Some(error) = state.failed {
            return Err(error);
        }
        let result = self.write_commit(state);
        state.failed = result.err();
        result
    }

    fn write_commit(&self, state: &mut State) -> Result<()> {
        let device = self.device();
        // The blocks of the last commit are in place, and so is the data that this commit refers to.
        device.flush()?;
        if state.dirty.is_empty() {
            return Ok(());
        }
        let mut blocks = Vec::new();
        for number in state.dirty.iter() {
            blocks.push((number, self.cache.get(number.into())?));
        }
        let blocks: Vec<(u32, &[u8])> = blocks.iter().map(|(number, block)| (*number, &**block)).collect();
        state.sequence = state.sequence.saturating_add(1);
        log::write(device, self.format.geometry(), state.sequence, &blocks)?;
        device.flush()?;
        self.bring_home(state)?;
        state.since = None;
        self.held.lock().clear();
        Ok(())
    }

    /// Writes logged blocks to their home locations. Fails if the device fails.
    pub(crate) fn bring_home(&self, state: &mut State) -> Result<()> {
        let geometry = self.format.geometry();
        for number in state.dirty.iter() {
            self.device().write_at(geometry.offset_of(number), &self.cache.get(number.into())?)?;
        }
        state.dirty.iter().for_each(|number| self.cache.unpin(number.into(), 0));
        state.dirty.clear();
        Ok(())
    }

    /// Makes all changes durable and empties the log. Fails if the device fails.
    pub(crate) fn close_log(&self) -> Result<()> {
        let mut state = self.state.write();
        if state.closed || !self.is_writable {
            return Ok(());
        }
        self.commit(&mut state)?;
        let cleared = self.device().flush().and_then(|()| log::clear(self.device(), self.format.geometry()));
        state.failed = cleared.err();
        state.closed = cleared.is_ok();
        cleared
    }

    /// Makes all changes durable in their home locations and empties the log. The volume stays writable.
    /// Fails if the device fails.
    pub(crate) fn empty_log(&self) -> Result<()> {
        let mut state = self.state.write();
        self.commit(&mut state)?;
        self.device().flush()?;
        log::clear(self.device(), self.format.geometry())
    }

    /// Returns whether the volume can be changed.
    pub(crate) fn can_change(&self) -> bool {
        self.is_writable && !self.state.read().closed
    }
}
