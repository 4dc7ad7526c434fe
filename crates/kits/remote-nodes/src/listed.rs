//! The count of the entries of a listing.

/// The entries that the current listing of a directory has returned.
#[derive(Clone, Copy, Default, Debug)]
pub struct ListedCount {
    /// Entries without the first `.` and `..`.
    entries: u64,
    /// `.` and `..`, which are at most two.
    dots: u64,
}

impl ListedCount {
    /// Counts an entry. Returns the number of entries so far. More than two entries `.` and `..` count like all others,
    /// so that every listing ends.
    pub fn add(&mut self, is_dots: bool) -> u64 {
        let counted = if is_dots && self.dots < 2 { &mut self.dots } else { &mut self.entries };
        *counted += 1;
        self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_two_dot_entries_are_not_counted() {
        let mut count = ListedCount::default();
        let counts = [true, false, true, true, false].map(|is_dots| count.add(is_dots));
        assert_eq!(counts, [0, 1, 1, 2, 3]);
    }
}
