//! The transactions of a volume: joining, waiting, and the choice of the leader.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, Result};
use obento_block::{Cache, RedoLog};
use obento_env::sync::atomic::{AtomicBool, Ordering};
use obento_env::sync::{Condvar, Mutex, MutexGuard};

use super::backend::{Backend, Leave};
use super::handle::{Event, Role};
use super::ticker::Ticker;
use super::{CommitHooks, CommitOptions, CommitStats, Credits, Extended, Log, Txn};
use crate::Tid;

/// The transactions of one volume.
///
/// These methods may wait until all handles ([`Txn`]) have ended: `begin`, `hold`, `publish`, `wait_durable`,
/// `wait_in_the_end`, `sync_to`, `sync`, `checkpoint`, `close` and `stop`. A thread that has a `Txn` must not call
/// these methods: the thread could wait for itself.
pub struct Transactions {
    cache: Arc<Cache>,
    pub(super) hooks: Arc<dyn CommitHooks>,
    /// Maximum number of blocks that a transaction may change.
    limit: u32,
    /// Maximum number of pinned blocks.
    budget: usize,
    pub(super) state: Mutex<State>,
    /// Signals a change of the state that a thread may wait for.
    pub(super) changed: Condvar,
    /// Locked by the leader while it works, and by other threads for a flush and for statistics.
    pub(super) backend: Mutex<Backend>,
    ticker: Ticker,
    /// Whether the ticker may have a thread. Read without a lock.
    ticks: AtomicBool,
    /// Whether the thread has started. Until then, each change tries to start it.
    has_thread: AtomicBool,
    pub(super) redo: Option<Arc<dyn RedoLog>>,
}

pub(super) struct State {
    pub(super) running: Running,
    /// Whether a thread is committing or writing back.
    leader: bool,
    /// The last durable transaction.
    pub(super) durable: Tid,
    /// The error after which no further transaction begins.
    pub(super) error: Option<Error>,
    closed: bool,
    /// The credits of the [`hold`](Transactions::hold).
    pub(super) held: Option<u32>,
    /// Whether a thread captures changed blocks for the redo log, so that no caller may join.
    pub(super) publishing: bool,
    /// The transaction for which the next [`publish`](Transactions::publish) waits.
    pub(super) awaited: Option<Tid>,
}

/// The transaction that callers can join.
pub(super) struct Running {
    pub(super) tid: Tid,
    pub(super) joiners: u32,
    /// Credits of all handles.
    pub(super) reserved: u32,
    /// Whether a commit waits for the handles, so that no caller may join.
    pub(super) locked: bool,
    /// The changed blocks; a block may occur twice.
    pub(super) blocks: Vec<u64>,
    pub(super) revoked: BTreeSet<u64>,
    /// The blocks that changed since they were last added to the redo log.
    pub(super) unpublished: BTreeSet<u64>,
}

impl Running {
    pub(super) fn new(tid: Tid) -> Self {
        let (blocks, revoked, unpublished) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        Self { tid, joiners: 0, reserved: 0, locked: false, blocks, revoked, unpublished }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.revoked.is_empty()
    }

    /// Returns whether the transaction has room for `credits`. An empty transaction accepts any number.
    fn has_room(&self, credits: Credits, limit: u32) -> bool {
        let count = |len| u32::try_from(len).unwrap_or(u32::MAX);
        // A revoke block has room for more numbers than this, whatever its size.
        let revokes = self.revoked.len() / 64;
        let used = count(self.blocks.len()).saturating_add(count(revokes)).saturating_add(self.reserved);
        used == 0 || used.saturating_add(credits.0) <= limit
    }
}

/// The work of the leader.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Commit,
    Checkpoint,
    Close,
}

impl Transactions {
    /// Creates the transactions for the blocks of `cache`, logged to `log`.
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
        let state = State {
            running,
            leader: false,
            durable,
            error: None,
            closed: false,
            held: None,
            publishing: false,
            awaited: None,
        };
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
            has_thread: AtomicBool::new(false),
            redo: options.redo,
        });
        if let Some(interval) = options.interval {
            this.ticker.want(Arc::downgrade(&this), interval);
            this.ticks.store(true, Ordering::Relaxed);
        }
        this
    }

    /// Returns the cache that contains the changes.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Returns the maximum number of credits with which a handle may begin. It is at least 1.
    pub fn credits_max(&self) -> Credits {
        Credits(self.limit)
    }

    /// Joins the running transaction, and reserves `credits` blocks in it. If the transaction has too little
    /// room, it is first committed, and the handle joins the next transaction. If the changed blocks exceed
    /// [`CommitOptions::budget`], they are first written to their home locations. The call may therefore wait
    /// for other handles to end.
    ///
    /// # Errors
    ///
    /// - `ReadOnly`: an error made the volume read-only, or [`close`](Self::close) was called.
    ///
    /// # Panics
    ///
    /// In debug builds, if `credits` exceeds [`credits_max`](Self::credits_max). In other builds, such a
    /// handle can join only an empty transaction without other handles.
    pub fn begin(&self, credits: Credits) -> Result<Txn<'_>> {
        let tid = self.join(credits)?;
        Ok(Txn::new(self, tid, credits, Role::Joiner))
    }

    /// Adds `credits` to the running transaction, which cannot be committed before they are returned.
    pub(super) fn join(&self, credits: Credits) -> Result<Tid> {
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
            let is_open = !state.running.locked && !crowded && !full;
            // The commit waits for the hold of this thread.
            let is_held = state.held.is_some() && self.is_held_here();
            if !state.publishing && (is_open || is_held) {
                break;
            }
            state = if state.publishing || state.leader || state.running.locked {
                self.changed.wait(&self.state, state)
            } else {
                relieved |= crowded;
                self.relieve(state, if crowded { Work::Checkpoint } else { Work::Commit })
            };
        }
        let running = &mut state.running;
        running.joiners = running.joiners.saturating_add(1);
        running.reserved = running.reserved.saturating_add(credits.0);
        Ok(running.tid)
    }

    /// Returns the number of the transaction that callers can currently join.
    pub fn running(&self) -> Tid {
        self.state.lock().running.tid
    }

    /// Returns the number of the last durable transaction.
    pub fn durable(&self) -> Tid {
        self.state.lock().durable
    }

    /// Returns once transaction `tid` is durable. Commits the transaction if no other thread does. `tid` must
    /// not be later than [`running`](Self::running). The calling thread must have no [`Txn`].
    ///
    /// # Errors
    ///
    /// The error that made the volume read-only, even if the transaction became durable before the error.
    pub fn wait_durable(&self, tid: Tid) -> Result<()> {
        let _interrupted = self.interrupt_hold();
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

    /// Returns once transaction `tid` and all data that was written to the device before the call are on stable
    /// storage, as `fsync` requires. Fails as [`Transactions::wait_durable`] does.
    pub fn sync_to(&self, tid: Tid) -> Result<()> {
        let state = self.state.lock();
        // Its commit has not started to write, so its flush will cover the data.
        let covered = state.running.tid == tid && !state.running.is_empty();
        drop(state);
        self.wait_durable(tid)?;
        if covered { Ok(()) } else { self.flush() }
    }

    /// Returns once all earlier changes, and all data that was written to the device before the call, are on stable
    /// storage. Fails as [`Transactions::wait_durable`] does.
    pub fn sync(&self) -> Result<()> {
        self.sync_to(self.running())
    }

    /// Commits, writes all changed blocks to their home locations, and frees the log. Has no effect after
    /// [`close`](Self::close). Fails as [`Transactions::wait_durable`] does.
    pub fn checkpoint(&self) -> Result<()> {
        self.work(Work::Checkpoint)
    }

    /// Commits, writes all changed blocks to their home locations, and leaves the log empty. Afterwards,
    /// [`begin`](Self::begin) fails with `ReadOnly`. Has no effect after an earlier `close`. Fails as
    /// [`Transactions::wait_durable`] does.
    pub fn close(&self) -> Result<()> {
        self.ticker.stop();
        self.work(Work::Close)
    }

    /// Ends the thread that commits, and returns after the thread has ended. Later changes are committed only
    /// on request. The code of the thread may be unloaded after the transactions are dropped (a kernel module).
    /// In this case, the last owner must call this method before it drops the transactions. Otherwise, the thread
    /// could hold the last reference, and no other thread would wait for the thread to end.
    pub fn stop(&self) {
        self.ticker.stop();
    }

    /// Makes the volume read-only: [`begin`](Self::begin) fails with `ReadOnly`, and every later sync fails
    /// with `error`. If an earlier error made the volume read-only, every sync fails with the earlier error
    /// instead.
    pub fn abort(&self, error: Error) {
        self.state.lock().error.get_or_insert(error);
        self.changed.notify_all();
    }

    /// Returns the error that made the volume read-only.
    pub fn error(&self) -> Option<Error> {
        self.state.lock().error
    }

    /// Returns the statistics. Waits for a commit that is in progress.
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

    /// Ends a handle: its changes become part of the running transaction.
    pub(super) fn leave(&self, role: Role, granted: u32, events: impl Iterator<Item = Event>) {
        let mut state = self.state.lock();
        let running = &mut state.running;
        let was_empty = running.is_empty();
        let has_redo = self.has_redo();
        let changed = |running: &mut Running, number| {
            if has_redo {
                running.unpublished.insert(number);
            }
        };
        for event in events {
            match event {
                Event::Changed(number) => {
                    // The block is in use again, and its copy in this transaction must be replayed.
                    running.revoked.remove(&number);
                    running.blocks.push(number);
                    changed(running, number);
                }
                Event::ChangedAgain(number) => changed(running, number),
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
        let last = (running.joiners == 0 && running.locked) || state.publishing;
        drop(state);
        if last {
            self.changed.notify_all();
        }
        if ticks && (starts || !self.has_thread.load(Ordering::Relaxed)) {
            self.has_thread.store(self.ticker.runs(), Ordering::Relaxed);
            self.ticks.store(!self.ticker.is_without(), Ordering::Relaxed);
            self.ticker.changed();
        }
        if ticks && self.cache.pinned() > self.budget / 2 {
            self.ticker.fills();
        }
    }

    /// Requests `work` from the thread, if it exists, so that the caller can continue as soon as the next
    /// transaction runs.
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
        let _interrupted = self.interrupt_hold();
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

    /// Does `work` as the leader.
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

    /// Closes the running transaction to new handles and waits until the last handle has ended. Returns
    /// `None` if the transaction is empty.
    pub(super) fn lock_running(&self) -> Result<Option<Tid>> {
        let mut state = self.state.lock();
        state.running.locked = true;
        while state.running.joiners > 0 || state.publishing {
            state = self.changed.wait(&self.state, state);
        }
        if let Some(error) = state.error {
            return Err(error);
        }
        Ok(Some(state.running.tid).filter(|_| !state.running.is_empty()))
    }

    /// Takes the contents of the locked transaction, which stays locked.
    pub(super) fn take_running(&self) -> Running {
        let mut state = self.state.lock();
        let locked = Running { locked: true, ..Running::new(state.running.tid) };
        core::mem::replace(&mut state.running, locked)
    }

    /// Starts the next transaction.
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
    /// Returns whether `tid` is durable, or is empty while all earlier transactions are durable. A locked
    /// transaction does not count as empty, because the leader has its contents.
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
