//! The program that a server runs as `fusermount`.
//!
//! A server of libfuse 2 or of Go runs `fusermount [-o OPTIONS] [--] MOUNT_POINT`, and receives its connection through
//! the socket whose number is in the variable `_FUSE_COMMFD`. The real program mounts, and sends `/dev/fuse`. This one
//! mounts nothing, and sends a socket that is connected to obento. obento listens beside the mount point.
//! Source: libfuse 2.9, lib/mount.c (`fuse_mount_fusermount`, `receive_fd`) and util/fusermount.c (`send_fd`); go-fuse,
//! fuse/mount_linux.go (`callFusermount`) and fuse/poll.go (`pollHack`).

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;
use std::path::Path;

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, sendmsg, socket_with, sockopt,
};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use crate::folder::SOCKET;

/// The variable with the number of the socket to the server.
const CHANNEL: &str = "_FUSE_COMMFD";
/// A file of the mount point that servers of Go open after the mount.
const POLL_FILE: &str = ".go-fuse-epoll-hack";
/// Room in the socket for the longest reply. The kernel may grant less, which still suffices.
pub const BUFFER: usize = 512 << 10;

/// Connects a server to the process that started it, if the server runs the current program as `fusermount`.
/// `arguments` are those after the name of the program.
///
/// # Errors
///
/// The process does not listen, or the server does not receive the connection.
pub fn mount_helper(arguments: &[OsString]) -> io::Result<()> {
    // To unmount, and to print the version.
    let does_nothing = |argument: &&OsString| ["-u", "-V", "--version"].iter().any(|flag| *argument == flag);
    if arguments.iter().any(|argument| does_nothing(&argument)) {
        return Ok(());
    }
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let mut operands = arguments.iter();
    let mut folder = None;
    while let Some(argument) = operands.next() {
        if argument == "-o" {
            operands.next();
        } else if argument != "--" {
            folder = folder.or(Path::new(argument).parent().map(|parent| (parent, Path::new(argument))));
        }
    }
    let (folder, mount_point) = folder.ok_or_else(invalid)?;
    let channel = std::env::var(CHANNEL).ok().and_then(|number| number.parse().ok()).ok_or_else(invalid)?;
    let process = pidfd_open(getpid(), PidfdFlags::empty())?;
    let channel = pidfd_getfd(&process, channel, PidfdGetfdFlags::empty())?;

    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let _ = sockopt::set_socket_send_buffer_size(&socket, BUFFER);
    connect(&socket, &SocketAddrUnix::new(folder.join(SOCKET))?)?;
    File::create(mount_point.join(POLL_FILE))?;

    let descriptors = [socket.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(invalid());
    }
    sendmsg(&channel, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}
