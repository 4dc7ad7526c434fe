//! The names of a directory by their hashes, in memory, and where there may be room for more.
//!
//! Invariant: each set that a walk finds is in it once, by the hash of its name, whatever hash is stored.

use alloc::collections::BTreeSet;

use obento_base::{Error, Result};
use obento_block::Cache;

use super::{Directory, Scan};
use crate::name::Folded;
use crate::set::SET_MAX;
use crate::super_block::SuperBlock;
use crate::up_case::UpCase;

/// What is known of a directory.
pub struct Index {
    /// Hash and first entry.
    by_hash: BTreeSet<(u16, u32)>,
    /// For sets of so many entries, one less, where to begin to look for room.
    room: [u32; 19],
    /// The first part that could not be read.
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

    /// Returns how many names it has.
    pub fn len(&self) -> usize {
        self.by_hash.len()
    }

    /// The sets whose names have this hash.
    pub fn with_hash(&self, hash: u16) -> impl Iterator<Item = u32> + '_ {
        self.by_hash.range((hash, 0)..=(hash, u32::MAX)).map(|&(_, index)| index)
    }

    /// A set came.
    pub fn insert(&mut self, hash: u16, index: u32) {
        self.by_hash.insert((hash, index));
    }

    /// A set went, and what begins at `from` may have room.
    pub fn remove(&mut self, hash: u16, index: u32, from: u32) {
        self.by_hash.remove(&(hash, index));
        for start in &mut self.room {
            *start = (*start).min(from);
        }
    }

    /// Returns where to look for room for `count` entries.
    pub fn room_from(&self, count: u32) -> u32 {
        let at = usize::try_from(count.clamp(1, SET_MAX).saturating_sub(1)).unwrap_or(0);
        self.room.get(at).copied().unwrap_or(0)
    }

    /// Before `next` there is no room for `count` entries or more.
    pub fn no_room_before(&mut self, count: u32, next: u32) {
        let at = usize::try_from(count.clamp(1, SET_MAX).saturating_sub(1)).unwrap_or(0);
        for start in self.room.iter_mut().skip(at) {
            *start = (*start).max(next);
        }
    }
}

/// Errors of what could not be read, where a name is nowhere else.
pub fn nowhere(index: &Index) -> Result<()> {
    index.damage.map_or(Ok(()), Err)
}
