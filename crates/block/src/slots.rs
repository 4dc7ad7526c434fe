//! A cache with a fixed number of slots. The number of a key determines the only slot that can store its value, so a
//! lookup needs no search.

use alloc::vec::Vec;

use obento_base::wire::{to_u64, to_usize};
use obento_env::sync::Mutex;

/// A key of a [`Slots`] cache.
pub trait Key: PartialEq + Clone {
    /// Returns the number that selects the slot. Keys that are used together should differ in the low bits of their
    /// numbers.
    fn number(&self) -> u64;
}

impl Key for u64 {
    fn number(&self) -> u64 {
        *self
    }
}

impl Key for (u64, u64) {
    fn number(&self) -> u64 {
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17).wrapping_add(self.1)
    }
}

/// A cache with a fixed number of slots.
pub struct Slots<K, V>(Vec<Mutex<Option<(K, V)>>>);

impl<K: Key, V: Clone> Slots<K, V> {
    /// Creates an empty cache with `count` slots, and at least one.
    pub fn new(count: usize) -> Self {
        Self((0..count.max(1)).map(|_| Mutex::new(None)).collect())
    }

    fn slot(&self, key: &K) -> Option<&Mutex<Option<(K, V)>>> {
        self.0.get(to_usize(key.number().checked_rem(to_u64(self.0.len()))?))
    }

    /// Returns the value of `key`, if it is cached.
    pub fn get(&self, key: &K) -> Option<V> {
        let slot = self.slot(key)?.lock();
        slot.as_ref().filter(|(known, _)| known == key).map(|(_, value)| value.clone())
    }

    /// Stores `value` for `key`. Replaces the value in the same slot, which may have another key. Returns
    /// `value`.
    pub fn put(&self, key: K, value: V) -> V {
        if let Some(slot) = self.slot(&key) {
            // The old value is dropped after the lock is released.
            let old = slot.lock().replace((key, value.clone()));
            drop(old);
        }
        value
    }
}
