//! `-perm`: octal and symbolic modes.
//!
//! Source: POSIX.1-2017 `chmod`, "Extended description", and the findutils manual, "Mode bits": a symbolic mode
//! starts from 0 with an empty umask.

use obento::Mode;

/// A mode to compare with, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PermTest {
    file: u16,
    directory: u16,
    kind: PermKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PermKind {
    /// `MODE`: exactly these bits.
    Exact,
    /// `-MODE`: all of them.
    All,
    /// `/MODE`: any of them; `/0` is true.
    Any,
}

impl PermTest {
    /// Reads `MODE`, `-MODE` or `/MODE`.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, mode) = match text.as_bytes().first()? {
            b'-' => (PermKind::All, &text[1..]),
            b'/' => (PermKind::Any, &text[1..]),
            _ => (PermKind::Exact, text),
        };
        if mode.bytes().all(|b| b.is_ascii_digit()) && !mode.is_empty() {
            let bits = u16::from_str_radix(mode, 8).ok().filter(|&bits| bits <= 0o7777)?;
            return Some(Self { file: bits, directory: bits, kind });
        }
        Some(Self { file: symbolic(mode, false)?, directory: symbolic(mode, true)?, kind })
    }

    /// Whether a file with these permission bits passes.
    pub fn matches(self, mode: Mode, is_dir: bool) -> bool {
        let wanted = if is_dir { self.directory } else { self.file };
        let bits = mode.bits();
        match self.kind {
            PermKind::Exact => bits == wanted,
            PermKind::All => bits & wanted == wanted,
            PermKind::Any => wanted == 0 || bits & wanted != 0,
        }
    }
}

/// The bits that a symbolic mode makes of 0.
fn symbolic(text: &str, is_dir: bool) -> Option<u16> {
    text.split(',').try_fold(0, |mode, clause| apply_clause(mode, clause.as_bytes(), is_dir))
}

fn apply_clause(mut mode: u16, clause: &[u8], is_dir: bool) -> Option<u16> {
    let split = clause.iter().position(|b| !b"ugoa".contains(b))?;
    let (who, mut rest) = clause.split_at(split);
    let mask = if who.is_empty() { 0o7777 } else { who.iter().fold(0, |mask, &w| mask | reach(w)) };
    while let Some((&operator, after)) = rest.split_first() {
        let end = after.iter().position(|b| b"+-=".contains(b)).unwrap_or(after.len());
        let bits = permissions(mode, &after[..end], is_dir)? & mask;
        rest = &after[end..];
        match operator {
            b'+' => mode |= bits,
            b'-' => mode &= !bits,
            b'=' => mode = mode & !mask | bits,
            _ => return None,
        }
    }
    Some(mode)
}

/// The bits that `u`, `g`, `o` or `a` may change.
fn reach(who: u8) -> u16 {
    match who {
        b'u' => 0o4700,
        b'g' => 0o2070,
        b'o' => 0o1007,
        _ => 0o7777,
    }
}

/// `rwxXst`, or one of `u`, `g`, `o` to copy from, for all three classes.
fn permissions(mode: u16, letters: &[u8], is_dir: bool) -> Option<u16> {
    if let [from @ (b'u' | b'g' | b'o')] = letters {
        let shift = match from {
            b'u' => 6,
            b'g' => 3,
            _ => 0,
        };
        return Some((mode >> shift & 7) * 0o111);
    }
    letters.iter().try_fold(0, |bits, letter| {
        Some(
            bits | match letter {
                b'r' => 0o444,
                b'w' => 0o222,
                b'x' => 0o111,
                b'X' if is_dir || mode & 0o111 != 0 => 0o111,
                b'X' => 0,
                b's' => 0o6000,
                b't' => 0o1000,
                _ => return None,
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(text: &str, mode: u16) -> bool {
        PermTest::parse(text).unwrap().matches(Mode::new(mode), false)
    }

    #[test]
    fn octal_modes_match_exactly_all_or_any() {
        assert!(test("644", 0o644) && !test("644", 0o4644) && test("-644", 0o4644) && test("/4000", 0o4644));
        assert!(!test("/222", 0o555) && test("/0", 0o555) && test("-0", 0) && test("0", 0));
    }

    #[test]
    fn symbolic_modes_start_from_nothing() {
        assert!(test("u=rw,g=r,o=r", 0o644) && test("-u+w,g+w", 0o664) && test("/u=s,g=s", 0o2755));
        assert!(
            test("-g=u", 0o000) && test("u=rwx,g=u", 0o770) && test("a+r,u+w", 0o644) && test("/a+x", 0o001)
        );
        assert!(test("+t", 0o1000) && test("u=rw,u-w", 0o400) && test("ug+rw", 0o660));
    }

    #[test]
    fn x_for_directories_alone() {
        let test = PermTest::parse("a+X").unwrap();
        assert!(test.matches(Mode::new(0o111), true) && test.matches(Mode::new(0), false));
    }

    #[test]
    fn what_is_no_mode_is_refused() {
        for bad in ["", "-", "/", "888", "77777", "u", "z+x", "u+z", "644,u+x", "u*x"] {
            assert_eq!(PermTest::parse(bad), None, "{bad:?}");
        }
    }
}
