//! The colours of names, from `LS_COLORS` as dircolors(5) describes it, or the built-in ones of `ls`.

use std::collections::HashMap;

use obento::base::{FileKind, Mode};

const BUILT_IN: &str = "rs=0:di=01;34:ln=01;36:pi=33:so=01;35:bd=01;33:cd=01;33:ex=01;32:su=37;41:sg=30;43:\
                        st=37;44:ow=34;42:tw=30;42";

/// The colours of `LS_COLORS`: codes by key, and codes by the end of a name.
pub struct Colors {
    keys: HashMap<[u8; 2], Vec<u8>>,
    // The last value of the variable comes first, because it takes precedence.
    suffixes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A kind of name with its own colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColorTarget {
    /// A file with its mode and link count.
    File { kind: FileKind, mode: Mode, nlink: u32 },
    /// A symbolic link to nothing.
    Orphan,
    /// The target of a broken symbolic link.
    Missing,
}

impl Colors {
    /// Reads the environment.
    pub fn from_env() -> Self {
        let text = std::env::var_os("LS_COLORS").filter(|v| !v.is_empty());
        let mut colors = Self { keys: HashMap::new(), suffixes: Vec::new() };
        colors.add(BUILT_IN.as_bytes());
        if let Some(text) = text {
            colors.add(text.as_encoded_bytes());
        }
        colors
    }

    fn add(&mut self, text: &[u8]) {
        for item in text.split(|&b| b == b':') {
            let Some(at) = item.iter().position(|&b| b == b'=') else { continue };
            let (key, code) = (&item[..at], &item[at + 1..]);
            // Codes are written to a terminal: only numbers are allowed, and the word that requests the
            // colour of the target.
            if code != b"target" && !code.iter().all(|b| b.is_ascii_digit() || *b == b';') {
                continue;
            }
            match key {
                [b'*', suffix @ ..] => self.suffixes.insert(0, (suffix.to_ascii_lowercase(), code.to_vec())),
                &[a, b] => drop(self.keys.insert([a, b], code.to_vec())),
                _ => {}
            }
        }
    }

    fn key(&self, key: &[u8; 2]) -> Option<&[u8]> {
        // `0` and `00` mean: no colour.
        self.keys.get(key).map(Vec::as_slice).filter(|c| !matches!(*c, b"" | b"0" | b"00"))
    }

    /// Returns whether links have the colour of their targets.
    pub fn links_as_targets(&self) -> bool {
        self.key(b"ln") == Some(b"target")
    }

    /// Returns whether the colour of a link depends on the existence of its target.
    pub fn wants_targets(&self) -> bool {
        self.links_as_targets() || self.key(b"or").is_some() || self.key(b"mi").is_some()
    }

    /// Returns the code for `name`, if it has a colour.
    pub fn code(&self, name: &[u8], look: ColorTarget) -> Option<&[u8]> {
        match look {
            ColorTarget::Orphan => self.key(b"or").or_else(|| self.key(b"ln").filter(|c| *c != b"target")),
            ColorTarget::Missing => self.key(b"mi").or_else(|| self.key(b"or")),
            ColorTarget::File { kind, mode, nlink } => match kind {
                FileKind::Regular => self.regular(name, mode, nlink),
                FileKind::Directory => self.directory(mode),
                FileKind::Symlink => self.key(b"ln").filter(|c| *c != b"target"),
                FileKind::CharDevice => self.key(b"cd"),
                FileKind::BlockDevice => self.key(b"bd"),
                FileKind::Fifo => self.key(b"pi"),
                FileKind::Socket => self.key(b"so"),
            },
        }
    }

    fn regular(&self, name: &[u8], mode: Mode, nlink: u32) -> Option<&[u8]> {
        let special = [
            (mode.contains(Mode::SET_UID), b"su"),
            (mode.contains(Mode::SET_GID), b"sg"),
            (mode.bits() & 0o111 != 0, b"ex"),
            (nlink > 1, b"mh"),
        ];
        let special = special.into_iter().filter(|(holds, _)| *holds).find_map(|(_, key)| self.key(key));
        special.or_else(|| self.suffix(name)).or_else(|| self.key(b"fi"))
    }

    fn directory(&self, mode: Mode) -> Option<&[u8]> {
        let sticky = mode.contains(Mode::STICKY);
        let open = mode.bits() & 0o002 != 0;
        let special = [(sticky && open, b"tw"), (open, b"ow"), (sticky, b"st")];
        let special = special.into_iter().filter(|(holds, _)| *holds).find_map(|(_, key)| self.key(key));
        special.or_else(|| self.key(b"di"))
    }

    fn suffix(&self, name: &[u8]) -> Option<&[u8]> {
        let fits = |suffix: &[u8]| {
            name.len() >= suffix.len() && name[name.len() - suffix.len()..].eq_ignore_ascii_case(suffix)
        };
        self.suffixes.iter().find(|(suffix, _)| fits(suffix)).map(|(_, code)| code.as_slice())
    }
}

/// Writes text in colour. A reset precedes the first one, as in `ls`.
pub struct Painter {
    pub colors: Colors,
    begun: bool,
}

impl Painter {
    pub fn new(colors: Colors) -> Self {
        Self { colors, begun: false }
    }

    /// Adds `text` to `out` in the colour of `name`.
    pub fn paint(&mut self, out: &mut Vec<u8>, name: &[u8], look: ColorTarget, text: &[u8]) {
        let Some(code) = self.colors.code(name, look) else {
            return out.extend_from_slice(text);
        };
        if !std::mem::replace(&mut self.begun, true) {
            out.extend_from_slice(b"\x1b[0m");
        }
        for part in [b"\x1b[", code, b"m", text, b"\x1b[0m"] {
            out.extend_from_slice(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn colors(text: &str) -> Colors {
        let mut colors = Colors { keys: HashMap::new(), suffixes: Vec::new() };
        colors.add(BUILT_IN.as_bytes());
        colors.add(text.as_bytes());
        colors
    }

    fn file(kind: FileKind, mode: u16) -> ColorTarget {
        ColorTarget::File { kind, mode: Mode::new(mode), nlink: 1 }
    }

    #[test]
    fn the_mode_wins_over_the_end_of_the_name_and_the_last_rule_over_the_first() {
        let colors = colors("*.tar=01;31:*.TAR=01;32:ow=0");
        assert_eq!(colors.code(b"a.tar", file(FileKind::Regular, 0o644)), Some(&b"01;32"[..]));
        assert_eq!(colors.code(b"a.tar", file(FileKind::Regular, 0o755)), Some(&b"01;32"[..]));
        assert_eq!(colors.code(b"a.c", file(FileKind::Regular, 0o644)), None);
        assert_eq!(colors.code(b"d", file(FileKind::Directory, 0o777)), Some(&b"01;34"[..]));
        assert_eq!(colors.code(b"d", file(FileKind::Directory, 0o1777)), Some(&b"30;42"[..]));
    }

    #[test]
    fn a_code_that_is_no_code_never_reaches_the_terminal() {
        assert_eq!(colors("di=\x1b]0;x").code(b"d", file(FileKind::Directory, 0o755)), Some(&b"01;34"[..]));
    }

    #[test]
    fn the_first_colour_follows_a_reset() {
        let mut painter = Painter::new(colors(""));
        let mut out = Vec::new();
        painter.paint(&mut out, b"d", file(FileKind::Directory, 0o755), b"d");
        painter.paint(&mut out, b"f", file(FileKind::Regular, 0o644), b"f");
        painter.paint(&mut out, b"l", file(FileKind::Symlink, 0o777), b"l");
        assert_eq!(out, b"\x1b[0m\x1b[01;34md\x1b[0mf\x1b[01;36ml\x1b[0m");
    }
}
