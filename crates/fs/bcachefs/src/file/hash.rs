//! Hashes of names.
//!
//! Source: Linux `fs/bcachefs/str_hash.h` (`bch2_str_hash_init`, `bch2_str_hash_end`), `dirent.c` (`bch2_dirent_hash`);
//! J.-P. Aumasson and D. J. Bernstein, "SipHash: a fast short-input PRF".

use obento_base::crc::crc32c;
use obento_base::wire::to_u64;

use crate::checksum::crc64_be;
use crate::layout::bytes::u64_at;

/// Numbers of the methods (`BCH_STR_HASH_TYPES`).
mod method {
    pub const CRC32C: u8 = 0;
    pub const CRC64: u8 = 1;
    pub const SIPHASH: u8 = 3;
}

/// Smallest hash of a name: the first two are reserved for `.` and `..`.
const NAME_MIN: u64 = 2;

/// Returns the hash of the name of a directory entry, or `None` for a method that is not supported.
pub fn of_name(method: u8, seed: u64, name: &[u8]) -> Option<u64> {
    let hash = match method {
        method::CRC32C => u64::from(crc32c(crc32c(u32::MAX, &seed.to_le_bytes()), name)),
        method::CRC64 => crc64_be(crc64_be(u64::MAX, &seed.to_le_bytes()), name) >> 1,
        method::SIPHASH => siphash(seed, 0, name) >> 1,
        _ => return None,
    };
    Some(hash.max(NAME_MIN))
}

/// Returns SipHash-2-4.
pub fn siphash(k0: u64, k1: u64, bytes: &[u8]) -> u64 {
    let mut state = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let words = bytes.chunks_exact(8);
    let mut last = [0; 8];
    let rest = words.remainder();
    if let Some(start) = last.get_mut(..rest.len()) {
        start.copy_from_slice(rest);
    }
    let last = u64::from_le_bytes(last) | to_u64(bytes.len()).wrapping_shl(56);
    for word in words.filter_map(|word| u64_at(word, 0)).chain([last]) {
        state[3] ^= word;
        state = round(round(state));
        state[0] ^= word;
    }
    state[2] ^= 0xff;
    let [a, b, c, d] = round(round(round(round(state))));
    a ^ b ^ c ^ d
}

fn round([mut a, mut b, mut c, mut d]: [u64; 4]) -> [u64; 4] {
    a = a.wrapping_add(b);
    c = c.wrapping_add(d);
    b = b.rotate_left(13) ^ a;
    d = d.rotate_left(16) ^ c;
    a = a.rotate_left(32).wrapping_add(d);
    c = c.wrapping_add(b);
    d = d.rotate_left(21) ^ a;
    b = b.rotate_left(17) ^ c;
    [a, b, c.rotate_left(32), d]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siphash_has_the_values_of_its_paper() {
        // Key 00 to 0f, message 00 to 0e: the example of the paper.
        let message: [u8; 15] = core::array::from_fn(|at| at as u8);
        let hash = siphash(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908, &message);
        assert_eq!(hash, 0xa129_ca61_49be_45e5);
    }
}
