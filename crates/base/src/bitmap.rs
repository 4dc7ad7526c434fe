//! A bitmap in the usual order on disk. Bit `n` of the bitmap is bit `n % 8` of byte `n / 8`; bit 0 of a byte is its
//! least significant bit.

/// A read-only view of a bitmap.
#[derive(Clone, Copy, Debug)]
pub struct Bitmap<'a>(&'a [u8]);

impl<'a> Bitmap<'a> {
    /// Creates a view of `bytes` as `8 * bytes.len()` bits.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the bit `index`, or `None` if `index` is outside of the bitmap.
    pub fn get(&self, index: u32) -> Option<bool> {
        let byte = self.0.get(usize::try_from(index >> 3).ok()?)?;
        Some(byte >> (index & 7) & 1 == 1)
    }

    /// Returns the number of set bits among the first `len` bits. Bits outside of the bitmap count as not set.
    pub fn count_ones(&self, len: u32) -> u32 {
        let whole = usize::try_from(len >> 3).unwrap_or(usize::MAX).min(self.0.len());
        let (full, rest) = self.0.split_at_checked(whole).unwrap_or((self.0, &[]));
        let ones: u32 = full.iter().map(|byte| byte.count_ones()).fold(0, u32::saturating_add);
        let last = rest.first().map_or(0, |byte| (byte & !(u8::MAX << (len & 7))).count_ones());
        ones.saturating_add(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_counted_from_the_least_significant_of_the_first_byte() {
        let map = Bitmap::new(&[0b0000_0101, 0xff]);
        assert_eq!(
            [map.get(0), map.get(1), map.get(2), map.get(15), map.get(16)],
            [Some(true), Some(false), Some(true), Some(true), None]
        );
        assert_eq!(
            [map.count_ones(0), map.count_ones(3), map.count_ones(10), map.count_ones(99)],
            [0, 2, 4, 10]
        );
    }
}
