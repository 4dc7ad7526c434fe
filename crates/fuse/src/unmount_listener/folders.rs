//! The folders in which servers listen, and connections to their sockets.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::mountinfo::MountPoint;

/// The start of the name that servers of earlier versions bound for every file system, before they renamed the socket.
const EARLIER_NAME: &[u8] = b"new-";
/// The longest time that all servers together may take to accept a connection.
const ANSWER: Duration = Duration::from_secs(10);

/// The reason why a process cannot wait for a server.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoServer {
    /// The socket does not exist, or no process listens on it.
    #[error("the server of the mount has ended, or is too old to reply")]
    Ended,
    /// The server does not accept the connection.
    #[error("the server of the mount does not respond")]
    Silent,
    /// The server is a process of another user.
    #[error("the server of the mount belongs to user {0}")]
    Foreign(u32),
}

/// The folders of the sockets of one user's mounts.
#[derive(Clone, Debug)]
pub struct Folders {
    pub(super) user: u32,
    /// In order of preference.
    pub(super) paths: Vec<PathBuf>,
}

impl Folders {
    /// Returns the folders of `user`. A user without a session has no `/run/user/UID`; a folder in `/tmp` replaces it.
    pub fn of(user: u32) -> Self {
        let first = if user == 0 { "/run/obento".into() } else { format!("/run/user/{user}/obento") };
        Self::at(user, first.into(), Path::new("/tmp"))
    }

    /// Returns the folder `first`, and the folders of `user` in `shared`, in which other users can create files.
    pub(super) fn at(user: u32, first: PathBuf, shared: &Path) -> Self {
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

    /// Opens `path`. Fails if the folder belongs to another user, if other users have permissions for it, or if a file
    /// system is mounted there. Such a file system can be a server of another user that never responds.
    fn open(&self, path: &Path) -> io::Result<OwnedFd> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Errno::INVAL.into());
        };
        let parent =
            rustix::fs::open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::openat2(parent, name, flags, Mode::empty(), ResolveFlags::NO_XDEV)?;
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
    pub(super) fn connect_within(
        &self,
        mount: &MountPoint,
        end: &str,
        longest: Duration,
    ) -> Result<UnixStream, NoServer> {
        let until = Instant::now() + longest;
        let mut failed = NoServer::Ended;
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
pub(super) fn connect(path: &Path, longest: Duration) -> Result<UnixStream, Errno> {
    let nonblocking = if longest.is_zero() { SocketFlags::NONBLOCK } else { SocketFlags::empty() };
    let flags = SocketFlags::CLOEXEC | nonblocking;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    if !longest.is_zero() {
        set_socket_timeout(&socket, Timeout::Send, Some(longest))?;
    }
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}
