//! The names of one directory. All of them are known before one is checked, so that no set gets the name of another.
//!
//! Invariant: memory contains a hash for each set, and the names that were assigned in this pass, each with its last
//! number.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use obento_base::Result;

use super::View;
use super::sets::summed;
use crate::dir::{Directory, Scan};
use crate::name::{Folded, MAX_UNITS};
use crate::raw::kind;
use crate::set::{EntrySet, PART};

/// The names of a directory.
pub struct Names {
    /// Hashes of the names on the volume, and the first entries of their sets.
    stored: BTreeSet<(u16, u32)>,
    /// Names that sets get.
    given: BTreeSet<Folded>,
    /// The next number to append to a name.
    numbers: BTreeMap<Folded, u32>,
}

/// The sets to search for a name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Among {
    /// The sets before this one.
    Before(u32),
    /// All sets except this one.
    Others(u32),
}

impl Among {
    fn has(self, index: u32) -> bool {
        match self {
            Self::Before(end) => index < end,
            Self::Others(own) => index != own,
        }
    }
}

impl Names {
    /// Returns the names in `dir`. Fails if the device fails.
    pub fn of(view: &View, dir: &Directory) -> Result<Self> {
        let mut stored = BTreeSet::new();
        let mut scan = Scan::new(dir, &view.sb, &view.cache, 0);
        while let Some(found) = scan.next_entry() {
            let (index, raw) = found?;
            if raw.EntryType == kind::END {
                break;
            }
            if raw.EntryType == kind::FILE
                && let Ok(set) = EntrySet::parse(&summed(&scan.gather(index, raw)?))
            {
                let units: Vec<u16> = set.units().collect();
                stored.insert((Folded::new(&units, &view.up_case).hash(), index));
                scan.next = index.saturating_add(set.count());
            }
        }
        Ok(Self { stored, given: BTreeSet::new(), numbers: BTreeMap::new() })
    }

    /// Returns whether one of the sets `among` has this name. Fails if the device fails.
    pub fn has(&self, view: &View, dir: &Directory, units: &[u16], among: Among) -> Result<bool> {
        let folded = Folded::new(units, &view.up_case);
        if matches!(among, Among::Others(_)) && self.given.contains(&folded) {
            return Ok(true);
        }
        let same = self.stored.range((folded.hash(), 0)..=(folded.hash(), u32::MAX));
        for &(_, index) in same.filter(|&&(_, index)| among.has(index)) {
            let mut scan = Scan::new(dir, &view.sb, &view.cache, index);
            let Some(Ok((_, raw))) = scan.next_entry() else { continue };
            let Ok(other) = EntrySet::parse(&summed(&scan.gather(index, raw)?)) else { continue };
            let other: Vec<u16> = other.units().collect();
            if folded.is(&other, &view.up_case) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns a name similar to `units` that no other set has or gets, with a number at its end if necessary. It
    /// needs no more entries than `units`. Fails if the device fails.
    pub fn another(&mut self, view: &View, dir: &Directory, index: u32, units: &[u16]) -> Result<Vec<u16>> {
        let room = units.len().max(1).next_multiple_of(PART).min(MAX_UNITS);
        let mut name = units.to_vec();
        let stem = Folded::new(units, &view.up_case);
        let mut number = self.numbers.get(&stem).copied().unwrap_or(0);
        while name.is_empty() || self.has(view, dir, &name, Among::Others(index))? {
            let digits: Vec<u16> = alloc::format!("~{number}").encode_utf16().collect();
            number = number.saturating_add(1);
            name = units.iter().take(room.saturating_sub(digits.len())).chain(&digits).copied().collect();
        }
        self.numbers.insert(stem, number);
        self.given.insert(Folded::new(&name, &view.up_case));
        Ok(name)
    }
}
