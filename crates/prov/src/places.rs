//! The places of records: the blocks that the indexes of a log name for a key. The places of a key are remembered, since a
//! query asks for records of several kinds of each file and process.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use hashbrown::HashMap;

use crate::index::{Index, Key};
use crate::kinds;
use crate::presence::Presence;

/// The place of a block: the position of its segment in the log, and its number in the segment.
pub(crate) type Place = (usize, u32);

/// A block with records of a key, and the kinds of these records.
type Found = (Place, u8);

/// Number of keys that are looked up before a table of all keys is created.
const MANY_KEYS: u32 = 1000;
/// Number of places in memory. A place has 24 bytes, and the list of a key about 64.
const KNOWN_MAX: usize = 1 << 21;

/// The indexes of a log.
#[derive(Debug, Default)]
pub(crate) struct Places {
    indexes: Vec<Index>,
    /// Number of keys that were looked up in the indexes.
    looked_up: u32,
    presence: Option<Presence>,
    /// The places in all segments, by the hash of a key.
    known: HashMap<u32, Arc<[Found]>>,
    /// Number of places and of keys in `known`.
    known_len: usize,
}

impl Places {
    /// Adds the index of the next segment of the log.
    pub(crate) fn push(&mut self, index: Index) {
        self.indexes.push(index);
    }

    /// Returns the index of the segment at a position.
    pub(crate) fn index(&self, at: usize) -> Option<&Index> {
        self.indexes.get(at)
    }

    /// Returns the blocks with records of `key` of these kinds in the segments of `range`, in the order of the log.
    pub(crate) fn find(&mut self, range: Range<usize>, key: Key<'_>, kinds: u8) -> Vec<Place> {
        let hash = key.hash();
        if range.len() < self.indexes.len() {
            return self.search(range, hash, kinds).map(|(place, _)| place).collect();
        }
        let known = match self.known.get(&hash) {
            Some(known) => Arc::clone(known),
            None => self.learn(hash),
        };
        known.iter().filter(|(_, own)| own & kinds != 0).map(|(place, _)| *place).collect()
    }

    /// Looks up and remembers the places of the keys with this hash in all segments.
    fn learn(&mut self, hash: u32) -> Arc<[Found]> {
        self.looked_up = self.looked_up.saturating_add(1);
        if self.looked_up == MANY_KEYS {
            self.presence = Presence::of(self.indexes.iter());
        }
        let found: Arc<[Found]> = self.search(0..self.indexes.len(), hash, kinds::ALL).collect();
        if self.known_len >= KNOWN_MAX {
            self.known.clear();
            self.known_len = 0;
        }
        self.known_len = self.known_len.saturating_add(found.len()).saturating_add(1);
        self.known.insert(hash, Arc::clone(&found));
        found
    }

    /// Searches the indexes of the segments of `range` that may contain the hash.
    fn search(&self, range: Range<usize>, hash: u32, kinds: u8) -> impl Iterator<Item = Found> {
        let present = self.presence.as_ref().map(|table| table.segments(hash));
        let all = present.is_none().then(|| range.clone());
        let segments = present.into_iter().flatten().chain(all.into_iter().flatten());
        let indexes = segments
            .filter(move |at| range.contains(at))
            .filter_map(|at| self.indexes.get(at).map(|index| (at, index)));
        indexes.flat_map(move |(at, index)| {
            index.blocks(hash, kinds).map(move |(block, kinds)| ((at, block), kinds))
        })
    }
}
