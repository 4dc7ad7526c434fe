//! Long names, assembled from their parts.
//!
//! Layout: the parts precede the short entry, the last part first. Each contains the checksum of the short name. The
//! last part ends with a 0, and the rest of it is filled with ones.
//! Invariant: a name is complete or ignored. Parts that are out of order, have different checksums or are too many are
//! dropped. The file then has only its short name, as in Windows and Linux.

use alloc::vec::Vec;

use super::MAX_UNITS;
use crate::raw::RawLongEntry;

/// Number of units per part.
pub const PART: usize = 13;
/// Maximum number of parts of a name.
pub const MAX_PARTS: u8 = 20;
/// Returns the number of parts of a name with this number of units.
pub fn parts_for(units: usize) -> usize {
    units.div_ceil(PART)
}

/// The parts that have been read so far.
#[derive(Clone, Debug, Default)]
pub struct LongName {
    /// The units in order, 13 per part.
    units: Vec<u16>,
    /// The total number of parts, and the number of the next expected part; 0 when all have been read.
    parts: u8,
    next: u8,
    sum: u8,
}

impl LongName {
    /// The mark of the last part in `LDIR_Ord`.
    pub const LAST: u8 = 0x40;

    /// Drops the parts.
    pub fn clear(&mut self) {
        self.units.clear();
        (self.parts, self.next) = (0, 0);
    }

    /// Adds another part.
    pub fn push(&mut self, raw: &RawLongEntry) {
        let order = raw.LDIR_Ord & !Self::LAST;
        if raw.LDIR_Ord & Self::LAST != 0 {
            self.clear();
            if (1..=MAX_PARTS).contains(&order) && raw.LDIR_Type == 0 {
                (self.parts, self.next, self.sum) = (order, order, raw.LDIR_Chksum);
                self.units.resize(usize::from(order).saturating_mul(PART), 0);
            }
        }
        if self.next == 0 || order != self.next || raw.LDIR_Chksum != self.sum {
            self.clear();
            return;
        }
        self.next = order.saturating_sub(1);
        let start = usize::from(self.next).saturating_mul(PART);
        for (slot, unit) in self.units.iter_mut().skip(start).zip(raw.units()) {
            *slot = unit;
        }
    }

    /// Returns the name, if all its parts have been read, `sum` is the checksum of its short name, and it is valid.
    pub fn name(&self, sum: u8) -> Option<&[u16]> {
        if self.parts == 0 || self.next != 0 || self.sum != sum {
            return None;
        }
        let end = self.units.iter().position(|&unit| unit == 0).unwrap_or(self.units.len());
        self.units.get(..end).filter(|units| (1..=MAX_UNITS).contains(&units.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obento_base::wire::{FromZeros as _, le::U16};

    fn part(order: u8, sum: u8, text: &str) -> RawLongEntry {
        let mut raw = RawLongEntry::new_zeroed();
        (raw.LDIR_Ord, raw.LDIR_Chksum) = (order, sum);
        let units: Vec<u16> = text.encode_utf16().collect();
        let slots = raw.LDIR_Name1.iter_mut().chain(&mut raw.LDIR_Name2).chain(&mut raw.LDIR_Name3);
        slots.zip(units).for_each(|(slot, unit)| *slot = U16::new(unit));
        raw
    }

    fn gathered(parts: &[RawLongEntry], sum: u8) -> Option<std::string::String> {
        let mut name = LongName::default();
        parts.iter().for_each(|part| name.push(part));
        name.name(sum).map(std::string::String::from_utf16_lossy)
    }

    #[test]
    fn a_name_is_complete_or_absent() {
        let (last, first) = (part(0x42, 7, "tail"), part(1, 7, "thirteen unit"));
        assert_eq!(gathered(&[last, first], 7).as_deref(), Some("thirteen unittail"));
        assert_eq!(gathered(&[last, first], 8), None, "another file's");
        assert_eq!(gathered(&[last], 7), None, "its first part is missing");
        assert_eq!(gathered(&[first], 7), None, "its last part is missing");
        assert_eq!(gathered(&[last, part(1, 6, "x")], 7), None, "parts of two names");
        assert_eq!(gathered(&[part(0x43, 7, "x"), first], 7), None, "a part between is missing");
        assert_eq!(gathered(&[part(0x41, 7, "old"), last, first], 7).as_deref(), Some("thirteen unittail"));
        assert_eq!(gathered(&[part(0x40, 7, "x")], 7), None, "no part has the number 0");
        assert_eq!(gathered(&[part(0x55, 7, "x")], 7), None, "more than 20 parts");
    }
}
