//! The clock by which the kernel stamps files.
//!
//! The kernel keeps the times of files whose writes it gathers, and hands them over when they differ from those that it
//! was told. Its clock for that ticks every few milliseconds, so that a file which is written to in the tick in which it
//! was made keeps its times, and nothing has to be handed over, if both stamp by the same clock.
//! Source: Linux fs/inode.c `current_time`, `inode_needs_update_time`; clock_getres(2), CLOCK_REALTIME_COARSE.

use obento::{Clock, Timestamp};
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
