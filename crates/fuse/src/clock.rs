//! The clock that the kernel uses for the times of files.
//!
//! The kernel sets the times of files whose writes it caches, and sends them by SETATTR if they differ from the times
//! in its cache. This clock ticks every few milliseconds. If the server uses the same clock, a file that is created and
//! written to within one tick has the same times on both sides. The kernel then sends no SETATTR.
//! Source: Linux fs/inode.c `current_time`, `inode_needs_update_time`; clock_getres(2), CLOCK_REALTIME_COARSE.

use obento_base::Timestamp;
use obento_env::Clock;
use rustix::time::{ClockId, clock_gettime};

/// The kernel's clock for times of files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KernelClock;

impl Clock for KernelClock {
    fn now(&self) -> Timestamp {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        Timestamp::new(now.tv_sec, u32::try_from(now.tv_nsec).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_the_kernel_stamps_now_is_not_older() {
        let before = KernelClock.now();
        let file = tempfile::tempfile().unwrap();
        let modified = rustix::fs::fstat(&file).unwrap();
        let stamped = Timestamp::new(modified.st_mtime, u32::try_from(modified.st_mtime_nsec).unwrap());
        assert!(before <= stamped, "{before:?} {stamped:?}");
        // Ticks of ten milliseconds are the longest that Linux has.
        assert!(stamped.secs() - KernelClock.now().secs() <= 1);
    }
}
