//! Waiting for the end of a server: the kernel tells it of an unmount and waits for nothing.
//!
//! A server listens on a socket in a folder that only its user can enter. The socket is named after the device number, the source and the
//! place of the mount: the number alone is given to the next mount while this server still writes. The process that unmounts connects before,
//! and reads until the server has closed the volume: a byte 0 and then the end mean that all is durable; text is what went wrong; an end
//! alone means that the server was killed.
//! Invariant: no other user can take the name, or fill the queue: the folder belongs to the user of the mount and has mode 0700.
//! Invariant: only a server of root or of the mount's owner is believed, and only root and that owner are answered.
//! Invariant: nobody waits without bound for a process of another user.
//! Locking: a process that replaces or removes a socket holds a lock (flock) on the folder.
//! Source: unix(7), SO_PEERCRED; connect(2), SO_SNDTIMEO; file-hierarchy(7), `/run/user/UID`.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType};

use crate::mountinfo::MountPoint;

/// Processes that may wait for the end of one mount. A further one is turned away.
const WAITING_MAX: usize = 64;
/// How long a server may take to accept a connection.
const ANSWER: Duration = Duration::from_secs(10);
/// The most bytes of what a server says.
const SAID_MAX: u64 = 4096;

/// Where the sockets of one user's mounts are.
#[derive(Clone, Debug)]
pub struct Folders {
    user: u32,
    /// Best first.
    paths: Vec<PathBuf>,
}

impl Folders {
    /// Those of `user`. Without a session there is no `/run/user/UID`, and a folder in `/tmp` serves: if another user has its name,
    /// it is not used.
    pub fn of(user: u32) -> Self {
        let first = if user == 0 { "/run/obento".into() } else { format!("/run/user/{user}/obento") };
        Self { user, paths: [first, format!("/tmp/.obento-{user}")].map(PathBuf::from).to_vec() }
    }

    /// Opens the first that exists or can be created. Errors: none can.
    fn create(&self) -> io::Result<(PathBuf, OwnedFd)> {
        let mut failed = io::Error::from(io::ErrorKind::NotFound);
        for path in &self.paths {
            // What exists is checked when it is opened.
            let _ = rustix::fs::mkdir(path, Mode::RWXU);
            match self.open(path) {
                Ok(folder) => return Ok((path.clone(), folder)),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Opens `path`. Errors: it does not belong to the user, or others can enter it.
    fn open(&self, path: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&folder)?;
        if stat.st_uid == self.user && stat.st_mode & 0o077 == 0 {
            return Ok(folder);
        }
        let why = format!("{} is not a private folder of user {}: remove it", path.display(), self.user);
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    }

    /// Removes the sockets on which nobody listens any more.
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

/// The name of the socket for `mount`: short, because a path of a socket has 107 bytes at most.
fn name(mount: &MountPoint) -> String {
    // FNV-1a, 64 bits. A collision needs the same device number, too.
    let (basis, prime) = (0xcbf2_9ce4_8422_2325_u64, 0x100_0000_01b3);
    let paths = [&mount.source, &mount.path].map(|path| path.as_os_str().as_bytes());
    let bytes = paths.join(&0);
    let hash = bytes.iter().fold(basis, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(prime));
    format!("{}-{hash:016x}", mount.device)
}

/// Connects to the socket at `path`. Errors: AGAIN if its queue is full for as long as `longest`; those of connect(2).
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
pub struct Farewell {
    listener: UnixListener,
    user: u32,
}

impl Farewell {
    /// Listens for the processes that will wait for the end of `mount`. Errors: no private folder can be created; those of the socket.
    pub fn listen(mount: &MountPoint) -> io::Result<Self> {
        Self::listen_in(&Folders::of(rustix::process::geteuid().as_raw()), mount)
    }

    fn listen_in(folders: &Folders, mount: &MountPoint) -> io::Result<Self> {
        folders.sweep();
        let (path, folder) = folders.create()?;
        rustix::fs::flock(&folder, FlockOperation::LockExclusive)?;
        // It takes its name when it listens already: nobody meets a socket that refuses although its server lives.
        let new = path.join(format!("new-{}", std::process::id()));
        let _ = rustix::fs::unlink(&new);
        let listener = UnixListener::bind(&new)?;
        rustix::fs::rename(&new, path.join(name(mount)))?;
        Ok(Self { listener, user: folders.user })
    }

    /// Accepts those who wait, in a thread that is started now, so that the queue never fills. Errors: those of starting a thread.
    pub fn attend(self) -> io::Result<Attended> {
        let listener = self.listener.try_clone()?;
        let thread = std::thread::Builder::new().name("farewell".into());
        let thread = thread.spawn(move || accept_all(&listener, self.user))?;
        Ok(Attended { listener: self.listener, thread })
    }
}

/// Accepts until the listener is shut down; returns the processes that wait.
fn accept_all(listener: &UnixListener, user: u32) -> Vec<OwnedFd> {
    let mut waiting: Vec<OwnedFd> = Vec::new();
    loop {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match rustix::net::accept_with(listener, flags) {
            Ok(stream) => {
                waiting.retain(is_open);
                let peer = socket_peercred(&stream).map(|peer| peer.uid.as_raw());
                let may_wait = peer.is_ok_and(|peer| peer == 0 || peer == user);
                if may_wait && waiting.len() < WAITING_MAX {
                    waiting.push(stream);
                }
            }
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) if !waiting.is_empty() => {
                waiting.remove(0);
            }
            Err(_) => return waiting,
        }
    }
}

/// Whether the other side still waits.
fn is_open(stream: &OwnedFd) -> bool {
    let mut look = [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut look, Some(&now)), Ok(0))
}

/// The server's side while it serves.
#[derive(Debug)]
pub struct Attended {
    listener: UnixListener,
    thread: JoinHandle<Vec<OwnedFd>>,
}

impl Attended {
    /// Tells all who wait how it ended. Before anybody hears of it, nobody connects to this server any more.
    pub fn say(self, problem: Option<&str>) {
        let _ = rustix::net::shutdown(&self.listener, Shutdown::Both);
        drop(self.listener);
        for stream in self.thread.join().unwrap_or_default() {
            // Whoever no longer waits misses nothing; who does has room for so few bytes.
            let said = problem.map_or(&[0][..], str::as_bytes);
            let said = said.get(..SAID_MAX as usize).unwrap_or(said);
            let _ = rustix::net::send(&stream, said, rustix::net::SendFlags::NOSIGNAL);
        }
    }
}

/// How a server ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All is on stable storage, and the volume is clean.
    Durable,
    /// It could not write everything: in its words.
    Failed(String),
    /// It was gone before it could say so.
    Gone,
    /// It has not ended yet.
    Late,
}

/// Why nobody can be waited for.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoServer {
    /// No socket, or nobody listens on it.
    #[error("no server answers for it")]
    Nobody,
    /// It does not accept.
    #[error("its server does not answer")]
    Silent,
    /// It is a process of another user.
    #[error("a process of user {0} answers for it")]
    Foreign(u32),
}

/// The side of the process that waits.
#[derive(Debug)]
pub struct Waiting(UnixStream);

impl Waiting {
    /// Connects to the server of `mount`. Errors: NoServer.
    pub fn connect(mount: &MountPoint) -> Result<Self, NoServer> {
        let owner = mount.owner().unwrap_or_else(|| rustix::process::geteuid().as_raw());
        Self::connect_in(&Folders::of(owner), mount)
    }

    fn connect_in(folders: &Folders, mount: &MountPoint) -> Result<Self, NoServer> {
        let mut failed = NoServer::Nobody;
        for path in &folders.paths {
            if folders.open(path).is_err() {
                continue;
            }
            match connect(&path.join(name(mount)), ANSWER) {
                Ok(stream) => {
                    let peer = socket_peercred(&stream).map_err(|_| NoServer::Silent)?.uid.as_raw();
                    let is_believed = peer == 0 || peer == folders.user;
                    return if is_believed { Ok(Self(stream)) } else { Err(NoServer::Foreign(peer)) };
                }
                Err(Errno::AGAIN | Errno::TIMEDOUT | Errno::INPROGRESS) => failed = NoServer::Silent,
                Err(_) => {}
            }
        }
        Err(failed)
    }

    /// Waits until the server has ended, for `longest` at most.
    pub fn finish(mut self, longest: Duration) -> Outcome {
        let end = Instant::now() + longest;
        let (mut said, mut buffer) = (Vec::new(), [0; SAID_MAX as usize]);
        while said.len() < buffer.len() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.0.set_read_timeout(Some(left)).is_err() {
                return Outcome::Late;
            }
            match self.0.read(&mut buffer) {
                Ok(0) => break,
                Ok(len) => said.extend_from_slice(&buffer[..len]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return Outcome::Late;
                }
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

    use super::*;

    fn mount(source: &str, path: &str) -> MountPoint {
        MountPoint {
            device: "9999:1".into(),
            path: path.into(),
            fs_type: "fuse.obento".into(),
            source: source.into(),
            options: format!("rw,user_id={}", rustix::process::geteuid().as_raw()),
        }
    }

    fn folders(folder: &tempfile::TempDir) -> Folders {
        Folders { user: rustix::process::geteuid().as_raw(), paths: vec![folder.path().join("sockets")] }
    }

    fn listen(folders: &Folders, mount: &MountPoint) -> Attended {
        Farewell::listen_in(folders, mount).unwrap().attend().unwrap()
    }

    #[test]
    fn who_waits_for_a_mount_hears_of_its_end_while_the_one_that_had_its_number_before_still_writes() {
        let folder = tempfile::tempdir().unwrap();
        let folders = folders(&folder);
        let long = format!("/{}", "long/".repeat(40));
        let before = mount("disk.img", &format!("{long}/a"));
        for after in [mount("disk.img", &format!("{long}/b")), mount("other.img", &format!("{long}/a"))] {
            let (writes, ends) = (listen(&folders, &before), listen(&folders, &after));
            let waiting = Waiting::connect_in(&folders, &after).unwrap();
            ends.say(None);
            assert_eq!(waiting.finish(Duration::from_secs(60)), Outcome::Durable);
            let waiting = Waiting::connect_in(&folders, &before).unwrap();
            writes.say(Some("no space"));
            assert_eq!(waiting.finish(Duration::from_secs(60)), Outcome::Failed("no space".into()));
        }
    }

    #[test]
    fn who_has_heard_of_the_end_of_a_mount_can_mount_the_same_again_and_old_sockets_go() {
        let folder = tempfile::tempdir().unwrap();
        let (folders, mount) = (folders(&folder), mount("disk.img", "/again"));
        for _ in 0..3 {
            let server = listen(&folders, &mount);
            let waiting = Waiting::connect_in(&folders, &mount).unwrap();
            server.say(None);
            assert_eq!(waiting.finish(Duration::from_secs(60)), Outcome::Durable);
            assert_eq!(Waiting::connect_in(&folders, &mount).unwrap_err(), NoServer::Nobody);
            drop(Farewell::listen_in(&folders, &mount).unwrap());
        }
        folders.sweep();
        assert_eq!(std::fs::read_dir(&folders.paths[0]).unwrap().count(), 0);
    }

    #[test]
    fn many_connections_neither_fill_the_queue_nor_keep_a_waiting_process_from_its_answer() {
        let folder = tempfile::tempdir().unwrap();
        let (folders, mount) = (folders(&folder), mount("disk.img", "/flood"));
        let server = listen(&folders, &mount);
        let waiting = Waiting::connect_in(&folders, &mount).unwrap();
        for _ in 0..1000 {
            drop(Waiting::connect_in(&folders, &mount).unwrap());
        }
        let idle: Vec<_> = (0..300).map(|_| Waiting::connect_in(&folders, &mount).unwrap()).collect();
        server.say(None);
        assert_eq!(waiting.finish(Duration::from_secs(60)), Outcome::Durable);
        assert!(idle.into_iter().any(|idle| idle.finish(Duration::from_secs(60)) == Outcome::Gone));
    }

    #[test]
    fn a_server_that_does_not_accept_is_reported_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (folders, mount) = (folders(&folder), mount("disk.img", "/full"));
        let _server = Farewell::listen_in(&folders, &mount).unwrap();
        let path = folders.paths[0].join(name(&mount));
        let mut queue = Vec::new();
        while let Ok(stream) = connect(&path, Duration::ZERO) {
            queue.push(stream);
        }
        assert_eq!(connect(&path, Duration::from_millis(1)).unwrap_err(), Errno::AGAIN);
        // A server that is killed is not waited for, either.
        let waiting = Waiting(queue.pop().unwrap());
        waiting.0.set_nonblocking(false).unwrap();
        assert_eq!(waiting.finish(Duration::from_millis(1)), Outcome::Late);
    }

    #[test]
    fn a_folder_that_others_can_enter_or_lead_elsewhere_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let (mut folders, mount) = (folders(&folder), mount("disk.img", "/taken"));
        let path = folders.paths[0].clone();
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(
            Farewell::listen_in(&folders, &mount).unwrap_err().to_string().contains("not a private folder")
        );
        assert_eq!(Waiting::connect_in(&folders, &mount).unwrap_err(), NoServer::Nobody);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        folders.paths = vec![link];
        assert!(Farewell::listen_in(&folders, &mount).is_err());
        folders.paths = vec![path];
        folders.user += 1;
        assert!(Farewell::listen_in(&folders, &mount).is_err());
    }
}
