//! Dates for `touch -d` and `-newermt` of find: the common part of the syntax of GNU's parser.
//!
//! A date is a sequence of items in any order: a day (`2026-11-21`, `20261121`, `11/21/2026`, `21 Nov
//! 2026`), a time of day (`13:48:53.5`, `1:48pm`, optionally with a zone), a zone (`UTC`, `+02:00`), a word
//! (`yesterday`), a weekday, or an offset (`3 days ago`, `+1 hour`, `next week`). `@SECONDS` must be the only
//! item. A missing day is the current day. A missing time of day is 0:00, or the current time if there are
//! only offsets.
//! Source: the GNU coreutils manual, "Date input formats".

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::{Offset, TimeZone};
use jiff::{Span, ToSpan};
use obento::base::Timestamp;

/// Parses `text`. Missing parts are those of `now` in `zone`.
pub fn parse(text: &str, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let text = text.trim();
    if let Some(seconds) = text.strip_prefix('@') {
        return parse_seconds(seconds);
    }
    if let Ok(moment) = text.parse::<jiff::Timestamp>() {
        return from_jiff(moment);
    }
    let now = jiff::Timestamp::new(now.secs(), i32::try_from(now.nanos()).ok()?).ok()?;
    let mut items = Items { year: now.to_zoned(zone.clone()).year(), ..Items::default() };
    let words = words(&text.to_ascii_lowercase());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut rest = words.as_slice();
    while !rest.is_empty() {
        let used = items.take(rest)?;
        rest = rest.get(used..)?;
    }
    from_jiff(items.moment(now, zone)?)
}

/// Splits the text into words: `2026-11-21t13:48` is two words, and a separate sign belongs to the next
/// word.
fn words(text: &str) -> Vec<String> {
    let mut spaced = String::with_capacity(text.len());
    let mut before = ' ';
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let splits = c == 't' && before.is_ascii_digit() && chars.peek().is_some_and(char::is_ascii_digit);
        spaced.push(if splits || c == ',' && !before.is_ascii_digit() || c.is_whitespace() {
            ' '
        } else {
            c
        });
        before = c;
    }
    let mut words: Vec<String> = Vec::new();
    for word in spaced.split(' ').map(|word| word.trim_end_matches(',')).filter(|word| !word.is_empty()) {
        match words.last_mut() {
            Some(sign) if sign == "+" || sign == "-" => sign.push_str(word),
            _ => words.push(word.to_owned()),
        }
    }
    words
}

/// Parses `[[CC]YY]MMDDhhmm[.ss]` of `touch -t`.
pub fn parse_stamp(text: &str, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let (digits, seconds) = text.split_once('.').unwrap_or((text, "00"));
    let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if !matches!(digits.len(), 8 | 10 | 12) || !is_number(digits) || seconds.len() != 2 || !is_number(seconds)
    {
        return None;
    }
    let (year, rest) = digits.split_at(digits.len() - 8);
    let year: i16 = match year.len() {
        0 => jiff::Timestamp::from_second(now.secs()).ok()?.to_zoned(zone.clone()).year(),
        // POSIX: 69 to 99 are years of the last century.
        2 => year.parse::<i16>().ok().map(|year| if year < 69 { 2000 + year } else { 1900 + year })?,
        _ => year.parse().ok()?,
    };
    let two = |at: usize| rest.get(at..at + 2)?.parse::<i8>().ok();
    let second: i8 = seconds.parse().ok().filter(|&second| second <= 60)?;
    let at = DateTime::new(year, two(0)?, two(2)?, two(4)?, two(6)?, second.min(59), 0).ok()?;
    let moment = at.to_zoned(zone.clone()).ok()?.timestamp();
    from_jiff(moment.checked_add(i64::from(second == 60).seconds()).ok()?)
}

fn from_jiff(moment: jiff::Timestamp) -> Option<Timestamp> {
    let nanos = moment.as_nanosecond();
    let secs = i64::try_from(nanos.div_euclid(1_000_000_000)).ok()?;
    Some(Timestamp::new(secs, u32::try_from(nanos.rem_euclid(1_000_000_000)).ok()?))
}

/// Parses `SECONDS[.FRACTION]`. Formats have a greater range than a calendar.
fn parse_seconds(text: &str) -> Option<Timestamp> {
    let (whole, fraction) = text.split_once(['.', ',']).unwrap_or((text, ""));
    let secs: i64 = whole.parse().ok()?;
    let nanos = parse_fraction(fraction)?;
    match (whole.starts_with('-'), nanos) {
        (true, 1..) => Some(Timestamp::new(secs.checked_sub(1)?, 1_000_000_000 - nanos)),
        _ => Some(Timestamp::new(secs, nanos)),
    }
}

/// Parses the digits of a fraction as nanoseconds; digits after the ninth are ignored.
fn parse_fraction(digits: &str) -> Option<u32> {
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    format!("{digits:0<9}").get(..9)?.parse().ok()
}

/// The items that were parsed so far.
#[derive(Default)]
struct Items {
    zone: Option<TimeZone>,
    /// The year of a date without one.
    year: i16,
    date: Option<Date>,
    time: Option<Time>,
    weekday: Option<Weekday>,
    spans: Vec<Span>,
    /// A word such as `today` or `now` was found.
    said_word: bool,
    at_midnight: bool,
}

impl Items {
    /// Parses the item at the start of `words`. Returns the number of its words.
    fn take(&mut self, words: &[&str]) -> Option<usize> {
        let word = *words.first()?;
        if let Some(used) = self.take_offset(words) {
            return Some(used);
        }
        if let Some(used) = self.take_named_date(words) {
            return Some(used);
        }
        let taken = match word {
            "now" | "today" => set_flag(&mut self.said_word),
            "yesterday" => self.add((-1).days()),
            "tomorrow" => self.add(1.day()),
            "midnight" => set_flag(&mut self.at_midnight),
            "noon" => set(&mut self.time, Time::new(12, 0, 0, 0).ok()?),
            _ if self.take_zone(word) => Some(()),
            _ => match () {
                () if weekday(word).is_some() => set(&mut self.weekday, weekday(word)?),
                () if parse_date(word).is_some() => set(&mut self.date, parse_date(word)?),
                () => return self.take_time(words),
            },
        };
        taken.map(|()| 1)
    }

    fn add(&mut self, span: Span) -> Option<()> {
        self.spans.push(span);
        Some(())
    }

    /// Parses `3 days ago`, `+1 hour`, `-2 weeks`, `next month`, `last year`, `week`.
    fn take_offset(&mut self, words: &[&str]) -> Option<usize> {
        let word = *words.first()?;
        let (count, used) = match word {
            "next" => (1, 1),
            "last" => (-1, 1),
            "this" => (0, 1),
            _ => match word.parse::<i64>() {
                Ok(count) => (count, 1),
                Err(_) => match split_number(word) {
                    // `+3days`
                    Some((count, unit)) => return self.take_unit(count, unit, words, 1),
                    None => (1, 0),
                },
            },
        };
        let unit = *words.get(used)?;
        self.take_unit(count, unit, words, used + 1)
    }

    fn take_unit(&mut self, count: i64, unit: &str, words: &[&str], used: usize) -> Option<usize> {
        let ago = words.get(used) == Some(&"ago");
        let count = if ago { count.checked_neg()? } else { count };
        let span = unit_span(unit, count)?;
        self.add(span)?;
        Some(used + usize::from(ago))
    }

    /// `21 nov 2026`, `nov 21 2026`, `nov 21`.
    fn take_named_date(&mut self, words: &[&str]) -> Option<usize> {
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<i16>().ok());
        let (month, day) =
            match (words.first().and_then(|word| month(word)), words.get(1).and_then(|word| month(word))) {
                (Some(month), _) => (month, number(1)?),
                (None, Some(month)) => (month, number(0)?),
                (None, None) => return None,
            };
        let year = number(2).filter(|&year| year > 31);
        let day = i8::try_from(day).ok()?;
        let of_year = year.unwrap_or(self.year);
        set(&mut self.date, Date::new(of_year, month, day).ok()?)?;
        Some(if year.is_some() { 3 } else { 2 })
    }

    fn take_zone(&mut self, word: &str) -> bool {
        let zone = match word {
            "utc" | "gmt" | "z" | "ut" => Some(TimeZone::UTC),
            _ => parse_offset(word).map(TimeZone::fixed),
        };
        zone.is_some_and(|zone| set(&mut self.zone, zone).is_some())
    }

    /// `13:48`, `13:48:53.5+02:00`, `1:48pm`, `1:48 pm`, `1 pm`.
    fn take_time(&mut self, words: &[&str]) -> Option<usize> {
        let word = *words.first()?;
        let (word, glued) = match word.strip_suffix("am").or_else(|| word.strip_suffix("pm")) {
            Some(clock) => (clock, word.get(clock.len()..)),
            None => (word, None),
        };
        let next = words.get(1).copied().filter(|next| matches!(*next, "am" | "pm") && glued.is_none());
        let half = glued.or(next);
        let zone_at = word.find(['+', '-', 'z']);
        let (clock, zone) = word.split_at(zone_at.unwrap_or(word.len()));
        if !zone.is_empty() && !self.take_zone(zone) {
            return None;
        }
        let mut parts = clock.split(':');
        let hour: i8 = parts.next()?.parse().ok()?;
        let minute: i8 = match parts.next() {
            Some(minute) => minute.parse().ok()?,
            None => half.map(|_| 0)?,
        };
        let (second, fraction) =
            parts.next().map_or(("0", ""), |s| s.split_once(['.', ',']).unwrap_or((s, "")));
        let hour = match half {
            None => hour,
            Some(_) if !(1..=12).contains(&hour) => return None,
            Some(half) => hour % 12 + if half == "pm" { 12 } else { 0 },
        };
        let nanos = i32::try_from(parse_fraction(fraction)?).ok()?;
        let time = Time::new(hour, minute, second.parse().ok()?, nanos).ok()?;
        if parts.next().is_some() {
            return None;
        }
        set(&mut self.time, time)?;
        Some(1 + usize::from(next.is_some()))
    }

    /// Returns the time that all items specify.
    fn moment(self, now: jiff::Timestamp, zone: &TimeZone) -> Option<jiff::Timestamp> {
        let zone = self.zone.unwrap_or_else(|| zone.clone());
        let now = now.to_zoned(zone.clone());
        let mut date = self.date.unwrap_or_else(|| now.date());
        if let Some(weekday) = self.weekday.filter(|day| self.date.is_none() && date.weekday() != *day) {
            date = date.nth_weekday(1, weekday).ok()?;
        }
        let says_day = self.date.is_some() || self.weekday.is_some() || self.at_midnight;
        let is_now = !says_day && (self.said_word || !self.spans.is_empty());
        let time = self.time.unwrap_or_else(|| if is_now { now.time() } else { Time::midnight() });
        let mut at = date.to_datetime(time).to_zoned(zone).ok()?;
        for span in self.spans {
            at = at.checked_add(span).ok()?;
        }
        Some(at.timestamp())
    }
}

/// Each item may occur once.
fn set<T>(slot: &mut Option<T>, value: T) -> Option<()> {
    slot.is_none().then(|| *slot = Some(value))
}

fn set_flag(flag: &mut bool) -> Option<()> {
    (!*flag).then(|| *flag = true)
}

/// Splits `+3days`: a signed number followed immediately by letters.
fn split_number(word: &str) -> Option<(i64, &str)> {
    let at = word.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = word.split_at(at);
    number.parse().ok().map(|count| (count, unit))
}

fn unit_span(unit: &str, count: i64) -> Option<Span> {
    let unit = unit.strip_suffix('s').filter(|unit| unit.len() > 1).unwrap_or(unit);
    let span = Span::new();
    match unit {
        "sec" | "second" => span.try_seconds(count),
        "min" | "minute" => span.try_minutes(count),
        "hour" => span.try_hours(count),
        "day" => span.try_days(count),
        "week" => span.try_weeks(count),
        "fortnight" => span.try_weeks(count.checked_mul(2)?),
        "month" => span.try_months(count),
        "year" => span.try_years(count),
        _ => return None,
    }
    .ok()
}

fn month(word: &str) -> Option<i8> {
    const NAMES: [&str; 12] = [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ];
    let word = word.trim_end_matches('.');
    let at = NAMES.iter().position(|name| *name == word || word.len() == 3 && name.starts_with(word))?;
    i8::try_from(at + 1).ok()
}

fn weekday(word: &str) -> Option<Weekday> {
    const NAMES: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
    let word = word.trim_end_matches('.');
    let at = NAMES.iter().position(|name| *name == word || word.len() == 3 && name.starts_with(word))?;
    Weekday::from_monday_zero_offset(i8::try_from(at).ok()?).ok()
}

/// `2026-11-21`, `20261121`, `11/21/2026`.
fn parse_date(word: &str) -> Option<Date> {
    if word.len() == 8 && word.bytes().all(|b| b.is_ascii_digit()) {
        let part = |at: std::ops::Range<usize>| word.get(at)?.parse::<i16>().ok();
        return Date::new(part(0..4)?, i8::try_from(part(4..6)?).ok()?, i8::try_from(part(6..8)?).ok()?).ok();
    }
    if word.contains('/') {
        let mut parts = word.split('/').map(|part| part.parse::<i16>().ok());
        let (month, day, year) = (parts.next()??, parts.next()??, parts.next()??);
        return Date::new(year, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok();
    }
    let looks_right = word.matches('-').count() == 2 && word.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    word.parse().ok().filter(|_| looks_right)
}

/// `+02:00`, `-0530`, `+2`.
fn parse_offset(word: &str) -> Option<Offset> {
    let sign = match word.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let digits: String = word.get(1..)?.chars().filter(|c| *c != ':').collect();
    if digits.is_empty() || digits.len() > 4 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number: i32 = digits.parse().ok()?;
    let (hours, minutes) = if digits.len() > 2 { (number / 100, number % 100) } else { (number, 0) };
    if minutes > 59 {
        return None;
    }
    Offset::from_seconds(sign * (hours * 3600 + minutes * 60)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sat 2026-11-21 13:48:53.5 UTC.
    const NOW: Timestamp = Timestamp::new(1_795_268_933, 500_000_000);
    const DAY: i64 = 86_400;
    const MIDNIGHT: i64 = NOW.secs() - NOW.secs() % DAY;

    fn at(text: &str) -> Option<(i64, u32)> {
        parse(text, NOW, &TimeZone::UTC).map(|time| (time.secs(), time.nanos()))
    }

    #[test]
    fn dates_and_times_are_read_as_gnu_date_reads_them() {
        let noon = |secs: i64| Some((secs, 0));
        for text in [
            "2026-11-21",
            "20261121",
            "11/21/2026",
            "21 Nov 2026",
            "Nov 21 2026",
            "November 21, 2026",
            "Saturday",
            "2026-11-21 UTC",
            "midnight",
        ] {
            assert_eq!(at(text), noon(MIDNIGHT), "{text}");
        }
        for text in [
            "2026-11-21 13:48:53.5",
            "2026-11-21T13:48:53.5Z",
            "2026-11-21T13:48:53.5",
            "Sat, 21 Nov 2026 13:48:53.5 +0000",
            "2026-11-21 15:48:53.5+02:00",
            "1:48:53.5pm",
            "1:48:53.5 PM 2026-11-21",
            "now",
            "today",
            "0 days",
        ] {
            assert_eq!(at(text), Some((NOW.secs(), NOW.nanos())), "{text}");
        }
        assert_eq!(at("12:00"), noon(MIDNIGHT + DAY / 2));
        assert_eq!(at("1pm"), noon(MIDNIGHT + 13 * 3600));
        assert_eq!(at("12am"), noon(MIDNIGHT));
        assert_eq!(at("Monday"), noon(MIDNIGHT + 2 * DAY));
        assert_eq!(at("2026-11-21 12:00 -0130"), noon(MIDNIGHT + DAY / 2 + 5400));
    }

    #[test]
    fn seconds_since_1970_may_be_negative_and_broken() {
        assert_eq!(at("@5"), Some((5, 0)));
        assert_eq!(at("@-1.25"), Some((-2, 750_000_000)));
        assert_eq!(at("@1.5"), Some((1, 500_000_000)));
        assert_eq!(at("@9223372036854775807"), Some((i64::MAX, 0)));
    }

    #[test]
    fn offsets_are_relative_to_the_given_time_or_to_now() {
        let from_now = |secs: i64| Some((NOW.secs() + secs, NOW.nanos()));
        assert_eq!(at("yesterday"), from_now(-DAY));
        assert_eq!(at("3 days ago"), from_now(-3 * DAY));
        assert_eq!(at("+1 hour"), from_now(3600));
        assert_eq!(at("-2weeks"), from_now(-14 * DAY));
        assert_eq!(at("next week"), from_now(7 * DAY));
        assert_eq!(at("1 day 2 hours ago"), from_now(DAY - 7200));
        assert_eq!(at("2026-11-21 + 1 day"), Some((MIDNIGHT + DAY, 0)));
        assert_eq!(at("2026-11-21 +1 day"), Some((MIDNIGHT + DAY, 0)));
    }

    #[test]
    fn invalid_dates_are_rejected() {
        for bad in
            ["blue", "2026-13-01", "25:00", "2026-11-21 2026-11-22", "13pm", "@", "@x", "5", "12:00 13:00"]
        {
            assert_eq!(at(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn stamps_of_touch_fill_in_the_year() {
        let stamp = |text| parse_stamp(text, NOW, &TimeZone::UTC).map(|time| time.secs());
        assert_eq!(stamp("202611211348.53"), Some(NOW.secs()));
        assert_eq!(stamp("2611211348.53"), Some(NOW.secs()));
        assert_eq!(stamp("11211348.53"), Some(NOW.secs()));
        assert_eq!(stamp("7001010000"), Some(0));
        assert_eq!(stamp("197001010000.60"), Some(60));
        for bad in ["", "1121134", "112113488", "13011348", "11211348.5", "11211348.61", "+1211348"] {
            assert_eq!(stamp(bad), None, "{bad:?}");
        }
    }
}
