//! Files that the kernel has forgotten, and requests that need their space.
//!
//! The kernel sends FORGET after up to eight later requests. A program that removes a file and writes another one on a
//! full volume needs the space of the first file. A request that lacks room is therefore tried again when all requests
//! that have arrived are read, and FORGET requests among them handled.
//! Source: Linux 6.18 fs/fuse/dev.c `fuse_dev_do_read` (`forget_batch`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use obento_base::Errno;

use super::abi::{BatchForgetIn, ForgetOne, InHeader, opcode};
use super::request::{Request, RequestBody};
use super::{Wire, asked, guarded};
use crate::ledger::Effect;
use crate::server::Reply;

/// The longest time in milliseconds that a request waits, before it is refused, for requests that free space.
const LONGEST_WAIT: u32 = 100;
/// Requests that wait at the same time, at most. They occupy threads that others need.
const MOST_WAITING: usize = 4;
/// Requests that are to be repeated at the same time, at most. Each one has a copy of its body.
const MOST_REPEATED: usize = 16;

/// Whether a request that lacks room is tried again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Attempt {
    First,
    Last,
}

impl Attempt {
    /// Returns whether the request is tried again if its result is `done`.
    pub fn is_to_be_repeated(self, header: &InHeader, body: RequestBody<'_>, done: Reply<()>) -> bool {
        self == Self::First && lacks_room(header, body, done)
    }
}

/// Returns whether a request failed because too little space is free, or allowed, and can be repeated. Two kinds cannot:
///
/// - The error that [`Space`] reports for a write. Another attempt would have the kernel accept the write.
/// - The insertion and the removal of a range, which may have moved a part of the data.
///
/// [`Space`]: super::space::Space
pub(super) fn lacks_room(header: &InHeader, body: RequestBody<'_>, done: Reply<()>) -> bool {
    matches!(done, Err(Errno(libc::ENOSPC | libc::EDQUOT)))
        && !asked::confirms_a_write(header, body)
        && !asked::moves_data(header, body)
}

/// Returns whether the answer depends on the files that the kernel has forgotten: free space, and file handles.
pub(super) fn depends_on_forgets(request: Request<'_>) -> bool {
    let Request { header, mut body } = request;
    match header.opcode {
        opcode::STATFS => true,
        opcode::LOOKUP => matches!(body.name(), Ok(b"." | b"..")),
        _ => false,
    }
}

impl Wire {
    /// Handles FORGET, which has no reply.
    pub(super) fn forget(&self, request: Request<'_>) {
        let Request { header, mut body } = request;
        let _turn = self.server.ledger().map(|ledger| ledger.turn(Effect::Lookups));
        let _ = guarded(|| {
            if header.opcode == opcode::FORGET {
                self.server.forget(header.nodeid, body.take()?);
                return Ok(());
            }
            for _ in 0..body.take::<BatchForgetIn>()?.count {
                let ForgetOne { nodeid, nlookup } = body.take()?;
                self.server.forget(nodeid, nlookup);
            }
            Ok(())
        });
        self.forgotten.fetch_add(1, Ordering::Release);
    }

    /// Waits until the requests that have arrived at `/dev/fuse` are read, and FORGET requests among them handled. Waits
    /// for a bounded time, and not at all if [`MOST_WAITING`] others wait. Another thread reads the requests.
    pub(super) fn wait_until_read(&self) {
        if self.waiting.fetch_add(1, Ordering::Relaxed) < MOST_WAITING {
            for _ in 0..LONGEST_WAIT {
                // In this order: a request that has been read is being handled.
                if !self.channel.has_request() && !self.is_receiving.load(Ordering::Acquire) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the attempt with which a request begins.
    pub(super) fn first_attempt(&self) -> Attempt {
        match self.repeated.load(Ordering::Relaxed) < MOST_REPEATED {
            true => Attempt::First,
            false => Attempt::Last,
        }
    }

    /// Returns whether files were forgotten after the first `before` ones, which may have freed space. All FORGET
    /// requests that the kernel has sent are handled first, also those that another thread has read.
    pub(super) fn has_forgotten_since(self: &Arc<Self>, before: u64) -> bool {
        let _ = self.read_device();
        self.forgotten.load(Ordering::Acquire) != before
    }
}
