//! The map from inodes of the source to inodes of the image, for files with several names.
//!
//! Invariant: the memory is bounded for any link counts of a hostile image. An entry is removed with the last
//! expected name. An inode that does not fit is not stored, and its further names become separate files.

use std::collections::HashMap;

use obento_base::{Generation, Ino};
use obento_host::tree::LinkKey;

/// Maximum number of entries. They use about 48 MiB.
const MAX: usize = 1 << 20;

/// The copy of an inode of the source.
#[derive(Clone, Copy)]
pub(super) struct Copied {
    pub ino: Ino,
    /// Detects that the inode number was reused for another file.
    pub generation: Generation,
    left: u32,
}

#[derive(Default)]
pub(super) struct InodeLinks(HashMap<LinkKey, Copied>);

impl InodeLinks {
    /// Records that `key` was copied to `ino`, and that `more` names are expected. Returns false if the map
    /// is full.
    pub fn insert(&mut self, key: LinkKey, ino: Ino, generation: Generation, more: u32) -> bool {
        if self.0.len() >= MAX && !self.0.contains_key(&key) {
            return false;
        }
        self.0.insert(key, Copied { ino, generation, left: more });
        true
    }

    /// Returns the copy of `key`, for a further name.
    pub fn next(&mut self, key: LinkKey) -> Option<Copied> {
        let copied = self.0.get_mut(&key)?;
        copied.left = copied.left.saturating_sub(1);
        let found = *copied;
        // A damaged image may have more names than its link counts: the entry stays while there is room.
        if found.left == 0 && self.0.len() >= MAX / 2 {
            self.0.remove(&key);
        }
        Some(found)
    }
}
