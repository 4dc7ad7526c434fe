//! Inode numbers of several subvolumes in one space.
//!
//! A snapshot has the same numbers as its source, so that a number alone does not identify an inode. The numbers of the
//! first subvolume are shown as they are. For another one, the top bit is set. Then follow 23 bits of the subvolume,
//! the 8 bits of a number that the processor chooses (Linux `fs/bcachefs/inode.c`, `bch2_inode_alloc_cursor_get`), and
//! the inode's lowest 32 bits.

use obento_base::{Error, Feature, Ino, Result};

use crate::layout::bytes::{bits, bits32};
use crate::snapshot::ROOT_SUBVOLUME;

/// An inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Location {
    /// Its subvolume.
    pub subvolume: u32,
    /// Its number within the subvolume.
    pub number: u64,
}

const MARK: u64 = 1 << 63;

impl Location {
    /// Returns the number that the host sees.
    ///
    /// # Errors
    ///
    /// - `Unsupported`: the number does not fit.
    pub fn ino(self) -> Result<Ino> {
        if self.subvolume == ROOT_SUBVOLUME && self.number < MARK {
            return Ok(Ino(self.number));
        }
        let subvolume = u64::from(self.subvolume);
        if bits(self.number, 32, 55) != 0 || self.number >= MARK || subvolume >> 23 != 0 {
            return Err(Error::Unsupported(Feature::Named("an inode number of this size in a subvolume")));
        }
        let (high, low) = (bits(self.number, 55, 63), bits(self.number, 0, 32));
        Ok(Ino(MARK | subvolume << 40 | high << 32 | low))
    }

    /// Returns the inode of a number.
    pub fn of(ino: Ino) -> Self {
        if ino.0 < MARK {
            return Self { subvolume: ROOT_SUBVOLUME, number: ino.0 };
        }
        let number = bits(ino.0, 32, 40) << 55 | bits(ino.0, 0, 32);
        Self { subvolume: bits32(ino.0, 40, 63), number }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_identify_subvolume_and_inode() {
        for (subvolume, number) in [(1, 4096), (1, MARK - 1), (2, 4096), (8_388_607, 255 << 55 | 0xffff_ffff)]
        {
            let location = Location { subvolume, number };
            assert_eq!(Location::of(location.ino().unwrap()), location);
        }
        for (subvolume, number) in [(2, 1 << 32), (1 << 23, 1), (1, MARK)] {
            assert!(Location { subvolume, number }.ino().is_err());
        }
    }
}
