//! The side of the server: it accepts connections, and reports the end of the mount.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{Shutdown, SocketFlags};

use super::folders::{Folders, name};
use super::{SAID_MAX, SIGN};
use crate::mountinfo::MountPoint;
use crate::pauser::Pauser;

/// The number of processes that may wait for the end of one mount. Further connections are closed.
const WAITING_MAX: usize = 64;
/// The time between two signs of a server that ends.
const SIGN_EVERY: Duration = Duration::from_secs(5);
/// The length of the queue of connections, which the kernel limits to net.core.somaxconn.
const QUEUE: i32 = 4096;

/// The socket of a server, on which no connections are accepted yet.
#[derive(Debug)]
pub struct UnmountListener {
    pub(super) listener: UnixListener,
    user: u32,
    waiting: Vec<OwnedFd>,
    /// Stops the thread that accepts connections. A process that gave up its rights cannot create one.
    pauser: Pauser,
    /// Makes the thread send signs to the waiting processes.
    closing: Pauser,
    /// The time between two signs.
    pub(super) every: Duration,
}

impl UnmountListener {
    /// Returns the socket and the connections of waiting processes, for another server of the mount.
    pub fn descriptors(&self) -> (BorrowedFd<'_>, Vec<BorrowedFd<'_>>) {
        (self.listener.as_fd(), self.waiting.iter().map(AsFd::as_fd).collect())
    }

    /// Listens for the processes that will wait for the end of `mount`. Fails if no private folder can be created, or
    /// with the errors of the socket.
    pub fn listen(mount: &MountPoint) -> io::Result<Self> {
        Self::listen_in(&Folders::of(rustix::process::geteuid().as_raw()), mount)
    }

    pub(super) fn listen_in(folders: &Folders, mount: &MountPoint) -> io::Result<Self> {
        let listener = folders.bind(&name(mount))?;
        Self::new(listener, folders.user, Vec::new())
    }

    /// Continues with the socket and the waiting processes that another server of the same mount passed on.
    /// Fails if the process can open no more files.
    pub fn adopt(listener: OwnedFd, waiting: Vec<OwnedFd>) -> io::Result<Self> {
        let user = rustix::process::geteuid().as_raw();
        Self::new(listener.into(), user, waiting)
    }

    /// Makes this process the one that [`ServerWait::process`](super::ServerWait::process) returns, which is otherwise the
    /// process that created the socket. A process calls this after it has taken the mount, and before it gives up its
    /// rights. If the system call fails, only the process in messages is wrong.
    pub fn take_over(&self) {
        take_over(&self.listener);
    }

    fn new(listener: UnixListener, user: u32, waiting: Vec<OwnedFd>) -> io::Result<Self> {
        let (pauser, closing) = (Pauser::new()?, Pauser::new()?);
        Ok(Self { listener, user, waiting, pauser, closing, every: SIGN_EVERY })
    }

    /// Starts a thread that accepts connections, so that the queue never fills. Fails with the errors of starting a
    /// thread.
    pub fn attend(self) -> io::Result<ServingListener> {
        let Self { listener, user, waiting, pauser, closing, every } = self;
        pauser.withdraw();
        let attendant = Attendant {
            listener: listener.try_clone()?,
            user,
            waiting,
            pauser: pauser.clone(),
            closing: closing.clone(),
            every: Timespec::try_from(every).unwrap_or(Timespec { tv_sec: 5, tv_nsec: 0 }),
        };
        let thread = std::thread::Builder::new().name("unmount".into());
        let thread = thread.spawn(move || attendant.accept_all())?;
        Ok(ServingListener { listener, user, thread, pauser, closing, every })
    }
}

/// Makes this process the peer of later connections to `socket`: the kernel stores the process that called
/// listen(2) last. Source: unix(7), SO_PEERCRED.
pub(super) fn take_over(socket: impl AsFd) {
    let _ = rustix::net::listen(socket, QUEUE);
}

/// The state of the thread that accepts connections.
struct Attendant {
    listener: UnixListener,
    user: u32,
    waiting: Vec<OwnedFd>,
    pauser: Pauser,
    closing: Pauser,
    every: Timespec,
}

impl Attendant {
    /// Accepts connections until the listener is shut down or a pause is requested. Returns the connections of the
    /// waiting processes.
    fn accept_all(mut self) -> Vec<OwnedFd> {
        loop {
            let is_closing = self.closing.is_requested();
            if is_closing {
                self.send_signs();
            }
            let has_connection = self.wait(is_closing);
            if self.pauser.is_requested() {
                return self.waiting;
            }
            if !has_connection {
                continue;
            }
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::accept_with(&self.listener, flags) {
                Ok(stream) => self.admit(stream),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
                    if !self.waiting.is_empty() =>
                {
                    self.waiting.remove(0);
                }
                Err(_) => return self.waiting,
            }
        }
    }

    fn admit(&mut self, stream: OwnedFd) {
        self.waiting.retain(is_open);
        let peer = socket_peercred(&stream).map(|peer| peer.uid.as_raw());
        let may_wait = peer.is_ok_and(|peer| peer == 0 || peer == self.user);
        if may_wait && self.waiting.len() < WAITING_MAX {
            self.waiting.push(stream);
        }
    }

    /// Reports to the waiting processes that the server is still writing. The buffer of a process that does
    /// not read fills, which does no harm.
    fn send_signs(&self) {
        for stream in &self.waiting {
            let _ = rustix::net::send(stream, &[SIGN], rustix::net::SendFlags::NOSIGNAL);
        }
    }

    /// Waits until a process connects, the listener is shut down, a pause is requested, or the next signs are due.
    /// Returns whether the listener is ready.
    fn wait(&self, is_closing: bool) -> bool {
        let ready = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let [listener, pauser, closing] =
            [self.listener.as_fd(), self.pauser.as_fd(), self.closing.as_fd()].map(ready);
        // After the request to close, its descriptor stays ready.
        let (mut waited, every) = match is_closing {
            true => (vec![listener, pauser], Some(&self.every)),
            false => (vec![listener, pauser, closing], None),
        };
        poll(&mut waited, every).is_ok() && waited.first().is_some_and(|first| !first.revents().is_empty())
    }
}

/// Returns whether the other side is still connected.
fn is_open(stream: &OwnedFd) -> bool {
    let mut look = [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut look, Some(&now)), Ok(0))
}

/// The server's side while connections are accepted.
#[derive(Debug)]
pub struct ServingListener {
    listener: UnixListener,
    user: u32,
    thread: JoinHandle<Vec<OwnedFd>>,
    pauser: Pauser,
    closing: Pauser,
    every: Duration,
}

impl ServingListener {
    /// Stops accepting connections, which wait in the kernel from now on.
    pub fn pause(self) -> UnmountListener {
        self.pauser.request();
        UnmountListener {
            listener: self.listener,
            user: self.user,
            waiting: self.thread.join().unwrap_or_default(),
            pauser: self.pauser,
            closing: self.closing,
            every: self.every,
        }
    }

    /// Sends signs to the waiting processes until the result is sent: the mount has ended, and changes are written.
    pub fn begin_closing(&self) {
        self.closing.request();
    }

    /// Sends the result to all waiting processes: `problem`, or success. Stops accepting connections before the first
    /// process receives it.
    pub fn say(self, problem: Option<&str>) {
        let _ = rustix::net::shutdown(&self.listener, Shutdown::Both);
        drop(self.listener);
        for stream in self.thread.join().unwrap_or_default() {
            // A process that no longer waits needs no result. The buffer of a waiting process has room.
            let said = problem.map_or(&[0][..], str::as_bytes);
            let said = said.get(..SAID_MAX as usize).unwrap_or(said);
            let _ = rustix::net::send(&stream, said, rustix::net::SendFlags::NOSIGNAL);
        }
    }
}
