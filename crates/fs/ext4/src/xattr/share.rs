//! Objects that can be shared: blocks of attributes and inodes of values, by their hashes.
//!
//! An entry is a hint: its user reads the object and compares it.
//! Invariant: no entry refers to a free object, since a block or an inode of a value is removed here before it is
//! freed. A block with the maximum number of users is removed, too.
//! Invariant: the number of entries is bounded; the oldest are dropped.
//! Source: Linux fs/mbcache.c, as used by fs/ext4/xattr.c.

use alloc::collections::VecDeque;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use obento_env::sync::Mutex;

/// Maximum number of blocks, and of inodes.
const CAPACITY: usize = 16_384;
/// Maximum number of entries with one hash.
const SAME_HASH: usize = 8;

/// Numbers by hash.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    by_hash: HashMap<u32, Bucket>,
    /// In order of insertion. Removed entries stay here until they are the oldest.
    order: VecDeque<(u32, u64)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    numbers: [u64; SAME_HASH],
    len: usize,
}

impl Bucket {
    fn held(&self) -> &[u64] {
        self.numbers.get(..self.len).unwrap_or_default()
    }

    fn push(&mut self, number: u64) -> bool {
        let Some(slot) = self.numbers.get_mut(self.len) else { return false };
        *slot = number;
        self.len = self.len.saturating_add(1);
        true
    }

    fn remove(&mut self, number: u64) {
        let Some(at) = self.held().iter().position(|&held| held == number) else { return };
        let last = self.held().last().copied();
        if let (Some(slot), Some(last)) = (self.numbers.get_mut(at), last) {
            *slot = last;
        }
        self.len = self.len.saturating_sub(1);
    }
}

impl Hints {
    /// Adds `number`; hash 0 is not shared. A lack of memory only prevents sharing.
    pub(crate) fn insert(&mut self, hash: u32, number: u64) {
        if hash == 0 || self.find(hash).contains(&number) {
            return;
        }
        if self.by_hash.try_reserve(1).is_err() || self.order.try_reserve(1).is_err() {
            return;
        }
        while self.order.len() >= CAPACITY {
            let Some((hash, number)) = self.order.pop_front() else { break };
            self.remove(hash, number);
        }
        if self.by_hash.entry(hash).or_default().push(number) {
            self.order.push_back((hash, number));
        }
    }

    /// Removes `number`.
    pub(crate) fn remove(&mut self, hash: u32, number: u64) {
        let Entry::Occupied(mut bucket) = self.by_hash.entry(hash) else { return };
        bucket.get_mut().remove(number);
        if bucket.get().len == 0 {
            bucket.remove();
        }
    }

    /// Returns the numbers with this hash.
    pub(crate) fn find(&self, hash: u32) -> &[u64] {
        self.by_hash.get(&hash).map(Bucket::held).unwrap_or_default()
    }
}

/// Shared objects by hash.
#[derive(Debug, Default)]
pub(crate) struct Shares(pub(super) Mutex<SharedNumbers>);

/// The shared blocks and the shared values.
#[derive(Debug, Default)]
pub(super) struct SharedNumbers {
    pub(super) blocks: Hints,
    pub(super) values: Hints,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_hash_until_they_are_removed() {
        let mut hints = Hints::default();
        for number in [3, 4, 4, 5] {
            hints.insert(9, number);
        }
        hints.insert(0, 6);
        assert_eq!(hints.find(9), [3, 4, 5]);
        hints.remove(9, 3);
        assert_eq!((hints.find(9), hints.find(0)), (&[5, 4][..], &[][..]));
        hints.remove(9, 4);
        hints.remove(9, 5);
        assert!(hints.by_hash.is_empty());
    }

    #[test]
    fn the_oldest_go_where_there_are_too_many() {
        let mut hints = Hints::default();
        let numbers = 1..=u32::try_from(CAPACITY).unwrap() + 10;
        numbers.for_each(|number| hints.insert(number, number.into()));
        assert_eq!((hints.find(10), hints.find(11)), (&[][..], &[11][..]));
        assert_eq!(hints.order.len(), CAPACITY);
        (0..100).for_each(|number| hints.insert(7, number));
        assert_eq!(hints.find(7).len(), SAME_HASH);
    }
}
