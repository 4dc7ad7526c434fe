//! Times in the time zone of the user, in the formats of `ls --time-style` and `stat`.
//!
//! A listing has a time on each line, and a zone changes its offset rarely. The offset of each period is therefore
//! cached, and the fixed styles are written directly, digit by digit.

use jiff::fmt::strtime;
use jiff::tz::TimeZone;
use jiff::{Timestamp as Instant, Zoned};
use obento::base::Timestamp;

const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
/// Half a mean Gregorian year: older files show their year instead of the hour (ls.c).
const HALF_YEAR: i64 = 31_556_952 / 2;
const DAY: i64 = 86_400;

/// A style of times.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TimeStyle {
    /// `Jan  2 15:04`, or `Jan  2  2006` if the time is not within the last six months.
    Locale,
    /// `2006-01-02 15:04:05.000000000 +0000`.
    FullIso,
    /// `2006-01-02 15:04`.
    LongIso,
    /// `01-02 15:04`, or `2006-01-02 ` if the time is not within the last six months.
    Iso,
    /// strftime formats for old times and for recent ones.
    Format { old: String, recent: String },
}

impl TimeStyle {
    /// Parses the value of `--time-style` or `TIME_STYLE`.
    pub fn parse(text: &str) -> Result<Self, String> {
        // `posix-` requests the style only outside the POSIX locale; obento has one locale.
        Ok(match text.strip_prefix("posix-").unwrap_or(text) {
            "locale" => Self::Locale,
            "full-iso" => Self::FullIso,
            "long-iso" => Self::LongIso,
            "iso" => Self::Iso,
            format if format.starts_with('+') => {
                let (old, recent) = format[1..].split_once('\n').unwrap_or((&format[1..], &format[1..]));
                Self::Format { old: old.to_owned(), recent: recent.to_owned() }
            }
            _ => {
                return Err(format!(
                    "invalid time style '{text}'\n  help: use full-iso, long-iso, iso, locale or +FORMAT (see date(1))"
                ));
            }
        })
    }
}

/// A time in some zone, split into its fields.
#[derive(Clone, Copy, Debug)]
struct Civil {
    year: i64,
    month: u8,
    day: u8,
    hour: u8,
    minute: u8,
    second: u8,
}

impl Civil {
    /// Splits `secs` since 1970, to which the zone's offset was added. Source: Howard Hinnant,
    /// "chrono-compatible low-level date algorithms", `civil_from_days`.
    fn new(secs: i64) -> Self {
        let (days, rest) = (secs.div_euclid(DAY), secs.rem_euclid(DAY));
        let z = days + 719_468;
        let era = z.div_euclid(146_097);
        let day_of_era = z.rem_euclid(146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * day_of_year + 2) / 153;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
        Self {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month: month as u8,
            day: (day_of_year - (153 * shifted + 2) / 5 + 1) as u8,
            hour: (rest / 3600) as u8,
            minute: (rest / 60 % 60) as u8,
            second: (rest % 60) as u8,
        }
    }
}

/// A period in seconds since 1970, without `end`, in which the zone is `offset` seconds ahead of UTC.
#[derive(Clone, Copy, Debug)]
struct Period {
    start: i64,
    end: i64,
    offset: i32,
}

/// Writes times.
pub struct Clock {
    zone: TimeZone,
    now: Timestamp,
    periods: Vec<Period>,
    last: (i64, Civil),
}

impl Clock {
    /// Uses the zone of `TZ` or of the system.
    pub fn system() -> Self {
        let now = Instant::now();
        let now = Timestamp::new(now.as_second(), now.subsec_nanosecond().max(0) as u32);
        Self::new(TimeZone::system(), now)
    }

    /// Uses `zone`, and `now` as the present time.
    pub fn new(zone: TimeZone, now: Timestamp) -> Self {
        Self { zone, now, periods: Vec::new(), last: (0, Civil::new(0)) }
    }

    /// Returns the present time.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Appends `time` to `out` in `style`.
    pub fn write(&mut self, out: &mut Vec<u8>, style: &TimeStyle, time: Timestamp) {
        match style {
            TimeStyle::Locale => self.write_locale(out, time),
            TimeStyle::FullIso => self.write_full(out, time),
            TimeStyle::LongIso => {
                let civil = self.civil(time);
                date(out, civil);
                out.push(b' ');
                hour_minute(out, civil);
            }
            TimeStyle::Iso => {
                let civil = self.civil(time);
                if self.is_recent(time) {
                    two(out, civil.month);
                    out.push(b'-');
                    two(out, civil.day);
                    out.push(b' ');
                    hour_minute(out, civil);
                } else {
                    date(out, civil);
                    out.push(b' ');
                }
            }
            TimeStyle::Format { old, recent } => {
                let format = if self.is_recent(time) { recent } else { old };
                let text = self.strftime(format, time);
                out.extend_from_slice(text.as_bytes());
            }
        }
    }

    /// Returns `time` in `style`.
    pub fn text(&mut self, style: &TimeStyle, time: Timestamp) -> String {
        let mut out = Vec::with_capacity(40);
        self.write(&mut out, style, time);
        String::from_utf8_lossy(&out).into_owned()
    }

    /// Returns `time` in a format of strftime(3); unknown conversions are not replaced.
    pub fn strftime(&self, format: &str, time: Timestamp) -> String {
        let zoned = self.zoned(time);
        let config = strtime::Config::new().lenient(true);
        // A lenient format has no error.
        strtime::BrokenDownTime::from(&zoned).to_string_with_config(&config, format).unwrap_or_default()
    }

    /// Replaces times beyond the years -9999 to 9999, which only a damaged disk stores, by the nearest
    /// end of this range.
    fn zoned(&self, time: Timestamp) -> Zoned {
        let secs = time.secs().clamp(Instant::MIN.as_second(), Instant::MAX.as_second());
        let nanos = i32::try_from(time.nanos()).unwrap_or(0);
        Instant::new(secs, nanos).unwrap_or(Instant::UNIX_EPOCH).to_zoned(self.zone.clone())
    }

    fn write_locale(&mut self, out: &mut Vec<u8>, time: Timestamp) {
        let civil = self.civil(time);
        out.extend_from_slice(MONTHS[usize::from(civil.month - 1)]);
        out.push(b' ');
        out.push(if civil.day < 10 { b' ' } else { b'0' + civil.day / 10 });
        out.push(b'0' + civil.day % 10);
        out.push(b' ');
        if self.is_recent(time) {
            hour_minute(out, civil);
        } else {
            out.push(b' ');
            year(out, civil.year, b' ');
        }
    }

    fn write_full(&mut self, out: &mut Vec<u8>, time: Timestamp) {
        let civil = self.civil(time);
        date(out, civil);
        out.push(b' ');
        hour_minute(out, civil);
        out.push(b':');
        two(out, civil.second);
        out.push(b'.');
        let mut unit = 100_000_000;
        while unit > 0 {
            out.push(b'0' + (time.nanos() / unit % 10) as u8);
            unit /= 10;
        }
        let offset = self.offset(time.secs());
        out.extend_from_slice(if offset < 0 { b" -" } else { b" +" });
        let minutes = offset.unsigned_abs() / 60;
        two(out, (minutes / 60) as u8);
        two(out, (minutes % 60) as u8);
    }

    fn is_recent(&self, time: Timestamp) -> bool {
        let border = Timestamp::new(self.now.secs().saturating_sub(HALF_YEAR), self.now.nanos());
        border < time && time < self.now
    }

    fn civil(&mut self, time: Timestamp) -> Civil {
        let limit = i64::MAX / 4;
        let local = time.secs().clamp(-limit, limit) + i64::from(self.offset(time.secs()));
        if self.last.0 != local {
            self.last = (local, Civil::new(local));
        }
        self.last.1
    }

    /// Returns the number of seconds that the zone is ahead of UTC.
    fn offset(&mut self, secs: i64) -> i32 {
        let holds = |p: &Period| p.start <= secs && secs < p.end;
        match self.periods.iter().position(holds) {
            Some(at) => {
                // The times of adjacent files are similar: the next search examines the same period first.
                self.periods.swap(0, at);
                self.periods[0].offset
            }
            None => {
                let period = self.period(secs);
                self.periods.insert(0, period);
                period.offset
            }
        }
    }

    fn period(&self, secs: i64) -> Period {
        let Ok(instant) = Instant::from_second(secs) else {
            return Period { start: secs, end: secs.saturating_add(1), offset: 0 };
        };
        let offset = self.zone.to_offset(instant).seconds();
        let end = self.zone.following(instant).next().map_or(i64::MAX, |t| t.timestamp().as_second());
        // `preceding` is strict, and a change at this second begins the period.
        let after = Instant::from_second(secs.saturating_add(1)).unwrap_or(instant);
        let start = self.zone.preceding(after).next().map_or(i64::MIN, |t| t.timestamp().as_second());
        Period { start: start.min(secs), end: end.max(secs.saturating_add(1)), offset }
    }
}

fn two(out: &mut Vec<u8>, value: u8) {
    out.extend_from_slice(&[b'0' + value / 10, b'0' + value % 10]);
}

fn hour_minute(out: &mut Vec<u8>, civil: Civil) {
    two(out, civil.hour);
    out.push(b':');
    two(out, civil.minute);
}

fn date(out: &mut Vec<u8>, civil: Civil) {
    year(out, civil.year, b'0');
    out.push(b'-');
    two(out, civil.month);
    out.push(b'-');
    two(out, civil.day);
}

/// Appends at least four digits.
fn year(out: &mut Vec<u8>, year: i64, fill: u8) {
    let text = year.to_string();
    if fill == b'0' {
        out.resize(out.len() + 4_usize.saturating_sub(text.len()), b'0');
    }
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(zone: &str) -> Clock {
        Clock::new(TimeZone::posix(zone).unwrap(), Timestamp::new(1_700_000_000, 0))
    }

    #[test]
    fn a_file_of_the_last_six_months_shows_the_hour_and_an_older_one_the_year() {
        let mut clock = clock("UTC0");
        for (secs, expected) in [
            (1_700_000_000 - 1, "Nov 14 22:13"),
            (1_700_000_000, "Nov 14  2023"),
            (1_700_000_000 - HALF_YEAR + 1, "May 16 07:18"),
            (1_700_000_000 - HALF_YEAR, "May 16  2023"),
            (0, "Jan  1  1970"),
            (-1, "Dec 31  1969"),
        ] {
            assert_eq!(clock.text(&TimeStyle::Locale, Timestamp::new(secs, 0)), expected);
        }
    }

    #[test]
    fn summer_time_begins_and_ends_at_the_right_second() {
        let mut clock = clock("CET-1CEST,M3.5.0,M10.5.0/3");
        for (secs, expected) in [
            (1_679_792_399, "2023-03-26 01:59:59.000000007 +0100"),
            (1_679_792_400, "2023-03-26 03:00:00.000000007 +0200"),
            (1_679_792_399, "2023-03-26 01:59:59.000000007 +0100"),
            (1_698_541_199, "2023-10-29 02:59:59.000000007 +0200"),
            (1_698_541_200, "2023-10-29 02:00:00.000000007 +0100"),
        ] {
            assert_eq!(clock.text(&TimeStyle::FullIso, Timestamp::new(secs, 7)), expected);
        }
    }

    #[test]
    fn dates_agree_with_jiff_over_the_range_that_disks_store() {
        let mut clock = clock("EST5EDT,M3.2.0,M11.1.0");
        for step in 0..4000 {
            let time = Timestamp::new(-2_147_483_648 + step * 4_294_967, 123_456_789);
            let expected = clock.strftime("%Y-%m-%d %H:%M:%S.%N %z", time);
            assert_eq!(clock.text(&TimeStyle::FullIso, time), expected);
        }
    }

    #[test]
    fn styles_are_those_of_ls() {
        assert_eq!(TimeStyle::parse("posix-long-iso"), Ok(TimeStyle::LongIso));
        let mut clock = clock("UTC0");
        let style = TimeStyle::parse("+%d.%m.%Y\n%H Uhr").unwrap();
        assert_eq!(clock.text(&style, Timestamp::new(0, 0)), "01.01.1970");
        assert_eq!(clock.text(&style, Timestamp::new(1_699_999_999, 0)), "22 Uhr");
        assert!(TimeStyle::parse("fullest").is_err());
    }

    #[test]
    fn no_time_is_too_far_away_to_be_shown() {
        let mut clock = clock("UTC0");
        for secs in [i64::MIN, i64::MAX] {
            assert!(!clock.text(&TimeStyle::FullIso, Timestamp::new(secs, 0)).is_empty());
            assert!(!clock.strftime("%Y", Timestamp::new(secs, 0)).is_empty());
        }
    }
}
