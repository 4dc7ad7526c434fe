//! The wire protocol: passes the kernel's requests to [`Server`], and sends the replies.
//!
//! Invariant: every request is answered once. [`Pending`] answers EIO when it is dropped without an answer. If the
//! server panics, the request fails with EIO and the thread continues. The kernel does not repeat a kind of request
//! that fails with ENOSYS. OPEN, OPENDIR and FLUSH fail in this way, because they need no action. CREATE fails so,
//! because MKNOD creates the file and OPEN is not needed. The kernel therefore sends RELEASE only for files that were
//! created without a name, and truncates a file that is opened with O_TRUNC by SETATTR. If the history of the volume is
//! recorded, OPEN and CREATE are supported, and the kernel sends RELEASE for each open file.

use std::cell::RefCell;
use std::mem;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use obento_base::{Attr, Errno, FileKind, Mode};
use obento_env::thread::without_limits;
use obento_fuse_abi::{self as abi, InHeader, opcode};
use parking_lot::Mutex;

use crate::handover::SessionState;
use crate::pool::Jobs;
use crate::receive::{Received, attempt};
use crate::rings::Entry;
use crate::server::{Reply, Sender, Server};
use crate::session_options::{SessionOptions, SessionUse, WriteCache};

mod asked;
mod broken;
mod data;
mod encode;
mod failover;
mod forgets;
mod init;
mod inodes;
mod limits;
mod listing;
mod names;
mod reply;
mod request;
mod space;
mod spares;
mod syncs;
#[cfg(test)]
mod tests;
mod writers;

use encode::Validity;
use forgets::{Attempt, depends_on_forgets};
pub(crate) use limits::{LONGEST_REQUEST, MAX_IO};
use reply::{Channel, Pending};
use request::Request;
use space::{Bounds, Space};
use spares::Spares;
use syncs::Syncs;

/// The time for which the kernel may cache names and attributes. The server is the only user of the image, so only the
/// kernel itself changes them.
const LONG: Duration = Duration::from_secs(24 * 60 * 60);
/// The time for the attributes of a file that is being written to.
const SHORT_TIME: Duration = Duration::from_secs(1);
const NOT: Duration = Duration::ZERO;

/// The time for which the reading thread waits for the pool before it reads again, when the session is to pause.
const SETTLING: Duration = Duration::from_millis(50);

/// Answers one kind of request: decodes its body, and encodes the body of the reply.
type Handler = fn(Call<'_>) -> Reply<()>;

/// A request, and the body of the reply to it.
struct Call<'c> {
    wire: &'c Wire,
    header: &'c InHeader,
    body: request::RequestBody<'c>,
    out: &'c mut reply::ReplyBody,
}

/// The thread that answers a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The thread that read the request, because waking another thread takes longer than the answer.
    Here,
    /// A thread that may wait for the kernel to write back or drop pages, and for the disk.
    Notifier,
    /// A thread of the pool, which may wait for the disk.
    Pool,
    /// A thread of the pool, which also gets the buffer of this long request, so that the next request can be read
    /// meanwhile. The reading thread, if no buffer is free.
    PoolWithBuffer,
}

/// The way in which a request is answered.
#[derive(Clone, Copy)]
enum Route {
    /// FORGET, which has no reply.
    Forget,
    /// Together with other requests, when all changes are on stable storage.
    Sync,
    /// When the kernel has written back gathered data ([`space`]).
    Gate,
    /// The last request.
    Last,
    /// With ENOSYS.
    Unsupported,
    /// By this handler.
    Run(Handler, Place),
}

/// The result of handling a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// The request is answered.
    Answered,
    /// The request needs no answer.
    Forgotten,
    /// Another thread will answer the request.
    HandedOn,
    /// The request was the last one.
    Last,
}

/// Threads for jobs that would delay the thread that reads requests.
pub(crate) struct Pools {
    /// For jobs that wait for the disk, and never for the kernel.
    pub(crate) pool: Jobs,
    /// For jobs that wait for the kernel, which may itself wait for replies from `pool`.
    pub(crate) notifiers: Jobs,
}

/// One connection to the kernel.
pub(crate) struct Wire {
    server: Arc<Server>,
    options: SessionOptions,
    pool: Jobs,
    notifiers: Jobs,
    spares: Spares,
    syncs: Syncs,
    space: Space,
    /// The reading thread reads or handles a request.
    is_receiving: AtomicBool,
    channel: Channel,
    /// The buffer of [`read_device`](Self::read_device). While it is locked, one thread handles requests in their order.
    buffer: Mutex<Vec<u8>>,
    /// Number of FORGET requests that were handled.
    forgotten: AtomicU64,
    /// Number of requests that wait for FORGET requests, and of those that are to be repeated.
    waiting: AtomicUsize,
    repeated: AtomicUsize,
    /// Whether SETXATTR requests contain [`SetxattrExtra`](abi::SetxattrExtra).
    setxattr_flags: bool,
    /// Whether the kernel safely caches data that the server sends.
    stores_data: bool,
    /// Number of requests that were read.
    requests: AtomicU64,
}

thread_local! {
    /// The buffer for the reply of this thread.
    static BODY: RefCell<reply::ReplyBody> = RefCell::default();
}

impl Wire {
    /// Negotiates the protocol with the kernel, whose first request is `bytes`. Fails with `Unsupported` if the kernel
    /// is too old, and with `InvalidData` if the request is not INIT. `has_rings`: requests will be fetched through
    /// rings, which the kernel [offers](offers_rings).
    pub(crate) fn greet(
        device: &Arc<OwnedFd>,
        bytes: &[u8],
        server: Arc<Server>,
        options: SessionOptions,
        Pools { pool, notifiers }: Pools,
        has_rings: bool,
    ) -> std::io::Result<Self> {
        let channel = Channel(Arc::clone(device));
        let Request { header, body } = Request::parse(bytes)
            .filter(|request| request.header.opcode == opcode::INIT)
            .ok_or(std::io::ErrorKind::InvalidData)?;
        let pending = Pending::new(channel.clone(), header.unique);
        // Without an answer, the volume is taken to be too small.
        let (free, total) = server.free_and_total().unwrap_or_default();
        let bounds = Bounds::of(options.dirty_limit, total).filter(|_| options.writeback);
        let wanted = init::Wanted {
            writeback: bounds.is_some(),
            rings: has_rings,
            resend: server.ledger().is_some(),
            fakeroot: server.options().fakeroot,
        };
        let agreed = init::agree(body, wanted, server.time_step())?;
        pending.answer(Ok(zerocopy::IntoBytes::as_bytes(&agreed.reply)));
        let options = SessionOptions { writeback: agreed.writeback, ..options };
        let space = Space::new(bounds.filter(|_| agreed.writeback), free);
        let (spares, syncs, setxattr_flags) = (Spares::default(), Syncs::default(), agreed.setxattr_flags);
        Ok(Self {
            server,
            options,
            pool,
            notifiers,
            spares,
            syncs,
            space,
            is_receiving: AtomicBool::default(),
            channel,
            buffer: Mutex::default(),
            forgotten: AtomicU64::default(),
            waiting: AtomicUsize::default(),
            repeated: AtomicUsize::default(),
            setxattr_flags,
            stores_data: agreed.stores_data,
            requests: AtomicU64::default(),
        })
    }

    /// Continues a connection that another process negotiated and served until now.
    pub(crate) fn resume(
        device: &Arc<OwnedFd>,
        server: Arc<Server>,
        options: SessionOptions,
        Pools { pool, notifiers }: Pools,
        state: &SessionState,
    ) -> Self {
        server.import(&state.nodes, state.has_no_atime);
        state.history.iter().for_each(|history| server.import_history(history));
        let channel = Channel(Arc::clone(device));
        if server.ledger().is_some() {
            channel.request_again();
        }
        let options =
            SessionOptions { writeback: state.writeback, dirty_limit: state.dirty_limit, ..options };
        let (_, total) = server.free_and_total().unwrap_or_default();
        let bounds = Bounds::of(state.dirty_limit, total).filter(|_| state.has_gate);
        Self {
            server,
            options,
            pool,
            notifiers,
            spares: Spares::default(),
            syncs: Syncs::default(),
            space: Space::resume(bounds, &state.gate),
            is_receiving: AtomicBool::default(),
            channel,
            buffer: Mutex::default(),
            forgotten: AtomicU64::default(),
            waiting: AtomicUsize::default(),
            repeated: AtomicUsize::default(),
            setxattr_flags: state.setxattr_flags,
            stores_data: state.stores_data,
            requests: AtomicU64::default(),
        }
    }

    /// Returns the state of the connection for another process. No request is being handled.
    pub(crate) fn export(&self) -> SessionState {
        SessionState {
            writeback: self.options.writeback,
            setxattr_flags: self.setxattr_flags,
            stores_data: self.stores_data,
            dirty_limit: self.options.dirty_limit,
            has_no_atime: self.server.has_no_atime(),
            has_gate: self.space.has_gate(),
            gate: self.space.export(),
            nodes: self.server.export(),
            history: self.server.export_history(),
        }
    }

    /// Returns whether all requests that were read are answered. Only the reading thread may call this. Jobs of the
    /// pool do not wait for the kernel, so this thread waits briefly for them. The other threads need it to continue
    /// reading.
    ///
    /// Jobs of the notifiers queue no jobs of the pool.
    pub(crate) fn is_settled(&self) -> bool {
        self.pool.wait_until_idle(SETTLING) && self.notifiers.wait_until_idle(Duration::ZERO)
    }

    /// Returns the number of requests that were read, and how the kernel caches written data.
    pub(crate) fn session_use(&self) -> SessionUse {
        let write_cache = match (self.options.writeback, self.space.is_gated()) {
            (false, _) => WriteCache::Off,
            (true, false) => WriteCache::On,
            (true, true) => WriteCache::Asking,
        };
        SessionUse { requests: self.requests.load(Ordering::Relaxed), write_cache }
    }

    /// Reads a request from `/dev/fuse`, which the caller passes to [`receive`](Self::receive). Returns `None` if no
    /// request has arrived.
    pub(crate) fn attempt(&self, buffer: &mut [u8]) -> Option<Received> {
        self.is_receiving.store(true, Ordering::Release);
        let received = attempt(&self.channel.0, buffer);
        if received.is_none() {
            self.is_receiving.store(false, Ordering::Release);
        }
        received
    }

    /// Answers the request in the first `len` bytes of `buffer`, or passes it to another thread, which may take
    /// `buffer` and leave another buffer.
    pub(crate) fn receive(self: &Arc<Self>, buffer: &mut Vec<u8>, len: usize) -> Step {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let step = self.handle(buffer, len);
        self.is_receiving.store(false, Ordering::Release);
        step
    }

    /// Replies to all requests that have arrived at `/dev/fuse` while others arrive through rings. Returns the number of
    /// FORGET requests among them, or `None` after an unmount. Fails with the errors of the device.
    pub(crate) fn read_device(self: &Arc<Self>) -> std::io::Result<Option<usize>> {
        // A thread that has read FORGET before has handled it when the lock is free.
        let (mut buffer, mut forgotten) = (self.buffer.lock(), 0);
        buffer.resize(LONGEST_REQUEST, 0);
        loop {
            let Some(received) = self.attempt(&mut buffer) else { return Ok(Some(forgotten)) };
            let Some(len) = received? else { return Ok(None) };
            match self.receive(&mut buffer, len) {
                Step::Forgotten => forgotten += 1,
                Step::Answered | Step::HandedOn => {}
                Step::Last => return Ok(None),
            }
        }
    }

    fn handle(self: &Arc<Self>, buffer: &mut Vec<u8>, len: usize) -> Step {
        let Some(request) = buffer.get(..len).and_then(Request::parse) else {
            tracing::error!(len, "the kernel sent an invalid request");
            return Step::Answered;
        };
        let (handler, place) = match self.route(request) {
            Route::Forget => {
                self.forget(request);
                return Step::Forgotten;
            }
            Route::Run(handler, place) => (handler, place),
            other => return self.settle(other, &request.header, self.pending(&request.header)),
        };
        let is_late = depends_on_forgets(request);
        match place {
            Place::Here if !is_late => self.answer(handler, &request.header, request.body),
            Place::Here | Place::Pool | Place::Notifier => {
                let (wire, header, body) = (Arc::clone(self), request.header, request.body.to_vec());
                let jobs = if place == Place::Notifier { &self.notifiers } else { &self.pool };
                jobs.run(move || {
                    is_late.then(|| wire.wait_until_read());
                    wire.answer(handler, &header, request::RequestBody::new(&body));
                });
                return Step::HandedOn;
            }
            // In turn with the other changes, so another thread would be no help.
            Place::PoolWithBuffer if self.server.ledger().is_some() => {
                self.answer(handler, &request.header, request.body);
            }
            Place::PoolWithBuffer => match self.spares.take() {
                None => self.answer(handler, &request.header, request.body),
                Some(spare) => {
                    self.hand_on(handler, mem::replace(buffer, spare), len);
                    return Step::HandedOn;
                }
            },
        }
        Step::Answered
    }

    /// Answers the request in `entry`, or passes it to another thread. If not `may_pass_on`, a request that does not
    /// wait for the kernel is answered here.
    ///
    /// FORGET requests that the kernel sent before are handled first if the answer depends on them.
    pub(crate) fn receive_entry(self: &Arc<Self>, entry: Entry, may_pass_on: bool) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let pending = Pending::in_ring(entry);
        let Some(request) = pending.request() else {
            // The kernel passes EIO to the requesting process.
            return tracing::error!("the kernel sent an invalid request");
        };
        let (header, route) = (request.header, self.route(request));
        if matches!(route, Route::Gate) || depends_on_forgets(request) {
            let _ = self.read_device();
        }
        let (handler, jobs) = match route {
            Route::Run(handler, Place::Notifier) => (handler, &self.notifiers),
            Route::Run(handler, Place::Pool | Place::PoolWithBuffer) if may_pass_on => (handler, &self.pool),
            Route::Run(handler, _) => return self.answer_entry(handler, pending),
            other => {
                self.settle(other, &header, pending);
                return;
            }
        };
        let wire = Arc::clone(self);
        jobs.run(move || wire.answer_entry(handler, pending));
    }

    /// Decides how a request is answered.
    fn route(&self, request: Request<'_>) -> Route {
        match request.header.opcode {
            opcode::FORGET | opcode::BATCH_FORGET => Route::Forget,
            opcode::FSYNC | opcode::FSYNCDIR => Route::Sync,
            opcode::GETXATTR if self.is_at_gate(request) => Route::Gate,
            opcode::DESTROY => Route::Last,
            opcode::OPEN | opcode::CREATE if !self.server.records_opens() => Route::Unsupported,
            _ => match handler(request) {
                None => Route::Unsupported,
                Some((handler, place)) => Route::Run(handler, place),
            },
        }
    }

    /// Answers a request that has no handler.
    fn settle(self: &Arc<Self>, route: Route, header: &InHeader, pending: Pending) -> Step {
        match route {
            Route::Sync => self.sync(header, pending),
            Route::Gate => self.wait_at_gate(header, pending),
            Route::Last => {
                pending.answer(Ok(&[]));
                return Step::Last;
            }
            Route::Forget | Route::Unsupported | Route::Run(..) => {
                pending.answer(Err(Errno(libc::ENOSYS)));
                return Step::Answered;
            }
        }
        Step::HandedOn
    }

    /// Passes the request in the first `len` bytes of `buffer` to the pool.
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

    /// Answers a request. If it lacks room, tries it again in another thread, after files were forgotten.
    fn answer(self: &Arc<Self>, handler: Handler, header: &InHeader, body: request::RequestBody<'_>) {
        if self.try_to_answer(self.first_attempt(), handler, header, body) {
            return;
        }
        let request = Request { header: *header, body };
        // A handler that waits for the kernel does so again.
        let is_notifier = self::handler(request).is_some_and(|(_, place)| place == Place::Notifier);
        let jobs = if is_notifier { &self.notifiers } else { &self.pool };
        let (wire, header, body) = (Arc::clone(self), *header, body.to_vec());
        self.repeated.fetch_add(1, Ordering::Relaxed);
        jobs.run(move || {
            wire.wait_until_read();
            wire.try_to_answer(Attempt::Last, handler, &header, request::RequestBody::new(&body));
            wire.repeated.fetch_sub(1, Ordering::Relaxed);
        });
    }

    /// Returns whether the request is answered. Only a first attempt that lacks room is not answered.
    fn try_to_answer(
        &self,
        attempt: Attempt,
        handler: Handler,
        header: &InHeader,
        body: request::RequestBody<'_>,
    ) -> bool {
        if let Some(ledger) = self.server.ledger() {
            return self.answer_in_turn(ledger, attempt, handler, header, body);
        }
        BODY.with_borrow_mut(|out| {
            let done = self.call(handler, header, body, out);
            if attempt.is_to_be_repeated(header, body, done) {
                return false;
            }
            self.note_end(header, body, done);
            self.pending(header).answer(done.map(|()| out.bytes()));
            true
        })
    }

    /// Answers a request that arrived through a ring.
    fn answer_entry(self: &Arc<Self>, handler: Handler, pending: Pending) {
        let call = || match pending.request() {
            Some(Request { header, body }) => {
                BODY.with_borrow_mut(|out| self.call(handler, &header, body, out))
            }
            None => Err(Errno(libc::EIO)),
        };
        let before = self.forgotten.load(Ordering::Acquire);
        let mut done = call();
        let lacks_room = pending
            .request()
            .is_some_and(|Request { header, body }| forgets::lacks_room(&header, body, done));
        if lacks_room && self.has_forgotten_since(before) {
            done = call();
        }
        if let Some(Request { header, body }) = pending.request() {
            self.note_end(&header, body, done);
        }
        BODY.with_borrow(|out| pending.answer(done.map(|()| out.bytes())));
    }

    fn run(
        &self,
        handler: Handler,
        header: &InHeader,
        body: request::RequestBody<'_>,
        out: &mut reply::ReplyBody,
    ) -> Reply<()> {
        let done = self.call(handler, header, body, out);
        self.note_end(header, body, done);
        done
    }

    fn call(
        &self,
        handler: Handler,
        header: &InHeader,
        body: request::RequestBody<'_>,
        out: &mut reply::ReplyBody,
    ) -> Reply<()> {
        out.clear();
        let sender = Sender { pid: header.pid, uid: header.uid, gid: header.gid };
        let _acting = needs_sender(header.opcode).then(|| self.server.act_for(sender));
        match self.is_exempt(header, body) {
            true => without_limits(|| guarded(|| handler(Call { wire: self, header, body, out }))),
            false => guarded(|| handler(Call { wire: self, header, body, out })),
        }
    }

    /// Returns whether no quota limits bind the process that sent a request. Requests contain the user, but not
    /// `CAP_SYS_RESOURCE`, which root usually has. A write of the kernel itself, from a mapping, names no user.
    fn is_exempt(&self, header: &InHeader, body: request::RequestBody<'_>) -> bool {
        let options = self.server.options();
        let is_root = header.uid == 0 || options.fakeroot;
        options.has_limits && is_root && !data::is_from_cache(header, body)
    }

    /// Notes an error of a request, and data that is lost because of it.
    fn note_end(&self, header: &InHeader, body: request::RequestBody<'_>, done: Reply<()>) {
        let Err(error) = done else { return };
        self.note_error(header.opcode, error);
        // These two concern one write, not the file: `fsync` and `close` report them, and the next write may succeed.
        let is_of_write = matches!(error.0, libc::EFBIG | libc::EPERM);
        if self.options.writeback && !is_of_write && data::is_from_cache(header, body) {
            self.note_failure(header.nodeid, error);
        }
    }

    /// Returns how long the kernel may cache attributes. The time is zero if the kernel must ask before each write
    /// ([`space`]). Otherwise the kernel updates them itself, with two exceptions. These are the allocated space of
    /// written pages, and the bits set-user-ID and set-group-ID, which the server clears when another user writes. A
    /// program must not get rights from a cleared bit, so the attributes of a file with these bits are not cached.
    fn attr_validity(&self, attr: &Attr, id: u64) -> Duration {
        if !attr.is_dir() && attr.mode.bits() & (Mode::SET_UID.bits() | Mode::SET_GID.bits()) != 0 {
            return NOT;
        }
        if attr.kind == FileKind::Regular && (self.space.is_gated() || self.server.failure(id).is_some()) {
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

/// Returns whether the recorder needs the process that sent a request.
///
/// READ is not among them. A process in execve(2) holds a lock while it reads its program, and `/proc/PID/stat` waits for
/// this lock.
fn needs_sender(opcode: u32) -> bool {
    opcode == opcode::OPEN || is_change(opcode)
}

/// Returns whether a process sends a request to change the volume. WRITE is not among them, because the kernel sends it for
/// cached data.
fn is_change(opcode: u32) -> bool {
    matches!(
        opcode,
        opcode::CREATE
            | opcode::TMPFILE
            | opcode::SETATTR
            | opcode::SYMLINK
            | opcode::MKNOD
            | opcode::MKDIR
            | opcode::UNLINK
            | opcode::RMDIR
            | opcode::RENAME
            | opcode::RENAME2
            | opcode::LINK
            | opcode::SETXATTR
            | opcode::REMOVEXATTR
            | opcode::IOCTL
            | opcode::FALLOCATE
            | opcode::COPY_FILE_RANGE
    )
}

/// Refuses all requests of a mount whose server has failed for good.
pub(crate) struct Refusal(Channel);

impl Refusal {
    /// Has the kernel send the requests again that the failed server has read.
    pub(crate) fn new(device: &Arc<OwnedFd>) -> Self {
        let channel = Channel(Arc::clone(device));
        channel.request_again();
        Self(channel)
    }

    /// Answers the request `bytes` with EIO.
    pub(crate) fn refuse(&self, bytes: &[u8]) {
        let Some(Request { header, .. }) = Request::parse(bytes) else { return };
        let pending = Pending::new(self.0.clone(), header.unique);
        match header.opcode {
            opcode::FORGET | opcode::BATCH_FORGET => pending.ignore(),
            opcode::DESTROY => pending.answer(Ok(&[])),
            _ => pending.answer(Err(Errno(libc::EIO))),
        }
    }
}

/// Returns whether the kernel, whose first request is `bytes`, offers to send requests through rings.
pub(crate) fn offers_rings(bytes: &[u8]) -> bool {
    Request::parse(bytes).is_some_and(|request| {
        request.header.opcode == opcode::INIT && init::offered(request.body) & init::OVER_IO_URING != 0
    })
}

/// Runs `act`. Fails with EIO if it panics, and logs the panic.
fn guarded<T>(act: impl FnOnce() -> Reply<T>) -> Reply<T> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|_| {
        tracing::error!("a request fails because of a bug in obento");
        Err(Errno(libc::EIO))
    })
}

/// Returns the handler of a request and its thread; `None` for an unsupported request.
fn handler(request: Request<'_>) -> Option<(Handler, Place)> {
    let here = |handler: Handler| Some((handler, Place::Here));
    let notifier = |handler: Handler| Some((handler, Place::Notifier));
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
        opcode::OPEN => here(names::open),
        opcode::CREATE => here(names::create),
        opcode::RELEASE => here(names::release),
        opcode::SETXATTR => here(inodes::setxattr),
        opcode::GETXATTR => here(inodes::getxattr),
        opcode::LISTXATTR => here(inodes::listxattr),
        opcode::REMOVEXATTR => here(inodes::removexattr),
        opcode::READDIR => here(listing::readdir),
        opcode::READDIRPLUS => here(listing::readdirplus),
        opcode::IOCTL => Some((inodes::ioctl, inodes::place_of_ioctl(request.body))),
        opcode::FALLOCATE => notifier(data::fallocate),
        opcode::LSEEK => notifier(data::lseek),
        opcode::COPY_FILE_RANGE => notifier(data::copy_file_range),
        _ => None,
    }
}
