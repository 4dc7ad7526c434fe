//! Comparing names without case: canonical decomposition and full case folding of Unicode 12.1, without
//! default-ignorable characters ("NFDICF").
//!
//! Invariant: names are folded in the same way on every machine. Characters that Unicode added later are unchanged
//! and separate the characters on both sides, as if they were unassigned.
//! Source: Linux fs/unicode (`utf8_casefold`), Documentation/filesystems/ext4/overview.rst, "Case-insensitive file
//! name lookups"; UCD 12.1.0 DerivedCoreProperties.txt `Default_Ignorable_Code_Point`.

use alloc::string::String;

use unicode_normalization::UnicodeNormalization;

use super::case;

/// The treatment of names in case-insensitive directories (`s_encoding_flags`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fold {
    /// Names that are not UTF-8 equal no name, not even themselves. Otherwise they equal the same bytes.
    pub(crate) strict: bool,
    /// Names may have been hashed by a kernel that folded differently, so that the index may miss them.
    pub(crate) scan: bool,
}

impl Fold {
    /// Decodes the flags: 1 `strict`, 2 `EXT4_ENC_NO_COMPAT_FALLBACK`.
    pub(crate) fn from_flags(flags: u16) -> Self {
        Self { strict: flags & 1 != 0, scan: flags & 2 == 0 }
    }
}

/// Folds names one after the other in the same memory.
#[derive(Default, Debug)]
pub(crate) struct Folder {
    folded: String,
    /// Folded but not in canonical order.
    parts: String,
}

impl Folder {
    /// Returns `name` without case, or `None` if it is not UTF-8.
    pub(crate) fn fold(&mut self, name: &[u8]) -> Option<&[u8]> {
        self.folded.clear();
        let text = str::from_utf8(name).ok()?;
        if text.is_ascii() {
            self.folded.push_str(text);
            self.folded.make_ascii_lowercase();
        } else {
            text.split_inclusive(is_younger).for_each(|part| self.add(part));
        }
        Some(self.folded.as_bytes())
    }

    /// Adds a part of which at most the last character is too new to fold.
    fn add(&mut self, part: &str) {
        let young = part.chars().next_back().filter(|&c| is_younger(c));
        let old = young.and_then(|c| part.strip_suffix(c)).unwrap_or(part);
        self.parts.clear();
        old.chars().for_each(|c| case::fold(c, |part| self.parts.push(part)));
        self.folded.extend(self.parts.nfd().filter(|&c| !is_ignorable(c)));
        self.folded.extend(young);
    }
}

/// Returns whether two names are equal. `wanted` is given both as it is and as `folded`.
pub(super) fn same(
    fold: Fold,
    wanted: &[u8],
    folded: Option<&[u8]>,
    name: &[u8],
    folder: &mut Folder,
) -> bool {
    match (folded, folder.fold(name)) {
        (Some(folded), Some(name)) => folded == name,
        _ => !fold.strict && wanted == name,
    }
}

fn is_ignorable(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns whether `c` was added to Unicode after 12.1 and has a case folding, a decomposition or a combining class.
pub(super) fn is_younger(c: char) -> bool {
    let after = YOUNGER.partition_point(|&(first, _)| first <= c);
    after.checked_sub(1).and_then(|at| YOUNGER.get(at)).is_some_and(|&(_, last)| c <= last)
}

/// Ranges (first, last) in order. The test against e2fsprogs fails when a dependency with a newer Unicode adds more.
const YOUNGER: &[(char, char)] = &[
    ('\u{5c8}', '\u{5c9}'),
    ('\u{897}', '\u{89f}'),
    ('\u{8ca}', '\u{8d2}'),
    ('\u{c3c}', '\u{c3c}'),
    ('\u{1715}', '\u{1715}'),
    ('\u{1abf}', '\u{1af0}'),
    ('\u{1c89}', '\u{1c89}'),
    ('\u{1dfa}', '\u{1dfa}'),
    ('\u{2c2f}', '\u{2c2f}'),
    ('\u{a7c0}', '\u{a7c0}'),
    ('\u{a7c7}', '\u{a7c7}'),
    ('\u{a7c9}', '\u{a7c9}'),
    ('\u{a7cb}', '\u{a7cc}'),
    ('\u{a7ce}', '\u{a7ce}'),
    ('\u{a7d0}', '\u{a7d0}'),
    ('\u{a7d2}', '\u{a7d2}'),
    ('\u{a7d4}', '\u{a7d4}'),
    ('\u{a7d6}', '\u{a7d6}'),
    ('\u{a7d8}', '\u{a7d8}'),
    ('\u{a7da}', '\u{a7da}'),
    ('\u{a7dc}', '\u{a7dc}'),
    ('\u{a7f5}', '\u{a7f5}'),
    ('\u{a82c}', '\u{a82c}'),
    ('\u{10570}', '\u{1057a}'),
    ('\u{1057c}', '\u{1058a}'),
    ('\u{1058c}', '\u{10592}'),
    ('\u{10594}', '\u{10595}'),
    ('\u{105c9}', '\u{105c9}'),
    ('\u{105e4}', '\u{105e4}'),
    ('\u{10d50}', '\u{10d65}'),
    ('\u{10d69}', '\u{10d6d}'),
    ('\u{10eab}', '\u{10eac}'),
    ('\u{10ecb}', '\u{10ecf}'),
    ('\u{10ef0}', '\u{10efb}'),
    ('\u{10efd}', '\u{10eff}'),
    ('\u{10f82}', '\u{10f85}'),
    ('\u{11070}', '\u{11070}'),
    ('\u{11383}', '\u{11383}'),
    ('\u{11385}', '\u{11385}'),
    ('\u{1138e}', '\u{1138e}'),
    ('\u{11391}', '\u{11391}'),
    ('\u{113c5}', '\u{113c5}'),
    ('\u{113c7}', '\u{113c8}'),
    ('\u{113ce}', '\u{113d0}'),
    ('\u{11938}', '\u{11938}'),
    ('\u{1193d}', '\u{1193e}'),
    ('\u{11943}', '\u{11943}'),
    ('\u{11f41}', '\u{11f42}'),
    ('\u{16121}', '\u{16128}'),
    ('\u{1612f}', '\u{1612f}'),
    ('\u{16d68}', '\u{16d6a}'),
    ('\u{16ea0}', '\u{16eb8}'),
    ('\u{16ff0}', '\u{16ff1}'),
    ('\u{1d127}', '\u{1d128}'),
    ('\u{1d250}', '\u{1d252}'),
    ('\u{1d25b}', '\u{1d25c}'),
    ('\u{1d25f}', '\u{1d25f}'),
    ('\u{1d280}', '\u{1d281}'),
    ('\u{1e08f}', '\u{1e08f}'),
    ('\u{1e2ae}', '\u{1e2ae}'),
    ('\u{1e4ec}', '\u{1e4ef}'),
    ('\u{1e5ee}', '\u{1e5ef}'),
    ('\u{1e6e3}', '\u{1e6e3}'),
    ('\u{1e6e6}', '\u{1e6e6}'),
    ('\u{1e6ee}', '\u{1e6ef}'),
    ('\u{1e6f5}', '\u{1e6f5}'),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dir::{Chars, Hasher};
    use obento_testkit::oracle::{Oracle, call, require};
    use std::format;
    use std::vec::Vec;
    use unicode_normalization::char::canonical_combining_class;

    fn fold(name: &str) -> String {
        let mut folder = Folder::default();
        String::from_utf8(folder.fold(name.as_bytes()).unwrap().into()).unwrap()
    }

    #[test]
    fn names_are_decomposed_and_lowered_and_lose_what_is_ignorable() {
        assert_eq!(fold("README"), "readme");
        assert_eq!(fold("Ängström"), "a\u{308}ngstro\u{308}m");
        assert_eq!(fold("Straße"), "strasse");
        assert_eq!(fold("ΣΊΣΥΦΟΣ"), "σι\u{301}συφοσ");
        assert_eq!(fold("soft\u{ad}hyphen\u{200d}"), "softhyphen");
        assert_eq!(fold("각"), "\u{1100}\u{1161}\u{11a8}");
        assert_eq!(fold("q\u{307}\u{323}"), "q\u{323}\u{307}");
    }

    #[test]
    fn characters_added_after_unicode_12_1_are_unchanged() {
        // LATIN CAPITAL LETTER GLOTTAL A (14.0) and a combining mark of 14.0 between two older ones.
        assert_eq!(fold("A\u{a7c0}"), "a\u{a7c0}");
        assert_eq!(fold("q\u{307}\u{1dfa}\u{323}"), "q\u{307}\u{1dfa}\u{323}");
        assert!(YOUNGER.windows(2).all(|pair| pair[0].0 <= pair[0].1 && pair[0].1 < pair[1].0));
    }

    #[test]
    fn names_that_are_not_utf8_equal_only_themselves_and_in_strict_volumes_nothing() {
        let mut folder = Folder::default();
        let mut equal = |strict, wanted: &[u8], name: &[u8]| {
            let folded = Folder::default().fold(wanted).map(|folded| folded.to_vec());
            same(Fold { strict, scan: true }, wanted, folded.as_deref(), name, &mut folder)
        };
        assert!(equal(true, b"A", b"a") && equal(false, b"A", b"a"));
        assert!(equal(false, b"A\xff", b"A\xff") && !equal(true, b"A\xff", b"A\xff"));
        assert!(!equal(false, b"A\xff", b"a\xff") && !equal(false, b"a", b"\xff"));
    }

    /// Returns each character that folding affects, between letters that show whether it separates the characters
    /// around it.
    fn samples() -> Vec<String> {
        let mut samples = Vec::new();
        for c in ('\u{80}'..=char::MAX).filter(|c| !c.is_control() && !c.is_whitespace()) {
            let mut folded = String::new();
            case::fold(c, |part| folded.push(part));
            let changed = folded.nfd().ne([c]);
            if changed || canonical_combining_class(c) != 0 || is_ignorable(c) {
                samples.push(format!("aQ\u{307}{c}\u{323}Z"));
            }
        }
        // Hangul are composed by rule, and there are thousands of ignorable tags: a few represent all.
        let regular = |c| ('\u{ac00}'..'\u{d7a4}').contains(&c) || c >= '\u{e0000}';
        samples.retain(|text| {
            let c = text.chars().nth(3).unwrap();
            !regular(c) || u32::from(c) % 61 == 0
        });
        samples
    }

    #[test]
    fn every_character_folds_as_in_e2fsprogs() {
        if !require(&[Oracle::Program("debugfs"), Oracle::Program("mke2fs")]) {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        call("mke2fs", ["-q", "-t", "ext4", image.to_str().unwrap(), "1M"]).unwrap();
        let samples = samples();
        let ask = |name: &String| format!("dx_hash -h half_md4 -c -e utf8 \"{name}\"\n");
        let script = folder.path().join("script");
        std::fs::write(&script, samples.iter().map(ask).collect::<String>()).unwrap();
        let output = call("debugfs", ["-f".as_ref(), script.as_os_str(), image.as_os_str()]).unwrap();
        let output = String::from_utf8(output.stdout).unwrap();
        let answers: Vec<_> = output.lines().filter(|line| line.starts_with("Hash of")).collect();
        assert_eq!(answers.len(), samples.len());
        let hasher = Hasher::new(1, Chars::Signed, [0; 4]).unwrap();
        for (name, answer) in samples.iter().zip(answers) {
            let hash = hasher.hash(fold(name).as_bytes());
            let expected = format!("Hash of {name} is {:#x} (minor {:#x})", hash.major, hash.minor);
            assert_eq!(answer, expected, "{}", name.escape_unicode());
        }
    }
}
