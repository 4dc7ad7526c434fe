//! The up-case table: for each of the 65,536 UTF-16 units, the unit as which it is compared.
//!
//! Layout: units in order; 0xffff and a count represent that many units that are their own upper case. Units past the
//! end of the table are their own upper case.
//! Source: specification, 7.2. The table that it recommends (Table 24) is [`UpCase::standard`], represented here by
//! rules.

use alloc::vec::Vec;

use obento_base::Result;
use obento_base::wire::to_usize;

use crate::boot;

/// Marks a run of units that are their own upper case.
const ROW: u16 = 0xffff;
/// Minimum length of an encoded run. The longest run that the recommended table does not encode has 337 units, and
/// the shortest that it encodes 843.
const LONG_ROW: usize = 512;
/// Number of units.
const UNITS: usize = 1 << 16;
/// Maximum size of a table in bytes: each unit once, and no run.
pub const LEN_MAX: u64 = 1 << 17;

/// First unit, last unit, step, and the upper case of the first unit. The other units have the same distance from
/// theirs.
const RULES: &[(u16, u16, u16, u16)] = &[
    (0x0061, 0x007a, 1, 0x0041),
    (0x00e0, 0x00f6, 1, 0x00c0),
    (0x00f8, 0x00fe, 1, 0x00d8),
    (0x00ff, 0x00ff, 1, 0x0178),
    (0x0101, 0x012f, 2, 0x0100),
    (0x0133, 0x0137, 2, 0x0132),
    (0x013a, 0x0148, 2, 0x0139),
    (0x014b, 0x0177, 2, 0x014a),
    (0x017a, 0x017e, 2, 0x0179),
    (0x0180, 0x0180, 1, 0x0243),
    (0x0183, 0x0185, 2, 0x0182),
    (0x0188, 0x0188, 1, 0x0187),
    (0x018c, 0x018c, 1, 0x018b),
    (0x0192, 0x0192, 1, 0x0191),
    (0x0195, 0x0195, 1, 0x01f6),
    (0x0199, 0x0199, 1, 0x0198),
    (0x019a, 0x019a, 1, 0x023d),
    (0x019e, 0x019e, 1, 0x0220),
    (0x01a1, 0x01a5, 2, 0x01a0),
    (0x01a8, 0x01a8, 1, 0x01a7),
    (0x01ad, 0x01ad, 1, 0x01ac),
    (0x01b0, 0x01b0, 1, 0x01af),
    (0x01b4, 0x01b6, 2, 0x01b3),
    (0x01b9, 0x01b9, 1, 0x01b8),
    (0x01bd, 0x01bd, 1, 0x01bc),
    (0x01bf, 0x01bf, 1, 0x01f7),
    (0x01c6, 0x01c6, 1, 0x01c4),
    (0x01c9, 0x01c9, 1, 0x01c7),
    (0x01cc, 0x01cc, 1, 0x01ca),
    (0x01ce, 0x01dc, 2, 0x01cd),
    (0x01dd, 0x01dd, 1, 0x018e),
    (0x01df, 0x01ef, 2, 0x01de),
    (0x01f3, 0x01f3, 1, 0x01f1),
    (0x01f5, 0x01f5, 1, 0x01f4),
    (0x01f9, 0x021f, 2, 0x01f8),
    (0x0223, 0x0233, 2, 0x0222),
    (0x023a, 0x023a, 1, 0x2c65),
    (0x023c, 0x023c, 1, 0x023b),
    (0x023e, 0x023e, 1, 0x2c66),
    (0x0242, 0x0242, 1, 0x0241),
    (0x0247, 0x024f, 2, 0x0246),
    (0x0253, 0x0253, 1, 0x0181),
    (0x0254, 0x0254, 1, 0x0186),
    (0x0256, 0x0257, 1, 0x0189),
    (0x0259, 0x0259, 1, 0x018f),
    (0x025b, 0x025b, 1, 0x0190),
    (0x0260, 0x0260, 1, 0x0193),
    (0x0263, 0x0263, 1, 0x0194),
    (0x0268, 0x0268, 1, 0x0197),
    (0x0269, 0x0269, 1, 0x0196),
    (0x026b, 0x026b, 1, 0x2c62),
    (0x026f, 0x026f, 1, 0x019c),
    (0x0272, 0x0272, 1, 0x019d),
    (0x0275, 0x0275, 1, 0x019f),
    (0x027d, 0x027d, 1, 0x2c64),
    (0x0280, 0x0280, 1, 0x01a6),
    (0x0283, 0x0283, 1, 0x01a9),
    (0x0288, 0x0288, 1, 0x01ae),
    (0x0289, 0x0289, 1, 0x0244),
    (0x028a, 0x028b, 1, 0x01b1),
    (0x028c, 0x028c, 1, 0x0245),
    (0x0292, 0x0292, 1, 0x01b7),
    (0x037b, 0x037d, 1, 0x03fd),
    (0x03ac, 0x03ac, 1, 0x0386),
    (0x03ad, 0x03af, 1, 0x0388),
    (0x03b1, 0x03c1, 1, 0x0391),
    (0x03c2, 0x03c2, 1, 0x03a3),
    (0x03c3, 0x03cb, 1, 0x03a3),
    (0x03cc, 0x03cc, 1, 0x038c),
    (0x03cd, 0x03ce, 1, 0x038e),
    (0x03d9, 0x03ef, 2, 0x03d8),
    (0x03f2, 0x03f2, 1, 0x03f9),
    (0x03f8, 0x03f8, 1, 0x03f7),
    (0x03fb, 0x03fb, 1, 0x03fa),
    (0x0430, 0x044f, 1, 0x0410),
    (0x0450, 0x045f, 1, 0x0400),
    (0x0461, 0x0481, 2, 0x0460),
    (0x048b, 0x04bf, 2, 0x048a),
    (0x04c2, 0x04ce, 2, 0x04c1),
    (0x04cf, 0x04cf, 1, 0x04c0),
    (0x04d1, 0x0513, 2, 0x04d0),
    (0x0561, 0x0586, 1, 0x0531),
    (0x1d7d, 0x1d7d, 1, 0x2c63),
    (0x1e01, 0x1e95, 2, 0x1e00),
    (0x1ea1, 0x1ef9, 2, 0x1ea0),
    (0x1f00, 0x1f07, 1, 0x1f08),
    (0x1f10, 0x1f15, 1, 0x1f18),
    (0x1f20, 0x1f27, 1, 0x1f28),
    (0x1f30, 0x1f37, 1, 0x1f38),
    (0x1f40, 0x1f45, 1, 0x1f48),
    (0x1f51, 0x1f57, 2, 0x1f59),
    (0x1f60, 0x1f67, 1, 0x1f68),
    (0x1f70, 0x1f71, 1, 0x1fba),
    (0x1f72, 0x1f75, 1, 0x1fc8),
    (0x1f76, 0x1f77, 1, 0x1fda),
    (0x1f78, 0x1f79, 1, 0x1ff8),
    (0x1f7a, 0x1f7b, 1, 0x1fea),
    (0x1f7c, 0x1f7d, 1, 0x1ffa),
    (0x1f80, 0x1f87, 1, 0x1f88),
    (0x1f90, 0x1f97, 1, 0x1f98),
    (0x1fa0, 0x1fa7, 1, 0x1fa8),
    (0x1fb0, 0x1fb1, 1, 0x1fb8),
    (0x1fb3, 0x1fb3, 1, 0x1fbc),
    (0x1fcc, 0x1fcc, 1, 0x1fc3),
    (0x1fd0, 0x1fd1, 1, 0x1fd8),
    (0x1fe0, 0x1fe1, 1, 0x1fe8),
    (0x1fe5, 0x1fe5, 1, 0x1fec),
    (0x1ffc, 0x1ffc, 1, 0x1ff3),
    (0x214e, 0x214e, 1, 0x2132),
    (0x2170, 0x217f, 1, 0x2160),
    (0x2184, 0x2184, 1, 0x2183),
    (0x24d0, 0x24e9, 1, 0x24b6),
    (0x2c30, 0x2c5e, 1, 0x2c00),
    (0x2c61, 0x2c61, 1, 0x2c60),
    (0x2c68, 0x2c6c, 2, 0x2c67),
    (0x2c76, 0x2c76, 1, 0x2c75),
    (0x2c81, 0x2ce3, 2, 0x2c80),
    (0x2d00, 0x2d25, 1, 0x10a0),
    (0xff41, 0xff5a, 1, 0xff21),
];

/// An up-case table.
#[derive(Clone, PartialEq, Eq)]
pub struct UpCase(Vec<u16>);

impl Default for UpCase {
    /// Returns a table in which every unit is its own upper case.
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl core::fmt::Debug for UpCase {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("UpCase")
    }
}

fn identity() -> Result<Vec<u16>> {
    let mut units = Vec::new();
    units.try_reserve_exact(UNITS)?;
    units.extend(0..=u16::MAX);
    Ok(units)
}

impl UpCase {
    /// Returns the table that the specification recommends. Fails with `NoMemory`.
    pub fn standard() -> Result<Self> {
        let mut units = identity()?;
        for &(from, to, step, first) in RULES {
            let distance = first.wrapping_sub(from);
            for unit in (from..=to).step_by(step.into()) {
                if let Some(slot) = units.get_mut(usize::from(unit)) {
                    *slot = unit.wrapping_add(distance);
                }
            }
        }
        Ok(Self(units))
    }

    /// Decodes a table. Returns `None` for more than 65,536 units, and for a table that does not begin with the upper
    /// case of ASCII, as all tables must. Fails with `NoMemory`.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>> {
        let mut units = identity()?;
        let mut at = 0_usize;
        let mut words = bytes.chunks_exact(2).map(|word| word.try_into().map_or(0, u16::from_le_bytes));
        while let Some(word) = words.next() {
            // In the last position, this value is an ordinary unit.
            if word == ROW && at < UNITS.saturating_sub(1) {
                at = at.saturating_add(words.next().map_or(1, usize::from));
            } else {
                let Some(slot) = units.get_mut(at) else { return Ok(None) };
                *slot = word;
                at = at.saturating_add(1);
            }
        }
        let this = Self(units);
        let is_ascii = (0..128).all(|byte: u8| this.fold(byte.into()) == byte.to_ascii_uppercase().into());
        Ok((at <= UNITS && is_ascii).then_some(this))
    }

    /// Returns the encoded table.
    pub fn encode(&self) -> Vec<u8> {
        let mut words: Vec<u16> = Vec::new();
        let mut at = 0;
        while let Some(rest) = self.0.get(at..).filter(|rest| !rest.is_empty()) {
            let own = (at..).zip(rest).take_while(|&(at, &unit)| usize::from(unit) == at).count();
            if own >= LONG_ROW {
                words.extend([ROW, u16::try_from(own).unwrap_or(u16::MAX)]);
                at = at.saturating_add(own.min(usize::from(u16::MAX)));
            } else {
                let spelled = own.max(1);
                words.extend(rest.iter().take(spelled));
                at = at.saturating_add(spelled);
            }
        }
        words.into_iter().flat_map(u16::to_le_bytes).collect()
    }

    /// Returns the unit as which `unit` is compared.
    pub fn fold(&self, unit: u16) -> u16 {
        self.0.get(usize::from(unit)).copied().unwrap_or(unit)
    }
}

/// Returns the checksum of an encoded table (7.2.2).
pub fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum, &byte| boot::add(sum, byte))
}

/// Returns whether a table can have this size.
pub fn is_len(len: u64) -> bool {
    len > 0 && len <= LEN_MAX && len.is_multiple_of(2) && to_usize(len) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recommended_table_has_the_length_and_the_checksum_of_the_specification() {
        let standard = UpCase::standard().unwrap();
        let bytes = standard.encode();
        assert_eq!((bytes.len(), checksum(&bytes)), (5836, 0xe619_d30d));
        assert_eq!(UpCase::decode(&bytes), Ok(Some(standard)));
    }

    #[test]
    fn a_table_may_be_short_and_is_its_own_beyond() {
        let upper: Vec<u8> = (0..0x7b_u16)
            .flat_map(|unit| if unit >= 0x61 { unit - 0x20 } else { unit }.to_le_bytes())
            .collect();
        let table = UpCase::decode(&upper).unwrap().unwrap();
        assert_eq!(
            [0x61, 0x7a, 0x7b, 0xe4, 0xffff].map(|unit| table.fold(unit)),
            [0x41, 0x5a, 0x7b, 0xe4, 0xffff]
        );
    }

    #[test]
    fn an_invalid_table_is_refused() {
        assert_eq!(UpCase::decode(&[0; 4]), Ok(None), "the ASCII part is wrong");
        assert_eq!(UpCase::decode(&[]), Ok(None));
        let mut long = UpCase::standard().unwrap().encode();
        long.extend([0xff; 4]);
        assert_eq!(UpCase::decode(&long), Ok(None), "too many units");
    }
}
