//! Gathering of small appends. Consecutive small writes at the end of a file are collected in memory and passed to
//! the driver as one write. A thread *settles* a file when it passes the gathered data of the file to the driver.
//!
//! The first write is passed to the driver directly. A write that continues where the last write ended starts to
//! gather. A file is settled:
//! - when the buffer is full;
//! - before a read of its data or of [`Node::attr`];
//! - before a change of its data or size, except an append that is gathered;
//! - before [`Vfs::set_attr`](crate::Vfs::set_attr), and before the file gets another name;
//! - before a sync, and when the last user drops the file;
//! - when the data reaches its maximum age.
//!
//! Invariant: the blocks for gathered data are reserved before the data is accepted (`begin_write`). The same applies
//! to the blocks that the mapping of the file may need for the data (`reserve_mapping`). A lack of space is therefore
//! reported by the write, not later, whatever other threads write meanwhile. The driver enforces quota limits when it
//! reserves the blocks, too.
//! Invariant: a file starts to gather only under the exclusive guard of its inode. After a thread that holds
//! the guard has settled the file, the file gathers nothing until the thread releases the guard. Therefore,
//! no thread waits for the exclusive layout lock of a file that is gathering.
//! Invariant: the modification time of a file is the time at which its last bytes were accepted, not the time at
//! which it was settled. The clock of the driver provides this time. Exception: [`Node::write_back`] does not change
//! the modification time.
//! Invariant: a loss of gathered data is reported. If settling fails, the volume accepts no further changes, and
//! every sync returns the error.
//! Locking: one lock per inode. A thread holds this lock while it gathers data or settles the file. The
//! thread acquires the lock after the guard of the inode and before the layout lock. A thread that settles a
//! file because of a read, a sync or the age of the data does not hold the guard. The lock of the list of
//! gathering files is a leaf lock.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::mem;
use core::ops::Range;
use core::time::Duration;

use obento_base::wire::to_u64;
use obento_base::{Error, Result};
use obento_driver::Span;
use obento_env::sync::atomic::{AtomicBool, Ordering};
use obento_env::sync::{Condvar, Mutex};
use obento_env::thread::{self, Thread};

use crate::gathered::{GatherState, Gathered, Times};
use crate::node::Node;
use crate::table::Inode;
use crate::vfs::Shared;
use crate::write::Writer;

/// Maximum amount of gathered data per file. A buffer of this size spreads the cost of a call to the driver over many
/// blocks, and still fits into the processor cache.
pub(crate) const MOST: usize = 64 << 10;
/// Maximum length of a gathered write. Copying longer writes costs more than gathering saves.
const LONGEST: usize = MOST / 4;
/// Maximum number of extents to reserve for one buffer. One request may not be enough, since the driver may already
/// have reserved the rest of an extent.
const RUNS: usize = 3;
/// Maximum number of buffers kept for reuse.
const SPARE: usize = 4;

impl Node {
    /// Accepts as much of `bytes` as possible, if they continue at the end of the file where the last write
    /// ended. Returns the number of accepted bytes. The caller must write the rest directly, after
    /// [`settle_to_change`](Self::settle_to_change). The caller holds the guard of the inode. Fails with
    /// the errors of writing previously gathered data.
    pub(crate) fn gather(&self, offset: u64, bytes: &[u8], times: Times) -> Result<usize> {
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
            gathered.times = match times {
                Times::Now => Times::Accepted(self.vfs.writable()?.now()),
                Times::Accepted(moment) => Times::Accepted(moment),
                Times::Unchanged => gathered.times,
            };
            gathered.bytes.extend_from_slice(part);
            done = done.saturating_add(part.len());
            if gathered.room() == 0 {
                self.vfs.0.write_out(&self.inode, &mut state)?;
            }
        }
        Ok(done)
    }

    /// Starts to gather at `at`, the end of the file. Returns `None` if no space or no buffer is available.
    fn begin(&self, state: &mut GatherState, at: u64) -> Option<Gathered> {
        let shared = self.vfs.shared();
        if at < state.not_below {
            return None;
        }
        let bytes = shared.gathering.admit(shared)?;
        let Some(reserved) = self.reserve(at) else {
            state.not_below = at.saturating_mul(2);
            return None;
        };
        shared.gathering.add(&self.inode);
        Some(Gathered { start: at, bytes, reserved, times: Times::Unchanged })
    }

    /// Reserves blocks for the data after `at`, which is the end of the file. Returns the reserved range,
    /// which starts at the next block boundary. Returns `None` in these cases:
    ///
    /// - Less than [`LONGEST`] bytes can be reserved.
    /// - The mapping may need blocks that are not free.
    /// - The last byte of the file is not in a mapped block.
    fn reserve(&self, at: u64) -> Option<Range<u64>> {
        let writer = Writer::of(self, self.vfs.writable().ok()?);
        // The last byte of the file must be in a block. If the file ends within a block, the rest of that
        // block is available.
        let last = self.vfs.0.map(&writer.layout, self.ino(), at.checked_sub(1)?..at).ok()?;
        let start = writer.ceil(at);
        let most = start.saturating_add(to_u64(MOST)).min(self.vfs.limits().file_size_max);
        if !matches!(last.span, Span::Mapped(_)) || start >= most {
            return None;
        }
        let (mut end, mut tickets) = (start, Vec::new());
        tickets.try_reserve_exact(RUNS).ok()?;
        while end < most && tickets.len() < RUNS {
            // An error is reported when the bytes are written directly.
            let Ok(ticket) = writer.fs.begin_write(&writer.layout, self.ino(), end..most) else { break };
            if !matches!(ticket.extent().span, Span::Mapped(_)) || ticket.size() != at {
                break;
            }
            end = ticket.range().end;
            tickets.push(ticket);
        }
        if end.saturating_sub(start) < to_u64(LONGEST) {
            return None;
        }
        for ticket in tickets {
            ticket.detach();
        }
        let whole = writer.fs.resume_write(&writer.layout, self.ino(), start..end);
        whole.reserve_mapping().ok()?;
        whole.detach();
        Some(start..end)
    }

    /// Passes gathered data to the driver before the file is read.
    pub(crate) fn settle(&self) {
        self.vfs.0.settle(&self.inode);
    }

    /// Passes gathered data to the driver before any change except an append. The caller holds the guard of
    /// the inode. Fails with the errors of writing.
    pub(crate) fn settle_to_change(&self) -> Result<()> {
        let mut state = self.inode.gather.state.lock();
        let settled = self.vfs.0.write_out(&self.inode, &mut state);
        state.end = None;
        settled
    }
}

impl Shared {
    /// Passes the gathered data of `inode` to the driver. Data that cannot be written is recorded as lost.
    pub(crate) fn settle(&self, inode: &Inode) {
        if inode.gather.holds.load(Ordering::Acquire) {
            // The next sync reports the error.
            let _ = self.write_out(inode, &mut inode.gather.state.lock());
        }
    }

    /// Settles all inodes.
    pub(crate) fn settle_all(&self) {
        self.gathering.all().iter().for_each(|inode| self.settle(inode));
    }

    /// Settles an inode whose last user has dropped it. The data of an inode without a name is discarded.
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

    fn write_out(&self, inode: &Inode, state: &mut GatherState) -> Result<()> {
        let Some(gathered) = state.gathered.take() else { return Ok(()) };
        let written = self.write_gathered(inode, &gathered);
        state.end = written.is_ok().then(|| gathered.end());
        if let Err(error) = written {
            // Record the loss while the inode is still listed: a sync of the volume waits for listed inodes
            // and checks for losses afterwards.
            self.gathering.lose(error);
        }
        self.gathering.remove(inode, gathered.bytes);
        inode.gather.holds.store(false, Ordering::Release);
        written
    }

    fn write_gathered(&self, inode: &Inode, gathered: &Gathered) -> Result<()> {
        let writer = Writer::new(self, inode, self.fs.writable().ok_or(Error::ReadOnly)?);
        let written = writer.write_all(gathered.start, &gathered.bytes, gathered.times);
        let end = writer.ceil(gathered.start.saturating_add(to_u64(written.len)));
        let rest = end.max(gathered.reserved.start)..gathered.reserved.end;
        if !rest.is_empty() {
            drop(writer.fs.resume_write(&writer.layout, inode.ino, rest));
        }
        written.rest
    }
}

/// The gathering files of a volume.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    list: Mutex<List>,
    /// Signals the thread that there is work.
    wanted: Condvar,
    thread: Mutex<Option<Thread>>,
    /// Whether data was lost. A thread reads this flag without a lock.
    has_lost: AtomicBool,
}

#[derive(Debug, Default)]
struct List {
    /// Each inode with the tick in which it started to gather.
    inodes: Vec<(Arc<Inode>, u64)>,
    spare: Vec<Vec<u8>>,
    tick: u64,
    ager: WriterThread,
    lost: Option<Error>,
}

/// The state of the thread that writes out old data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum WriterThread {
    #[default]
    None,
    /// A file is gathering.
    Awake,
    /// No file is gathering.
    Asleep,
    /// The environment cannot start a thread.
    Refused,
    Stopped,
}

impl Gathering {
    /// Returns a buffer for another file, or `None` if too many files are gathering or no thread can limit
    /// their age.
    fn admit(self: &Arc<Self>, shared: &Arc<Shared>) -> Option<Vec<u8>> {
        let most = shared.config.gather.checked_div(MOST).unwrap_or(0);
        let mut list = self.list.lock();
        if list.inodes.len() >= most {
            return None;
        }
        if list.ager == WriterThread::Stopped {
            return None;
        }
        if let Some(age) = shared.config.gather_age {
            if list.ager == WriterThread::None {
                list.ager = self.start(Arc::downgrade(shared), age);
            }
            if list.ager == WriterThread::Refused {
                return None;
            }
        }
        list.inodes.try_reserve(1).ok()?;
        if let Some(buffer) = list.spare.pop() {
            return Some(buffer);
        }
        drop(list);
        let mut buffer = Vec::new();
        // Less than one block of data precedes the first reserved block.
        buffer.try_reserve_exact(MOST.saturating_mul(2)).ok()?;
        Some(buffer)
    }

    fn add(&self, inode: &Arc<Inode>) {
        let mut list = self.list.lock();
        let tick = list.tick;
        list.inodes.push((Arc::clone(inode), tick));
        if list.ager == WriterThread::Asleep {
            list.ager = WriterThread::Awake;
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
        // Free the memory without holding the lock.
        drop(list);
    }

    fn all(&self) -> Vec<Arc<Inode>> {
        self.list.lock().inodes.iter().map(|(inode, _)| Arc::clone(inode)).collect()
    }

    /// Records that gathered data could not be written.
    fn lose(&self, error: Error) {
        self.list.lock().lost.get_or_insert(error);
        self.has_lost.store(true, Ordering::Release);
    }

    /// Returns the error that caused the loss of gathered data.
    pub(crate) fn lost(&self) -> Option<Error> {
        if self.has_lost.load(Ordering::Acquire) { self.list.lock().lost } else { None }
    }

    fn start(self: &Arc<Self>, shared: Weak<Shared>, age: Duration) -> WriterThread {
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
                WriterThread::Awake
            }
            None => WriterThread::Refused,
        }
    }

    /// Waits for one tick while a file is gathering. Returns whether to continue.
    fn wait(&self, age: Duration) -> bool {
        let mut list = self.list.lock();
        while list.inodes.is_empty() && list.ager != WriterThread::Stopped {
            list.ager = WriterThread::Asleep;
            list = self.wanted.wait(&self.list, list);
        }
        if list.ager != WriterThread::Stopped {
            list = self.wanted.wait_for(&self.list, list, age.checked_div(2).unwrap_or(age));
        }
        list.tick = list.tick.saturating_add(1);
        list.ager != WriterThread::Stopped
    }

    /// Returns the inodes that have been gathering for at least one tick.
    fn old(&self) -> Vec<Arc<Inode>> {
        let list = self.list.lock();
        let is_old = |began: u64| began.saturating_add(1) < list.tick;
        list.inodes.iter().filter(|(_, began)| is_old(*began)).map(|(inode, _)| Arc::clone(inode)).collect()
    }

    /// Stops the thread and all gathering.
    pub(crate) fn stop(&self) {
        self.list.lock().ager = WriterThread::Stopped;
        self.wanted.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join();
        }
    }
}
