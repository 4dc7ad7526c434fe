//! The kernel's requests and the replies to them, to and from [`Server`].
//!
//! Invariant: every request is answered once: [`Pending`] answers EIO when it is dropped, which is also what happens if the
//! server panics; the thread goes on.
//! What is answered ENOSYS is never asked again: OPEN and OPENDIR because there is nothing to open, FLUSH because closing
//! wants nothing, CREATE because a node is made and then, by itself, open. So RELEASE comes for files alone that never had
//! a name, and the kernel empties a file that is opened with O_TRUNC by SETATTR.

use std::cell::RefCell;
use std::mem;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use obento::{Attr, Errno, FileKind, Mode};

use crate::pool::Jobs;
use crate::server::{Reply, Server};
use crate::session::SessionOptions;

mod abi;
mod data;
mod encode;
mod init;
mod inodes;
mod listing;
mod names;
mod reply;
mod request;
mod spares;
mod syncs;

use abi::{BatchForgetIn, ForgetOne, InHeader, opcode};
use encode::Validity;
use reply::{Channel, Pending};
use request::Request;
use spares::Spares;
use syncs::Syncs;

/// The image is ours alone: what the kernel was told holds until it changes it itself.
const LONG: Duration = Duration::from_secs(24 * 60 * 60);
/// Of a file that is being written to.
const SHORT_TIME: Duration = Duration::from_secs(1);
const NOT: Duration = Duration::ZERO;

/// The bytes of a read and of a write at most.
const MAX_IO: u32 = 1 << 20;
/// Room for a write and what stands before its bytes; `FUSE_MIN_READ_BUFFER` more.
pub(crate) const LONGEST_REQUEST: usize = MAX_IO as usize + 8192;

/// Answers one kind of request: takes the rest of it apart, and puts the body of the reply together.
type Handler = fn(&Wire, &InHeader, request::Body<'_>, &mut reply::Body) -> Reply<()>;

/// Who answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The thread that read the request: waking another costs more than the answer.
    Here,
    /// One of those that may wait for the disk.
    Pool,
    /// One of them, with the buffer that the request is in: it is long, and while it is answered the next one is read. This
    /// thread, if all buffers are with them.
    PoolWithBuffer,
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// It is answered.
    Answered,
    /// Somebody else will answer it.
    HandedOn,
    /// It was the last one.
    Last,
}

/// One connection to the kernel.
pub(crate) struct Wire {
    server: Arc<Server>,
    options: SessionOptions,
    pool: Jobs,
    spares: Spares,
    syncs: Syncs,
    channel: Channel,
    /// SETXATTR has further flags.
    setxattr_flags: bool,
}

thread_local! {
    /// Where the reply of this thread is put together.
    static BODY: RefCell<reply::Body> = RefCell::default();
}

impl Wire {
    /// Agrees with the kernel, which says `bytes` first. Errors: it is too old, or says anything else.
    pub(crate) fn greet(
        device: &Arc<OwnedFd>,
        bytes: &[u8],
        server: Arc<Server>,
        options: SessionOptions,
        pool: Jobs,
    ) -> std::io::Result<Self> {
        let channel = Channel(Arc::clone(device));
        let Request { header, body } = Request::parse(bytes)
            .filter(|request| request.header.opcode == opcode::INIT)
            .ok_or(std::io::ErrorKind::InvalidData)?;
        let pending = Pending::new(channel.clone(), header.unique);
        let agreed = init::agree(body, options.writeback, server.time_step())?;
        pending.answer(Ok(zerocopy::IntoBytes::as_bytes(&agreed.reply)));
        let options = SessionOptions { writeback: agreed.writeback, ..options };
        let (spares, syncs, setxattr_flags) = (Spares::default(), Syncs::default(), agreed.setxattr_flags);
        Ok(Self { server, options, pool, spares, syncs, channel, setxattr_flags })
    }

    /// Answers the request in the first `len` bytes of `buffer`, or has it answered; then `buffer` may be another one.
    pub(crate) fn receive(self: &Arc<Self>, buffer: &mut Vec<u8>, len: usize) -> Step {
        let Some(request) = buffer.get(..len).and_then(Request::parse) else {
            tracing::error!(len, "what the kernel sent is no request");
            return Step::Answered;
        };
        match request.header.opcode {
            opcode::FORGET | opcode::BATCH_FORGET => self.forget(request),
            opcode::FSYNC | opcode::FSYNCDIR => {
                self.sync(&request.header);
                return Step::HandedOn;
            }
            opcode::DESTROY => {
                self.pending(&request.header).answer(Ok(&[]));
                return Step::Last;
            }
            _ => match handler(request) {
                None => self.pending(&request.header).answer(Err(Errno(libc::ENOSYS))),
                Some((handler, Place::Here)) => self.answer(handler, &request.header, request.body),
                Some((handler, Place::Pool)) => {
                    let (wire, header, body) = (Arc::clone(self), request.header, request.body.0.to_vec());
                    self.pool.run(move || wire.answer(handler, &header, request::Body(&body)));
                    return Step::HandedOn;
                }
                Some((handler, Place::PoolWithBuffer)) => match self.spares.take() {
                    None => self.answer(handler, &request.header, request.body),
                    Some(spare) => {
                        self.hand_on(handler, mem::replace(buffer, spare), len);
                        return Step::HandedOn;
                    }
                },
            },
        }
        Step::Answered
    }

    /// Has the request in the first `len` bytes of `buffer` answered by the pool.
    fn hand_on(self: &Arc<Self>, handler: Handler, buffer: Vec<u8>, len: usize) {
        let wire = Arc::clone(self);
        self.pool.run(move || {
            if let Some(Request { header, body }) = buffer.get(..len).and_then(Request::parse) {
                wire.answer(handler, &header, body);
            }
            wire.spares.give_back(buffer);
        });
    }

    fn pending(&self, header: &InHeader) -> Pending {
        Pending::new(self.channel.clone(), header.unique)
    }

    fn answer(&self, handler: Handler, header: &InHeader, body: request::Body<'_>) {
        let pending = self.pending(header);
        BODY.with_borrow_mut(|out| {
            out.clear();
            let done = guarded(|| handler(self, header, body, out));
            pending.answer(done.map(|()| out.bytes()));
        });
    }

    /// Takes lookups back, to which there is no reply.
    fn forget(&self, request: Request<'_>) {
        let Request { header, mut body } = request;
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
    }

    /// How long attributes hold: the kernel changes all of them itself, except the space that written pages take, and
    /// set-user-ID and set-group-ID, which a write by another user clears here. A program that is executed must not
    /// get rights by bits that are gone, so that the kernel asks each time.
    fn attr_validity(&self, attr: &Attr, id: u64) -> Duration {
        if !attr.is_dir() && attr.mode.bits() & (Mode::SET_UID.bits() | Mode::SET_GID.bits()) != 0 {
            return NOT;
        }
        let changes_below = attr.kind == FileKind::Regular && !self.server.options().read_only;
        match changes_below && self.options.writeback && !self.server.holds_for_long(id) {
            true => SHORT_TIME,
            false => LONG,
        }
    }

    fn validity(&self, found: &crate::server::Found) -> Validity {
        let name = if found.stays { LONG } else { NOT };
        Validity { name, attr: self.attr_validity(&found.attr, found.id) }
    }
}

/// Runs `act`; a panic is told, and costs this request.
fn guarded<T>(act: impl FnOnce() -> Reply<T>) -> Reply<T> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|_| {
        tracing::error!("a request met a bug of obento, and fails");
        Err(Errno(libc::EIO))
    })
}

/// Who answers a request, and where; none for what is not known, or has no meaning here.
fn handler(request: Request<'_>) -> Option<(Handler, Place)> {
    let here = |handler: Handler| Some((handler, Place::Here));
    let pool = |handler: Handler| Some((handler, Place::Pool));
    match request.header.opcode {
        opcode::LOOKUP => here(names::lookup),
        opcode::GETATTR => here(inodes::getattr),
        opcode::STATX => here(inodes::statx),
        opcode::SETATTR => here(inodes::setattr),
        opcode::READLINK => here(names::readlink),
        opcode::SYMLINK => here(names::symlink),
        opcode::MKNOD => here(names::mknod),
        opcode::MKDIR => here(names::mkdir),
        opcode::UNLINK => here(names::unlink),
        opcode::RMDIR => here(names::rmdir),
        opcode::RENAME => here(names::rename),
        opcode::RENAME2 => here(names::rename2),
        opcode::LINK => here(names::link),
        opcode::READ => Some((data::read, data::place_of_read(request.body))),
        opcode::WRITE => Some((data::write, data::place_of_write(request.body))),
        opcode::STATFS => here(inodes::statfs),
        opcode::TMPFILE => here(names::tmpfile),
        opcode::RELEASE => here(|_, _, _, _| Ok(())),
        opcode::SETXATTR => here(inodes::setxattr),
        opcode::GETXATTR => here(inodes::getxattr),
        opcode::LISTXATTR => here(inodes::listxattr),
        opcode::REMOVEXATTR => here(inodes::removexattr),
        opcode::READDIR => here(listing::readdir),
        opcode::READDIRPLUS => here(listing::readdirplus),
        opcode::IOCTL => Some((inodes::ioctl, inodes::place_of_ioctl(request.body))),
        opcode::FALLOCATE => pool(data::fallocate),
        opcode::LSEEK => pool(data::lseek),
        opcode::COPY_FILE_RANGE => pool(data::copy_file_range),
        _ => None,
    }
}
