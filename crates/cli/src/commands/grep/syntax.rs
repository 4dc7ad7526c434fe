//! Translates basic and extended regular expressions of POSIX, with the extensions of GNU, to the syntax of the crate `regex`.
//!
//! Source: the GNU grep manual, "Regular Expressions".

/// Returns `pattern` in the syntax of `regex`.
///
/// # Errors
///
/// The pattern is malformed or contains a back-reference; the text says why.
pub fn translate(pattern: &str, is_extended: bool) -> Result<String, String> {
    let mut parser =
        Parser { rest: pattern, is_extended, out: String::new(), atom: None, groups: Vec::new() };
    parser.parse()?;
    Ok(parser.out)
}

/// Returns a string as a pattern that matches only it.
pub fn literal(text: &str) -> String {
    regex::escape(text)
}

struct Parser<'p> {
    rest: &'p str,
    is_extended: bool,
    out: String,
    /// Where the last atom starts in `out`; `None` where a repetition operator repeats nothing.
    atom: Option<usize>,
    /// Where the open groups start in `out`.
    groups: Vec<usize>,
}

/// An operator or a character.
enum Token {
    Open,
    Close,
    Or,
    Repeat(&'static str),
    Interval,
    Bracket,
    /// Matches at a position.
    Anchor(&'static str),
    /// Matches a character.
    Class(&'static str),
    Literal(char),
}

impl Parser<'_> {
    fn parse(&mut self) -> Result<(), String> {
        while let Some(token) = self.next()? {
            let start = self.out.len();
            match token {
                Token::Open => {
                    self.groups.push(start);
                    self.out.push_str("(?:");
                    self.atom = None;
                }
                Token::Close => {
                    let open = self.groups.pop().ok_or("a parenthesis is not opened")?;
                    self.out.push(')');
                    self.atom = Some(open);
                }
                Token::Or => {
                    self.out.push('|');
                    self.atom = None;
                }
                Token::Repeat(operator) => self.repeat(operator),
                Token::Interval => self.interval()?,
                Token::Bracket => {
                    self.bracket()?;
                    self.atom = Some(start);
                }
                Token::Anchor(text) => {
                    self.out.push_str(text);
                    self.atom = Some(start);
                }
                Token::Class(text) => {
                    self.out.push_str(text);
                    self.atom = Some(start);
                }
                Token::Literal(c) => {
                    self.out.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
                    self.atom = Some(start);
                }
            }
        }
        match self.groups.is_empty() {
            true => Ok(()),
            false => Err("a parenthesis is not closed".into()),
        }
    }

    /// Returns whether `*` and `^` are at the start of an alternative.
    fn is_at_start(&self) -> bool {
        self.out.is_empty() || self.out.ends_with("(?:") && self.atom.is_none() || self.atom.is_none()
    }

    fn next(&mut self) -> Result<Option<Token>, String> {
        let mut chars = self.rest.chars();
        let Some(c) = chars.next() else { return Ok(None) };
        let before = self.rest;
        self.rest = chars.as_str();
        let extended = self.is_extended;
        // In basic syntax, a star after an anchor at the start is a character.
        let is_after_anchor = self.out.ends_with('^') && self.atom == Some(self.out.len() - 1);
        let is_start = self.is_at_start();
        Ok(Some(match c {
            '\\' => return self.escaped().map(Some),
            '.' => Token::Class("."),
            '[' => Token::Bracket,
            '*' if extended || !is_start && !is_after_anchor => Token::Repeat("*"),
            '+' if extended => Token::Repeat("+"),
            '?' if extended => Token::Repeat("?"),
            '{' if extended && interval_of(&before[1..], "}").is_some() => Token::Interval,
            '(' if extended => Token::Open,
            // A parenthesis that closes nothing is a character.
            ')' if extended && !self.groups.is_empty() => Token::Close,
            '|' if extended => Token::Or,
            '^' if extended || is_start => Token::Anchor("^"),
            '$' if extended || self.ends_alternative() => Token::Anchor("$"),
            other => Token::Literal(other),
        }))
    }

    fn ends_alternative(&self) -> bool {
        self.rest.is_empty() || self.rest.starts_with("\\)") || self.rest.starts_with("\\|")
    }

    fn escaped(&mut self) -> Result<Token, String> {
        let mut chars = self.rest.chars();
        let c = chars.next().ok_or("the backslash at the end escapes nothing")?;
        self.rest = chars.as_str();
        let basic = !self.is_extended;
        let is_start = self.is_at_start();
        Ok(match c {
            '(' if basic => Token::Open,
            ')' if basic => Token::Close,
            '|' if basic => Token::Or,
            '{' if basic && !is_start => Token::Interval,
            '+' if basic && !is_start => Token::Repeat("+"),
            '?' if basic && !is_start => Token::Repeat("?"),
            'w' => Token::Class(r"\w"),
            'W' => Token::Class(r"\W"),
            's' => Token::Class(r"\s"),
            'S' => Token::Class(r"\S"),
            'b' => Token::Anchor(r"\b"),
            'B' => Token::Anchor(r"\B"),
            '<' => Token::Anchor(r"\b{start}"),
            '>' => Token::Anchor(r"\b{end}"),
            '`' => Token::Anchor("^"),
            '\'' => Token::Anchor("$"),
            '1'..='9' => return Err(format!("back-references such as \\{c} are not supported")),
            other => Token::Literal(other),
        })
    }

    /// Repeats the last atom. In extended syntax, an operator that repeats nothing matches nothing.
    fn repeat(&mut self, operator: &str) {
        let Some(start) = self.atom else { return };
        // Two operators in a row would have another meaning without the group.
        self.out.insert_str(start, "(?:");
        self.out.push(')');
        self.out.push_str(operator);
    }

    fn interval(&mut self) -> Result<(), String> {
        let close = if self.is_extended { "}" } else { "\\}" };
        let (bounds, rest) = interval_of(self.rest, close).ok_or("an interval is malformed or not closed")?;
        let zero = if bounds.starts_with(',') { "0" } else { "" };
        self.rest = rest;
        self.repeat(&format!("{{{zero}{bounds}}}"));
        Ok(())
    }

    /// Copies a bracket expression, whose `[` is consumed. A backslash in it is a character.
    fn bracket(&mut self) -> Result<(), String> {
        const OPEN: &str = "a bracket is not closed";
        self.out.push('[');
        if let Some(after) = self.rest.strip_prefix('^') {
            self.out.push('^');
            self.rest = after;
        }
        let mut is_first = true;
        loop {
            if let Some((class, after)) = named(self.rest, ":") {
                self.out.push_str(match class {
                    "alpha" => r"\p{Alphabetic}",
                    "digit" => "0-9",
                    "alnum" => r"\p{Alphabetic}\p{Nd}",
                    "upper" => r"\p{Uppercase}",
                    "lower" => r"\p{Lowercase}",
                    "space" => r"\s",
                    "blank" => r"\t\p{Zs}",
                    "punct" => r"\p{P}\p{S}",
                    "print" => r"\P{C}",
                    "graph" => r"[\P{C}--\s]",
                    "cntrl" => r"\p{Cc}",
                    "xdigit" => "0-9A-Fa-f",
                    _ => return Err(format!("'{class}' is not a class of characters")),
                });
                (self.rest, is_first) = (after, false);
                continue;
            }
            let element = named(self.rest, ".").or_else(|| named(self.rest, "="));
            let (c, after) = match element {
                Some((text, after)) => {
                    let mut chars = text.chars();
                    match (chars.next(), chars.next()) {
                        (Some(c), None) => (c, after),
                        _ => return Err(format!("'{text}' is not a collating element")),
                    }
                }
                None => {
                    let mut chars = self.rest.chars();
                    let c = chars.next().ok_or(OPEN)?;
                    if c == ']' && !is_first {
                        self.out.push(']');
                        self.rest = chars.as_str();
                        return Ok(());
                    }
                    (c, chars.as_str())
                }
            };
            let is_range = element.is_none() && c == '-' && !is_first && !after.starts_with(']');
            match c {
                '-' if is_range => self.out.push('-'),
                '[' | ']' | '\\' | '&' | '~' | '^' | '-' => self.out.extend(['\\', c]),
                c => self.out.push(c),
            }
            (self.rest, is_first) = (after, false);
        }
    }
}

/// Returns the name in `[:name:]` at the start of `text`, and the rest.
fn named<'a>(text: &'a str, mark: &str) -> Option<(&'a str, &'a str)> {
    let inner = text.strip_prefix('[')?.strip_prefix(mark)?;
    inner.split_once(&format!("{mark}]"))
}

/// Returns the bounds of an interval such as `1,3` before `close`, and the rest.
fn interval_of<'a>(text: &'a str, close: &str) -> Option<(&'a str, &'a str)> {
    let (bounds, rest) = text.split_once(close)?;
    let is_valid = bounds != ","
        && !bounds.is_empty()
        && bounds.matches(',').count() <= 1
        && bounds.bytes().all(|byte| byte.is_ascii_digit() || byte == b',');
    is_valid.then_some((bounds, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_match(pattern: &str, is_extended: bool, text: &str) -> bool {
        let pattern = translate(pattern, is_extended).unwrap();
        regex::Regex::new(&format!("^(?:{pattern})$")).unwrap().is_match(text)
    }

    #[test]
    fn basic_syntax_escapes_its_operators() {
        for (pattern, text) in [
            (r"a\(b\|c\)*d", "abccbd"),
            ("a+b?", "a+b?"),
            (r"a\+b\?", "aa"),
            (r"a\{2,3\}", "aaa"),
            ("*a", "*a"),
            ("^*a", "*a"),
            (r"\(*a\)", "*a"),
            ("a^b$c", "a^b$c"),
            ("[]a]*", "]a]"),
            (r"[\n]", "\\"),
            ("[[:digit:]-]*", "1-2"),
            ("[a-]*", "a-"),
            ("[[.-.]a]", "-"),
        ] {
            assert!(is_match(pattern, false, text), "{pattern}");
        }
    }

    #[test]
    fn extended_syntax_has_plain_operators() {
        for (pattern, text) in [
            ("a(b|c)*d", "abccbd"),
            ("a{2}", "aa"),
            ("a{,2}", "aa"),
            ("a{x", "a{x"),
            ("*a", "a"),
            ("a|*b", "b"),
            ("a+?", ""),
            ("a**", "aaa"),
            ("()a", "a"),
            (r"\(a\)", "(a)"),
            ("a)", "a)"),
        ] {
            assert!(is_match(pattern, true, text), "{pattern}");
        }
    }

    #[test]
    fn malformed_patterns_are_reported() {
        for (pattern, is_extended, message) in [
            (r"\(a\)\1", false, "back-references such as \\1 are not supported"),
            ("[a", false, "a bracket is not closed"),
            (r"\(a", false, "a parenthesis is not closed"),
            (r"a\)", false, "a parenthesis is not opened"),
            ("(a", true, "a parenthesis is not closed"),
            (r"a\{1", false, "an interval is malformed or not closed"),
            ("a\\", false, "the backslash at the end escapes nothing"),
            ("[[:nosuch:]]", true, "'nosuch' is not a class of characters"),
        ] {
            assert_eq!(translate(pattern, is_extended), Err(message.to_owned()), "{pattern}");
        }
    }
}
