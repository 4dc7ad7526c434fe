//! Looking up and listing names.

use alloc::vec::Vec;

use obento_base::{Name, NameBuf, Result};
use obento_clusters::{FileEntry as _, Listed, Volume as _};
use obento_driver::Cookie;

use super::{Directory, Scan, index, scan};
use crate::name::{Folded, to_units};
use crate::unit::Slot;
use crate::volume::Volume;

/// The place of an entry in its directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Location {
    /// The first entry that belongs to it.
    pub start: u32,
    /// The short entry.
    pub index: u32,
    /// The slot of the short entry.
    pub slot: Slot,
}

impl Volume {
    /// Returns the place of the entry `name` of `dir`. Unreadable parts are skipped. If the name is not found and a
    /// part was unreadable, fails with its error.
    pub fn find(&self, dir: &Directory, name: &Name) -> Result<Option<Location>> {
        let Ok(units) = to_units(name.as_bytes()) else { return Ok(None) };
        let folded = Folded::new(&units);
        if let Some(found) = self.find_by_index(dir, &units, &folded)? {
            return Ok(found);
        }
        let mut damage = Ok(None);
        let mut scan = Scan::new(dir, self.cache(), 0);
        while let Some(found) = scan.next() {
            match found {
                Ok(found) if found.is(&folded, self.options().code_page) => {
                    let (start, index, slot) = (found.start, found.index, found.slot);
                    return Ok(Some(Location { start, index, slot }));
                }
                Ok(_) => {}
                Err(error) => damage = Err(error),
            }
        }
        match dir.damage {
            Some(error) => Err(error),
            None => damage,
        }
    }

    /// Looks up a name in the index of a large directory. Returns `None` if the directory has no index.
    fn find_by_index(
        &self,
        dir: &Directory,
        units: &[u16],
        folded: &Folded,
    ) -> Result<Option<Option<Location>>> {
        let candidates = self.with_index(dir, |index| {
            let mut candidates = index.candidates(index::hash(units)).to_vec();
            candidates.sort_unstable();
            candidates
        });
        let Some(candidates) = candidates else { return Ok(None) };
        for at in candidates {
            let mut scan = Scan::new(dir, self.cache(), at);
            let Some(found) = scan.next() else { continue };
            let found = found?;
            if found.index == at && found.is(folded, self.options().code_page) {
                let (start, index, slot) = (found.start, found.index, found.slot);
                return Ok(Some(Some(Location { start, index, slot })));
            }
        }
        Ok(Some(None))
    }

    /// Returns the hashes of the names of the entry at `at`.
    pub fn hashes_at(&self, dir: &Directory, at: u32) -> Result<[Option<u64>; 2]> {
        let mut scan = Scan::new(dir, self.cache(), at);
        match scan.next() {
            Some(found) => {
                let found = found?;
                let short = found.short(self.options().code_page);
                Ok([found.long.map(index::hash), Some(index::hash(&short))])
            }
            None => Ok([None, None]),
        }
    }

    /// Returns at most `max` entries of `dir` after `from`, and whether they are the last ones. Damaged parts appear
    /// as errors among them.
    pub fn list(&self, dir: &Directory, from: Cookie, max: usize) -> Result<(Vec<Result<Listed>>, bool)> {
        let mut batch = Vec::new();
        batch.try_reserve(max)?;
        let Ok(from) = u32::try_from(from.0) else { return Ok((batch, true)) };
        let mut scan = Scan::new(dir, self.cache(), from);
        while let Some(found) = scan.next() {
            let listed = found.and_then(|found| {
                let name = found.name(self.options().code_page).and_then(|name| NameBuf::new(name).ok());
                let next = Cookie(u64::from(found.index).saturating_add(1));
                let name = name.ok_or_else(|| scan::no_name(dir, &found, self.super_block().sector_size))?;
                Ok(Listed { name, ino: self.ino_at(found.slot), kind: found.raw.file_kind(), next })
            });
            batch.push(listed);
            if batch.len() >= max {
                return Ok((batch, false));
            }
        }
        if let Some(error) = dir.damage.filter(|_| from <= dir.slots) {
            batch.push(Err(error));
        }
        Ok((batch, true))
    }
}
