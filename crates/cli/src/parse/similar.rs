//! Suggestions for misspelled names.

/// Returns the name in `known` that is most similar to `name`, if at most two bytes differ and they are less than half of
/// `name`.
pub fn similar<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, nearest) = known.map(|known| (distance(name, known), known)).min()?;
    (distance <= 2 && distance * 2 < name.len()).then_some(nearest)
}

/// Levenshtein's distance of two short words.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_name_with_few_different_bytes_is_similar() {
        let known = || ["size", "sizes", "type"].into_iter();
        assert_eq!(similar("sizee", known()), Some("size"));
        assert_eq!(similar("typ", known()), Some("type"));
        assert_eq!((similar("label", known()), similar("a", known())), (None, None));
    }
}
