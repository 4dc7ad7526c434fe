//! The conversation with the kernel, whatever carries it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use crate::idle::Idle;
use crate::linger::Linger;
use crate::pool::Pool;
use crate::server::Server;
use crate::wire::Wire;

/// How to talk to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionOptions {
    /// How many requests may wait for the disk at once.
    pub threads: usize,
    /// The kernel gathers writes in its page cache.
    pub writeback: bool,
}

impl Default for SessionOptions {
    /// Sixteen, so that many who sync wait for one commit; the kernel gathers writes.
    fn default() -> Self {
        Self { threads: 16, writeback: true }
    }
}

/// A connection that is agreed on: requests wait, or will come.
pub trait Session: Send {
    /// Answers requests until the file system is unmounted. Errors: those of the device.
    fn serve(self: Box<Self>) -> io::Result<()>;
}

/// Agrees with the kernel on how to talk over `device`, an open `/dev/fuse` that is mounted. Errors: those of the
/// device, and a kernel that is too old.
pub fn open_session(
    device: OwnedFd,
    server: Arc<Server>,
    options: SessionOptions,
) -> io::Result<Box<dyn Session>> {
    let mut config = fuser::Config::default();
    config.n_threads = Some(1);
    let (pool, linger) = (Pool::start(options.threads)?, Linger::new(&device, Idle::open())?);
    let notifier = Arc::new(OnceLock::new());
    let wire = Wire { server, options, pool, linger, notifier: Arc::clone(&notifier) };
    // The kernel itself keeps others out, where they are to be kept out.
    let session = fuser::Session::from_fd(wire, device, fuser::SessionACL::All, config)?;
    let _ = notifier.set(session.notifier());
    Ok(Box::new(Fuser(session)))
}

/// The library `fuser`.
struct Fuser(fuser::Session<Wire>);

impl Session for Fuser {
    fn serve(self: Box<Self>) -> io::Result<()> {
        self.0.run()
    }
}
