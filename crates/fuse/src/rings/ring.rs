//! One ring, and the thread that serves it.
//!
//! Invariant: the buffers of an entry are freed only after the kernel has returned the entry, or never.
//! Source: io_uring_setup(2), io_uring_enter(2); Linux fs/fuse/dev_uring.c `fuse_uring_cmd`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use io_uring::register::Restriction;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::event::{EventfdFlags, eventfd};
use zerocopy::{Immutable, IntoBytes};

use super::entry::{Entry, Outbox, Slot};
use crate::idle::Idle;
use crate::request_poll::RequestPoll;
use crate::wire::Wire;

/// `FUSE_IO_URING_CMD_REGISTER` and `FUSE_IO_URING_CMD_COMMIT_AND_FETCH` of `enum fuse_uring_cmd`.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;
/// The number of entries of a queue at the start. More are added while requests wait for others.
const ENTRIES: usize = 4;
/// The length of the submission queue.
const DEPTH: u32 = 64;
/// The user data of the event that wakes the thread.
const EVENT: u64 = u64::MAX;

/// `struct fuse_uring_cmd_req`, in the part of a submission that belongs to the command.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Command {
    flags: u64,
    commit_id: u64,
    queue: u16,
    padding: [u8; 6],
}

/// The state of one of the kernel's queues.
struct Queue {
    number: u16,
    /// The number of entries without a request.
    free: usize,
}

/// A ring.
pub(super) struct Ring {
    uring: IoUring<squeue::Entry128, cqueue::Entry>,
    device: Arc<OwnedFd>,
    outbox: Arc<Outbox>,
    /// The buffers that the kernel may access.
    held: Held,
    queues: Vec<Queue>,
    /// An entry failed: the connection has ended.
    is_over: bool,
    answered: Vec<Entry>,
    poll: RequestPoll,
}

/// The buffers that the kernel may access.
#[derive(Default)]
struct Held {
    /// The entries by index. `None`: the server has the entry.
    entries: Vec<Option<Entry>>,
    /// The number of entries that the kernel has.
    count: usize,
    /// The addresses and lengths of the buffers of all entries, which the kernel reads when an entry is added.
    #[expect(
        clippy::vec_box,
        reason = "the kernel has the addresses, which must not change when entries are added"
    )]
    parts: Vec<Box<[usize; 4]>>,
    /// The target of reads of the event.
    event: Box<u64>,
}

impl Drop for Held {
    fn drop(&mut self) {
        // The kernel may still access them.
        std::mem::forget(std::mem::take(&mut self.event));
        self.entries.drain(..).flatten().for_each(std::mem::forget);
    }
}

impl Ring {
    /// Creates a ring that can only wait for requests of `device` and for an event. Fails with the errors of
    /// io_uring_setup(2), io_uring_register(2) and eventfd(2).
    pub(super) fn new(device: Arc<OwnedFd>, queues: Vec<u16>) -> io::Result<Self> {
        // Requests are delivered when this thread enters the kernel, not by interrupting it.
        let uring: IoUring<squeue::Entry128, cqueue::Entry> =
            IoUring::builder().setup_coop_taskrun().setup_r_disabled().build(DEPTH)?;
        let allowed = [opcode::UringCmd80::CODE, opcode::Read::CODE].map(Restriction::sqe_op);
        uring.submitter().register_restrictions(&mut allowed.into_iter().collect::<Vec<_>>())?;
        uring.submitter().register_enable_rings()?;
        let event = eventfd(0, EventfdFlags::CLOEXEC)?;
        // The poller waits for completions of the ring.
        // SAFETY: the ring is open, and the borrow ends before it is closed.
        let fd = unsafe { BorrowedFd::borrow_raw(uring.as_raw_fd()) };
        let poll = RequestPoll::new(fd, Idle::open())?;
        Ok(Self {
            uring,
            device,
            outbox: Arc::new(Outbox::new(event)),
            held: Held::default(),
            queues: queues.into_iter().map(|number| Queue { number, free: 0 }).collect(),
            is_over: false,
            answered: Vec::new(),
            poll,
        })
    }

    /// Answers requests until the connection ends.
    pub(super) fn serve(mut self, wire: &Arc<Wire>) {
        if let Err(error) = self.run(wire) {
            tracing::error!(%error, "a ring failed; its requests wait until the end of the mount");
        }
        self.outbox.close();
    }

    fn run(&mut self, wire: &Arc<Wire>) -> io::Result<()> {
        self.pin();
        self.read_event()?;
        for queue in 0..self.queues.len() {
            (0..ENTRIES).try_for_each(|_| self.add_entry(queue))?;
        }
        loop {
            self.commit()?;
            if self.is_over && self.held.count == 0 {
                return Ok(());
            }
            self.expect_free()?;
            self.wait()?;
            self.receive(wire)?;
        }
    }

    /// Moves this thread to the processor of its first queue. The wake-up for a request then concerns one processor.
    fn pin(&self) {
        let mut set = rustix::thread::CpuSet::new();
        let processor = self.queues.first().map_or(0, |queue| usize::from(queue.number));
        if processor < rustix::thread::CpuSet::MAX_CPU {
            set.set(processor);
            // Without the right, or without that processor, the thread runs anywhere.
            let _ = rustix::thread::sched_setaffinity(None, &set);
        }
    }

    /// Handles all completions.
    fn receive(&mut self, wire: &Arc<Wire>) -> io::Result<()> {
        loop {
            let Some(done) = self.uring.completion().next() else { return Ok(()) };
            if done.user_data() == EVENT {
                self.read_event()?;
                continue;
            }
            let index = usize::try_from(done.user_data()).unwrap_or(usize::MAX);
            let Some(entry) = self.held.entries.get_mut(index).and_then(Option::take) else { continue };
            self.held.count = self.held.count.saturating_sub(1);
            let Some(queue) = self.queues.iter_mut().find(|queue| queue.number == entry.slot().queue) else {
                continue;
            };
            queue.free = queue.free.saturating_sub(1);
            if done.result() < 0 {
                tracing::debug!(error = -done.result(), "an entry of a ring ended");
                self.is_over = true;
                continue;
            }
            let may_pass_on = queue.free > 0;
            wire.receive_entry(entry, may_pass_on);
            self.commit()?;
            // The reply is sent before the next request is answered, which may wait for the disk.
            if !self.uring.completion().is_empty() {
                self.submit(0)?;
            }
        }
    }

    /// Sends the replies that are ready.
    fn commit(&mut self) -> io::Result<()> {
        let mut answered = std::mem::take(&mut self.answered);
        self.outbox.take(&mut answered);
        for entry in answered.drain(..) {
            if !self.is_over {
                self.hold(entry, COMMIT_AND_FETCH)?;
            }
        }
        self.answered = answered;
        Ok(())
    }

    /// Adds entries to the queues whose entries are all in use.
    fn expect_free(&mut self) -> io::Result<()> {
        for queue in 0..self.queues.len() {
            if self.queues[queue].free == 0 && !self.is_over {
                self.add_entry(queue)?;
            }
        }
        Ok(())
    }

    /// Adds an entry to the queue with this index.
    fn add_entry(&mut self, queue: usize) -> io::Result<()> {
        let slot = Slot { index: self.held.entries.len(), queue: self.queues[queue].number };
        self.held.entries.push(None);
        self.hold(Entry::new(slot, Arc::clone(&self.outbox)), REGISTER)
    }

    /// Passes an entry to the kernel.
    fn hold(&mut self, mut entry: Entry, command: u32) -> io::Result<()> {
        let (slot, commit_id) = (entry.slot(), entry.commit_id());
        let request = Command { flags: 0, commit_id, queue: slot.queue, padding: [0; 6] };
        let mut area = [0; 80];
        area[..size_of::<Command>()].copy_from_slice(request.as_bytes());
        let fd = types::Fd(self.device.as_raw_fd());
        let submission = match command {
            REGISTER => {
                let [headers, payload] = entry.buffers().map(|part| (part.as_mut_ptr() as usize, part.len()));
                let parts = Box::new([headers.0, headers.1, payload.0, payload.1]);
                let submission = register(fd, area, &parts);
                self.held.parts.push(parts);
                submission
            }
            _ => opcode::UringCmd80::new(fd, command).cmd(area).build(),
        };
        self.held.entries[slot.index] = Some(entry);
        self.held.count += 1;
        if let Some(queue) = self.queues.iter_mut().find(|queue| queue.number == slot.queue) {
            queue.free += 1;
        }
        self.push(&submission.user_data(slot.index as u64))
    }

    /// Starts a read of the event.
    fn read_event(&mut self) -> io::Result<()> {
        let fd = types::Fd(self.outbox.event().as_raw_fd());
        let read = opcode::Read::new(fd, (&raw mut *self.held.event).cast(), 8).build();
        self.push(&squeue::Entry128::from(read.user_data(EVENT)))
    }

    fn push(&mut self, submission: &squeue::Entry128) -> io::Result<()> {
        loop {
            // SAFETY: the buffers belong to `held`, which never frees them while the kernel may access them.
            if unsafe { self.uring.submission().push(submission) }.is_ok() {
                return Ok(());
            }
            self.submit(0)?;
        }
    }

    /// Submits, and waits for at least `count` completions.
    fn submit(&self, count: usize) -> io::Result<()> {
        match self.uring.submit_and_wait(count) {
            Ok(_) => Ok(()),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Waits for a request, a reply of another thread, or the end.
    fn wait(&mut self) -> io::Result<()> {
        let Self { uring, outbox, poll, .. } = self;
        let mut is_submitted = false;
        let found = poll.poll(|| {
            if !std::mem::replace(&mut is_submitted, true) {
                let _ = uring.submit();
            }
            (!uring.completion().is_empty() || !outbox.is_empty()).then_some(())
        });
        if found.is_some() {
            return Ok(());
        }
        // From here on, a reply of another thread wakes this one, also while processors are kept awake.
        if !self.outbox.may_sleep() {
            return self.submit(0);
        }
        let slept = self.sleep();
        self.outbox.wake();
        slept
    }

    /// Sleeps until a completion arrives.
    fn sleep(&self) -> io::Result<()> {
        if self.poll.keeps_awake() {
            self.submit(0)?;
            self.poll.sleep_lightly();
        }
        self.submit(1)
    }
}

/// Returns the submission that passes the buffers `parts`, two `struct iovec`, to the kernel.
fn register(fd: types::Fd, area: [u8; 80], parts: &[usize; 4]) -> squeue::Entry128 {
    let build = opcode::UringCmd80::new(fd, REGISTER).cmd(area).addr(Some(parts.as_ptr() as u64));
    let mut submission = build.build();
    const { assert!(size_of::<squeue::Entry128>() == 128) };
    // SAFETY: `Entry128` is a `struct io_uring_sqe` with 128 bytes, whose field `len` is at byte 24. The crate does not set
    // this field for a command.
    unsafe { (&raw mut submission).cast::<u32>().add(6).write(2) };
    submission
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_reply_of_another_thread_is_sent_while_processors_are_kept_awake() {
        let device = Arc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
        let mut ring = match Ring::new(device, vec![0]) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                return obento_testkit::oracle::report_missing("io_uring");
            }
            ring => ring.unwrap(),
        };
        // Without the wake-up, the thread would sleep for this time.
        ring.poll = ring.poll.kept_awake(tempfile::tempfile().unwrap(), Duration::from_secs(60));
        ring.read_event().unwrap();
        let outbox = Arc::clone(&ring.outbox);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !outbox.sleeps() {
                    std::thread::yield_now();
                }
                Entry::new(Slot { index: 0, queue: 0 }, Arc::clone(&outbox)).reply(&[], &[]);
            });
            ring.wait().unwrap();
        });
        assert!(!outbox.is_empty());
        assert!(ring.poll.keeps_awake());
    }
}
