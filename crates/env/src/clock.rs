//! The source of timestamps.

use obento_base::Timestamp;

/// A clock.
pub trait Clock: Send + Sync {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
}

/// A clock that always returns the same time, for reproducible images and deterministic tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FixedClock(pub Timestamp);

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        self.0
    }
}

/// A clock for hosts without one: always 1970-01-01.
pub const NO_CLOCK: FixedClock = FixedClock(Timestamp::EPOCH);

/// The clock of the operating system.
#[cfg(feature = "std")]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SystemClock;

#[cfg(feature = "std")]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        use std::time::{SystemTime, UNIX_EPOCH};
        // A clock before 1970 reads as 1970.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::new(i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos())
    }
}
