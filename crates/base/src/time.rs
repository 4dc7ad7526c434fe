//! Points in time, as file systems store them.

/// Seconds since 1970-01-01 00:00 UTC, and nanoseconds within the second. Times before 1970 have negative
/// seconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp {
    secs: i64,
    nanos: u32,
}

impl Timestamp {
    /// 1970-01-01 00:00 UTC.
    pub const EPOCH: Self = Self { secs: 0, nanos: 0 };

    /// Creates a timestamp. If `nanos` is greater than 999,999,999, uses 999,999,999 instead. Such values occur
    /// only on damaged disks.
    pub const fn new(secs: i64, nanos: u32) -> Self {
        Self { secs, nanos: if nanos > 999_999_999 { 999_999_999 } else { nanos } }
    }

    /// Returns the whole seconds since 1970-01-01 00:00 UTC, rounded down.
    pub const fn secs(self) -> i64 {
        self.secs
    }

    /// Returns nanoseconds within the second, below 1,000,000,000.
    pub const fn nanos(self) -> u32 {
        self.nanos
    }
}
