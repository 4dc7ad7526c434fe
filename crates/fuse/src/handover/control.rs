//! The socket that connects other processes to the server of a mount. It is beside the socket of
//! [`UnmountListener`](crate::UnmountListener), and has the same users: root and the owner of the mount.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;

use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustix::net::sockopt::socket_peercred;

use super::Connection;
use crate::mountinfo::MountPoint;
use crate::unmount_listener::{Folders, NoServer, name};

/// The end of the name of the socket.
const CONTROL: &str = "-control";

impl Connection {
    /// Connects to the server of `mount`.
    pub fn to_server(mount: &MountPoint) -> Result<Self, NoServer> {
        let owner = mount.owner().unwrap_or_else(|| rustix::process::geteuid().as_raw());
        let stream = Folders::of(owner).connect(mount, CONTROL)?;
        Self::of_stream(stream).map_err(|_| NoServer::Silent)
    }
}

/// The server's side of the socket.
#[derive(Debug)]
pub struct ControlListener {
    listener: UnixListener,
    user: u32,
}

impl ControlListener {
    /// Listens for the processes that ask for the status of `mount`, or take it. Fails if no private folder can be
    /// created, or with the errors of the socket.
    pub fn listen(mount: &MountPoint) -> io::Result<Self> {
        let user = rustix::process::geteuid().as_raw();
        Folders::of(user).bind(&(name(mount) + CONTROL)).map(|listener| Self { listener, user })
    }

    /// Continues with the socket that another server of the same mount passed on.
    pub fn adopt(listener: OwnedFd) -> Self {
        Self { listener: listener.into(), user: rustix::process::geteuid().as_raw() }
    }

    /// Returns the next connection of a process that may use the socket, or `None` if the socket fails.
    pub fn accept(&self) -> Option<Connection> {
        loop {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::accept_with(&self.listener, flags) {
                Ok(stream) => {
                    let peer = socket_peercred(&stream).map(|peer| peer.uid.as_raw());
                    if peer.is_ok_and(|peer| peer == 0 || peer == self.user) {
                        return Some(Connection::new(stream));
                    }
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                // The process has too many open files, for a moment.
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                Err(_) => return None,
            }
        }
    }
}

impl AsFd for ControlListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}
