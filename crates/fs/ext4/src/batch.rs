//! Copies of directory entries, which a listing passes on without locks.

use alloc::vec::Vec;
use core::ops::ControlFlow;

use obento_base::{FileKind, Ino, Name, Result};
use obento_driver::{Cookie, DirEntry, EntrySink};

/// Number of bytes of names that are copied at a time. Each batch decodes and sorts the block again in which the batch
/// before it ended, so a batch has the entries of several blocks.
const NAMES: usize = 8 << 10;
/// Number of entries that are copied at a time.
const ENTRIES: usize = 1024;

/// Entries of a directory that may change, and errors of its damaged parts. The names are in one buffer.
pub(crate) struct Batch {
    names: Vec<u8>,
    entries: Vec<Result<CopiedEntry>>,
}

struct CopiedEntry {
    name_end: usize,
    ino: Ino,
    kind: Option<FileKind>,
    next: Cookie,
}

impl Batch {
    /// Returns an empty batch, or fails with `NoMemory`.
    pub(crate) fn new() -> Result<Self> {
        let (mut names, mut entries) = (Vec::new(), Vec::new());
        names.try_reserve_exact(NAMES.saturating_add(Name::MAX))?;
        entries.try_reserve_exact(ENTRIES)?;
        Ok(Self { names, entries })
    }

    /// Removes all entries.
    pub(crate) fn clear(&mut self) {
        self.names.clear();
        self.entries.clear();
    }

    /// Whether the batch has no room for a further entry.
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= ENTRIES || self.names.len() >= NAMES
    }

    /// Copies an entry, and ends the listing if the batch is full then.
    pub(crate) fn add(&mut self, entry: Result<DirEntry<'_>>) -> ControlFlow<()> {
        let entry = entry.map(|entry| {
            self.names.extend_from_slice(entry.name.as_bytes());
            CopiedEntry { name_end: self.names.len(), ino: entry.ino, kind: entry.kind, next: entry.next }
        });
        self.entries.push(entry);
        if self.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Passes the entries on, and sets `from` to the place after the last one.
    pub(crate) fn pass_on(&self, from: &mut Cookie, sink: &mut EntrySink<'_>) -> ControlFlow<()> {
        let mut start = 0;
        self.entries.iter().try_for_each(|entry| match entry {
            Ok(entry) => {
                let bytes = self.names.get(start..entry.name_end).unwrap_or_default();
                start = entry.name_end;
                *from = entry.next;
                // The bytes are those of a name.
                let Ok(name) = Name::new(bytes) else { return ControlFlow::Continue(()) };
                sink(Ok(DirEntry { name, ino: entry.ino, kind: entry.kind, next: entry.next }))
            }
            Err(error) => sink(Err(*error)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obento_base::Error;
    use std::string::{String, ToString as _};

    #[test]
    fn entries_and_errors_are_passed_on_in_their_order_until_the_sink_stops() {
        let mut batch = Batch::new().unwrap();
        let entry = |name: &'static str, number: u64| {
            let name = Name::new(name.as_bytes()).unwrap();
            Ok(DirEntry { name, ino: Ino(number), kind: Some(FileKind::Regular), next: Cookie(number) })
        };
        for entry in [entry("one", 1), Err(Error::Invalid), entry("second", 2), entry("3", 3)] {
            assert!(batch.add(entry).is_continue());
        }
        let (mut from, mut seen) = (Cookie(0), Vec::<String>::new());
        let flow = batch.pass_on(&mut from, &mut |entry| {
            seen.push(
                entry.map_or("error".into(), |e| String::from_utf8_lossy(e.name.as_bytes()).to_string()),
            );
            if seen.len() == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(flow.is_break());
        assert_eq!((from, seen), (Cookie(2), ["one", "error", "second"].map(String::from).to_vec()));
        batch.clear();
        assert!(!batch.is_full() && batch.pass_on(&mut from, &mut |_| ControlFlow::Break(())).is_continue());
    }

    #[test]
    fn a_batch_is_full_after_its_number_of_entries_or_of_bytes() {
        let long = [b'n'; 255];
        for (name, expected) in [(&b"n"[..], ENTRIES), (&long, NAMES.div_ceil(255))] {
            let (mut batch, mut count) = (Batch::new().unwrap(), 0);
            let name = Name::new(name).unwrap();
            while !batch.is_full() {
                let _ = batch.add(Ok(DirEntry { name, ino: Ino(1), kind: None, next: Cookie(count) }));
                count += 1;
            }
            assert_eq!(count, u64::try_from(expected).unwrap());
        }
    }
}
