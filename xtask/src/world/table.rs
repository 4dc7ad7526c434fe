//! The table of differences, each with its reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

/// A difference between obento and a judge.
pub struct Difference {
    /// The item.
    pub item: String,
    /// The compared property.
    pub aspect: &'static str,
    /// A description of the difference.
    pub detail: String,
}

/// Items and aspects that may differ.
pub struct Table(BTreeMap<(String, String), String>);

impl Table {
    /// Reads the rows of `| item | aspect | reason |` on a page. An item that ends with `*` matches all items with that
    /// prefix. Fails on a row without a reason, and on a row that occurs twice.
    pub fn read(page: &Path) -> Result<Self> {
        Self::parse(&fs::read_to_string(page).with_context(|| page.display().to_string())?)
    }

    fn parse(text: &str) -> Result<Self> {
        let mut rows = BTreeMap::new();
        let lines = text.lines().skip_while(|line| !line.starts_with("| item | aspect |")).skip(2);
        for line in lines.take_while(|line| line.starts_with('|')) {
            let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
            ensure!(
                cells.len() == 3 && cells.iter().all(|cell| !cell.is_empty()),
                "not a row with a reason: {line}"
            );
            let key = (cells[0].to_owned(), cells[1].to_owned());
            ensure!(rows.insert(key, cells[2].to_owned()).is_none(), "duplicate row: {line}");
        }
        Ok(Self(rows))
    }

    /// Returns the differences without a row, and the rows about `items` without a difference.
    pub fn judge<'a>(
        &'a self,
        found: &'a [Difference],
        items: &BTreeSet<&str>,
    ) -> (Vec<&'a Difference>, Vec<(&'a str, &'a str)>) {
        let keys = || self.0.keys().map(|(item, aspect)| (item.as_str(), aspect.as_str()));
        let is_about = |(item, aspect): (&str, &str), difference: &Difference| {
            names(item, &difference.item) && aspect == difference.aspect
        };
        let unlisted = found.iter().filter(|difference| !keys().any(|key| is_about(key, difference)));
        let gone = keys().filter(|(row, _)| items.iter().any(|item| names(row, item)));
        let gone = gone.filter(|key| !found.iter().any(|difference| is_about(*key, difference)));
        (unlisted.collect(), gone.collect())
    }

    /// Returns whether the reason of a row is a known fault of obento that will be fixed.
    pub fn is_open(&self, item: &str, aspect: &str) -> bool {
        self.0.get(&(item.to_owned(), aspect.to_owned())).is_some_and(|reason| reason.starts_with("open"))
    }
}

/// Returns whether a row matches an item.
fn names(row: &str, item: &str) -> bool {
    row.strip_suffix('*').map_or(row == item, |start| item.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Page\n\n| item | aspect | reason |\n|---|---|---|\n| a/one | build | it is odd |\n| b/* | tree | open: all are |\n\nMore.\n";

    fn difference(item: &str, aspect: &'static str) -> Difference {
        Difference { item: item.to_owned(), aspect, detail: String::new() }
    }

    #[test]
    fn a_difference_without_a_row_and_a_row_without_a_difference_are_found() {
        let table = Table::parse(PAGE).unwrap();
        let items = BTreeSet::from(["a/one", "b/one", "b/two"]);
        let listed = [difference("a/one", "build"), difference("b/two", "tree")];
        let (unlisted, gone) = table.judge(&listed, &items);
        assert!(unlisted.is_empty() && gone.is_empty());
        let (unlisted, gone) = table.judge(&listed[..1], &items);
        assert!(unlisted.is_empty());
        assert_eq!(gone, [("b/*", "tree")]);
        // Rows about items that were not compared are not reported.
        assert!(table.judge(&listed[..1], &BTreeSet::from(["a/one"])).1.is_empty());
        assert!(!table.is_open("a/one", "build") && table.is_open("b/*", "tree"));
        let others = [difference("a/one", "build"), difference("a/one", "tree"), difference("b/one", "tree")];
        let (unlisted, gone) = table.judge(&others, &items);
        assert!(unlisted.len() == 1 && unlisted[0].aspect == "tree" && gone.is_empty());
    }

    #[test]
    fn a_row_has_a_reason_and_occurs_once() {
        let row =
            |rows: &str| Table::parse(&format!("| item | aspect | reason |\n|---|---|---|\n{rows}")).is_ok();
        assert!(row("| a | b | c |\n"));
        assert!(!row("| a | b | |\n"));
        assert!(!row("| a | b |\n"));
        assert!(!row("| a | b | c |\n| a | b | d |\n"));
    }
}
