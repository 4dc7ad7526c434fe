//! `-perm`: octal and symbolic modes.
//!
//! Source: the findutils manual, "Mode bits": a symbolic mode starts from 0 with an empty umask.

use obento::base::Mode;

use crate::change::mode::ModeChange;

/// A mode, and the rule of comparison.
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
    /// Parses `MODE`, `-MODE` or `/MODE`.
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
        // `+222` had the meaning of `/222` before findutils 4.5.12, and is rejected.
        if kind == PermKind::Exact
            && mode.starts_with('+')
            && mode[1..].starts_with(|c: char| c.is_ascii_digit())
        {
            return None;
        }
        let change = ModeChange::parse(mode)?;
        let bits = |is_dir| change.apply(Mode::default(), is_dir, 0).bits();
        Some(Self { file: bits(false), directory: bits(true), kind })
    }

    /// Returns whether a file with these permission bits satisfies the test.
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
    fn invalid_modes_are_refused() {
        for bad in ["", "-", "/", "888", "77777", "u", "z+x", "u+z", "644,u+x", "u*x"] {
            assert_eq!(PermTest::parse(bad), None, "{bad:?}");
        }
    }
}
