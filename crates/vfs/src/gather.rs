//! Small writes that go on where the last one ended, at the end of a file: they are gathered in memory and go to the
//! driver as one.
//!
//! The first write goes to the driver, and the one that goes on where it ended begins to gather. What is gathered goes
//! out when it is full, when anybody looks at the file or changes it otherwise, when it is synced or its last user
//! goes, and when it is old.
//! Invariant: `map_for_write` promised the space for what is gathered, so that NoSpace is told by the write.
//! Invariant: a file begins to gather only under its inode's guard. So it stays settled for who holds the guard and
//! settled it, and nobody waits for its exclusive layout while bytes of it are gathered.
//! Invariant: a file was changed when the last of its bytes were taken, not when they went out: the driver is told the
//! moment, by its own clock.
//! Invariant: bytes that were acknowledged and cannot be written are told: from then on nothing changes the volume, and
//! every sync answers the error.
//! Locking: a lock an inode, held while its bytes go out: after the inode's guard, before its layout. The list is a leaf.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::mem;
use core::ops::Range;
use core::time::Duration;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, Result, Timestamp};
use obento_driver::{Span, TimeChange};
use obento_env::sync::atomic::{AtomicBool, Ordering};
use obento_env::sync::{Condvar, Mutex};
use obento_env::thread::{self, Thread};

use crate::node::Node;
use crate::table::Inode;
use crate::vfs::Shared;
use crate::write::Writer;

/// What one file gathers at most: enough that a call to the driver costs little a block, few enough to stay in a
/// processor's cache.
pub(crate) const MOST: usize = 64 << 10;
/// Longer writes are not gathered: copying them costs more than it saves.
const LONGEST: usize = MOST / 4;
/// So many runs are asked for: a driver may have kept a rest of one ahead.
const RUNS: usize = 3;
/// Buffers that are kept for the next file.
const SPARE: usize = 4;

/// What of one inode is gathered.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    /// Whether there is anything, so that asking costs nothing. Goes off once it is with the driver.
    holds: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    gathered: Option<Gathered>,
    /// The end of the file, if the last write ended there.
    end: Option<u64>,
    /// The driver takes nothing gathered of a file that is shorter.
    not_below: u64,
}

/// Bytes that follow the end of the file as the driver knows it.
#[derive(Debug)]
struct Gathered {
    start: u64,
    bytes: Vec<u8>,
    /// Whole blocks that the driver promised; the bytes end in them or before.
    promised: Range<u64>,
    /// When the last of them were taken, by the driver's clock.
    taken: Timestamp,
}

impl Gathered {
    fn end(&self) -> u64 {
        self.start.saturating_add(to_u64(self.bytes.len()))
    }

    fn room(&self) -> usize {
        to_usize(self.promised.end.saturating_sub(self.end()))
    }
}

impl Gather {
    /// Where the file ends, if it is gathering.
    pub(crate) fn end(&self) -> Option<u64> {
        self.state.lock().gathered.as_ref().map(Gathered::end)
    }

    /// Notes where the file ends if a write ended there. Only for who holds the inode's guard.
    pub(crate) fn set_end(&self, end: Option<u64>) {
        self.state.lock().end = end;
    }
}

impl Node {
    /// Takes up what of `bytes` it can, if they go on at the end of the file where the last write ended; answers how many.
    /// The rest is to be written at once, after [`settle_to_change`](Self::settle_to_change). Only for who holds the
    /// inode's guard. Errors: those of writing what was gathered before.
    pub(crate) fn gather(&self, offset: u64, bytes: &[u8], when: TimeChange) -> Result<usize> {
        let gather = &self.inode.gather;
        let mut state = gather.state.lock();
        let end = state.gathered.as_ref().map(Gathered::end).or(state.end);
        if end != Some(offset) || bytes.is_empty() || bytes.len() > LONGEST {
            return Ok(0);
        }
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            if state.gathered.is_none() {
                let at = offset.saturating_add(to_u64(done));
                state.gathered = self.begin(&mut state, at);
                gather.holds.store(state.gathered.is_some(), Ordering::Release);
            }
            let Some(gathered) = &mut state.gathered else { break };
            let part = rest.get(..rest.len().min(gathered.room())).unwrap_or_default();
            gathered.taken = match when {
                TimeChange::Now => self.vfs.writable()?.now(),
                // Of what was taken before the later moment counts.
                TimeChange::At(moment) => gathered.taken.max(moment),
            };
            gathered.bytes.extend_from_slice(part);
            done = done.saturating_add(part.len());
            if gathered.room() == 0 {
                self.vfs.0.write_out(&self.inode, &mut state)?;
            }
        }
        Ok(done)
    }

    /// Room for bytes from `at` on, the end of the file; `None` if there is none, or none to gather in.
    fn begin(&self, state: &mut State, at: u64) -> Option<Gathered> {
        let shared = self.vfs.shared();
        if at < state.not_below {
            return None;
        }
        let bytes = shared.gathering.admit(shared)?;
        let Some(promised) = self.promise(at) else {
            state.not_below = at.saturating_mul(2);
            return None;
        };
        shared.gathering.add(&self.inode);
        Some(Gathered { start: at, bytes, promised, taken: Timestamp::EPOCH })
    }

    /// Blocks for what follows `at`, which is the end of the file.
    fn promise(&self, at: u64) -> Option<Range<u64>> {
        let writer = Writer::new(&self.vfs.0, &self.inode, self.vfs.writable().ok()?).ok()?;
        if writer.size != at {
            return None;
        }
        // What the file ends with must be in blocks, and where it ends within one there is room.
        let last = self.vfs.0.map(&writer.layout, self.ino(), at.checked_sub(1)?..at).ok()?;
        let start = writer.ceil(at);
        let most = start.saturating_add(to_u64(MOST)).min(self.vfs.limits().file_size_max);
        if !matches!(last.span, Span::Mapped(_)) || start >= most {
            return None;
        }
        let mut end = start;
        for _ in 0..RUNS {
            // An error is told where the bytes are written at once.
            let Ok(extent) = writer.fs.map_for_write(&writer.layout, self.ino(), end..most) else { break };
            if !matches!(extent.span, Span::Mapped(_)) {
                break;
            }
            end = end.saturating_add(extent.len).min(most);
            if end == most {
                break;
            }
        }
        if end.saturating_sub(start) >= to_u64(LONGEST) {
            return Some(start..end);
        }
        if start < end {
            writer.fs.abandon(&writer.layout, self.ino(), start..end);
        }
        None
    }

    /// Brings what is gathered to the driver, before anybody looks.
    pub(crate) fn settle(&self) {
        self.vfs.0.settle(&self.inode);
    }

    /// The same before anything else than a write at the end changes the file. Only for who holds the inode's guard.
    /// Errors: those of writing.
    pub(crate) fn settle_to_change(&self) -> Result<()> {
        let mut state = self.inode.gather.state.lock();
        let settled = self.vfs.0.write_out(&self.inode, &mut state);
        state.end = None;
        settled
    }
}

impl Shared {
    /// Brings what is gathered of `inode` to the driver. What cannot be written is noted as lost.
    pub(crate) fn settle(&self, inode: &Inode) {
        if inode.gather.holds.load(Ordering::Acquire) {
            // Whoever syncs is told.
            let _ = self.write_out(inode, &mut inode.gather.state.lock());
        }
    }

    /// The same for all inodes.
    pub(crate) fn settle_all(&self) {
        self.gathering.all().iter().for_each(|inode| self.settle(inode));
    }

    /// The same for an inode whose last user went: of one without a name nothing is needed any more.
    pub(crate) fn settle_last(&self, inode: &Inode) {
        if !inode.gather.holds.load(Ordering::Acquire) {
            return;
        }
        let mut state = inode.gather.state.lock();
        if self.fs.getattr(inode.ino).is_ok_and(|attr| attr.nlink == 0)
            && let Some(gathered) = &mut state.gathered
        {
            gathered.bytes.clear();
        }
        let _ = self.write_out(inode, &mut state);
    }

    fn write_out(&self, inode: &Inode, state: &mut State) -> Result<()> {
        let Some(gathered) = state.gathered.take() else { return Ok(()) };
        let written = self.write_gathered(inode, &gathered);
        state.end = written.is_ok().then(|| gathered.end());
        if let Err(error) = written {
            // While it is still listed: whoever syncs everything waits for what is listed, and asks then.
            self.gathering.lose(error);
        }
        self.gathering.remove(inode, gathered.bytes);
        inode.gather.holds.store(false, Ordering::Release);
        written
    }

    fn write_gathered(&self, inode: &Inode, gathered: &Gathered) -> Result<()> {
        let mut writer = Writer::new(self, inode, self.fs.writable().ok_or(Error::ReadOnly)?)?;
        writer.when = TimeChange::At(gathered.taken);
        let (len, written) = writer.write_all(gathered.start, &gathered.bytes);
        let end = writer.ceil(gathered.start.saturating_add(to_u64(len)));
        let rest = end.max(gathered.promised.start)..gathered.promised.end;
        if !rest.is_empty() {
            writer.fs.abandon(&writer.layout, inode.ino, rest);
        }
        written
    }
}

/// The files of a volume that gather.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    list: Mutex<List>,
    /// The thread has something to do.
    wanted: Condvar,
    thread: Mutex<Option<Thread>>,
    /// Whether bytes were lost, so that asking costs nothing.
    has_lost: AtomicBool,
}

#[derive(Debug, Default)]
struct List {
    /// Each with the tick in which it began.
    inodes: Vec<(Arc<Inode>, u64)>,
    spare: Vec<Vec<u8>>,
    tick: u64,
    ager: Ager,
    lost: Option<Error>,
}

/// The thread that sees to it that nothing is gathered for long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Ager {
    #[default]
    None,
    /// Something is gathered.
    Awake,
    /// Nothing is.
    Asleep,
    /// There can be no thread.
    Refused,
    Stopped,
}

impl Gathering {
    /// A buffer for one more file; `None` if there are enough, or nobody would see to their age.
    fn admit(self: &Arc<Self>, shared: &Arc<Shared>) -> Option<Vec<u8>> {
        let most = shared.config.gather.checked_div(MOST).unwrap_or(0);
        let mut list = self.list.lock();
        if list.inodes.len() >= most {
            return None;
        }
        if list.ager == Ager::Stopped {
            return None;
        }
        if let Some(age) = shared.config.gather_age {
            if list.ager == Ager::None {
                list.ager = self.start(Arc::downgrade(shared), age);
            }
            if list.ager == Ager::Refused {
                return None;
            }
        }
        list.inodes.try_reserve(1).ok()?;
        if let Some(buffer) = list.spare.pop() {
            return Some(buffer);
        }
        drop(list);
        let mut buffer = Vec::new();
        // Before the first promised block lie less than a block's bytes.
        buffer.try_reserve_exact(MOST.saturating_mul(2)).ok()?;
        Some(buffer)
    }

    fn add(&self, inode: &Arc<Inode>) {
        let mut list = self.list.lock();
        let tick = list.tick;
        list.inodes.push((Arc::clone(inode), tick));
        if list.ager == Ager::Asleep {
            list.ager = Ager::Awake;
            self.wanted.notify_all();
        }
    }

    fn remove(&self, inode: &Inode, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut list = self.list.lock();
        list.inodes.retain(|(known, _)| !core::ptr::eq(&**known, inode));
        if list.spare.len() < SPARE {
            list.spare.push(mem::take(&mut buffer));
        }
        // Memory is given back without the lock.
        drop(list);
    }

    fn all(&self) -> Vec<Arc<Inode>> {
        self.list.lock().inodes.iter().map(|(inode, _)| Arc::clone(inode)).collect()
    }

    /// Notes that acknowledged bytes could not be written.
    fn lose(&self, error: Error) {
        self.list.lock().lost.get_or_insert(error);
        self.has_lost.store(true, Ordering::Release);
    }

    /// Why acknowledged bytes were lost.
    pub(crate) fn lost(&self) -> Option<Error> {
        if self.has_lost.load(Ordering::Acquire) { self.list.lock().lost } else { None }
    }

    fn start(self: &Arc<Self>, shared: Weak<Shared>, age: Duration) -> Ager {
        let this = Arc::clone(self);
        let run = move || {
            while this.wait(age) {
                let Some(shared) = shared.upgrade() else { return };
                this.old().iter().for_each(|inode| shared.settle(inode));
            }
        };
        match thread::spawn("obento-gather", run) {
            Some(thread) => {
                *self.thread.lock() = Some(thread);
                Ager::Awake
            }
            None => Ager::Refused,
        }
    }

    /// Waits for a tick while anything is gathered. Answers whether to go on.
    fn wait(&self, age: Duration) -> bool {
        let mut list = self.list.lock();
        while list.inodes.is_empty() && list.ager != Ager::Stopped {
            list.ager = Ager::Asleep;
            list = self.wanted.wait(&self.list, list);
        }
        if list.ager != Ager::Stopped {
            list = self.wanted.wait_for(&self.list, list, age.checked_div(2).unwrap_or(age));
        }
        list.tick = list.tick.saturating_add(1);
        list.ager != Ager::Stopped
    }

    /// What has been gathering for a tick at least.
    fn old(&self) -> Vec<Arc<Inode>> {
        let list = self.list.lock();
        let is_old = |began: u64| began.saturating_add(1) < list.tick;
        list.inodes.iter().filter(|(_, began)| is_old(*began)).map(|(inode, _)| Arc::clone(inode)).collect()
    }

    /// Ends the thread, and gathering.
    pub(crate) fn stop(&self) {
        self.list.lock().ager = Ager::Stopped;
        self.wanted.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join();
        }
    }
}
