//! The transactions of a volume: who runs, who waits, who commits.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, Result};
use obento_block::Cache;
use obento_env::sync::atomic::{AtomicBool, Ordering};
use obento_env::sync::{Condvar, Mutex, MutexGuard};

use super::backend::{Backend, Leave};
use super::handle::{Event, Role};
use super::ticker::Ticker;
use super::{CommitHooks, CommitOptions, CommitStats, Credits, Extended, Log, Txn};
use crate::Tid;

/// The transactions of one volume.
pub struct Transactions {
    cache: Arc<Cache>,
    pub(super) hooks: Arc<dyn CommitHooks>,
    /// The most blocks that a transaction may change.
    limit: u32,
    /// The most blocks that may be pinned.
    budget: usize,
    state: Mutex<State>,
    /// The state changed in a way that somebody may wait for.
    changed: Condvar,
    /// Taken by the leader alone, so that nobody waits for it.
    pub(super) backend: Mutex<Backend>,
    ticker: Ticker,
    /// Whether the ticker may have a thread, so that asking costs nothing.
    ticks: AtomicBool,
}

pub(super) struct State {
    pub(super) running: Running,
    /// Somebody commits or writes back.
    leader: bool,
    /// The last transaction that is durable.
    pub(super) durable: Tid,
    /// Why there will be no further transaction.
    error: Option<Error>,
    closed: bool,
}

/// The transaction that can be joined.
pub(super) struct Running {
    pub(super) tid: Tid,
    joiners: u32,
    /// Credits of the joiners.
    reserved: u32,
    /// A commit waits for the joiners; nobody may join.
    locked: bool,
    /// The blocks that were changed; one may be here twice.
    pub(super) blocks: Vec<u64>,
    pub(super) revoked: BTreeSet<u64>,
}

impl Running {
    pub(super) fn new(tid: Tid) -> Self {
        let (blocks, revoked) = (Vec::new(), BTreeSet::new());
        Self { tid, joiners: 0, reserved: 0, locked: false, blocks, revoked }
    }

    fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.revoked.is_empty()
    }

    /// Whether `credits` more fit; an empty transaction takes what must be.
    fn has_room(&self, credits: Credits, limit: u32) -> bool {
        let count = |len| u32::try_from(len).unwrap_or(u32::MAX);
        // A revoke block has room for more numbers than this, whatever its size.
        let revokes = self.revoked.len() / 64;
        let used = count(self.blocks.len()).saturating_add(count(revokes)).saturating_add(self.reserved);
        used == 0 || used.saturating_add(credits.0) <= limit
    }
}

/// What the leader does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Commit,
    Checkpoint,
    Close,
}

impl Transactions {
    /// Transactions on the blocks of `cache`, logged to `log`.
    pub fn new(
        cache: Arc<Cache>,
        log: Log,
        options: CommitOptions,
        hooks: Arc<dyn CommitHooks>,
    ) -> Arc<Self> {
        let budget = options.budget.checked_div(to_usize(cache.block_size().into())).unwrap_or(0);
        let affordable = u32::try_from(budget).unwrap_or(u32::MAX);
        let backend = Backend::new(&cache, log, &options);
        let limit = backend.limit().min(affordable).max(1);
        let next = backend.next();
        let running = Running::new(next);
        let durable = Tid(next.0.wrapping_sub(1));
        let state = State { running, leader: false, durable, error: None, closed: false };
        let this = Arc::new(Self {
            cache,
            hooks,
            limit,
            budget,
            state: Mutex::new(state),
            changed: Condvar::new(),
            backend: Mutex::new(backend),
            ticker: Ticker::new(),
            ticks: AtomicBool::new(false),
        });
        if let Some(interval) = options.interval {
            this.ticker.want(Arc::downgrade(&this), interval);
            this.ticks.store(true, Ordering::Relaxed);
        }
        this
    }

    /// The cache that the changes are in.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// The most blocks that one handle may ask for.
    pub fn credits_max(&self) -> Credits {
        Credits(self.limit)
    }

    /// Joins the running transaction. May commit it first, where it has no room for `credits`, and write back, where
    /// too much is in memory. Errors: ReadOnly after an error or once closed.
    pub fn begin(&self, credits: Credits) -> Result<Txn<'_>> {
        debug_assert!(
            credits.0 <= self.limit,
            "{credits:?} are more than a transaction holds: {}",
            self.limit
        );
        let mut relieved = false;
        let mut state = self.state.lock();
        loop {
            if state.error.is_some() || state.closed {
                return Err(Error::ReadOnly);
            }
            let crowded = self.cache.pinned() > self.budget && (state.leader || !relieved);
            let full = !state.running.has_room(credits, self.limit);
            if !state.running.locked && !crowded && !full {
                break;
            }
            state = if state.leader || state.running.locked {
                self.changed.wait(&self.state, state)
            } else {
                relieved |= crowded;
                self.relieve(state, if crowded { Work::Checkpoint } else { Work::Commit })
            };
        }
        let running = &mut state.running;
        running.joiners = running.joiners.saturating_add(1);
        running.reserved = running.reserved.saturating_add(credits.0);
        let tid = running.tid;
        drop(state);
        Ok(Txn::new(self, tid, credits, Role::Joiner))
    }

    /// The transaction that can be joined now.
    pub fn running(&self) -> Tid {
        self.state.lock().running.tid
    }

    /// The last transaction that is durable.
    pub fn durable(&self) -> Tid {
        self.state.lock().durable
    }

    /// Returns once transaction `tid` is durable, by committing it if nobody else does. Errors: the one that turned
    /// the volume read-only, whenever that was.
    pub fn wait_durable(&self, tid: Tid) -> Result<()> {
        let mut state = self.state.lock();
        loop {
            if let Some(error) = state.error {
                return Err(error);
            }
            if state.is_durable(tid) {
                return Ok(());
            }
            state = if state.leader {
                self.changed.wait(&self.state, state)
            } else {
                self.lead(state, Work::Commit)
            };
        }
    }

    /// Returns once transaction `tid`, and all that was written to the device before the call, are on stable storage:
    /// what `fsync` needs. Errors: as [`Transactions::wait_durable`].
    pub fn sync_to(&self, tid: Tid) -> Result<()> {
        let state = self.state.lock();
        // Its commit has not begun to write, so that its flush covers the data.
        let covered = state.running.tid == tid && !state.running.is_empty();
        drop(state);
        self.wait_durable(tid)?;
        if covered { Ok(()) } else { self.flush() }
    }

    /// Returns once every change so far, and all that was written to the device before the call, are on stable
    /// storage. Errors: as [`Transactions::wait_durable`].
    pub fn sync(&self) -> Result<()> {
        self.sync_to(self.running())
    }

    /// Commits, writes all changed blocks to their homes and frees the log. Errors: as
    /// [`Transactions::wait_durable`].
    pub fn checkpoint(&self) -> Result<()> {
        self.work(Work::Checkpoint)
    }

    /// Commits, writes all changed blocks to their homes and leaves the log empty; nobody can begin a transaction
    /// afterwards. Errors: as [`Transactions::wait_durable`].
    pub fn close(&self) -> Result<()> {
        self.ticker.stop();
        self.work(Work::Close)
    }

    /// Turns the volume read-only: `error` is told to every later sync. The first error counts.
    pub fn abort(&self, error: Error) {
        self.state.lock().error.get_or_insert(error);
        self.changed.notify_all();
    }

    /// Why the volume turned read-only, if it did.
    pub fn error(&self) -> Option<Error> {
        self.state.lock().error
    }

    /// What was done so far. Waits for a commit that is being written.
    pub fn stats(&self) -> CommitStats {
        self.backend.lock().stats()
    }

    pub(super) fn extend(&self, more: Credits) -> Result<Extended> {
        let mut state = self.state.lock();
        if state.error.is_some() {
            return Err(Error::ReadOnly);
        }
        let running = &mut state.running;
        if running.locked || !running.has_room(more, self.limit) {
            return Ok(Extended::No);
        }
        running.reserved = running.reserved.saturating_add(more.0);
        Ok(Extended::Yes)
    }

    /// A handle ends: what it did becomes part of the running transaction.
    pub(super) fn leave(&self, role: Role, granted: u32, events: impl Iterator<Item = Event>) {
        let mut state = self.state.lock();
        let running = &mut state.running;
        let was_empty = running.is_empty();
        for event in events {
            match event {
                Event::Changed(number) => {
                    // It is in use again, and this transaction's copy must be replayed.
                    running.revoked.remove(&number);
                    running.blocks.push(number);
                }
                Event::Revoked(number) => {
                    running.revoked.insert(number);
                }
            }
        }
        if role == Role::Hook {
            return;
        }
        let starts = was_empty && !running.is_empty();
        let ticks = self.ticks.load(Ordering::Relaxed);
        running.joiners = running.joiners.saturating_sub(1);
        running.reserved = running.reserved.saturating_sub(granted);
        let last = running.joiners == 0 && running.locked;
        drop(state);
        if last {
            self.changed.notify_all();
        }
        if ticks && starts {
            self.ticks.store(self.ticker.runs(), Ordering::Relaxed);
            self.ticker.changed();
        }
        if ticks && self.cache.pinned() > self.budget / 2 {
            self.ticker.fills();
        }
    }

    /// Has `work` done: by the thread, if there is one, so that the caller goes on as soon as the next transaction
    /// runs.
    fn relieve<'a>(&'a self, state: MutexGuard<'a, State>, work: Work) -> MutexGuard<'a, State> {
        if !self.ticks.load(Ordering::Relaxed) || !self.ticker.runs() {
            return self.lead(state, work);
        }
        match work {
            Work::Checkpoint => self.ticker.fills(),
            _ => self.ticker.hurry(),
        }
        self.changed.wait(&self.state, state)
    }

    fn flush(&self) -> Result<()> {
        let flushed = self.backend.lock().flush_data();
        flushed.inspect_err(|&error| self.abort(error))
    }

    fn work(&self, work: Work) -> Result<()> {
        let mut state = self.state.lock();
        while state.leader {
            state = self.changed.wait(&self.state, state);
        }
        if state.error.is_none() && !state.closed {
            state = self.lead(state, work);
        }
        match state.error {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Does `work` as the only one.
    fn lead<'a>(&'a self, mut state: MutexGuard<'a, State>, work: Work) -> MutexGuard<'a, State> {
        state.leader = true;
        drop(state);
        let mut outcome = self.commit_running();
        if outcome.is_ok() && work != Work::Commit {
            let leave = if work == Work::Close { Leave::Empty } else { Leave::Open };
            outcome = self.backend.lock().checkpoint(&self.cache, leave);
        }
        if outcome.is_err() {
            self.backend.lock().give_up();
        }
        let mut state = self.state.lock();
        state.leader = false;
        state.running.locked = false;
        match outcome {
            Ok(()) => state.closed |= work == Work::Close,
            Err(error) => {
                state.error.get_or_insert(error);
            }
        }
        self.changed.notify_all();
        state
    }

    /// Ends the running transaction for joiners: waits until the last has left. `None` if there is nothing in it.
    pub(super) fn lock_running(&self) -> Result<Option<Tid>> {
        let mut state = self.state.lock();
        state.running.locked = true;
        while state.running.joiners > 0 {
            state = self.changed.wait(&self.state, state);
        }
        if let Some(error) = state.error {
            return Err(error);
        }
        Ok(Some(state.running.tid).filter(|_| !state.running.is_empty()))
    }

    /// What is in the locked transaction; it stays locked.
    pub(super) fn take_running(&self) -> Running {
        let mut state = self.state.lock();
        let locked = Running { locked: true, ..Running::new(state.running.tid) };
        core::mem::replace(&mut state.running, locked)
    }

    /// Lets the next transaction run.
    pub(super) fn run_next(&self, tid: Tid) {
        self.state.lock().running = Running::new(tid);
        self.changed.notify_all();
    }

    pub(super) fn set_durable(&self, tid: Tid) {
        self.state.lock().durable = tid;
        self.changed.notify_all();
    }
}

impl State {
    /// Whether `tid` is durable, or holds nothing while all before it are. What a locked one holds is with the leader.
    fn is_durable(&self, tid: Tid) -> bool {
        let is_empty = self.running.is_empty() && !self.running.locked;
        let idle = tid == self.running.tid && is_empty && self.durable.next() == tid;
        idle || !tid.is_after(self.durable)
    }
}

impl Drop for Transactions {
    fn drop(&mut self) {
        self.ticker.stop();
    }
}

impl core::fmt::Debug for Transactions {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Transactions({} pinned)", to_u64(self.cache.pinned()))
    }
}
