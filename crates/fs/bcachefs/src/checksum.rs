//! The checksums of metadata and data.
//!
//! Source: Linux `fs/bcachefs/checksum.c` (`bch2_checksum_init`, `bch2_checksum_final`) and `bcachefs_format.h`
//! (`BCH_CSUM_TYPES`, `bch_crc_bytes`).

use crc::{CRC_64_ECMA_182, Crc, Table};
use obento_base::crc::crc32c;
use obento_base::{Error, Feature, Result};

use crate::layout::bytes::{u32_at, u64_at};

/// A method of `BCH_CSUM_TYPES`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Method {
    /// No checksum.
    #[default]
    None,
    /// CRC-32C that starts and ends inverted.
    Crc32cNonzero,
    /// CRC-64 that starts and ends inverted.
    Crc64Nonzero,
    /// CRC-32C.
    Crc32c,
    /// CRC-64.
    Crc64,
    /// XXH64 with seed 0.
    Xxhash,
}

impl Method {
    /// Decodes the number of a method.
    ///
    /// # Errors
    ///
    /// - `Unsupported`: the method encrypts, or is not known.
    pub fn decode(number: u64) -> Result<Self> {
        Ok(match number {
            0 => Self::None,
            1 => Self::Crc32cNonzero,
            2 => Self::Crc64Nonzero,
            3 | 4 => return Err(Error::Unsupported(Feature::Named("encryption"))),
            5 => Self::Crc32c,
            6 => Self::Crc64,
            7 => Self::Xxhash,
            _ => return Err(Error::Unsupported(Feature::Named("this type of checksum"))),
        })
    }

    /// Returns the checksum of `bytes`.
    pub fn of(self, bytes: &[u8]) -> u64 {
        match self {
            Self::None => 0,
            Self::Crc32cNonzero => u64::from(!crc32c(u32::MAX, bytes)),
            Self::Crc64Nonzero => !crc64_be(u64::MAX, bytes),
            Self::Crc32c => u64::from(crc32c(0, bytes)),
            Self::Crc64 => crc64_be(0, bytes),
            Self::Xxhash => xxh64(bytes),
        }
    }
}

/// Returns the CRC-64 of ECMA-182, not reflected and not inverted (Linux `crc64_be`).
pub fn crc64_be(seed: u64, bytes: &[u8]) -> u64 {
    static TABLE: Crc<u64, Table<1>> = Crc::<u64, Table<1>>::new(&CRC_64_ECMA_182);
    let mut digest = TABLE.digest_with_initial(seed);
    digest.update(bytes);
    digest.finalize()
}

const PRIMES: [u64; 5] = [
    0x9e37_79b1_85eb_ca87,
    0xc2b2_ae3d_27d4_eb4f,
    0x1656_67b1_9e37_79f9,
    0x85eb_ca77_c2b2_ae63,
    0x27d4_eb2f_1656_67c5,
];

fn round(lane: u64, word: u64) -> u64 {
    lane.wrapping_add(word.wrapping_mul(PRIMES[1])).rotate_left(31).wrapping_mul(PRIMES[0])
}

/// Returns the XXH64 hash with seed 0. Source: the specification of xxHash, `doc/xxhash_spec.md`.
pub fn xxh64(bytes: &[u8]) -> u64 {
    let stripes = bytes.chunks_exact(32);
    let mut rest = stripes.remainder();
    let mut hash = if bytes.len() < 32 {
        PRIMES[4]
    } else {
        let mut lanes = [PRIMES[0].wrapping_add(PRIMES[1]), PRIMES[1], 0, 0_u64.wrapping_sub(PRIMES[0])];
        for stripe in stripes {
            for (lane, word) in lanes.iter_mut().zip(stripe.chunks_exact(8)) {
                *lane = round(*lane, u64_at(word, 0).unwrap_or(0));
            }
        }
        let [a, b, c, d] = lanes;
        let sum = a.rotate_left(1).wrapping_add(b.rotate_left(7));
        let sum = sum.wrapping_add(c.rotate_left(12)).wrapping_add(d.rotate_left(18));
        lanes
            .iter()
            .fold(sum, |hash, &lane| (hash ^ round(0, lane)).wrapping_mul(PRIMES[0]).wrapping_add(PRIMES[3]))
    };
    hash = hash.wrapping_add(obento_base::wire::to_u64(bytes.len()));
    while let Some(word) = u64_at(rest, 0) {
        hash = (hash ^ round(0, word)).rotate_left(27).wrapping_mul(PRIMES[0]).wrapping_add(PRIMES[3]);
        rest = rest.get(8..).unwrap_or_default();
    }
    if let Some(word) = u32_at(rest, 0) {
        hash ^= u64::from(word).wrapping_mul(PRIMES[0]);
        hash = hash.rotate_left(23).wrapping_mul(PRIMES[1]).wrapping_add(PRIMES[2]);
        rest = rest.get(4..).unwrap_or_default();
    }
    for &byte in rest {
        hash ^= u64::from(byte).wrapping_mul(PRIMES[4]);
        hash = hash.rotate_left(11).wrapping_mul(PRIMES[0]);
    }
    hash = (hash ^ hash.wrapping_shr(33)).wrapping_mul(PRIMES[1]);
    hash = (hash ^ hash.wrapping_shr(29)).wrapping_mul(PRIMES[2]);
    hash ^ hash.wrapping_shr(32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_have_their_published_check_values() {
        let check = b"123456789";
        assert_eq!(Method::Crc32cNonzero.of(check), 0xe306_9283);
        // CRC-64/ECMA-182 and CRC-64/WE of the catalogue of parametrised CRC algorithms.
        assert_eq!(Method::Crc64.of(check), 0x6c40_df5f_0b49_7347);
        assert_eq!(Method::Crc64Nonzero.of(check), 0x62ec_59e3_f1a4_f00a);
        // The check values of xxHash's own tests.
        assert_eq!(xxh64(b""), 0xef46_db37_51d8_e999);
        assert_eq!(xxh64(b"abc"), 0x44bc_2cf5_ad77_0999);
        let long: alloc::vec::Vec<u8> = (0..=255).collect();
        assert_ne!(xxh64(&long), xxh64(&long[..255]));
    }
}
