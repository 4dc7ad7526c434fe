//! The open files that a program inherits from this process.

use std::fs;

use rustix::io::Errno;

/// The descriptors from this one on are not standard input, output or error.
const FIRST: libc::c_int = 3;

/// Marks all descriptors of this process, so that programs that it starts inherit only standard input, output and error.
///
/// A shell passes its own pipes and locks on to its commands. A server that keeps such a pipe open keeps the reader of
/// the pipe waiting until the server ends.
///
/// # Errors
///
/// System: the kernel has no `close_range`, and the open files cannot be listed.
pub fn close_on_exec() -> Result<(), Errno> {
    // SAFETY: the call closes nothing now. It sets a flag of the descriptors, which their owners do not read.
    let marked =
        unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if marked == 0 { Ok(()) } else { mark_each() }
}

/// The same on Linux before 5.11, which does not support this flag of the call.
fn mark_each() -> Result<(), Errno> {
    let failed = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    for entry in fs::read_dir("/proc/self/fd").map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        if number >= FIRST {
            // SAFETY: as above. A number that is closed by now is refused.
            unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

    use super::*;

    #[test]
    fn a_descriptor_that_programs_would_inherit_is_marked_in_both_ways() {
        for mark in [close_on_exec as fn() -> Result<(), Errno>, mark_each] {
            let (reader, _writer) = std::io::pipe().unwrap();
            fcntl_setfd(&reader, FdFlags::empty()).unwrap();
            mark().unwrap();
            assert_eq!(fcntl_getfd(reader.as_fd()).unwrap(), FdFlags::CLOEXEC);
        }
    }
}
