//! The names of a large directory by their hashes, so that a lookup reads one entry and not all of them.
//!
//! Invariant: an index contains every entry of its directory. It is created for an undamaged directory, and every
//! change of names uses [`Index::add`] and [`Index::remove`].
//! Invariant: there are at most [`MAX_INDEXES`] indexes with at most [`MAX_NAMES`] names in total. Beyond these
//! limits indexes are dropped, and recreated when they are needed.

use alloc::vec::Vec;

use hashbrown::{HashMap, HashSet};
use obento_base::{Error, Result};
use obento_block::Cache;

use super::{Directory, Scan};
use crate::inode::Kind;
use crate::name::{CodePage, ShortName, fold};

/// Minimum number of entries of a directory with an index.
pub const LARGE: u32 = 64;
/// Maximum number of indexes.
pub const MAX_INDEXES: usize = 256;
/// Maximum number of names in memory: 16 full directories.
pub const MAX_NAMES: usize = 1 << 20;

/// The index of a directory.
#[derive(Default)]
pub struct Index {
    /// Entries by the hashes of their long and short names.
    entries: HashMap<u64, Vec<u32>>,
    shorts: HashSet<ShortName>,
    /// Number of the entry after the last one in use.
    used: u32,
    /// Number of free entries before `used`.
    free: u32,
    /// No gap has this many free entries, until further entries are freed.
    most: Option<u32>,
}

/// Returns the FNV-1a hash of a name, folded for comparison.
pub fn hash(units: &[u16]) -> u64 {
    let bytes = units.iter().flat_map(|&unit| fold(unit).to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

impl Index {
    /// Reads all names of `dir`. Returns `None` if a part of it cannot be read. Fails with `NoMemory`.
    pub fn read(
        dir: &Directory,
        cache: &Cache,
        page: CodePage,
        kind: impl Fn(u32) -> Result<Kind>,
    ) -> Result<Option<Self>> {
        let mut index = Self::default();
        if dir.damage.is_some() {
            return Ok(None);
        }
        // Labels and orphaned parts of long names are in use, too.
        for at in 0..dir.slots {
            match kind(at) {
                Ok(Kind::End) => break,
                Ok(Kind::Free) => {}
                Ok(_) => {
                    let skipped = at.saturating_sub(index.used);
                    (index.used, index.free) = (at.saturating_add(1), index.free.saturating_add(skipped));
                }
                Err(_) => return Ok(None),
            }
        }
        let mut scan = Scan::new(dir, cache, 0);
        while let Some(found) = scan.next() {
            let Ok(found) = found else { return Ok(None) };
            let short = found.short(page);
            let hashes = found.long.map(hash).into_iter().chain([hash(&short)]);
            let (at, name) = (found.index, found.raw.name());
            index.note(hashes, at, name)?;
        }
        Ok(Some(index))
    }

    fn note(&mut self, hashes: impl Iterator<Item = u64>, at: u32, short: ShortName) -> Result<()> {
        for hash in hashes {
            self.entries.try_reserve(1).map_err(|_| Error::NoMemory)?;
            let entries = self.entries.entry(hash).or_default();
            if !entries.contains(&at) {
                entries.try_reserve(1)?;
                entries.push(at);
            }
        }
        self.shorts.try_reserve(1).map_err(|_| Error::NoMemory)?;
        self.shorts.insert(short);
        Ok(())
    }

    /// Returns the number of names.
    pub fn len(&self) -> usize {
        self.shorts.len()
    }

    /// Returns the entries that may have a name with this hash.
    pub fn candidates(&self, hash: u64) -> &[u32] {
        self.entries.get(&hash).map_or(&[], Vec::as_slice)
    }

    /// Returns whether the short name is in use.
    pub fn has(&self, short: ShortName) -> bool {
        self.shorts.contains(&short)
    }

    /// Returns the number of the entry after the last one in use.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Returns whether a gap before that may have `count` free entries.
    pub fn may_have(&self, count: u32) -> bool {
        self.free >= count && self.most.is_none_or(|most| count < most)
    }

    /// Records that no gap has `count` free entries.
    pub fn has_not(&mut self, count: u32) {
        self.most = Some(self.most.map_or(count, |most| most.min(count)));
    }

    /// Adds the entry at `start..=at` with these names. Fails with `NoMemory`; the caller then drops the index.
    pub fn add(&mut self, hashes: [Option<u64>; 2], (start, at): (u32, u32), short: ShortName) -> Result<()> {
        let count = at.saturating_sub(start).saturating_add(1);
        if at < self.used {
            self.free = self.free.saturating_sub(count);
        } else {
            self.free = self.free.saturating_add(start.saturating_sub(self.used));
            self.used = at.saturating_add(1);
        }
        self.note(hashes.into_iter().flatten(), at, short)
    }

    /// Removes the entry at `start..=at`.
    pub fn remove(&mut self, hashes: [Option<u64>; 2], (start, at): (u32, u32), short: ShortName) {
        for hash in hashes.into_iter().flatten() {
            if let Some(entries) = self.entries.get_mut(&hash) {
                entries.retain(|&entry| entry != at);
                if entries.is_empty() {
                    self.entries.remove(&hash);
                }
            }
        }
        self.shorts.remove(&short);
        self.free = self.free.saturating_add(at.saturating_sub(start)).saturating_add(1);
        self.most = None;
    }
}
