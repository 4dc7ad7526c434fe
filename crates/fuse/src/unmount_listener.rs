//! Waiting for the end of a server. umount(2) returns before the server has written its last changes.
//!
//! A server listens on a socket in a folder that only its user can enter. The name of the socket is derived
//! from the device number, the source and the mount point. The device number alone is not enough: the kernel
//! reuses it for the next mount while the old server is still writing. The path of the mount point changes if a
//! directory above it is renamed, and it differs in other mount namespaces. If no socket has the present path in its
//! name, the newest socket of the file system is that of the mount. The unmounting process connects before
//! it unmounts, and reads until the server has closed the volume. From the end of the mount on, a server
//! sends a byte 1 every few seconds. The waiting process can thus distinguish a slow server from a stopped
//! one. A byte 0 followed by the end of the stream means that all changes are durable. Any other text is an
//! error message. An end without a byte 0 or a text means that the server was killed.
//! Invariant: no other user can create the socket or fill its queue: the folder belongs to the user of the mount and
//! has mode 0700.
//! Invariant: a process trusts only a server of root or of the mount's owner, and a server answers only these two
//! users.
//! Invariant: a process connects to no server of another file system. It follows no link in the folder, requires that the
//! socket belongs to the user of the folder, and compares the name that the server bound with the mount.
//! Invariant: no process waits without a time limit for a process of another user.
//! Locking: a process that replaces or removes a socket holds a lock (flock) on the folder.
//! Source: unix(7), SO_PEERCRED; getpeername(2); connect(2), SO_SNDTIMEO; file-hierarchy(7), `/run/user/UID`.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType};

use crate::mountinfo::MountPoint;
use crate::pauser::Pauser;

/// The number of processes that may wait for the end of one mount. Further connections are closed.
const WAITING_MAX: usize = 64;
/// The start of the name that servers of earlier versions bound for every file system, before they renamed the socket.
const EARLIER_NAME: &[u8] = b"new-";
/// The longest time that all servers together may take to accept a connection.
const ANSWER: Duration = Duration::from_secs(10);
/// The time between two signs of a server that ends.
const SIGN_EVERY: Duration = Duration::from_secs(5);
/// The sign that a server is still writing. No text contains it.
const SIGN: u8 = 1;
/// The length of the queue of connections, which the kernel limits to net.core.somaxconn.
const QUEUE: i32 = 4096;
/// The longest message of a server, in bytes.
const SAID_MAX: u64 = 4096;

/// The folders of the sockets of one user's mounts.
#[derive(Clone, Debug)]
pub struct Folders {
    user: u32,
    /// In order of preference.
    paths: Vec<PathBuf>,
}

impl Folders {
    /// Returns the folders of `user`. A user without a session has no `/run/user/UID`; a folder in `/tmp` replaces it.
    pub fn of(user: u32) -> Self {
        let first = if user == 0 { "/run/obento".into() } else { format!("/run/user/{user}/obento") };
        Self::at(user, first.into(), Path::new("/tmp"))
    }

    /// Returns the folder `first`, and the folders of `user` in `shared`, in which other users can create files.
    fn at(user: u32, first: PathBuf, shared: &Path) -> Self {
        let start = shared.join(format!(".obento-{user}"));
        let mut folders = Self { user, paths: vec![first, start] };
        let others = std::fs::read_dir(shared).into_iter().flatten().flatten();
        let prefix = format!(".obento-{user}-");
        let others = others.filter(|entry| entry.file_name().as_bytes().starts_with(prefix.as_bytes()));
        let mut others: Vec<_> = others.map(|entry| entry.path()).collect();
        others.retain(|path| folders.open(path).is_ok());
        others.sort();
        folders.paths.append(&mut others);
        folders
    }

    /// Opens the first folder that exists or can be created. In `/tmp`, another user can have taken the usual name; then
    /// the name is random. Fails with the error of the last folder otherwise.
    fn create(&self) -> io::Result<(PathBuf, OwnedFd)> {
        let mut failed = io::Error::from(io::ErrorKind::NotFound);
        // Another user cannot take this name.
        let unknown = self.paths.get(1).map(|path| path.with_file_name(self.unknown_name()));
        for path in self.paths.iter().chain(&unknown) {
            // An existing folder is checked when it is opened.
            let _ = rustix::fs::mkdir(path, Mode::RWXU);
            match self.open(path) {
                Ok(folder) => return Ok((path.clone(), folder)),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    fn unknown_name(&self) -> String {
        let seed = std::collections::hash_map::RandomState::new();
        format!(".obento-{}-{:016x}", self.user, std::hash::BuildHasher::hash_one(&seed, std::process::id()))
    }

    /// Opens `path`. Fails if the folder belongs to another user, or if other users have permissions for it.
    fn open(&self, path: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&folder)?;
        if stat.st_uid == self.user && stat.st_mode & 0o077 == 0 {
            return Ok(folder);
        }
        let why = format!("'{}' is not a private directory of user {}; remove it", path.display(), self.user);
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    }

    /// Returns a socket that listens under `name`, in place of an earlier one.
    pub(crate) fn bind(&self, name: &str) -> io::Result<UnixListener> {
        self.sweep();
        let (path, folder) = self.create()?;
        rustix::fs::flock(&folder, FlockOperation::LockExclusive)?;
        // The socket gets its name only after it listens, so that no process is refused by a running server. The peers of
        // the server see the first name, which therefore contains the file system.
        let new = path.join(format!("{name}.{}", std::process::id()));
        let _ = rustix::fs::unlink(&new);
        let listener = UnixListener::bind(&new)?;
        rustix::fs::rename(&new, path.join(name))?;
        Ok(listener)
    }

    /// Connects to the socket for `mount` of root or of the user of the folders. The name of the socket ends with `end`.
    pub(crate) fn connect(&self, mount: &MountPoint, end: &str) -> Result<UnixStream, NoServer> {
        self.connect_within(mount, end, ANSWER)
    }

    /// Waits at most `longest`, however many folders have sockets that accept no connection.
    fn connect_within(
        &self,
        mount: &MountPoint,
        end: &str,
        longest: Duration,
    ) -> Result<UnixStream, NoServer> {
        let until = Instant::now() + longest;
        let mut failed = NoServer::Nobody;
        for path in &self.paths {
            let Ok(folder) = self.open(path) else { continue };
            let file_system = file_system(mount);
            let connect = |name: &OsStr| {
                let rest = until.saturating_duration_since(Instant::now());
                self.connect_to(&folder, name, &file_system, rest)
            };
            let connected = match connect(OsStr::new(&(name(mount) + end))) {
                Err(Errno::NOENT) => match newest(&listing(&folder), &file_system, end) {
                    Some(socket) => connect(&socket),
                    None => continue,
                },
                connected => connected,
            };
            match connected {
                Ok(stream) => {
                    let peer = socket_peercred(&stream).map_err(|_| NoServer::Silent)?.uid.as_raw();
                    let is_believed = peer == 0 || peer == self.user;
                    return if is_believed { Ok(stream) } else { Err(NoServer::Foreign(peer)) };
                }
                Err(Errno::AGAIN | Errno::TIMEDOUT | Errno::INPROGRESS) => failed = NoServer::Silent,
                Err(_) => {}
            }
        }
        Err(failed)
    }

    /// Connects to the socket `name` in `folder`. Fails with NOTSOCK if it is a link or another file, and with ADDRNOTAVAIL
    /// if it was bound for another file system or belongs to another user than the folder.
    fn connect_to(
        &self,
        folder: &OwnedFd,
        name: &OsStr,
        file_system: &str,
        longest: Duration,
    ) -> Result<UnixStream, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let socket = rustix::fs::openat(folder, name, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&socket)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
            return Err(Errno::NOTSOCK);
        }
        if stat.st_uid != self.user {
            return Err(Errno::ADDRNOTAVAIL);
        }
        let path = format!("/proc/self/fd/{}", socket.as_raw_fd());
        let stream = connect(Path::new(&path), longest)?;
        // The kernel returns the name that the server bound. An entry of the folder can have been renamed.
        let bound = stream.peer_addr().ok();
        let bound = bound.as_ref().and_then(|address| address.as_pathname()?.file_name());
        let is_ours =
            |bound: &[u8]| bound.starts_with(file_system.as_bytes()) || bound.starts_with(EARLIER_NAME);
        if bound.is_some_and(|bound| is_ours(bound.as_bytes())) {
            Ok(stream)
        } else {
            Err(Errno::ADDRNOTAVAIL)
        }
    }

    /// Removes the sockets on which no process listens any more.
    pub fn sweep(&self) {
        for path in &self.paths {
            let Ok(folder) = self.open(path) else { continue };
            if rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive).is_err() {
                continue;
            }
            for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
                if connect(&entry.path(), Duration::ZERO).is_err_and(|errno| errno == Errno::CONNREFUSED) {
                    let name = entry.file_name();
                    let _ = rustix::fs::unlinkat(&folder, name, AtFlags::empty());
                }
            }
        }
    }
}

/// Returns the name of the socket for `mount`. The name is short, because the path of a socket has at most 107 bytes.
pub(crate) fn name(mount: &MountPoint) -> String {
    format!("{}{}", file_system(mount), hash(&mount.path))
}

/// Returns the part of [`name`] that does not depend on the mount point.
fn file_system(mount: &MountPoint) -> String {
    format!("{}-{}-", mount.device, hash(&mount.source))
}

/// Returns 16 digits.
fn hash(path: &Path) -> String {
    // FNV-1a, 64 bits. A collision needs the same device number, too.
    let (basis, prime) = (0xcbf2_9ce4_8422_2325_u64, 0x100_0000_01b3);
    let bytes = path.as_os_str().as_bytes().iter();
    let hash = bytes.fold(basis, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(prime));
    format!("{hash:016x}")
}

/// Returns a path by which the entries of `folder` are listed.
fn listing(folder: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", folder.as_raw_fd()).into()
}

/// Returns the name of the newest socket in `folder` whose name is `start`, the hash of a path, and `end`. An older one belongs to a
/// mount that has ended, because the kernel reuses a device number only then.
fn newest(folder: &Path, start: &str, end: &str) -> Option<OsString> {
    let is_hash = |text: &str| text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let sockets = std::fs::read_dir(folder).ok()?.flatten().filter(|entry| {
        let name = entry.file_name();
        let name = name.to_str().and_then(|name| name.strip_prefix(start)?.strip_suffix(end));
        name.is_some_and(is_hash)
    });
    let bound = |entry: &std::fs::DirEntry| entry.metadata().and_then(|socket| socket.modified()).ok();
    sockets.max_by_key(bound).map(|entry| entry.file_name())
}

/// Connects to the socket at `path`. Fails with AGAIN if the queue stays full for `longest`, or with the errors of
/// connect(2).
fn connect(path: &Path, longest: Duration) -> Result<UnixStream, Errno> {
    let nonblocking = if longest.is_zero() { SocketFlags::NONBLOCK } else { SocketFlags::empty() };
    let flags = SocketFlags::CLOEXEC | nonblocking;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    if !longest.is_zero() {
        set_socket_timeout(&socket, Timeout::Send, Some(longest))?;
    }
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

/// The server's side.
#[derive(Debug)]
pub struct UnmountListener {
    listener: UnixListener,
    user: u32,
    waiting: Vec<OwnedFd>,
    /// Stops the thread that accepts connections. A process that gave up its rights cannot create one.
    pauser: Pauser,
    /// Makes the thread send signs to the waiting processes.
    closing: Pauser,
    /// The time between two signs.
    every: Duration,
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

    fn listen_in(folders: &Folders, mount: &MountPoint) -> io::Result<Self> {
        let listener = folders.bind(&name(mount))?;
        Self::new(listener, folders.user, Vec::new())
    }

    /// Continues with the socket and the waiting processes that another server of the same mount passed on.
    /// Fails if the process can open no more files.
    pub fn adopt(listener: OwnedFd, waiting: Vec<OwnedFd>) -> io::Result<Self> {
        let user = rustix::process::geteuid().as_raw();
        Self::new(listener.into(), user, waiting)
    }

    /// Makes this process the one that [`ServerWait::process`] returns, which is otherwise the process that
    /// created the socket. A process calls this after it has taken the mount, and before it gives up its
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
fn take_over(socket: impl AsFd) {
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

/// The end of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All changes are on stable storage, and the volume is clean.
    Durable,
    /// The server could not write all changes. The text is its message.
    Failed(String),
    /// The server ended without a result.
    Gone,
    /// The server has not ended within the time limit, but is still writing.
    Late,
    /// The server has sent no sign for the time limit of signs.
    Silent,
}

/// The reason why a process cannot wait for a server.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoServer {
    /// The socket does not exist, or no process listens on it.
    #[error("the server of the mount has ended, or is too old to reply")]
    Nobody,
    /// The server does not accept the connection.
    #[error("the server of the mount does not respond")]
    Silent,
    /// The server is a process of another user.
    #[error("the server of the mount belongs to user {0}")]
    Foreign(u32),
}

/// The side of the process that waits.
#[derive(Debug)]
pub struct ServerWait(UnixStream);

impl ServerWait {
    /// Connects to the server of `mount`.
    pub fn connect(mount: &MountPoint) -> Result<Self, NoServer> {
        let owner = mount.owner().unwrap_or_else(|| rustix::process::geteuid().as_raw());
        Self::connect_in(&Folders::of(owner), mount)
    }

    fn connect_in(folders: &Folders, mount: &MountPoint) -> Result<Self, NoServer> {
        folders.connect(mount, "").map(Self)
    }

    /// Returns the process that had the mount when this one connected; `None` if it is not visible from here.
    pub fn process(&self) -> Option<i32> {
        socket_peercred(&self.0).ok().map(|peer| peer.pid.as_raw_nonzero().get())
    }

    /// Waits until the server has ended, for at most `longest`, and for at most `silence` without a sign of it.
    pub fn finish(mut self, longest: Duration, silence: Duration) -> Outcome {
        let end = Instant::now() + longest;
        let mut last_sign = Instant::now();
        let (mut said, mut buffer) = (Vec::new(), [0; SAID_MAX as usize]);
        while said.len() < buffer.len() {
            let now = Instant::now();
            let (left, quiet) =
                (end.saturating_duration_since(now), (last_sign + silence).saturating_duration_since(now));
            if left.is_zero() {
                return Outcome::Late;
            }
            if quiet.is_zero() || self.0.set_read_timeout(Some(left.min(quiet))).is_err() {
                return Outcome::Silent;
            }
            match self.0.read(&mut buffer) {
                Ok(0) => break,
                Ok(len) => {
                    let text = &buffer[..len];
                    let signs = if said.is_empty() {
                        text.iter().take_while(|&&byte| byte == SIGN).count()
                    } else {
                        0
                    };
                    said.extend_from_slice(&text[signs..]);
                    last_sign = Instant::now();
                }
                // The limits are checked again.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) => {}
                Err(_) => break,
            }
        }
        match said.first() {
            None => Outcome::Gone,
            Some(0) => Outcome::Durable,
            Some(_) => Outcome::Failed(String::from_utf8_lossy(&said).into_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::{Command, Stdio};

    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const EPOCH: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

    fn mount(source: &str, path: &str) -> MountPoint {
        MountPoint {
            id: 1,
            device: "9999:1".into(),
            path: path.into(),
            fs_type: "fuse.obento".into(),
            source: source.into(),
            flags: String::new(),
            options: format!("rw,user_id={}", rustix::process::geteuid().as_raw()),
        }
    }

    fn folders(folder: &tempfile::TempDir) -> Folders {
        Folders { user: rustix::process::geteuid().as_raw(), paths: vec![folder.path().join("sockets")] }
    }

    fn listen(folders: &Folders, mount: &MountPoint) -> ServingListener {
        UnmountListener::listen_in(folders, mount).unwrap().attend().unwrap()
    }

    #[test]
    fn a_waiting_process_learns_the_end_of_its_mount_while_an_earlier_server_with_its_number_still_writes() {
        let folder = tempfile::tempdir().unwrap();
        let folders = folders(&folder);
        let long = format!("/{}", "long/".repeat(40));
        let before = mount("disk.img", &format!("{long}/a"));
        for after in [mount("disk.img", &format!("{long}/b")), mount("other.img", &format!("{long}/a"))] {
            let (writes, ends) = (listen(&folders, &before), listen(&folders, &after));
            let waiting = ServerWait::connect_in(&folders, &after).unwrap();
            ends.say(None);
            assert_eq!(waiting.finish(LONG, LONG), Outcome::Durable);
            let waiting = ServerWait::connect_in(&folders, &before).unwrap();
            writes.say(Some("no space"));
            assert_eq!(waiting.finish(LONG, LONG), Outcome::Failed("no space".into()));
        }
    }

    #[test]
    fn the_server_of_a_mount_is_found_after_a_directory_above_the_mount_point_was_renamed() {
        let folder = tempfile::tempdir().unwrap();
        let folders = folders(&folder);
        let [before, after] = ["/old/mnt", "/new/mnt"].map(|path| mount("disk.img", path));
        let [other_source, other_device] = [mount("other.img", "/b"), mount("disk.img", "/c")];
        let other_device = MountPoint { device: "9999:12".into(), ..other_device };
        let ended = listen(&folders, &mount("disk.img", "/ended/mnt"));
        // The clock of a file system may not distinguish the two sockets.
        let long_ago = Timestamps { last_access: EPOCH, last_modification: EPOCH };
        for socket in std::fs::read_dir(&folders.paths[0]).unwrap() {
            rustix::fs::utimensat(CWD, socket.unwrap().path(), &long_ago, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        }
        let serves = listen(&folders, &before);
        let others = [&other_source, &other_device].map(|mount| listen(&folders, mount));
        let waiting = ServerWait::connect_in(&folders, &after).unwrap();
        ended.say(Some("an earlier mount"));
        others.into_iter().for_each(|other| other.say(Some("another file system")));
        serves.say(None);
        assert_eq!(waiting.finish(LONG, LONG), Outcome::Durable);
        assert_eq!(ServerWait::connect_in(&folders, &after).unwrap_err(), NoServer::Nobody);
    }

    #[test]
    fn a_user_whose_folder_another_user_has_taken_gets_one_that_clients_find() {
        let folder = tempfile::tempdir().unwrap();
        let user = rustix::process::geteuid().as_raw();
        let folders = || Folders::at(user, folder.path().join("missing/obento"), folder.path());
        // It is not private, as the folder of another user would not be.
        std::fs::create_dir(folder.path().join(format!(".obento-{user}"))).unwrap();
        let mount = mount("disk.img", "/mnt");
        let server = listen(&folders(), &mount);
        let waiting = ServerWait::connect_in(&folders(), &mount).unwrap();
        server.say(None);
        assert_eq!(waiting.finish(LONG, LONG), Outcome::Durable);
        drop(listen(&folders(), &mount));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "the folder is used again");
    }

    #[test]
    fn after_the_end_of_a_mount_the_same_mount_is_possible_and_old_sockets_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (folders, mount) = (folders(&folder), mount("disk.img", "/again"));
        for _ in 0..3 {
            let server = listen(&folders, &mount);
            let waiting = ServerWait::connect_in(&folders, &mount).unwrap();
            server.say(None);
            assert_eq!(waiting.finish(LONG, LONG), Outcome::Durable);
            assert_eq!(ServerWait::connect_in(&folders, &mount).unwrap_err(), NoServer::Nobody);
            drop(UnmountListener::listen_in(&folders, &mount).unwrap());
        }
        folders.sweep();
        assert_eq!(std::fs::read_dir(&folders.paths[0]).unwrap().count(), 0);
    }

    #[test]
    fn a_waiting_process_receives_the_end_from_the_server_that_took_over_the_mount() {
        let folder = tempfile::tempdir().unwrap();
        let (folders, mount) = (folders(&folder), mount("disk.img", "/passed"));
        let first = listen(&folders, &mount);
        let before = ServerWait::connect_in(&folders, &mount).unwrap();
        let paused = first.pause();
        let meanwhile = ServerWait::connect_in(&folders, &mount).unwrap();
        let (listener, waiting) = paused.descriptors();
        let own = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().unwrap();
        let second = UnmountListener::adopt(own(listener), waiting.into_iter().map(own).collect());
        let second = second.unwrap().attend().unwrap();
        let after = ServerWait::connect_in(&folders, &mount).unwrap();
        second.say(None);
        drop(paused);
        for waiting in [before, meanwhile, after] {
            assert!(matches!(waiting.finish(LONG, LONG), Outcome::Durable | Outcome::Gone));
        }
    }

    #[test]
    fn the_process_that_took_over_the_mount_last_is_reported() {
        const IS_OTHER: &str = "OBENTO_TEST_TAKES_OVER";
        if std::env::var_os(IS_OTHER).is_some() {
            // This is the other process. Its standard input is the socket.
            take_over(std::io::stdin());
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (folders, mount) = (folders(&folder), mount("disk.img", "/named"));
        let first = UnmountListener::listen_in(&folders, &mount).unwrap();
        let reported = || ServerWait::connect_in(&folders, &mount).unwrap().process();
        let this = std::process::id().cast_signed();
        assert_eq!(reported(), Some(this));
        let (_, module) = module_path!().split_once("::").unwrap();
        let test = format!("{module}::the_process_that_took_over_the_mount_last_is_reported");
        let mut other = Command::new(std::env::current_exe().unwrap());
        other.args(["--exact", &test]).env(IS_OTHER, "1").stdout(Stdio::null());
        let mut other = other.stdin(first.listener.as_fd().try_clone_to_owned().unwrap()).spawn().unwrap();
        let process = other.id().cast_signed();
        assert!(other.wait().unwrap().success());
        assert_eq!(reported(), Some(process));
        first.take_over();
        assert_eq!(reported(), Some(this));
    }

    #[test]
    fn many_connections_neither_fill_the_queue_nor_keep_a_waiting_process_from_its_answer() {
        let folder = tempfile::tempdir().unwrap();
        let (folders, mount) = (folders(&folder), mount("disk.img", "/flood"));
        let server = listen(&folders, &mount);
        let waiting = ServerWait::connect_in(&folders, &mount).unwrap();
        for _ in 0..1000 {
            drop(ServerWait::connect_in(&folders, &mount).unwrap());
        }
        let idle: Vec<_> = (0..300).map(|_| ServerWait::connect_in(&folders, &mount).unwrap()).collect();
        server.say(None);
        assert_eq!(waiting.finish(LONG, LONG), Outcome::Durable);
        assert!(idle.into_iter().any(|idle| idle.finish(LONG, LONG) == Outcome::Gone));
    }

    #[test]
    fn a_server_that_does_not_accept_is_reported_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let (folders, mount) = (folders(&folder), mount("disk.img", "/full"));
        let _server = UnmountListener::listen_in(&folders, &mount).unwrap();
        let path = folders.paths[0].join(name(&mount));
        let mut queue = Vec::new();
        while let Ok(stream) = connect(&path, Duration::ZERO) {
            queue.push(stream);
        }
        assert_eq!(connect(&path, Duration::from_millis(1)).unwrap_err(), Errno::AGAIN);
        // The wait for a server that does not respond ends, too.
        let waiting = ServerWait(queue.pop().unwrap());
        waiting.0.set_nonblocking(false).unwrap();
        assert_eq!(waiting.finish(LONG, Duration::from_millis(1)), Outcome::Silent);
    }

    #[test]
    fn the_time_to_connect_does_not_grow_with_the_number_of_folders() {
        let folder = tempfile::tempdir().unwrap();
        let (mut folders, mount) = (folders(&folder), mount("disk.img", "/many"));
        let (mut servers, mut queues) = (Vec::new(), Vec::new());
        folders.paths = (0..20).map(|number| folder.path().join(format!(".obento-{number}"))).collect();
        for path in &folders.paths {
            rustix::fs::mkdir(path, Mode::RWXU).unwrap();
            let socket = path.join(name(&mount));
            let server = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
            rustix::net::bind(&server, &SocketAddrUnix::new(&socket).unwrap()).unwrap();
            // The shortest queue.
            rustix::net::listen(&server, 0).unwrap();
            servers.push(server);
            while let Ok(stream) = connect(&socket, Duration::ZERO) {
                queues.push(stream);
            }
        }
        let begin = Instant::now();
        let connected = folders.connect_within(&mount, "", Duration::from_secs(1));
        assert_eq!(connected.unwrap_err(), NoServer::Silent);
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    }

    #[test]
    fn a_server_that_is_still_writing_differs_from_one_that_does_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (folders, mount) = (folders(&folder), mount("disk.img", "/slow"));
        let mut server = UnmountListener::listen_in(&folders, &mount).unwrap();
        server.every = Duration::from_millis(1);
        let server = server.attend().unwrap();
        let connect = || ServerWait::connect_in(&folders, &mount).unwrap();
        assert_eq!(connect().finish(LONG, Duration::from_millis(20)), Outcome::Silent);
        let [late, durable] = [connect(), connect()];
        assert_eq!(durable.process(), Some(std::process::id().cast_signed()));
        server.begin_closing();
        assert_eq!(late.finish(Duration::from_millis(50), LONG), Outcome::Late);
        let waits = std::thread::spawn(move || durable.finish(LONG, LONG));
        // A process that connects after the end of the mount waits, too.
        let failed = connect();
        assert_eq!(connect().finish(Duration::from_millis(50), LONG), Outcome::Late);
        server.say(Some("no space"));
        assert_eq!(waits.join().unwrap(), Outcome::Failed("no space".into()));
        assert_eq!(failed.finish(LONG, LONG), Outcome::Failed("no space".into()));
    }

    #[test]
    fn the_state_of_another_mount_is_not_read_through_a_link_or_a_renamed_socket() {
        let folder = tempfile::tempdir().unwrap();
        let user = rustix::process::geteuid().as_raw();
        let [theirs, ours] =
            ["theirs", "ours"].map(|path| Folders { user, paths: vec![folder.path().join(path)] });
        let other = MountPoint { device: "9999:2".into(), ..mount("other.img", "/other") };
        let mount = mount("disk.img", "/mnt");
        let _other = listen(&theirs, &other);
        let server = listen(&ours, &mount);
        let path = ours.paths[0].join(name(&mount));
        let connected = || ServerWait::connect_in(&ours, &mount).map(drop);
        assert_eq!(connected(), Ok(()));
        std::fs::remove_file(&path).unwrap();
        symlink(theirs.paths[0].join(name(&other)), &path).unwrap();
        assert_eq!(connected(), Err(NoServer::Nobody));
        std::fs::rename(theirs.paths[0].join(name(&other)), &path).unwrap();
        assert_eq!(connected(), Err(NoServer::Nobody));
        drop(server);
    }

    #[test]
    fn a_folder_that_is_not_private_or_is_a_link_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let (mut folders, mount) = (folders(&folder), mount("disk.img", "/taken"));
        let path = folders.paths[0].clone();
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(
            UnmountListener::listen_in(&folders, &mount)
                .unwrap_err()
                .to_string()
                .contains("not a private directory")
        );
        assert_eq!(ServerWait::connect_in(&folders, &mount).unwrap_err(), NoServer::Nobody);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        folders.paths = vec![link];
        assert!(UnmountListener::listen_in(&folders, &mount).is_err());
        folders.paths = vec![path];
        folders.user += 1;
        assert!(UnmountListener::listen_in(&folders, &mount).is_err());
    }
}
