//! Reading one request from `/dev/fuse`.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

/// The length of the next request, or `None` after an unmount. The kernel returns only complete requests.
pub(crate) type Received = io::Result<Option<usize>>;

/// Reads a request. Returns `None` if no request has arrived.
pub(crate) fn attempt(device: &OwnedFd, buffer: &mut [u8]) -> Option<Received> {
    loop {
        return match rustix::io::read(device, &mut *buffer) {
            Ok(len) => Some(Ok(Some(len))),
            Err(Errno::AGAIN) => None,
            // The requesting process was interrupted, or this thread was.
            Err(Errno::NOENT | Errno::INTR) => continue,
            Err(Errno::NODEV) => Some(Ok(None)),
            Err(error) => Some(Err(error.into())),
        };
    }
}
