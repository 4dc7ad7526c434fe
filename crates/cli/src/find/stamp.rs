//! Times in the formats of find, in the C locale.
//!
//! Source: the GNU findutils manual, "Time Formats"; POSIX.1-2017 `strftime`.

use jiff::tz::TimeZone;
use obento::base::Timestamp;

use crate::format::date;
use crate::format::time::Clock;

/// A time zone for printed times.
#[derive(Clone, Debug)]
pub struct Zone(TimeZone);

impl Zone {
    /// Returns the zone of `TZ` or of the system.
    pub fn system() -> Self {
        Self(TimeZone::system())
    }

    /// Returns UTC.
    #[cfg(test)]
    pub fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// Returns `time` in the strftime format `format`.
    pub fn strftime(&self, format: &str, time: Timestamp) -> String {
        Clock::new(self.0.clone(), time).strftime(format, time)
    }

    /// Formats one `%Ak` or `%Tk` of `-printf`. Times with seconds have a fraction. Its tenth digit is 0, as in GNU
    /// find, so that scripts do not rely on the number of digits.
    pub fn directive(&self, kind: char, time: Timestamp) -> String {
        let fraction = format!(".{:09}0", time.nanos());
        match kind {
            '@' => format!("{}{fraction}", time.secs()),
            '+' => self.strftime("%Y-%m-%d+%H:%M:%S", time) + &fraction,
            'S' => self.strftime("%S", time) + &fraction,
            'T' | 'X' => self.strftime("%H:%M:%S", time) + &fraction,
            'c' => self.strftime("%a %b %e %H:%M:%S %Y", time),
            'D' | 'x' => self.strftime("%m/%d/%y", time),
            'r' => self.strftime("%I:%M:%S %p", time),
            's' => time.secs().to_string(),
            'a' | 'A' | 'b' | 'B' | 'C' | 'd' | 'e' | 'F' | 'g' | 'G' | 'h' | 'H' | 'I' | 'j' | 'k' | 'l'
            | 'm' | 'M' | 'n' | 'p' | 'P' | 'R' | 't' | 'u' | 'U' | 'V' | 'w' | 'W' | 'y' | 'Y' | 'z'
            | 'Z' => self.strftime(&format!("%{kind}"), time),
            other => format!("%{other}"),
        }
    }

    /// Formats `%a`, `%c` and `%t`: the format of `ctime(3)` with a fraction.
    pub fn ctime(&self, time: Timestamp) -> String {
        self.strftime(&format!("%a %b %e %H:%M:%S.{:09}0 %Y", time.nanos()), time)
    }

    /// Returns the last midnight before `time`.
    pub fn midnight(&self, time: Timestamp) -> Timestamp {
        jiff::Timestamp::from_second(time.secs())
            .ok()
            .and_then(|moment| moment.to_zoned(self.0.clone()).start_of_day().ok())
            .map_or(time, |day| Timestamp::new(day.timestamp().as_second(), 0))
    }

    /// Parses a date. Missing parts are those of `now`.
    pub fn parse(&self, text: &str, now: Timestamp) -> Option<Timestamp> {
        date::parse(text, now, &self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Timestamp = Timestamp::new(1_795_268_933, 40_505_959);

    #[test]
    fn directives_read_like_gnu_finds() {
        let zone = Zone::utc();
        let all: Vec<_> = "@+STXcrxklDYjqZ".chars().map(|kind| zone.directive(kind, TIME)).collect();
        assert_eq!(
            all.join("|"),
            "1795268933.0405059590|2026-11-21+13:48:53.0405059590|53.0405059590|13:48:53.0405059590|\
             13:48:53.0405059590|Sat Nov 21 13:48:53 2026|01:48:53 PM|11/21/26|13| 1|11/21/26|2026|325|%q|UTC"
        );
        assert_eq!(zone.ctime(TIME), "Sat Nov 21 13:48:53.0405059590 2026");
    }

    #[test]
    fn dates_are_read_in_the_zone() {
        let parse = |text| Zone::utc().parse(text, TIME);
        assert_eq!(parse("2026-11-21 13:48:53.040505959"), Some(TIME));
        assert_eq!(parse("2026-11-21T15:48:53.040505959+02:00"), Some(TIME));
        assert_eq!(parse("2026-11-21"), Some(Timestamp::new(1_795_219_200, 0)));
        assert_eq!(parse("@5"), Some(Timestamp::new(5, 0)));
        assert_eq!(parse("now"), Some(TIME));
        assert_eq!(parse("next blue moon"), None);
        assert_eq!(Zone::utc().midnight(TIME), Timestamp::new(1_795_219_200, 0));
    }
}
