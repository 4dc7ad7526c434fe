//! The conversation with the kernel, whatever carries it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;

use crate::idle::Idle;
use crate::linger::Linger;
use crate::pool::{self, Queue};
use crate::server::Server;
use crate::wire::{LONGEST_REQUEST, Step, Wire};

/// How to talk to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionOptions {
    /// How many requests may wait for the disk at once.
    pub threads: usize,
    /// The kernel gathers writes in its page cache.
    pub writeback: bool,
}

impl Default for SessionOptions {
    /// Sixteen, each of which may wait for one access of the disk; the kernel gathers writes.
    fn default() -> Self {
        Self { threads: 16, writeback: true }
    }
}

/// A connection that is agreed on: requests wait, or will come.
pub trait Session: Send {
    /// Answers requests until the file system is unmounted, in threads that are started now. Errors: those of the device
    /// and of starting a thread.
    fn serve(self: Box<Self>) -> io::Result<()>;
}

/// Agrees with the kernel on how to talk over `device`, an open `/dev/fuse` that is mounted. Errors: those of the
/// device, and a kernel that is too old.
pub fn open_session(
    device: OwnedFd,
    server: Arc<Server>,
    options: SessionOptions,
) -> io::Result<Box<dyn Session>> {
    let (jobs, queue) = pool::queue();
    let linger = Linger::new(&device, Idle::open())?;
    let device = Arc::new(device);
    // Who reads wants to know at once that nothing is there.
    rustix::io::ioctl_fionbio(&*device, true)?;
    let mut buffer = vec![0; LONGEST_REQUEST];
    let len = receive(&device, &mut buffer, &linger)?.ok_or(io::ErrorKind::NotConnected)?;
    let said = buffer.get(..len).unwrap_or_default();
    let wire = Arc::new(Wire::greet(&device, said, server, options, jobs)?);
    Ok(Box::new(Device { device, wire, queue, linger, buffer, threads: options.threads }))
}

/// The length of the next request; none once nobody is there any more. The kernel hands out whole requests.
type Received = io::Result<Option<usize>>;

/// Sleeps until there is one.
fn receive(device: &OwnedFd, buffer: &mut [u8], linger: &Linger) -> Received {
    loop {
        match attempt(device, buffer) {
            Some(received) => return received,
            None => linger.sleep(),
        }
    }
}

/// None if there is none yet.
fn attempt(device: &OwnedFd, buffer: &mut [u8]) -> Option<Received> {
    loop {
        return match rustix::io::read(device, &mut *buffer) {
            Ok(len) => Some(Ok(Some(len))),
            Err(Errno::AGAIN) => None,
            // Who asked was interrupted; or we were.
            Err(Errno::NOENT | Errno::INTR) => continue,
            Err(Errno::NODEV) => Some(Ok(None)),
            Err(error) => Some(Err(error.into())),
        };
    }
}

/// `/dev/fuse` itself: read(2) is a request, write(2) a reply.
struct Device {
    device: Arc<OwnedFd>,
    wire: Arc<Wire>,
    queue: Queue,
    linger: Linger,
    buffer: Vec<u8>,
    threads: usize,
}

impl Session for Device {
    fn serve(self: Box<Self>) -> io::Result<()> {
        let Self { device, wire, queue, linger, mut buffer, threads } = *self;
        let workers = queue.start(threads)?;
        let mut next = None;
        let served = loop {
            let received = next.take().unwrap_or_else(|| receive(&device, &mut buffer, &linger));
            let len = match received {
                Ok(Some(len)) => len,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            match wire.receive(&mut buffer, len) {
                Step::Answered => next = linger.wait(|| attempt(&device, &mut buffer)),
                Step::HandedOn => linger.sleep_lightly(),
                Step::Last => break Ok(()),
            }
        };
        // With the last job that has it goes what gives jobs.
        drop(wire);
        workers.join();
        served
    }
}
