//! Which inode of the source became which of the image, for its further names.
//!
//! Invariant: what is held is bounded, whatever link counts a hostile image claims. An entry goes with the last name
//! that was to come; what does not fit is not remembered, and its further names become files of their own.

use std::collections::HashMap;

use obento_base::{Generation, Ino};
use obento_host::tree::LinkKey;

/// Entries that are held: some 48 MiB.
const MAX: usize = 1 << 20;

/// What an inode of the source became.
#[derive(Clone, Copy)]
pub(super) struct Copied {
    pub ino: Ino,
    /// Tells whether the number went to another file since.
    pub generation: Generation,
    left: u32,
}

#[derive(Default)]
pub(super) struct InodeLinks(HashMap<LinkKey, Copied>);

impl InodeLinks {
    /// Remembers that `key` became `ino`, and that `more` names are to come. False: there is no room.
    pub fn insert(&mut self, key: LinkKey, ino: Ino, generation: Generation, more: u32) -> bool {
        if self.0.len() >= MAX && !self.0.contains_key(&key) {
            return false;
        }
        self.0.insert(key, Copied { ino, generation, left: more });
        true
    }

    /// What `key` became, for another of its names.
    pub fn next(&mut self, key: LinkKey) -> Option<Copied> {
        let copied = self.0.get_mut(&key)?;
        copied.left = copied.left.saturating_sub(1);
        let found = *copied;
        // A damaged image may have more names than it counts: while there is room, the entry stays.
        if found.left == 0 && self.0.len() >= MAX / 2 {
            self.0.remove(&key);
        }
        Some(found)
    }
}
