//! `-regex`: the regular expression dialects of find, converted to the syntax of the crate `regex`, which
//! matches in linear time.
//!
//! Source: the GNU findutils manual, "Regular Expressions", with a section for each dialect.
//! Back-references have no counterpart and are rejected.

use obento::pattern::Case;

/// The syntax of the operators of a dialect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    /// `\(a\|b\)`, `+`, `?`, no intervals: the default of find.
    Emacs,
    /// `\(a\|b\)`, `\+`, `\?`, `\{2\}`.
    Basic,
    /// `(a|b)`, `+`, `?`, `{2}`.
    Extended,
}

/// The values of `-regextype`.
pub const DIALECTS: &[(&str, Dialect)] = &[
    ("findutils-default", Dialect::Emacs),
    ("emacs", Dialect::Emacs),
    ("posix-basic", Dialect::Basic),
    ("posix-minimal-basic", Dialect::Basic),
    ("ed", Dialect::Basic),
    ("sed", Dialect::Basic),
    ("grep", Dialect::Basic),
    ("posix-extended", Dialect::Extended),
    ("posix-egrep", Dialect::Extended),
    ("egrep", Dialect::Extended),
    ("posix-awk", Dialect::Extended),
    ("gnu-awk", Dialect::Extended),
    ("awk", Dialect::Extended),
];

/// The meaning of a part of a pattern.
enum Piece {
    Open,
    Close,
    Or,
    /// A quantifier in the syntax of `regex`.
    Repeat(&'static str),
    OpenInterval,
    /// A part in the syntax of `regex`.
    Rust(&'static str),
    Bracket,
    Literal(char),
}

/// Compiles `pattern` so that it matches whole texts only. The error contains the reason.
pub fn compile(pattern: &str, dialect: Dialect, case: Case) -> Result<regex::bytes::Regex, String> {
    let translated = translate(pattern, dialect)?;
    regex::bytes::RegexBuilder::new(&format!(r"\A(?:{translated})\z"))
        .dot_matches_new_line(true)
        .case_insensitive(case == Case::Insensitive)
        .build()
        .map_err(|error| error.to_string())
}

fn translate(pattern: &str, dialect: Dialect) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = pattern;
    // At the start of an alternative, `*` stands for itself and `^` is an anchor in every dialect.
    let mut at_start = true;
    while let Some((piece, after)) = next(rest, dialect, at_start)? {
        rest = after;
        at_start = matches!(piece, Piece::Open | Piece::Or);
        match piece {
            Piece::Open => out.push('('),
            Piece::Close => out.push(')'),
            Piece::Or => out.push('|'),
            Piece::Repeat(text) | Piece::Rust(text) => out.push_str(text),
            Piece::Literal(c) => out.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
            Piece::OpenInterval => {
                let close = if dialect == Dialect::Basic { "\\}" } else { "}" };
                let (bounds, after) = rest.split_once(close).ok_or("an interval is not closed")?;
                if bounds.is_empty() || !bounds.bytes().all(|b| b.is_ascii_digit() || b == b',') {
                    return Err(format!("'{bounds}' is not an interval"));
                }
                let low = if bounds.starts_with(',') { "0" } else { "" };
                out.push_str(&format!("{{{low}{bounds}}}"));
                rest = after;
            }
            Piece::Bracket => rest = bracket(rest, &mut out)?,
        }
    }
    Ok(out)
}

fn next(text: &str, dialect: Dialect, at_start: bool) -> Result<Option<(Piece, &str)>, String> {
    let mut chars = text.chars();
    let Some(c) = chars.next() else { return Ok(None) };
    let rest = chars.as_str();
    let extended = dialect == Dialect::Extended;
    let plain_repeats = dialect != Dialect::Basic && !at_start;
    let piece = match c {
        '\\' => return escaped(rest, dialect).map(Some),
        // A name need not be UTF-8, so a dot matches a character or a byte that is not part of one.
        '.' => Piece::Rust(r"(?:.|(?-u:[\x80-\xff]))"),
        '[' => Piece::Bracket,
        '*' if !at_start => Piece::Repeat("*"),
        '+' if plain_repeats => Piece::Repeat("+"),
        '?' if plain_repeats => Piece::Repeat("?"),
        '{' if extended && !at_start => Piece::OpenInterval,
        '(' if extended => Piece::Open,
        ')' if extended => Piece::Close,
        '|' if extended => Piece::Or,
        '^' if extended || at_start => Piece::Rust("^"),
        '$' if extended || rest.is_empty() || rest.starts_with("\\)") || rest.starts_with("\\|") => {
            Piece::Rust("$")
        }
        other => Piece::Literal(other),
    };
    Ok(Some((piece, rest)))
}

fn escaped(rest: &str, dialect: Dialect) -> Result<(Piece, &str), String> {
    let mut chars = rest.chars();
    let c = chars.next().ok_or("the backslash at the end escapes nothing")?;
    let extended = dialect == Dialect::Extended;
    let basic = dialect == Dialect::Basic;
    let piece = match c {
        '(' if !extended => Piece::Open,
        ')' if !extended => Piece::Close,
        '|' if !extended => Piece::Or,
        '{' if basic => Piece::OpenInterval,
        '+' if basic => Piece::Repeat("+"),
        '?' if basic => Piece::Repeat("?"),
        'w' => Piece::Rust(r"\w"),
        'W' => Piece::Rust(r"\W"),
        's' => Piece::Rust(r"\s"),
        'S' => Piece::Rust(r"\S"),
        'b' => Piece::Rust(r"\b"),
        'B' => Piece::Rust(r"\B"),
        '<' => Piece::Rust(r"\b{start}"),
        '>' => Piece::Rust(r"\b{end}"),
        '`' => Piece::Rust(r"\A"),
        '\'' => Piece::Rust(r"\z"),
        '1'..='9' => return Err(format!("back-references such as \\{c} are not supported")),
        other => Piece::Literal(other),
    };
    Ok((piece, chars.as_str()))
}

/// Copies a bracket expression after its `[`. A backslash in it stands for itself, and the set operators
/// of `regex` are escaped. Returns the remaining pattern.
fn bracket<'a>(text: &'a str, out: &mut String) -> Result<&'a str, String> {
    const OPEN: &str = "a bracket is not closed";
    out.push('[');
    let mut rest = text;
    if let Some(after) = rest.strip_prefix('^') {
        out.push('^');
        rest = after;
    }
    let mut first = true;
    loop {
        if let Some((class, after)) = rest.strip_prefix("[:").and_then(|rest| rest.split_once(":]")) {
            out.push_str(&format!("[:{class}:]"));
            (rest, first) = (after, false);
            continue;
        }
        let mut chars = rest.chars();
        match chars.next().ok_or(OPEN)? {
            ']' if !first => {
                out.push(']');
                return Ok(chars.as_str());
            }
            c @ ('[' | ']' | '\\' | '&' | '~' | '^') => out.extend(['\\', c]),
            '-' if first || chars.as_str().starts_with(']') => out.push_str("\\-"),
            c => out.push(c),
        }
        (rest, first) = (chars.as_str(), false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(dialect: Dialect, pattern: &str, text: &[u8]) -> bool {
        compile(pattern, dialect, Case::Sensitive).unwrap().is_match(text)
    }

    #[test]
    fn the_default_dialect_escapes_groups_and_not_repeats() {
        let default = |pattern: &str, text: &str| matches(Dialect::Emacs, pattern, text.as_bytes());
        assert!(default(r".*/\(a\|b\)+", "/x/abba") && !default("a(b)", "ab") && default("a(b)", "a(b)"));
        assert!(default("*a", "*a") && default("a{2}", "a{2}") && !default("b", "abc"));
    }

    #[test]
    fn basic_and_extended() {
        assert!(matches(Dialect::Basic, r"a\{2,3\}b\+", b"aabb") && matches(Dialect::Basic, "a+", b"a+"));
        assert!(
            matches(Dialect::Extended, "(a|b){2}c?", b"ab") && matches(Dialect::Extended, "a{,2}", b"aa")
        );
    }

    #[test]
    fn brackets_take_backslashes_and_operators_literally() {
        assert!(matches(Dialect::Emacs, r"[\n]", b"\\") && matches(Dialect::Emacs, "[]a-c&&]*", b"]b&"));
        assert!(matches(Dialect::Emacs, "[^[:digit:]_]", b"x") && matches(Dialect::Emacs, "[-a]", b"-"));
    }

    #[test]
    fn a_dot_matches_stray_bytes_and_new_lines() {
        assert!(matches(Dialect::Emacs, "a.b.c", b"a\xffb\nc"));
    }

    #[test]
    fn what_cannot_be_is_said() {
        let error = |pattern: &str| compile(pattern, Dialect::Emacs, Case::Sensitive).unwrap_err();
        assert!(error(r"\(a\)\1").contains("back-references"));
        assert_eq!(error("[a"), "a bracket is not closed");
        assert!(compile(r"\(a", Dialect::Emacs, Case::Sensitive).is_err());
    }
}
