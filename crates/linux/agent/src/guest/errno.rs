//! Error numbers.

use std::io;

/// An error number of Linux, as the wire carries it.
pub(super) type Errno = u32;

/// Returns the error number of the last system call.
pub(super) fn last_error() -> Errno {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO).unsigned_abs()
}

/// Returns the number of an error.
pub(super) fn number(error: rustix::io::Errno) -> Errno {
    error.raw_os_error().unsigned_abs()
}
