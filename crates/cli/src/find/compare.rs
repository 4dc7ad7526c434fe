//! Numeric tests: `N`, `+N`, `-N`, with units for sizes and intervals for times.

use obento::base::Timestamp;

/// A number to compare with, in the notation of find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compare {
    /// `N`.
    Equal(u64),
    /// `+N`.
    More(u64),
    /// `-N`.
    Less(u64),
}

/// The sign before a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sign {
    None,
    Plus,
    Minus,
}

fn split_sign(text: &str) -> (Sign, &str) {
    match text.as_bytes().first() {
        Some(b'+') => (Sign::Plus, &text[1..]),
        Some(b'-') => (Sign::Minus, &text[1..]),
        _ => (Sign::None, text),
    }
}

/// Parses digits only: `from_str` would accept a second sign.
fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

impl Compare {
    /// Parses `N`, `+N` or `-N`.
    pub fn parse(text: &str) -> Option<Self> {
        let (sign, number) = split_sign(text);
        let number = digits(number)?;
        Some(match sign {
            Sign::None => Self::Equal(number),
            Sign::Plus => Self::More(number),
            Sign::Minus => Self::Less(number),
        })
    }

    /// Returns whether `value` satisfies the comparison.
    pub fn matches(self, value: u64) -> bool {
        match self {
            Self::Equal(n) => value == n,
            Self::More(n) => value > n,
            Self::Less(n) => value < n,
        }
    }
}

/// `-size N[cwbkMG]`: sizes are counted in whole units, rounded up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeTest {
    unit: u64,
    count: Compare,
}

impl SizeTest {
    /// Parses `N`, `+N` or `-N` with a unit; the default unit is a block of 512 bytes.
    pub fn parse(text: &str) -> Option<Self> {
        let (unit, number) = match text.as_bytes().last()? {
            b'b' => (512, &text[..text.len() - 1]),
            b'c' => (1, &text[..text.len() - 1]),
            b'w' => (2, &text[..text.len() - 1]),
            b'k' => (1 << 10, &text[..text.len() - 1]),
            b'M' => (1 << 20, &text[..text.len() - 1]),
            b'G' => (1 << 30, &text[..text.len() - 1]),
            _ => (512, text),
        };
        Some(Self { unit, count: Compare::parse(number)? })
    }

    /// Returns whether a file of `size` bytes satisfies the test.
    pub fn matches(self, size: u64) -> bool {
        self.count.matches(size.div_ceil(self.unit))
    }
}

/// A time in nanoseconds since 1970.
pub type Nanos = i128;

/// Returns the nanoseconds since 1970 of a timestamp.
pub fn nanos(time: Timestamp) -> Nanos {
    Nanos::from(time.secs()) * 1_000_000_000 + Nanos::from(time.nanos())
}

const SECOND: Nanos = 1_000_000_000;
const DAY: Nanos = 86_400 * SECOND;
const MINUTE: Nanos = 60 * SECOND;

/// The interval of `-mtime N` and similar tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeTest {
    /// Later than this time.
    After(Nanos),
    /// Earlier than this time.
    Before(Nanos),
    /// Later than this time, by at most this duration.
    Within(Nanos, Nanos),
}

impl TimeTest {
    /// Parses the argument of `-mtime`. `day_end` is the present time, or with `-daystart` the next
    /// midnight.
    ///
    /// `-N` begins one second earlier than N days ago, as in GNU find.
    pub fn days(text: &str, day_end: Nanos) -> Option<Self> {
        let start = day_end - DAY;
        let origin = if split_sign(text).0 == Sign::Minus { start + DAY - SECOND } else { start };
        Self::relative(text, origin, DAY)
    }

    /// Parses the argument of `-mmin`.
    pub fn minutes(text: &str, day_end: Nanos) -> Option<Self> {
        Self::relative(text, day_end, MINUTE)
    }

    fn relative(text: &str, origin: Nanos, unit: Nanos) -> Option<Self> {
        let (sign, number) = split_sign(text);
        let plain = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let count: f64 = plain.then(|| number.parse().ok()).flatten()?;
        // Saturates: an excessive count is earlier than any file.
        let moment = origin.saturating_sub((count * unit as f64) as Nanos);
        Some(match sign {
            Sign::None => Self::Within(moment, unit),
            Sign::Plus => Self::Before(moment),
            Sign::Minus => Self::After(moment),
        })
    }

    /// Returns whether a file with the time `time` satisfies the test.
    pub fn matches(self, time: Timestamp) -> bool {
        let time = nanos(time);
        match self {
            Self::After(moment) => time > moment,
            Self::Before(moment) => time < moment,
            Self::Within(moment, window) => time > moment && time - moment <= window,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_up_to_whole_units() {
        let test = |text: &str, size| SizeTest::parse(text).unwrap().matches(size);
        assert!(test("1k", 1) && test("1k", 1024) && !test("1k", 1025) && !test("1k", 0));
        assert!(test("-1k", 0) && !test("-1k", 1), "-1k finds empty files only");
        assert!(test("+1M", (1 << 20) + 1) && !test("+1M", 1 << 20));
        assert!(test("2", 1024) && test("2b", 513) && test("+3c", 4) && test("2w", 3));
    }

    #[test]
    fn a_number_takes_one_sign_and_digits() {
        assert_eq!(Compare::parse("+12"), Some(Compare::More(12)));
        assert_eq!(Compare::parse("-0"), Some(Compare::Less(0)));
        for bad in ["", "+", "--1", "+-1", "1x", " 1", "1 "] {
            assert_eq!(Compare::parse(bad), None, "{bad:?}");
        }
        assert_eq!(SizeTest::parse("1x"), None);
        assert_eq!(SizeTest::parse("M"), None);
    }

    #[test]
    fn ages_in_days_are_rounded_down_and_ages_in_minutes_up() {
        let now = 1_000_000_000;
        let end = Nanos::from(now) * SECOND;
        let at = |age: i64| Timestamp::new(now - age, 0);
        let zero = TimeTest::days("0", end).unwrap();
        assert!(zero.matches(at(0)) && zero.matches(at(86_399)) && !zero.matches(at(86_400)));
        let older = TimeTest::days("+1", end).unwrap();
        assert!(older.matches(at(2 * 86_400 + 1)) && !older.matches(at(2 * 86_400)));
        let newer = TimeTest::days("-1", end).unwrap();
        assert!(newer.matches(at(86_399)) && newer.matches(at(86_400)) && !newer.matches(at(86_401)));
        let five = TimeTest::minutes("5", end).unwrap();
        assert!(five.matches(at(241)) && !five.matches(at(240 - 1)) && !five.matches(at(300)));
        assert_eq!(TimeTest::days("x", end), None);
        assert_eq!(TimeTest::days("1e3", end), None);
    }
}
