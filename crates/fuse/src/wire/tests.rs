//! Requests and replies through a socket instead of `/dev/fuse`.

use obento_base::{DeviceNumber, Name};
use obento_driver::NewNode;
use obento_env::SystemClock;
use obento_tmpfs::{Options, Tmpfs};
use obento_vfs::{Caller, Vfs};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::abi::WRITE_CACHE;
use super::reply::ReplyBody;
use super::request::RequestBody;
use super::*;
use crate::handover::GateState;
use crate::nodes::ROOT;
use crate::pool;
use crate::server::ServerOptions;

const NO_SPACE: Errno = Errno(libc::ENOSPC);

/// A new regular file.
const NEW: NewNode<'_> = NewNode {
    kind: FileKind::Regular,
    mode: Mode::new(0o644),
    uid: 0,
    gid: 0,
    rdev: DeviceNumber { major: 0, minor: 0 },
    target: b"",
};

/// A server, and the kernel's end of its connection.
struct Bench {
    wire: Arc<Wire>,
    kernel: OwnedFd,
    /// The node ID of a file.
    file: u64,
}

impl Bench {
    fn new() -> Self {
        Self::refusing(None)
    }

    /// Has the next write to the file refused with this error.
    fn refusing(error: Option<Errno>) -> Self {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (device, kernel) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let vfs = Vfs::new(Arc::new(Tmpfs::new(Options::new(Arc::new(SystemClock)))));
        let name = Name::new(b"file").unwrap();
        let file = vfs.create(&Caller::Owner, &vfs.root(), name, &NEW).unwrap();
        file.write_at(0, b"x").unwrap();
        let server = Arc::new(Server::new(vfs, ServerOptions::default()));
        let file = server.lookup(ROOT, b"file").unwrap().unwrap().id;
        // Without a queue, jobs run in the calling thread.
        let [pool, notifiers] = [pool::queue().0, pool::queue().0];
        let refused = error.map(|error| (file, 0, error.0)).into_iter().collect();
        let gate = GateState { refused, ..GateState::default() };
        let state = SessionState { writeback: true, gate, ..SessionState::default() };
        let (device, pools) = (Arc::new(device), Pools { pool, notifiers });
        let wire = Wire::resume(&device, server, SessionOptions::default(), pools, &state);
        Self { wire: Arc::new(wire), kernel, file }
    }

    fn header(&self, opcode: u32, body: usize) -> InHeader {
        let len = u32::try_from(size_of::<InHeader>() + body).unwrap();
        let nodeid = self.file;
        InHeader { len, opcode, unique: 2, nodeid, uid: 0, gid: 0, pid: 0, total_extlen: 0, padding: 0 }
    }

    /// Has a request answered. Returns the number of replies, and the error of the last one.
    fn replies(&self, handler: Handler, opcode: u32, body: &[u8]) -> (usize, i32) {
        self.wire.answer(handler, &self.header(opcode, body.len()), RequestBody::new(body));
        let mut buffer = [0_u8; 512];
        let replies = std::iter::from_fn(|| rustix::io::read(&self.kernel, &mut buffer).ok()).count();
        (replies, i32::from_ne_bytes(buffer[4..8].try_into().unwrap()))
    }

    /// Sends a FORGET request without an effect on the file.
    fn send_forget(&self) {
        let mut bytes = Vec::new();
        bytes.extend(48_u32.to_ne_bytes());
        bytes.extend(opcode::FORGET.to_ne_bytes());
        bytes.extend([0_u64, u64::MAX, 0, 0, 1].into_iter().flat_map(u64::to_ne_bytes));
        assert_eq!(rustix::io::write(&self.kernel, &bytes), Ok(48));
    }

    /// Answers a WRITE request by `act`, and returns the result and the number of messages that the kernel
    /// gets.
    fn write(
        &self,
        flags: u32,
        act: impl FnOnce(&InHeader, RequestBody<'_>, &mut ReplyBody) -> Reply<()>,
    ) -> (Reply<()>, usize) {
        let mut body = [0_u8; 41];
        body[16..20].copy_from_slice(&1_u32.to_ne_bytes());
        body[20..24].copy_from_slice(&flags.to_ne_bytes());
        let header = self.header(opcode::WRITE, body.len());
        let done = act(&header, RequestBody::new(&body), &mut ReplyBody::default());
        let mut buffer = [0_u8; 1024];
        let messages = std::iter::from_fn(|| rustix::io::read(&self.kernel, &mut buffer[..]).ok());
        (done, messages.count())
    }
}

fn full(_: Call<'_>) -> Reply<()> {
    Err(NO_SPACE)
}

#[test]
fn a_forget_request_counts_whichever_thread_has_read_it() {
    let bench = Bench::new();
    let wire = &bench.wire;
    let before = wire.forgotten.load(Ordering::Acquire);
    assert!(!wire.has_forgotten_since(before));
    bench.send_forget();
    assert!(wire.has_forgotten_since(before));
    let before = wire.forgotten.load(Ordering::Acquire);
    bench.send_forget();
    let read = std::thread::scope(|scope| scope.spawn(|| wire.read_device().unwrap()).join().unwrap());
    assert_eq!(read, Some(1));
    assert!(wire.has_forgotten_since(before));
    assert!(!wire.has_forgotten_since(wire.forgotten.load(Ordering::Acquire)));
}

#[test]
fn gathered_data_is_lost_once_when_the_last_attempt_to_write_it_fails() {
    let bench = Bench::new();
    let (wire, file) = (&bench.wire, bench.file);
    let first = bench.write(WRITE_CACHE, |header, body, out| wire.call(full, header, body, out));
    assert_eq!((first, wire.server.failure(file)), ((Err(NO_SPACE), 0), None));
    let again = bench.write(WRITE_CACHE, |header, body, out| wire.run(data::write, header, body, out));
    assert_eq!((again.0, wire.server.failure(file)), (Ok(()), None));
    // The only message invalidates the attributes, so that the next write reports the loss.
    let last = bench.write(WRITE_CACHE, |header, body, out| wire.run(full, header, body, out));
    assert_eq!((last, wire.server.failure(file)), ((Err(NO_SPACE), 1), Some(NO_SPACE)));
    wire.server.end_failure(file);
    let direct = bench.write(0, |header, body, out| wire.run(full, header, body, out));
    assert_eq!((direct, wire.server.failure(file)), ((Err(NO_SPACE), 0), None));
}

/// Finds room in the second attempt.
fn full_at_first(call: Call<'_>) -> Reply<()> {
    match call.wire.forgotten.fetch_add(1, Ordering::Relaxed) {
        0 => Err(NO_SPACE),
        _ => Ok(()),
    }
}

#[test]
fn a_request_that_lacks_room_is_tried_again_and_answered_once() {
    let bench = Bench::new();
    assert_eq!(bench.replies(full_at_first, opcode::MKDIR, &[]), (1, 0));
    assert_eq!(bench.wire.forgotten.load(Ordering::Relaxed), 2);
    assert_eq!(bench.replies(full, opcode::MKDIR, &[]), (1, -libc::ENOSPC));
}

#[test]
fn the_refusal_of_a_write_is_not_repeated_since_the_write_would_pass() {
    let bench = Bench::refusing(Some(NO_SPACE));
    let nothing = [0; size_of::<abi::SetattrIn>()];
    assert_eq!(bench.replies(inodes::setattr, opcode::SETATTR, &nothing), (1, -libc::ENOSPC));
    assert_eq!(bench.replies(inodes::setattr, opcode::SETATTR, &nothing), (1, 0));
}

#[test]
fn a_change_that_may_have_moved_data_is_not_repeated() {
    let bench = Bench::new();
    let allocate = |mode: i32| {
        let mut body = [0; size_of::<abi::FallocateIn>()];
        body[24..28].copy_from_slice(&mode.to_ne_bytes());
        bench.wire.forgotten.store(0, Ordering::Relaxed);
        bench.replies(full_at_first, opcode::FALLOCATE, &body)
    };
    assert_eq!(allocate(libc::FALLOC_FL_KEEP_SIZE), (1, 0));
    for mode in [libc::FALLOC_FL_INSERT_RANGE, libc::FALLOC_FL_COLLAPSE_RANGE] {
        assert_eq!(allocate(mode), (1, -libc::ENOSPC));
    }
}
