//! Unaligned integers of a fixed byte order, for structures that mirror the bytes of a disk.
//!
//! Widths are converted without `as`: `From` widens; [`to_usize`] and [`to_u64`] convert `usize`.

/// Little-endian: ext4, FAT, GPT, MBR.
pub mod le {
    pub use zerocopy::little_endian::{I32, I64, U16, U32, U64};
}

/// Big-endian: jbd2, qcow2, UFS on some machines.
pub mod be {
    pub use zerocopy::big_endian::{I32, I64, U16, U32, U64};
}

pub use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Combines the low and the high 32-bit half of a number, for a format that stores the halves separately.
pub const fn join(low: u32, high: u32) -> u64 {
    #[allow(clippy::as_conversions, reason = "a lossless conversion; `u64::from` is not const")]
    {
        low as u64 | (high as u64) << 32
    }
}

/// Returns the low and the high half of `value`: the inverse of [`join`].
pub const fn split(value: u64) -> (u32, u32) {
    #[allow(clippy::as_conversions, reason = "each half fits by construction")]
    {
        (value as u32, (value >> 32) as u32)
    }
}

/// Converts `value` to an index. If `usize` is too narrow, returns `usize::MAX`, so that the following bounds
/// check fails.
pub fn to_usize(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Converts a length or an index to a disk offset. The conversion is lossless, since `usize` has at most 64
/// bits.
pub const fn to_u64(value: usize) -> u64 {
    #[allow(clippy::as_conversions, reason = "a lossless conversion; `u64::try_from` is not const")]
    {
        value as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitting_undoes_joining() {
        assert_eq!(split(join(0x89ab_cdef, 0x0123_4567)), (0x89ab_cdef, 0x0123_4567));
        assert_eq!(join(1, 2), 0x2_0000_0001);
    }
}
