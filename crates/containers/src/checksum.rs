//! The CRC-32 (IEEE) of a sequence of bytes that is too long to be read: long repetitions take no time.
//!
//! A CRC is a polynomial over GF(2) modulo [`POLYNOMIAL`]. The CRC of two sequences, one after the other, is that of the
//! first times x to the power of the number of bits of the second, plus that of the second. So sequences are elements of
//! a monoid, and a repetition is a power.

use obento_base::crc::crc32_le;
use obento_base::wire::to_u64;

/// The generator of the CRC, reflected: the highest bit is the coefficient of x^0.
const POLYNOMIAL: u32 = 0xedb8_8320;
const ONE: u32 = 1 << 31;
/// x^8.
const OF_A_BYTE: u32 = ONE >> 8;

/// A sequence of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Checksum {
    crc: u32,
    /// x to the power of the number of bits.
    power: u32,
}

impl Checksum {
    /// No bytes.
    pub const NONE: Self = Self { crc: 0, power: ONE };

    /// Returns the checksum of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        let byte = Self { crc: 0, power: OF_A_BYTE };
        Self { crc: !crc32_le(!0, bytes), ..byte.times(to_u64(bytes.len())) }
    }

    /// Returns the checksum of this sequence and then `next`.
    pub fn then(self, next: Self) -> Self {
        Self { crc: product(self.crc, next.power) ^ next.crc, power: product(self.power, next.power) }
    }

    /// Returns the checksum of `count` repetitions of this sequence.
    pub fn times(self, mut count: u64) -> Self {
        let (mut all, mut power) = (Self::NONE, self);
        while count > 0 {
            if count & 1 != 0 {
                all = all.then(power);
            }
            power = power.then(power);
            count >>= 1;
        }
        all
    }

    /// Returns the CRC-32.
    pub fn value(self) -> u32 {
        self.crc
    }
}

/// Returns the product of two polynomials.
fn product(a: u32, mut b: u32) -> u32 {
    let mut sum = 0;
    for power in (0..u32::BITS).rev() {
        if a >> power & 1 != 0 {
            sum ^= b;
        }
        b = if b & 1 != 0 { b >> 1 ^ POLYNOMIAL } else { b >> 1 };
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use obento_base::crc::crc32;
    use std::vec::Vec;

    #[test]
    fn the_checksum_of_parts_is_that_of_the_whole() {
        let bytes: Vec<u8> = (0..1000_u32).map(|at| (at * at / 7) as u8).collect();
        for cut in [0, 1, 7, 500, 1000] {
            let (a, b) = bytes.split_at(cut);
            assert_eq!(Checksum::of(a).then(Checksum::of(b)), Checksum::of(&bytes), "{cut}");
        }
        assert_eq!(Checksum::of(&bytes).value(), crc32(&bytes));
    }

    #[test]
    fn the_checksum_of_a_repetition_is_that_of_its_bytes() {
        for (pattern, count) in [(&b"abcd"[..], 1), (b"abcd", 777), (&[0], 4096), (b"x", 0)] {
            let whole = pattern.repeat(count);
            assert_eq!(Checksum::of(pattern).times(count as u64), Checksum::of(&whole), "{count}");
        }
    }

    #[test]
    fn the_checksum_of_16_tib_of_zeros_takes_no_time() {
        let tib = Checksum::of(&[0]).times(1 << 40);
        assert_eq!(tib.times(16), Checksum::of(&[0; 16]).times(1 << 40));
    }
}
