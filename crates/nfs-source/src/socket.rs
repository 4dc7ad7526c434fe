//! TCP connections that never block: every wait has a deadline.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, bind, connect, send, socket_with, sockopt,
};

/// Waits until the socket is ready, and returns for what.
///
/// # Errors
///
/// `TimedOut` after the deadline.
pub fn wait(socket: &OwnedFd, flags: PollFlags, until: Instant) -> io::Result<PollFlags> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let timeout = Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut sockets = [PollFd::from_borrowed_fd(socket.as_fd(), flags)];
        match poll(&mut sockets, Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(sockets[0].revents()),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Waits for some time, with the system calls of [`wait`].
pub fn pause(duration: Duration) {
    if let Ok(timeout) = Timespec::try_from(duration) {
        // An early end does not matter.
        let _ = poll(&mut [], Some(&timeout));
    }
}

/// Connects to an address. As root, uses a port below 1024, which most exports require.
pub fn open(address: SocketAddr, until: Instant) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let any = if address.is_ipv4() { [0, 0, 0, 0].into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
    let ports = if rustix::process::geteuid().is_root() { 665..1024_u16 } else { 0..0 };
    for port in ports.rev().map(Some).chain([None]) {
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        // A call is sent although earlier calls have no reply yet.
        sockopt::set_tcp_nodelay(&socket, true)?;
        if let Some(port) = port
            && bind(&socket, &SocketAddr::new(any, port)).is_err()
        {
            continue;
        }
        match connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            Err(Errno::INPROGRESS) => {
                wait(&socket, PollFlags::OUT, until)?;
                sockopt::socket_error(&socket)??;
                return Ok(socket);
            }
            // An earlier connection from this port is not forgotten yet.
            Err(Errno::ADDRNOTAVAIL | Errno::ADDRINUSE) if port.is_some() => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

/// Writes some bytes, and returns their number. It is 0 if the socket accepts none now. A connection that has ended is an
/// error, and raises no `SIGPIPE`, which would end a program that does not ignore this signal.
pub fn write(socket: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match send(socket, bytes, SendFlags::NOSIGNAL) {
            Ok(sent) => return Ok(sent),
            Err(Errno::AGAIN) => return Ok(0),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Fills a buffer. Fails with `TimedOut` after `until`, also if bytes have arrived: a server could send replies to other
/// calls for ever.
pub fn read_exact(socket: &OwnedFd, mut buf: &mut [u8], until: Instant) -> io::Result<()> {
    if Instant::now() >= until {
        return Err(io::ErrorKind::TimedOut.into());
    }
    while !buf.is_empty() {
        match rustix::io::read(socket, &mut *buf) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => buf = &mut buf[len..],
            Err(Errno::AGAIN) => {
                wait(socket, PollFlags::IN, until)?;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
