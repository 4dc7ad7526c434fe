//! Where times come from.

use obento_base::Timestamp;

/// A source of the present.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// A clock that stands still: reproducible images, deterministic tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FixedClock(pub Timestamp);

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        self.0
    }
}

/// For hosts that know no time: always 1970-01-01.
pub const NO_CLOCK: FixedClock = FixedClock(Timestamp::EPOCH);

/// The clock of the operating system.
#[cfg(feature = "std")]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SystemClock;

#[cfg(feature = "std")]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        use std::time::{SystemTime, UNIX_EPOCH};
        // A clock set before 1970 reads as 1970: nothing better is known then.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::new(i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos())
    }
}
