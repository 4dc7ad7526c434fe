//! The connection to the kernel: the loop that reads requests and has them answered.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::handover::SessionState;
use crate::idle::Idle;
use crate::pauser::Pauser;
use crate::pool::{self, Queue, Workers};
use crate::receive::{Received, attempt};
use crate::request_poll::RequestPoll;
use crate::rings::Rings;
use crate::server::Server;
use crate::session_options::{RingChoice, SessionOptions, SessionUse};
use crate::wire::{self, LONGEST_REQUEST, Pools, Step, Wire};

/// The time for which FORGET requests are gathered if they alone use `/dev/fuse`: each one would wake this thread.
const GATHERING: Duration = Duration::from_millis(5);

/// The reason why a session has stopped.
pub enum Served {
    /// The file system is unmounted.
    Ended,
    /// A pause was requested, and all requests that were read are answered. Later ones wait in the kernel.
    Paused(Box<dyn Session>),
}

/// A connection whose protocol is negotiated.
pub trait Session: Send {
    /// Answers requests in this thread and in new ones, until the file system is unmounted or the [`Pauser`] requests a
    /// pause. Fails with the errors of the device and of starting a thread.
    fn serve(self: Box<Self>) -> io::Result<Served>;

    /// Returns whether the session can pause: not if requests arrive through `io_uring`, which the kernel ties to this
    /// process.
    fn can_pause(&self) -> bool;

    /// Returns the state of a session that has paused, for another process.
    fn export(&self) -> SessionState;

    /// Returns the connection to the kernel.
    fn device(&self) -> BorrowedFd<'_>;

    /// Returns a function that observes the session.
    fn monitor(&self) -> Box<dyn Fn() -> SessionUse + Send>;
}

/// Negotiates the protocol with the kernel over `device`, an open `/dev/fuse` that is mounted.
///
/// # Errors
///
/// - The errors of the device.
/// - `Unsupported`: the kernel is too old, or does not offer `io_uring`, which `options` require.
/// - `InvalidData`: the kernel sent another request first.
pub fn open_session(
    device: OwnedFd,
    server: Arc<Server>,
    options: SessionOptions,
    pauser: Pauser,
) -> io::Result<Box<dyn Session>> {
    let (jobs, queues) = queues();
    let request_poll = RequestPoll::new(&device, Idle::open())?.with_pauser(&pauser);
    let device = Arc::new(device);
    // A read without a request returns immediately.
    rustix::io::ioctl_fionbio(&*device, true)?;
    let mut buffer = request_buffer(&server);
    let len = receive(&device, &mut buffer, &request_poll)?.ok_or(io::ErrorKind::NotConnected)?;
    let said = buffer.get(..len).unwrap_or_default();
    let rings = open_rings(&device, said, options.io_uring)?;
    let wire = Arc::new(Wire::greet(&device, said, server, options, jobs, rings.is_some())?);
    let threads = Threads::Waiting(queues, options.threads);
    Ok(Box::new(Device { device, wire, threads, request_poll, buffer, pauser, rings }))
}

/// Continues a connection that another process has paused: `device` is its open `/dev/fuse`, and `state` what its
/// session exported. `server` serves the same volume, whose inodes in use are adopted. Reads nothing yet.
///
/// # Errors
///
/// The errors of the device.
pub fn resume_session(
    device: OwnedFd,
    server: Arc<Server>,
    options: SessionOptions,
    pauser: Pauser,
    state: &SessionState,
) -> io::Result<Box<dyn Session>> {
    let (jobs, queues) = queues();
    let request_poll = RequestPoll::new(&device, Idle::open())?.with_pauser(&pauser);
    let device = Arc::new(device);
    let buffer = request_buffer(&server);
    let wire = Arc::new(Wire::resume(&device, server, options, jobs, state));
    let threads = Threads::Waiting(queues, options.threads);
    Ok(Box::new(Device { device, wire, threads, request_poll, buffer, pauser, rings: None }))
}

/// Returns a buffer for requests. If the mount must survive a failure, its pages exist: a process that is killed while
/// the kernel copies a request into a missing page makes this request fail.
fn request_buffer(server: &Server) -> Vec<u8> {
    let byte = u8::from(server.ledger().is_some());
    let mut buffer = vec![0; LONGEST_REQUEST];
    if byte != 0 {
        buffer.fill(byte);
    }
    buffer
}

fn queues() -> (Pools, [Queue; 2]) {
    let (pool, queue) = pool::queue();
    let (notifiers, notices) = pool::queue();
    (Pools { pool, notifiers }, [queue, notices])
}

/// Creates rings if the kernel, whose first request is `said`, offers them.
fn open_rings(device: &Arc<OwnedFd>, said: &[u8], choice: RingChoice) -> io::Result<Option<Rings>> {
    let is_offered = wire::offers_rings(said);
    match choice {
        RingChoice::Off => Ok(None),
        RingChoice::On if !is_offered => {
            let cause = "the kernel does not offer io_uring; root can run \
                         'echo Y > /sys/module/fuse/parameters/enable_uring' (Linux 6.14)";
            Err(io::Error::new(io::ErrorKind::Unsupported, cause))
        }
        RingChoice::On => Rings::new(device).map(Some),
        RingChoice::Auto if !is_offered => Ok(None),
        RingChoice::Auto => Ok(Rings::new(device)
            .inspect_err(|error| tracing::warn!(%error, "io_uring is not available; /dev/fuse replaces it"))
            .ok()),
    }
}

/// Sleeps until a request arrives.
fn receive(device: &OwnedFd, buffer: &mut [u8], request_poll: &RequestPoll) -> Received {
    loop {
        match attempt(device, buffer) {
            Some(received) => return received,
            None => request_poll.sleep(),
        }
    }
}

/// The threads of a session.
enum Threads {
    /// Queues whose threads are not started yet, and the number of threads of each.
    Waiting([Queue; 2], usize),
    Started([Workers; 2]),
}

impl Threads {
    fn start(self) -> io::Result<[Workers; 2]> {
        match self {
            Self::Waiting([queue, notices], count) => {
                Ok([queue.start("fuse", count)?, notices.start("fuse-notify", count)?])
            }
            Self::Started(workers) => Ok(workers),
        }
    }
}

/// A connection over `/dev/fuse`: read(2) returns a request, write(2) sends a reply.
struct Device {
    device: Arc<OwnedFd>,
    wire: Arc<Wire>,
    threads: Threads,
    request_poll: RequestPoll,
    buffer: Vec<u8>,
    pauser: Pauser,
    rings: Option<Rings>,
}

/// The reason why reading has stopped.
enum Stop {
    Unmounted,
    Paused,
}

/// The time for which a session that is to pause waits for the next request, before it looks again whether all others
/// are answered.
const LOOK: Duration = Duration::from_millis(1);

impl Device {
    /// Reads requests and has them answered.
    fn read(&mut self) -> io::Result<Stop> {
        let Self { wire, request_poll, buffer, pauser, .. } = self;
        let mut next = None;
        loop {
            let received = match next.take() {
                Some(received) => Some(received),
                None if !pauser.is_requested() => {
                    let received = wire.attempt(buffer);
                    received.is_none().then(|| request_poll.sleep());
                    received
                }
                None if wire.is_settled() => return Ok(Stop::Paused),
                None => {
                    // A job waits for the kernel, which may wait for an answer.
                    request_poll.is_ready(LOOK);
                    wire.attempt(buffer)
                }
            };
            let Some(received) = received else { continue };
            let Some(len) = received? else { return Ok(Stop::Unmounted) };
            match wire.receive(buffer, len) {
                Step::Answered | Step::Forgotten => next = request_poll.wait(|| wire.attempt(buffer)),
                Step::HandedOn => request_poll.sleep_lightly(),
                Step::Last => return Ok(Stop::Unmounted),
            }
        }
    }
}

impl Session for Device {
    fn serve(mut self: Box<Self>) -> io::Result<Served> {
        let none = Threads::Started([Workers::none(), Workers::none()]);
        let workers = std::mem::replace(&mut self.threads, none).start()?;
        let served = match self.rings.take() {
            Some(rings) => {
                let threads = rings.start(&self.wire)?;
                let served = read_beside(&self.wire, &self.request_poll);
                // The kernel ends all transports of a connection together.
                threads.join();
                served.map(|()| Stop::Unmounted)
            }
            None => self.read(),
        };
        if let Ok(Stop::Paused) = served {
            self.threads = Threads::Started(workers);
            return Ok(Served::Paused(self));
        }
        // The last job that refers to `wire` drops the sides that queue jobs.
        drop(self);
        workers.into_iter().for_each(Workers::join);
        served.map(|_| Served::Ended)
    }

    fn can_pause(&self) -> bool {
        self.rings.is_none()
    }

    fn export(&self) -> SessionState {
        self.wire.export()
    }

    fn device(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    fn monitor(&self) -> Box<dyn Fn() -> SessionUse + Send> {
        let wire = Arc::downgrade(&self.wire);
        Box::new(move || wire.upgrade().map(|wire| wire.session_use()).unwrap_or_default())
    }
}

/// Answers until an unmount the requests that do not arrive through rings.
fn read_beside(wire: &Arc<Wire>, request_poll: &RequestPoll) -> io::Result<()> {
    loop {
        request_poll.sleep();
        let Some(forgotten) = wire.read_device()? else { return Ok(()) };
        if forgotten > 0 {
            std::thread::sleep(GATHERING);
        }
    }
}
