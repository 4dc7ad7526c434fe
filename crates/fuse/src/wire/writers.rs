//! A bounded table of the processes that write to files.
//!
//! Invariant: a process that fills the table removes the oldest entry with each new one, and never all entries. An entry
//! is needed only between two requests of one write(2), so the oldest one is most likely left over.

use std::collections::{BTreeMap, HashMap};

/// A process at a file: the number of the file and of the process.
pub(super) type Writer = (u64, u32);

/// Maximum number of entries.
const MOST_WRITERS: usize = 4096;

/// Values of writers, of which the last [`MOST_WRITERS`] are kept.
pub(super) struct Writers<V> {
    values: HashMap<Writer, (u64, V)>,
    /// The writers in the order in which they were inserted last.
    order: BTreeMap<u64, Writer>,
    next: u64,
}

impl<V> Default for Writers<V> {
    fn default() -> Self {
        Self { values: HashMap::new(), order: BTreeMap::new(), next: 0 }
    }
}

impl<V> Writers<V> {
    /// Inserts a value, or replaces the value of `writer`. Removes the oldest entry if the table is full.
    pub fn insert(&mut self, writer: Writer, value: V) {
        self.remove(writer);
        if self.values.len() >= MOST_WRITERS
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.values.remove(&oldest);
        }
        self.values.insert(writer, (self.next, value));
        self.order.insert(self.next, writer);
        self.next += 1;
    }

    pub fn remove(&mut self, writer: Writer) {
        if let Some((number, _)) = self.values.remove(&writer) {
            self.order.remove(&number);
        }
    }

    pub fn get(&self, writer: Writer) -> Option<&V> {
        self.values.get(&writer).map(|(_, value)| value)
    }

    /// Returns all entries, the oldest one first.
    pub fn iter(&self) -> impl Iterator<Item = (Writer, &V)> {
        self.order.values().filter_map(|&writer| Some((writer, self.get(writer)?)))
    }
}

impl<V> FromIterator<(Writer, V)> for Writers<V> {
    fn from_iter<I: IntoIterator<Item = (Writer, V)>>(entries: I) -> Self {
        let mut writers = Self::default();
        entries.into_iter().for_each(|(writer, value)| writers.insert(writer, value));
        writers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u32 = MOST_WRITERS as u32;

    #[test]
    fn a_full_table_loses_the_oldest_entry_alone() {
        let mut writers: Writers<u32> = (0..MOST).map(|pid| ((1, pid), pid)).collect();
        // An entry that is inserted again is no longer the oldest one.
        writers.insert((1, 0), 7);
        writers.insert((2, 0), 8);
        assert_eq!(
            [(1, 0), (1, 1), (1, 2), (2, 0)].map(|writer| writers.get(writer).copied()),
            [Some(7), None, Some(2), Some(8)]
        );
        let all: Vec<Writer> = writers.iter().map(|(writer, _)| writer).collect();
        assert_eq!(
            (all.len(), all[0], all[all.len() - 2..].to_vec()),
            (MOST_WRITERS, (1, 2), vec![(1, 0), (2, 0)])
        );
    }

    #[test]
    fn removed_entries_leave_room() {
        let mut writers: Writers<()> = (0..MOST).map(|pid| ((1, pid), ())).collect();
        (1..MOST).for_each(|pid| writers.remove((1, pid)));
        (1..MOST).for_each(|pid| writers.insert((2, pid), ()));
        assert_eq!(writers.iter().next(), Some(((1, 0), &())));
        assert_eq!(writers.iter().count(), MOST_WRITERS);
    }
}
