//! Creates the socket of the disk for a user who may mount only in a user namespace.
//!
//! Invariant: no directory of the host contains the socket. It is in a file system without a mount point, which ends with
//! the last descriptor of the socket. So nothing is left over, whichever process is killed.
//! Source: user_namespaces(7), fsopen(2), fsmount(2).

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::net::UnixListener;
use std::process::ExitCode;

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::thread::UnshareFlags;

use crate::warden::{keep_user, user};

/// The name of the socket in its file system.
const SOCKET: &str = "disk";

/// Sends a byte with a listening socket, and a descriptor to connect to, to the standard input.
pub fn run() -> ExitCode {
    if send().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn send() -> io::Result<()> {
    let own = user();
    // SAFETY: the process has one thread, and no descriptors are unshared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)? };
    keep_user(own);
    let context = fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let place = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    let listener = UnixListener::bind(format!("/proc/self/fd/{}/{SOCKET}", place.as_raw_fd()))?;
    let socket = openat(&place, SOCKET, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let files = [listener.as_fd(), socket.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&files));
    sendmsg(rustix::stdio::stdin(), &[IoSlice::new(b"s")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}
