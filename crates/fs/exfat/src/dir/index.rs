//! The names of a directory by their hashes, in memory, and the places where new entries may fit.
//!
//! Invariant: the index contains each entry set of the directory once, by the computed hash of its name. It ignores the
//! stored hash.

use alloc::collections::BTreeSet;

use obento_base::{Error, Result};
use obento_block::Cache;

use super::{Directory, Scan};
use crate::name::Folded;
use crate::set::SET_MAX;
use crate::super_block::SuperBlock;
use crate::up_case::UpCase;

/// The index of a directory.
pub struct Index {
    /// The [`key`] of each set.
    by_hash: BTreeSet<u64>,
    /// For each number of entries, minus one: where to start searching for free entries.
    room: [u32; 19],
    /// The error of the first part that could not be read.
    pub damage: Option<Error>,
}

impl Index {
    /// Reads all of `dir`.
    pub fn build(dir: &Directory, sb: &SuperBlock, cache: &Cache, table: &UpCase) -> Self {
        let mut this = Self { by_hash: BTreeSet::new(), room: [0; 19], damage: dir.damage };
        let mut scan = Scan::new(dir, sb, cache, 0);
        while let Some(found) = scan.next() {
            match found {
                Ok(found) => {
                    let units: alloc::vec::Vec<u16> = found.set.units().collect();
                    this.insert(Folded::new(&units, table).hash(), found.index);
                }
                Err(error) => this.damage = this.damage.or(Some(error)),
            }
        }
        this
    }

    /// Returns the number of names.
    pub fn len(&self) -> usize {
        self.by_hash.len()
    }

    /// Returns the sets whose names have this hash.
    pub fn with_hash(&self, hash: u16) -> impl Iterator<Item = u32> + '_ {
        self.by_hash.range(key(hash, 0)..=key(hash, u32::MAX)).map(|&key| index_of(key))
    }

    /// Adds a set.
    pub fn insert(&mut self, hash: u16, index: u32) {
        self.by_hash.insert(key(hash, index));
    }

    /// Removes a set. The entries from `from` on may be free.
    pub fn remove(&mut self, hash: u16, index: u32, from: u32) {
        self.by_hash.remove(&key(hash, index));
        for start in &mut self.room {
            *start = (*start).min(from);
        }
    }

    /// Returns where to start searching for `count` free entries.
    pub fn room_from(&self, count: u32) -> u32 {
        let at = usize::try_from(count.clamp(1, SET_MAX).saturating_sub(1)).unwrap_or(0);
        self.room.get(at).copied().unwrap_or(0)
    }

    /// Records that no `count` adjacent free entries exist before `next`.
    pub fn no_room_before(&mut self, count: u32, next: u32) {
        let at = usize::try_from(count.clamp(1, SET_MAX).saturating_sub(1)).unwrap_or(0);
        for start in self.room.iter_mut().skip(at) {
            *start = (*start).max(next);
        }
    }
}

/// Returns hash and first entry of a set as one number: sets of numbers share their code in a kernel module.
fn key(hash: u16, index: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(index)
}

/// Returns the first entry of a set from its [`key`].
fn index_of(key: u64) -> u32 {
    let [.., a, b, c, d] = key.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// Fails with the error of a part that could not be read, since a name that was not found may be there.
pub fn nowhere(index: &Index) -> Result<()> {
    index.damage.map_or(Ok(()), Err)
}
