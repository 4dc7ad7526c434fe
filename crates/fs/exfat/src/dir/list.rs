//! Looking up and listing names.

use alloc::vec::Vec;

use obento_base::{Corrupt, Name, NameBuf, Result};
use obento_clusters::{FileEntry as _, Listed, Slot, Volume as _};
use obento_driver::Cookie;

use super::index::nowhere;
use super::{Directory, Index, Scan};
use crate::name::{Folded, to_bytes, to_units};
use crate::set::EntrySet;
use crate::volume::Volume;

/// The place of an entry set in its directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Location {
    /// Number of its first entry.
    pub index: u32,
    /// The slot of the first entry.
    pub slot: Slot,
    /// The set.
    pub set: EntrySet,
}

impl Volume {
    /// Calls `act` with the index of `dir`. Creates the index if necessary.
    pub fn with_index<T>(&self, dir: &Directory, act: impl FnOnce(&mut Index) -> T) -> T {
        let (done, built) = {
            let mut held = dir.index.lock();
            let is_new = held.is_none();
            let index = held
                .get_or_insert_with(|| Index::build(dir, self.super_block(), self.cache(), self.up_case()));
            let built = is_new.then(|| index.len());
            (act(index), built)
        };
        if let Some(names) = built {
            self.bound_indexes(dir.ino, names);
        }
        done
    }

    /// Returns the place of the entry `name` of `dir`. Unreadable parts are skipped. If the name is not found and a
    /// part was unreadable, fails with its error.
    pub fn find(&self, dir: &Directory, name: &Name) -> Result<Option<Location>> {
        let Ok(units) = to_units(name.as_bytes()) else { return Ok(None) };
        let folded = Folded::new(&units, self.up_case());
        let (candidates, missing) = self
            .with_index(dir, |index| (index.with_hash(folded.hash()).collect::<Vec<u32>>(), nowhere(index)));
        for index in candidates {
            let (slot, set) = self.set_at(dir, index)?;
            let units: Vec<u16> = set.units().collect();
            if folded.is(&units, self.up_case()) {
                return Ok(Some(Location { index, slot, set }));
            }
        }
        missing.map(|()| None)
    }

    /// Returns at most `max` entries of `dir` after `from`, and whether they are the last ones. Damaged parts appear
    /// as errors among them.
    pub fn list(&self, dir: &Directory, from: Cookie, max: usize) -> Result<(Vec<Result<Listed>>, bool)> {
        let mut batch = Vec::new();
        batch.try_reserve(max)?;
        let Ok(from) = u32::try_from(from.0) else { return Ok((batch, true)) };
        let size = u64::from(self.super_block().sector_size);
        let mut scan = Scan::new(dir, self.super_block(), self.cache(), from);
        while let Some(found) = scan.next() {
            let listed = found.and_then(|found| {
                let next = Cookie(u64::from(found.index).saturating_add(1));
                let name = NameBuf::new(to_bytes(found.set.units())).map_err(|_| {
                    let block = found.slot.offset().checked_div(size).unwrap_or(0);
                    let offset = found.slot.offset().checked_rem(size).and_then(|at| u32::try_from(at).ok());
                    Corrupt::EntryName { dir: dir.ino, block, offset: offset.unwrap_or(0) }
                })?;
                Ok(Listed { name, ino: self.ino_at(found.slot), kind: found.set.file_kind(), next })
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
