//! Checking long names while they are assembled from their parts.
//!
//! The rules are those of `fsck.fat`. The parts count down to 1, and the first part is marked. All parts have the
//! checksum of the short name that follows directly. In addition, the parts must form a valid name: Linux lists no
//! directory with a name that contains a `/`.

use alloc::vec::Vec;

use obento_base::Name;

use crate::name::{LongName, ShortName, checksum, to_bytes};
use crate::raw::RawLongEntry;

/// The error of the parts that were read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// They belong to no file.
    Orphaned(Parts),
    /// They do not form a name.
    Broken(Parts, &'static str),
}

/// Parts by the places of their entries: index in the directory, and byte offset.
pub type Parts = Vec<(u32, u64)>;

/// A name that is being assembled.
#[derive(Default)]
pub struct Gathering {
    parts: Parts,
    /// The number of the next part; 0 when all have been read.
    next: u8,
    sum: u8,
    /// The units of the parts.
    units: LongName,
}

impl Gathering {
    /// Adds a part.
    pub fn push(&mut self, raw: &RawLongEntry, place: (u32, u64)) -> Option<Fault> {
        // A wrong type is an issue of its own.
        self.units.push(&RawLongEntry { LDIR_Type: 0, ..*raw });
        let number = raw.LDIR_Ord & 0x1f;
        let is_first = raw.LDIR_Ord & LongName::LAST != 0 && number != 0;
        let old = core::mem::take(&mut self.parts);
        if is_first {
            let was_whole = self.next == 0;
            (self.next, self.sum) = (number.saturating_sub(1), raw.LDIR_Chksum);
            self.parts.push(place);
            return match old.is_empty() {
                true => None,
                false if was_whole => Some(Fault::Orphaned(old)),
                false => Some(Fault::Broken(old, "is followed by another one before it is complete")),
            };
        }
        let why = match () {
            () if old.is_empty() => "does not start with its first part",
            () if self.next != number => "has a part out of order",
            () if self.sum != raw.LDIR_Chksum => "has parts of two files",
            () => {
                self.parts = old;
                self.parts.push(place);
                self.next = number.saturating_sub(1);
                return None;
            }
        };
        let mut parts = old;
        parts.push(place);
        Some(Fault::Broken(parts, why))
    }

    /// Ends the name at its short entry. Returns its parts and the name, or their error.
    pub fn end(&mut self, short: ShortName) -> Result<(Parts, Option<Vec<u16>>), Fault> {
        let parts = core::mem::take(&mut self.parts);
        let units = core::mem::take(&mut self.units);
        let is_name = |units: &&[u16]| Name::new(&to_bytes(units.iter().copied())).is_ok();
        match units.name(checksum(short)).filter(is_name) {
            _ if parts.is_empty() => Ok((parts, None)),
            _ if self.next != 0 => Err(Fault::Broken(parts, "is incomplete")),
            _ if self.sum != checksum(short) => Err(Fault::Broken(parts, "has the checksum of another name")),
            Some(units) => Ok((parts, Some(units.to_vec()))),
            None => Err(Fault::Broken(parts, "is not a valid file name")),
        }
    }

    /// Ends the name at an entry without a name.
    pub fn drop_name(&mut self) -> Option<Fault> {
        let parts = core::mem::take(&mut self.parts);
        self.units.clear();
        (!parts.is_empty()).then_some(Fault::Orphaned(parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obento_base::wire::FromZeros as _;

    const SHORT: ShortName = ShortName(*b"ALONGN~1TXT");

    fn part(order: u8, sum: u8) -> RawLongEntry {
        let mut raw = RawLongEntry::new_zeroed();
        (raw.LDIR_Ord, raw.LDIR_Chksum) = (order, sum);
        raw.LDIR_Name1 = [0x61.into(); 5];
        raw
    }

    fn faults(parts: &[RawLongEntry]) -> Vec<&'static str> {
        let mut gathering = Gathering::default();
        let mut faults: Vec<Fault> =
            parts.iter().zip(0..).filter_map(|(part, at)| gathering.push(part, (at, 0))).collect();
        faults.extend(gathering.end(SHORT).err());
        let why = |fault| match fault {
            Fault::Orphaned(_) => "orphaned",
            Fault::Broken(_, why) => why,
        };
        faults.into_iter().map(why).collect()
    }

    #[test]
    fn a_name_is_complete_or_an_error_is_reported() {
        let sum = checksum(SHORT);
        assert!(faults(&[]).is_empty());
        assert!(faults(&[part(0x42, sum), part(1, sum)]).is_empty());
        assert_eq!(faults(&[part(0x42, sum)]), ["is incomplete"]);
        assert_eq!(faults(&[part(0x41, sum ^ 1)]), ["has the checksum of another name"]);
        assert_eq!(faults(&[part(1, sum)]), ["does not start with its first part"]);
        assert_eq!(faults(&[part(0x43, sum), part(1, sum)]), ["has a part out of order"]);
        assert_eq!(faults(&[part(0x42, sum), part(1, sum ^ 1)]), ["has parts of two files"]);
        assert_eq!(
            faults(&[part(0x42, sum), part(0x41, sum)]),
            ["is followed by another one before it is complete"]
        );
        assert_eq!(faults(&[part(0x41, sum), part(0x41, sum)]), ["orphaned"]);
    }
}
