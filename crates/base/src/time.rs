//! Points in time as disks store them.

/// Seconds since 1970-01-01 00:00 UTC and nanoseconds below one second; years before 1970 have negative seconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp {
    secs: i64,
    nanos: u32,
}

impl Timestamp {
    /// 1970-01-01 00:00 UTC.
    pub const EPOCH: Self = Self { secs: 0, nanos: 0 };

    /// Nanoseconds of a full second and more, which only a damaged disk stores, are cut to 999,999,999.
    pub const fn new(secs: i64, nanos: u32) -> Self {
        Self { secs, nanos: if nanos > 999_999_999 { 999_999_999 } else { nanos } }
    }

    /// Whole seconds, rounded towards the past.
    pub const fn secs(self) -> i64 {
        self.secs
    }

    /// Nanoseconds within the second, below 1,000,000,000.
    pub const fn nanos(self) -> u32 {
        self.nanos
    }
}
