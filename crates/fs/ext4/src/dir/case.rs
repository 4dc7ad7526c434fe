//! Unicode's full case folding of single characters, based on the lower case mappings of `core`.
//!
//! Folding is conversion to lower case, except for the characters of [`SPECIAL`] and for Cherokee, whose small
//! letters were added to Unicode after its capitals. Composed characters are folded by their parts, which gives the
//! same result after decomposition.
//! Source: UCD CaseFolding.txt, statuses C and F; a test compares every character with another implementation.

use unicode_normalization::char::decompose_canonical;

/// Calls `emit` with the folded form of `c`, canonically decomposed but not in canonical order.
pub(super) fn fold(c: char, mut emit: impl FnMut(char)) {
    decompose_canonical(c, |part| fold_part(part, &mut emit));
}

fn fold_part(c: char, emit: &mut impl FnMut(char)) {
    if let Ok(at) = SPECIAL.binary_search_by_key(&c, |&(from, _)| from) {
        let (_, to) = SPECIAL.get(at).copied().unwrap_or((c, ""));
        to.chars().for_each(emit);
        return;
    }
    match cherokee_capital(c) {
        Some(capital) => emit(capital),
        None => c.to_lowercase().for_each(|lower| decompose_canonical(lower, &mut *emit)),
    }
}

/// Returns the capital of a Cherokee letter.
fn cherokee_capital(c: char) -> Option<char> {
    let code = u32::from(c);
    match c {
        '\u{13a0}'..='\u{13f5}' => Some(c),
        '\u{13f8}'..='\u{13fd}' => char::from_u32(code.checked_sub(8)?),
        '\u{ab70}'..='\u{abbf}' => char::from_u32(code.checked_sub(0xab70)?.checked_add(0x13a0)?),
        _ => None,
    }
}

/// Characters that are not composed and whose folding differs from their lower case.
const SPECIAL: &[(char, &str)] = &[
    ('\u{b5}', "\u{3bc}"),
    ('\u{df}', "\u{73}\u{73}"),
    ('\u{149}', "\u{2bc}\u{6e}"),
    ('\u{17f}', "\u{73}"),
    ('\u{345}', "\u{3b9}"),
    ('\u{3c2}', "\u{3c3}"),
    ('\u{3d0}', "\u{3b2}"),
    ('\u{3d1}', "\u{3b8}"),
    ('\u{3d5}', "\u{3c6}"),
    ('\u{3d6}', "\u{3c0}"),
    ('\u{3f0}', "\u{3ba}"),
    ('\u{3f1}', "\u{3c1}"),
    ('\u{3f5}', "\u{3b5}"),
    ('\u{587}', "\u{565}\u{582}"),
    ('\u{1c80}', "\u{432}"),
    ('\u{1c81}', "\u{434}"),
    ('\u{1c82}', "\u{43e}"),
    ('\u{1c83}', "\u{441}"),
    ('\u{1c84}', "\u{442}"),
    ('\u{1c85}', "\u{442}"),
    ('\u{1c86}', "\u{44a}"),
    ('\u{1c87}', "\u{463}"),
    ('\u{1c88}', "\u{a64b}"),
    ('\u{1e9a}', "\u{61}\u{2be}"),
    ('\u{1e9e}', "\u{73}\u{73}"),
    ('\u{fb00}', "\u{66}\u{66}"),
    ('\u{fb01}', "\u{66}\u{69}"),
    ('\u{fb02}', "\u{66}\u{6c}"),
    ('\u{fb03}', "\u{66}\u{66}\u{69}"),
    ('\u{fb04}', "\u{66}\u{66}\u{6c}"),
    ('\u{fb05}', "\u{73}\u{74}"),
    ('\u{fb06}', "\u{73}\u{74}"),
    ('\u{fb13}', "\u{574}\u{576}"),
    ('\u{fb14}', "\u{574}\u{565}"),
    ('\u{fb15}', "\u{574}\u{56b}"),
    ('\u{fb16}', "\u{57e}\u{576}"),
    ('\u{fb17}', "\u{574}\u{56d}"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use caseless::Caseless as _;
    use unicode_normalization::UnicodeNormalization as _;

    #[test]
    fn every_character_folds_as_unicodes_table_says() {
        assert!(SPECIAL.is_sorted_by_key(|&(c, _)| c));
        for c in (char::MIN..=char::MAX).filter(|&c| !super::super::fold::is_younger(c)) {
            let mut folded = String::new();
            fold(c, |part| folded.push(part));
            let expected: String = core::iter::once(c).default_case_fold().nfd().collect();
            assert_eq!(folded.nfd().collect::<String>(), expected, "U+{:04X}", u32::from(c));
        }
    }
}
