//! The checksums of disk formats. Each function computes one checksum. A kernel host can provide a function for
//! [`crc32c()`] ([`provide_crc32c`]).
//!
//! Each function continues from a running value, as `crc32c(seed, ..)` of Linux does. It inverts neither the
//! seed nor the result, so `f(f(seed, a), b)` is the checksum of `a` followed by `b`. If a format requires an
//! inversion, the driver of the format inverts the values. Exception: [`crc32`] takes no running value, and
//! inverts the seed and the result.
//!
//! Source of the polynomials: Linux `include/linux/crc32.h`, `lib/crc16.c`.

#[cfg(any(test, not(feature = "std")))]
use ::crc::CRC_32_ISCSI;
use ::crc::{CRC_16_ARC, CRC_32_BZIP2, CRC_32_ISO_HDLC, Crc, Table};

/// A function that computes the same value as [`crc32c()`].
pub type Crc32c = fn(seed: u32, bytes: &[u8]) -> u32;

/// The function that the environment provides. No thread waits for the lock. If another thread holds the lock,
/// [`crc32c()`] uses the table, which has the same result.
static PROVIDED: spin::Mutex<Option<Crc32c>> = spin::Mutex::new(None);
/// Length in bytes below which the table needs fewer instructions than a call of the environment.
#[cfg(any(test, not(feature = "std")))]
const SHORT: usize = 48;

/// Provides the function that [`crc32c()`] calls for 48 bytes or more. A kernel can provide a function that uses
/// special instructions of the processor. For fewer bytes, and without a provided function, `crc32c()` uses a table.
///
/// A call has no effect in these cases:
///
/// - A function was provided before.
/// - Another thread calls `crc32c()` or this function at the same time.
/// - The crate has the feature `std`: `crc32c()` then never calls the provided function.
pub fn provide_crc32c(function: Crc32c) {
    if let Some(mut provided) = PROVIDED.try_lock() {
        provided.get_or_insert(function);
    }
}

/// Returns the CRC-32C (Castagnoli, reflected), used by ext4 `metadata_csum` and jbd2 v2 and v3.
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    #[cfg(feature = "std")]
    {
        !crc32c::crc32c_append(!seed, bytes)
    }
    #[cfg(not(feature = "std"))]
    {
        portable_crc32c(seed, bytes)
    }
}

#[cfg(any(test, not(feature = "std")))]
fn portable_crc32c(seed: u32, bytes: &[u8]) -> u32 {
    static TABLE: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);
    if bytes.len() >= SHORT
        && let Some(provided) = PROVIDED.try_lock().and_then(|provided| *provided)
    {
        return provided(seed, bytes);
    }
    // The crate inverts its result, and reflects the initial value.
    let mut digest = TABLE.digest_with_initial(seed.reverse_bits());
    digest.update(bytes);
    !digest.finalize()
}

/// Returns the CRC-16 (ARC, reflected), used by ext4 `gdt_csum`.
pub fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    static TABLE: Crc<u16, Table<1>> = Crc::<u16, Table<1>>::new(&CRC_16_ARC);
    let mut digest = TABLE.digest_with_initial(seed.reverse_bits());
    digest.update(bytes);
    digest.finalize()
}

/// Returns the CRC-32 (IEEE, not reflected; Linux `crc32_be`), used by jbd2 `COMPAT_CHECKSUM`.
pub fn crc32_be(seed: u32, bytes: &[u8]) -> u32 {
    static TABLE: Crc<u32, Table<1>> = Crc::<u32, Table<1>>::new(&CRC_32_BZIP2);
    let mut digest = TABLE.digest_with_initial(seed);
    digest.update(bytes);
    !digest.finalize()
}

/// Returns the CRC-32 (IEEE, reflected; Linux `crc32_le`), used by JFFS2.
pub fn crc32_le(seed: u32, bytes: &[u8]) -> u32 {
    static TABLE: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISO_HDLC);
    // The crate inverts its result, and reflects the initial value.
    let mut digest = TABLE.digest_with_initial(seed.reverse_bits());
    digest.update(bytes);
    !digest.finalize()
}

/// Returns the CRC-32 (IEEE, reflected), inverted at both ends as UEFI requires for GPT headers and
/// entries.
pub fn crc32(bytes: &[u8]) -> u32 {
    static TABLE: Crc<u32, Table<1>> = Crc::<u32, Table<1>>::new(&CRC_32_ISO_HDLC);
    TABLE.checksum(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    // The check values for "123456789" in the catalogue of parametrised CRC algorithms.
    const CHECK: &[u8] = b"123456789";

    #[test]
    fn checksums_have_their_catalogued_check_values() {
        assert_eq!(!crc32c(!0, CHECK), 0xe306_9283);
        assert_eq!(crc16(0, CHECK), 0xbb3d);
        assert_eq!(!crc32_be(!0, CHECK), 0xfc89_1918);
        assert_eq!(crc32(CHECK), 0xcbf4_3926);
        assert_eq!(!crc32_le(!0, CHECK), 0xcbf4_3926);
    }

    #[test]
    fn long_runs_use_the_function_of_the_environment_and_short_runs_the_table() {
        let bytes = [7; SHORT];
        assert_eq!(portable_crc32c(5, &bytes), crc32c(5, &bytes));
        provide_crc32c(|seed, bytes| seed ^ u32::try_from(bytes.len()).unwrap());
        provide_crc32c(|_, _| 0);
        assert_eq!(portable_crc32c(5, &bytes), 5 ^ u32::try_from(SHORT).unwrap());
        assert_eq!(portable_crc32c(5, &bytes[1..]), crc32c(5, &bytes[1..]));
    }

    #[test]
    fn a_checksum_can_be_continued() {
        let (a, b) = CHECK.split_at(4);
        assert_eq!(crc32c(crc32c(7, a), b), crc32c(7, CHECK));
        assert_eq!(crc16(crc16(7, a), b), crc16(7, CHECK));
        assert_eq!(crc32_be(crc32_be(7, a), b), crc32_be(7, CHECK));
        assert_eq!(crc32_le(crc32_le(7, a), b), crc32_le(7, CHECK));
    }
}
