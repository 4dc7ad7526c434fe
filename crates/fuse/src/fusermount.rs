//! Mounting by `fusermount3`, for users other than root. It sends the open `/dev/fuse` back over a socket.
//!
//! Source: libfuse util/fusermount.c, the environment variable `_FUSE_COMMFD`.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
    socketpair,
};

use crate::mount::MountError;
use crate::options::MountOptions;

pub(crate) const PROGRAM: &str = "fusermount3";

fn no_helper(error: io::Error) -> MountError {
    MountError::NoHelper { program: PROGRAM, error }
}

pub(crate) fn mount(path: &Path, source: &OsStr, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(MountError::Refused)?;
    // Only the helper inherits this end.
    fcntl_setfd(&theirs, FdFlags::empty()).map_err(MountError::Refused)?;
    let mut words = OsString::from(options.words_for_helper());
    words.push(",fsname=");
    words.push(escaped(source));
    let mut command = Command::new(PROGRAM);
    command.arg("-o").arg(words).arg("--").arg(path);
    command.env("_FUSE_COMMFD", theirs.as_raw_fd().to_string()).stdin(Stdio::null()).stdout(Stdio::null());
    let child = command.stderr(Stdio::piped()).spawn().map_err(no_helper)?;
    drop(theirs);
    let device = receive(&ours);
    let output = child.wait_with_output().map_err(no_helper)?;
    match device {
        Ok(Some(device)) if output.status.success() => Ok(device),
        Err(error) => Err(no_helper(error.into())),
        Ok(_) => Err(MountError::Helper(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}

/// Puts a backslash before commas, which would end the option, and before backslashes.
fn escaped(source: &OsStr) -> OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let mut bytes = Vec::new();
    for &byte in source.as_bytes() {
        if matches!(byte, b',' | b'\\') {
            bytes.push(b'\\');
        }
        bytes.push(byte);
    }
    OsString::from_vec(bytes)
}

/// Receives a file descriptor over `socket`. Returns `None` if the other side closes the socket first.
fn receive(socket: &OwnedFd) -> Result<Option<OwnedFd>, rustix::io::Errno> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut byte)];
    rustix::io::retry_on_intr(|| {
        recvmsg(socket.as_fd(), &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    let rights = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(rights)
}

pub(crate) fn unmount(path: &Path, lazy: bool) -> Result<(), MountError> {
    let mut command = Command::new(PROGRAM);
    command.arg("-u");
    if lazy {
        command.arg("-z");
    }
    let output = command.arg("--").arg(path).stdin(Stdio::null()).output().map_err(no_helper)?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        // The helper has no exit status for EBUSY, only this word in its message.
        false if said.contains("busy") => Err(MountError::Busy),
        false => Err(MountError::Helper(said.into_owned())),
    }
}
