//! Finding names and listing them.

use alloc::vec::Vec;

use obento_base::{FileKind, Ino, Name, NameBuf, Result};
use obento_driver::Cookie;

use super::{Directory, Scan, scan};
use crate::name::{Folded, to_units};
use crate::unit::Slot;
use crate::volume::Volume;

/// An entry as a listing copies it.
pub struct Listed {
    /// Its name.
    pub name: NameBuf,
    /// Its number.
    pub ino: Ino,
    /// File or directory.
    pub kind: FileKind,
    /// Where the listing goes on.
    pub next: Cookie,
}

/// Where an entry was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Location {
    /// The first entry that belongs to it.
    pub start: u32,
    /// Its short entry.
    pub index: u32,
    /// Where that is.
    pub slot: Slot,
}

impl Volume {
    /// Where the entry `name` of `dir` is. A part that cannot be read is as if it held nothing, unless the name is nowhere
    /// else: then the error is told.
    pub fn find(&self, dir: &Directory, name: &Name) -> Result<Option<Location>> {
        let Ok(units) = to_units(name.as_bytes()) else { return Ok(None) };
        let folded = Folded::new(&units);
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

    /// At most `max` entries of `dir` after `from`, and whether these are the last. Errors among them are those of damaged
    /// parts.
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
