//! Local times as a date and a time of 16 bits.
//!
//! Layout: a date is `yyyyyyym mmmddddd` with years from 1980, a time is `hhhhhmmm mmmsssss` in steps of two seconds.
//! The creation time has an additional byte in units of 10 ms.
//! Source: fatgen103, "Date and Time Formats". The disk does not store the time zone: the caller provides it.

use obento_base::Timestamp;

const DAY: i64 = 86_400;
/// Days from 1970-01-01 to 1980-01-01.
const EPOCH_DAYS: i64 = 3_652;
/// 2107-12-31 23:59:58 local time, in seconds since 1970: the last time that the format can store.
const LAST: i64 = 4_354_819_198;

/// Offset from UTC in minutes of the clocks that wrote the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Zone(pub i16);

impl Zone {
    fn seconds(self) -> i64 {
        i64::from(self.0).saturating_mul(60)
    }
}

/// Returns the number of days from 1970-01-01 to a day of the Gregorian calendar, for years after 0. Source: Howard
/// Hinnant, "chrono-Compatible Low-Level Date Algorithms", `days_from_civil`.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let shifted = if month > 2 { month.saturating_sub(3) } else { month.saturating_add(9) };
    let year = if month > 2 { year } else { year.saturating_sub(1) };
    let of_year = shifted.saturating_mul(153).saturating_add(2) / 5;
    let leaps = (year / 4).saturating_sub(year / 100).saturating_add(year / 400);
    let day = of_year.saturating_add(day).saturating_sub(1);
    year.saturating_mul(365).saturating_add(leaps).saturating_add(day).saturating_sub(719_468)
}

/// Returns the year, month and day that are `days` after 1970-01-01, for years after 0. Source: the same,
/// `civil_from_days`.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days.saturating_add(719_468);
    let (era, of_era) = (days / 146_097, days % 146_097);
    let leaps = (of_era / 1460).saturating_sub(of_era / 36_524).saturating_add(of_era / 146_096);
    let of_era_years = of_era.saturating_sub(leaps) / 365;
    let before = of_era_years.saturating_mul(365).saturating_add(of_era_years / 4);
    let of_year = of_era.saturating_sub(before.saturating_sub(of_era_years / 100));
    let shifted = of_year.saturating_mul(5).saturating_add(2) / 153;
    let day = of_year.saturating_sub(shifted.saturating_mul(153).saturating_add(2) / 5).saturating_add(1);
    let month = if shifted < 10 { shifted.saturating_add(3) } else { shifted.saturating_sub(9) };
    let year = era.saturating_mul(400).saturating_add(of_era_years);
    (if month > 2 { year } else { year.saturating_add(1) }, month, day)
}

/// Returns the time that `date` and `time` encode. A month or day of 0 (unknown) counts as 1.
pub fn decode(date: u16, time: u16, hundredths: u8, zone: Zone) -> Timestamp {
    let field = |value: u16, shift: u32, mask: u16| i64::from(value >> shift & mask);
    let (month, day) = (field(date, 5, 15).clamp(1, 12), field(date, 0, 31).max(1));
    let days = days(field(date, 9, 127).saturating_add(1980), month, day);
    let hours = field(time, 11, 31).saturating_mul(3600);
    let minutes = field(time, 5, 63).saturating_mul(60);
    let seconds = field(time, 0, 31).saturating_mul(2).saturating_add(i64::from(hundredths / 100));
    let total = [hours, minutes, seconds].into_iter().fold(days.saturating_mul(DAY), i64::saturating_add);
    let nanos = u32::from(hundredths % 100).saturating_mul(10_000_000);
    Timestamp::new(total.saturating_sub(zone.seconds()), nanos)
}

/// Returns date, time and hundredths of seconds (0 to 199) for `moment`, limited to the years 1980 to 2107.
pub fn encode(moment: Timestamp, zone: Zone) -> (u16, u16, u8) {
    let first = EPOCH_DAYS.saturating_mul(DAY);
    let local = moment.secs().saturating_add(zone.seconds());
    let hundredths = if (first..=LAST).contains(&local) { moment.nanos() / 10_000_000 } else { 0 };
    let local = local.clamp(first, LAST);
    let seconds = local.rem_euclid(DAY);
    let (year, month, day) = civil(local.div_euclid(DAY));
    let bits = |value: i64, shift: u32| u16::try_from(value).unwrap_or(0) << shift;
    let date = bits(year.saturating_sub(1980), 9) | bits(month, 5) | bits(day, 0);
    let time = bits(seconds / 3600, 11) | bits(seconds / 60 % 60, 5) | bits(seconds % 60 / 2, 0);
    let odd = if seconds % 2 == 1 { 100 } else { 0 };
    (date, time, u8::try_from(hundredths.saturating_add(odd)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UTC: Zone = Zone(0);

    #[test]
    fn a_moment_is_kept_to_two_seconds_and_its_hundredths() {
        // 2024-02-29 23:59:59.75
        let moment = Timestamp::new(1_709_251_199, 750_000_000);
        let (date, time, hundredths) = encode(moment, UTC);
        assert_eq!((date, time, hundredths), (44 << 9 | 2 << 5 | 29, 23 << 11 | 59 << 5 | 29, 175));
        assert_eq!(decode(date, time, hundredths, UTC), moment);
        assert_eq!(decode(date, time, 0, UTC), Timestamp::new(1_709_251_198, 0));
    }

    #[test]
    fn every_day_of_the_format_survives() {
        for day in EPOCH_DAYS..=LAST / DAY {
            let moment = Timestamp::new(day * DAY + 43_200, 0);
            let (date, time, _) = encode(moment, UTC);
            assert_eq!(decode(date, time, 0, UTC), moment);
        }
    }

    #[test]
    fn times_outside_the_years_of_the_format_are_clamped() {
        let kept = |secs| {
            let (date, time, hundredths) = encode(Timestamp::new(secs, 5), UTC);
            decode(date, time, hundredths, UTC).secs()
        };
        assert_eq!(kept(0), EPOCH_DAYS * DAY);
        assert_eq!(kept(i64::MIN), EPOCH_DAYS * DAY);
        assert_eq!(kept(LAST), LAST);
        assert_eq!(kept(i64::MAX), LAST);
    }

    #[test]
    fn the_time_zone_defines_the_meaning_of_the_clock() {
        let moment = Timestamp::new(1_700_000_000, 0);
        let (date, time, _) = encode(moment, Zone(120));
        assert_eq!(decode(date, time, 0, Zone(120)), moment);
        assert_eq!(decode(date, time, 0, UTC).secs(), 1_700_000_000 + 7200);
    }

    #[test]
    fn a_date_of_zeros_is_the_first_day_and_no_bits_are_too_odd() {
        assert_eq!(decode(0, 0, 0, UTC).secs(), EPOCH_DAYS * DAY);
        decode(u16::MAX, u16::MAX, u8::MAX, Zone(i16::MIN));
    }
}
