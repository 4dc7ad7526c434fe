//! Suggestions for misspelled names.

use strsim::levenshtein;

/// Returns the name in `known` that is most similar to `name`, if at most two characters differ and they are less than
/// half of `name`.
pub fn similar<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, nearest) = known.map(|known| (levenshtein(name, known), known)).min()?;
    (distance <= 2 && distance * 2 < name.chars().count()).then_some(nearest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_name_with_few_different_characters_is_similar() {
        let known = || ["size", "sizes", "type"].into_iter();
        assert_eq!(similar("sizee", known()), Some("size"));
        assert_eq!(similar("typ", known()), Some("type"));
        assert_eq!((similar("label", known()), similar("a", known())), (None, None));
    }
}
