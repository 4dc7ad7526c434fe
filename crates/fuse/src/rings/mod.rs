//! Requests through `io_uring` instead of `/dev/fuse` (Linux 6.14).
//!
//! The kernel writes a request into buffers of the server, and one system call sends a reply and fetches the next
//! request. With `/dev/fuse`, these are two system calls, and a third one to wait. The kernel has a queue for each
//! processor, and a thread on that processor serves it, so that a request wakes no other processor. FORGET and
//! notifications still use `/dev/fuse`.
//!
//! Root permits this by `echo Y > /sys/module/fuse/parameters/enable_uring`. The kernel then offers it in INIT.
//!
//! Invariant: the rings exist before the kernel learns that they will be used, and before rights are given up. If the
//! kernel refuses to register them, it uses `/dev/fuse`.
//! Invariant: a queue always has a free entry before its thread sleeps. Requests may wait for other requests: LSEEK
//! waits until the kernel has written back the file.
//! Source: Linux Documentation/filesystems/fuse/fuse-io-uring.rst; fs/fuse/dev_uring.c.
//! Decision: docs/decisions/0066-fuse-requests-through-io-uring.md.

mod entry;
mod ring;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

pub(crate) use entry::Entry;
use ring::Ring;

use crate::wire::Wire;

/// The list of possible processors, each of which has a queue in the kernel.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// The rings of a connection.
pub(crate) struct Rings(Vec<Ring>);

impl Rings {
    /// Creates a ring for each processor that this process may use. A ring also serves the queues of processors without
    /// a ring. Fails with the errors of io_uring_setup(2) and io_uring_register(2).
    pub(crate) fn new(device: &Arc<OwnedFd>) -> io::Result<Self> {
        let queues = count(&std::fs::read_to_string(POSSIBLE)?).ok_or(io::ErrorKind::InvalidData)?;
        let usable = std::thread::available_parallelism()?.get();
        let rings = u16::try_from(usable).unwrap_or(u16::MAX).clamp(1, queues);
        let queues_of = |ring| (ring..queues).step_by(rings.into()).collect::<Vec<u16>>();
        (0..rings)
            .map(|ring| Ring::new(Arc::clone(device), queues_of(ring)))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Starts a thread for each ring, which answers requests by `wire` until the connection ends. Fails with the errors
    /// of starting a thread.
    pub(crate) fn start(self, wire: &Arc<Wire>) -> io::Result<RingThreads> {
        let start = |(number, ring): (usize, Ring)| {
            let wire = Arc::clone(wire);
            let thread = std::thread::Builder::new().name(format!("fuse-ring-{number}"));
            thread.spawn(move || ring.serve(&wire))
        };
        self.0.into_iter().enumerate().map(start).collect::<Result<_, _>>().map(RingThreads)
    }
}

/// The threads of the rings.
pub(crate) struct RingThreads(Vec<JoinHandle<()>>);

impl RingThreads {
    /// Waits until the kernel has ended the connection.
    pub(crate) fn join(self) {
        for thread in self.0 {
            let _ = thread.join();
        }
    }
}

/// Returns the number of processors in a list such as `0-3,8`.
fn count(list: &str) -> Option<u16> {
    let ranges = list.trim().split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
        last.checked_sub(first)?.checked_add(1)
    });
    ranges.into_iter().try_fold(0_u16, |sum, len| sum.checked_add(len?)).filter(|&count| count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted_in_a_list_of_ranges() {
        assert_eq!(count("0-1\n"), Some(2));
        assert_eq!(count("0"), Some(1));
        assert_eq!(count("0-3,8,16-17"), Some(7));
        for invalid in ["", "x", "3-1", "0-65535", "0-"] {
            assert_eq!(count(invalid), None, "{invalid}");
        }
    }
}
