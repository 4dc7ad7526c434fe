//! Shell patterns over bytes that are mostly UTF-8, with the rules of `fnmatch(3)` without flags: `*` and
//! `?` also match `/` and a leading dot.
//!
//! Invariant: matching takes at most pattern length x name length steps, because only the last `*` is
//! retried.

/// A compiled pattern.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    tokens: Vec<Token>,
    case: Case,
}

/// Whether upper and lower case are distinct.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Case {
    /// They are distinct.
    Sensitive,
    /// They are equal.
    Insensitive,
}

/// A character, or a byte that is not part of a character.
type Unit = u32;

/// The first unit of bytes that are not UTF-8, above every character.
const RAW: Unit = 0x11_0000;

#[derive(Clone, PartialEq, Eq, Debug)]
enum Token {
    Star,
    One,
    Unit(Unit),
    Set(Set),
    /// An element that matches nothing: a backslash at the end, or an unknown class.
    Never,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Set {
    negated: bool,
    ranges: Vec<(Unit, Unit)>,
    classes: Vec<CharClass>,
}

type CharClass = fn(char) -> bool;

/// POSIX character classes.
const CLASSES: &[(&str, CharClass)] = &[
    ("alnum", |c| c.is_alphanumeric()),
    ("alpha", |c| c.is_alphabetic()),
    ("blank", |c| c == ' ' || c == '\t'),
    ("cntrl", |c| c.is_control()),
    ("digit", |c| c.is_ascii_digit()),
    ("graph", |c| !c.is_control() && !c.is_whitespace()),
    ("lower", |c| c.is_lowercase()),
    ("print", |c| !c.is_control()),
    ("punct", |c| c.is_ascii_punctuation()),
    ("space", |c| c.is_whitespace()),
    ("upper", |c| c.is_uppercase()),
    ("xdigit", |c| c.is_ascii_hexdigit()),
];

impl Pattern {
    /// Compiles `pattern`. Every pattern is valid: a `[` without `]` matches the character `[`.
    pub fn new(pattern: &[u8], case: Case) -> Self {
        let units = units(pattern, case);
        let mut tokens = Vec::new();
        let mut rest = units.as_slice();
        while let Some((&unit, after)) = rest.split_first() {
            let (token, after) = match char::from_u32(unit) {
                Some('*') => (Token::Star, after),
                Some('?') => (Token::One, after),
                Some('\\') => match after.split_first() {
                    Some((&escaped, after)) => (Token::Unit(escaped), after),
                    None => (Token::Never, after),
                },
                Some('[') => bracket(after).unwrap_or((Token::Unit(unit), after)),
                _ => (Token::Unit(unit), after),
            };
            rest = after;
            if token != Token::Star || tokens.last() != Some(&Token::Star) {
                tokens.push(token);
            }
        }
        Self { tokens, case }
    }

    /// Compiles a pattern of a shell. A `\` at the end matches the character `\`.
    pub fn of_shell(pattern: &[u8]) -> Self {
        let mut compiled = Self::new(pattern, Case::Sensitive);
        if let (Some(last @ Token::Never), true) = (compiled.tokens.last_mut(), pattern.ends_with(b"\\")) {
            *last = Token::Unit(u32::from(b'\\'));
        }
        compiled
    }

    /// Returns whether the pattern matches a whole file name as in a shell. A name that begins with a dot matches only
    /// a pattern that begins with a dot.
    pub fn matches_in_shell(&self, name: &[u8]) -> bool {
        let is_for_hidden =
            matches!(self.tokens.first(), Some(Token::Unit(unit)) if *unit == Unit::from(b'.'));
        (is_for_hidden || !name.starts_with(b".")) && self.matches(name)
    }

    /// Returns whether the pattern matches all of `text`.
    pub fn matches(&self, text: &[u8]) -> bool {
        let text = units(text, self.case);
        let (mut at, mut token) = (0, 0);
        let mut retry = None;
        loop {
            match self.tokens.get(token) {
                Some(Token::Star) => {
                    token += 1;
                    retry = Some((token, at));
                    continue;
                }
                Some(wanted) if text.get(at).is_some_and(|&unit| self.token_matches(wanted, unit)) => {
                    (at, token) = (at + 1, token + 1);
                    continue;
                }
                None if at == text.len() => return true,
                _ => {}
            }
            match retry {
                Some((after_star, from)) if from < text.len() => {
                    (token, at) = (after_star, from + 1);
                    retry = Some((after_star, from + 1));
                }
                _ => return false,
            }
        }
    }

    fn token_matches(&self, token: &Token, unit: Unit) -> bool {
        match token {
            Token::Star | Token::Never => false,
            Token::One => true,
            Token::Unit(wanted) => *wanted == unit,
            Token::Set(set) => set.contains(unit, self.case) != set.negated,
        }
    }
}

impl Set {
    fn contains(&self, unit: Unit, case: Case) -> bool {
        let upper = match (case, char::from_u32(unit)) {
            (Case::Insensitive, Some(c)) => single(c.to_uppercase()),
            _ => None,
        };
        [Some(unit), upper].into_iter().flatten().any(|unit| {
            self.ranges.iter().any(|&(low, high)| low <= unit && unit <= high)
                || char::from_u32(unit).is_some_and(|c| self.classes.iter().any(|class| class(c)))
        })
    }
}

/// Parses a bracket expression after its `[`. Returns `None` if `]` is missing.
fn bracket(mut rest: &[Unit]) -> Option<(Token, &[Unit])> {
    let is = |unit: &Unit, c: char| *unit == u32::from(c);
    let mut set = Set::default();
    let mut valid = true;
    if let Some((first, after)) = rest.split_first()
        && (is(first, '!') || is(first, '^'))
    {
        set.negated = true;
        rest = after;
    }
    let mut first = true;
    loop {
        let (&unit, after) = rest.split_first()?;
        if is(&unit, ']') && !first {
            return Some((if valid { Token::Set(set) } else { Token::Never }, after));
        }
        first = false;
        if is(&unit, '[')
            && after.first().is_some_and(|u| is(u, ':'))
            && let Some((name, after)) = class_name(&after[1..])
        {
            match CLASSES.iter().find(|(known, _)| *known == name) {
                Some((_, class)) => set.classes.push(*class),
                None => valid = false,
            }
            rest = after;
            continue;
        }
        let (low, after) = member(rest)?;
        rest = after;
        let mut high = low;
        if let [dash, next, ..] = rest
            && is(dash, '-')
            && !is(next, ']')
        {
            (high, rest) = member(&rest[1..])?;
        }
        set.ranges.push((low, high));
    }
}

/// Parses one end of a range: a unit, or a backslash and a unit.
fn member(rest: &[Unit]) -> Option<(Unit, &[Unit])> {
    let (&unit, after) = rest.split_first()?;
    match after.split_first() {
        Some((&escaped, after)) if unit == u32::from('\\') => Some((escaped, after)),
        _ => Some((unit, after)),
    }
}

/// Parses `alpha:]...`. Returns the name and the remaining units.
fn class_name(rest: &[Unit]) -> Option<(String, &[Unit])> {
    let end = rest.windows(2).position(|pair| pair == [u32::from(':'), u32::from(']')])?;
    let name = rest[..end].iter().map(|&unit| char::from_u32(unit)).collect::<Option<String>>()?;
    name.bytes().all(|b| b.is_ascii_lowercase()).then_some((name, &rest[end + 2..]))
}

fn units(bytes: &[u8], case: Case) -> Vec<Unit> {
    let mut units = Vec::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        units.extend(chunk.valid().chars().map(|c| match case {
            Case::Sensitive => c.into(),
            Case::Insensitive => single(c.to_lowercase()).unwrap_or(c.into()),
        }));
        units.extend(chunk.invalid().iter().map(|&b| RAW + Unit::from(b)));
    }
    units
}

/// Returns the unit with the other case, if it exists.
fn single(mut chars: impl Iterator<Item = char>) -> Option<Unit> {
    match (chars.next(), chars.next()) {
        (Some(c), None) => Some(c.into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &[u8]) -> bool {
        Pattern::new(pattern.as_bytes(), Case::Sensitive).matches(text)
    }

    #[test]
    fn stars_match_anything_even_slashes_and_leading_dots() {
        assert!(matches("*", b"") && matches("*", b".a/b") && matches("*.c", b".c"));
        assert!(matches("a*b*c", b"a--b--b-c") && !matches("a*b*c", b"a--c--b"));
        assert!(!matches("a", b"ab") && !matches("ab", b"a") && matches("a**", b"a"));
    }

    #[test]
    fn a_question_mark_is_one_character_or_one_stray_byte() {
        assert!(matches("?", "é".as_bytes()) && matches("a?b", b"a\xffb") && !matches("?", b""));
    }

    #[test]
    fn sets_ranges_classes_and_escapes() {
        assert!(matches("[abc]x", b"bx") && !matches("[!abc]x", b"bx") && matches("[^abc]x", b"zx"));
        assert!(matches("[]a]", b"]") && matches("[!]a]", b"b") && matches("[a-]", b"-"));
        assert!(
            matches("[[:digit:]-]", b"7") && matches("[[:digit:]-]", b"-") && !matches("[[:digit:]]", b"x")
        );
        assert!(matches("\\*", b"*") && !matches("\\*", b"a") && matches("[\\]]", b"]"));
        assert!(
            matches("[", b"[")
                && matches("[a", b"[a")
                && !matches("a\\", b"a\\")
                && !matches("[[:no:]]", b"n")
        );
    }

    #[test]
    fn case_can_be_ignored() {
        let pattern = |p: &str| Pattern::new(p.as_bytes(), Case::Insensitive);
        assert!(pattern("*.JPG").matches(b"a.jpg") && pattern("é*").matches("Éa".as_bytes()));
        assert!(pattern("[A-C]").matches(b"b") && pattern("[a-c]").matches(b"B"));
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        assert!(!matches(&"a*".repeat(200), "a".repeat(199).as_bytes()));
        assert!(!matches(&format!("{}b", "*a".repeat(100)), "a".repeat(5000).as_bytes()));
    }
}
