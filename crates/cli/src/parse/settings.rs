//! Lists of `NAME=VALUE`, as `-E` and `-J` take them.

use crate::parse::size::size_in;

/// The settings of drivers whose values are numbers of bytes.
const BYTES: [&str; 5] = ["cluster_size", "inode_size", "inode_ratio", "sector_size", "boundary_align"];

/// Returns the value of the setting `name` for a driver: sizes become numbers of bytes. A value that is not a size stays as it is,
/// and the driver rejects it.
pub fn value_for_driver(name: &str, value: String) -> String {
    match BYTES.contains(&name).then(|| size_in(&value, 1)).flatten() {
        Some(bytes) => bytes.to_string(),
        None => value,
    }
}

/// Returns the names and values of `lists`, whose items are separated by commas.
pub fn split(lists: &[String]) -> impl Iterator<Item = (String, String)> {
    let words = lists.iter().flat_map(|list| list.split(',')).filter(|word| !word.is_empty());
    words.map(|word| {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        (name.to_owned(), value_for_driver(name, value.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_separated_by_commas_and_sizes_become_bytes() {
        let lists = ["cluster_size=128k,label=1M".to_owned(), "discard,sector_size=odd".to_owned()];
        let expected = [("cluster_size", "131072"), ("label", "1M"), ("discard", ""), ("sector_size", "odd")];
        assert!(split(&lists).eq(expected.map(|(name, value)| (name.to_owned(), value.to_owned()))));
    }
}
