//! Times: units of 100 nanoseconds since 1601-01-01 00:00 UTC (MS-DTYP 2.3.3).

use obento_base::Timestamp;

/// Seconds from 1601 to 1970.
const TO_UNIX: i64 = 11_644_473_600;
/// Units of a second.
const UNITS: u64 = 10_000_000;

/// Returns the moment that a stored time means.
pub fn decode(stored: u64) -> Timestamp {
    let secs = i64::try_from(stored / UNITS).unwrap_or(i64::MAX);
    let nanos = u32::try_from(stored % UNITS).unwrap_or(0).saturating_mul(100);
    Timestamp::new(secs.saturating_sub(TO_UNIX), nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_and_after_1970_are_moments() {
        assert_eq!(decode(0), Timestamp::new(-TO_UNIX, 0));
        assert_eq!(decode(116_444_736_000_000_001), Timestamp::new(0, 100));
        assert_eq!(decode(133_444_736_001_234_567), Timestamp::new(1_700_000_000, 123_456_700));
    }
}
