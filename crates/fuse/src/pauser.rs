//! The request to pause a session, so that another process can continue it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// Asks the thread that reads requests to stop. Clones refer to the same session.
#[derive(Clone, Debug)]
pub struct Pauser(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    is_requested: AtomicBool,
    /// Readable while a pause is requested, to wake the reader.
    event: OwnedFd,
}

impl Pauser {
    /// Creates a pauser that requests nothing. Fails if the process can open no more files.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Shared { is_requested: AtomicBool::new(false), event })))
    }

    /// Requests a pause. [`Session::serve`](crate::Session::serve) returns when all requests that it has read are
    /// answered.
    pub fn request(&self) {
        self.0.is_requested.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.0.event, &1_u64.to_ne_bytes());
    }

    /// Takes the request back.
    pub fn withdraw(&self) {
        let _ = rustix::io::read(&self.0.event, &mut [0; 8]);
        self.0.is_requested.store(false, Ordering::Release);
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.0.is_requested.load(Ordering::Acquire)
    }
}

impl AsFd for Pauser {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }
}
