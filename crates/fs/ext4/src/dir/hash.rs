//! The hashes of names by which an indexed directory is ordered.
//!
//! Invariant: a major hash is even, since its lowest bit marks a leaf in the index that continues the hash of the
//! leaf before it. It is below 0xfffffffe, which marks the end of a directory.
//! Source: Linux fs/ext4/hash.c; Documentation/filesystems/ext4/directory.rst, "Hash Tree Directories".

use obento_base::{Error, Feature, Result};

/// Marks a leaf whose first hash is also the last hash of the leaf before it.
pub(crate) const CONTINUED: u32 = 1;
/// The largest major hash, which replaces the end marker.
const LAST: u32 = 0xffff_fffc;
const END: u32 = 0xffff_fffe;

/// The conversion of the bytes of a name to numbers, which depended on the C compiler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Chars {
    Signed,
    Unsigned,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Algorithm {
    Legacy,
    HalfMd4,
    Tea,
}

/// The hash function of a directory: algorithm, signedness of bytes, and the volume's seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hasher {
    algorithm: Algorithm,
    chars: Chars,
    seed: [u32; 4],
}

/// The hash of a name: the index is ordered by `major`, a listing by both.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct NameHash {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

/// The initial state of RFC 1320, which replaces a seed of zeros.
const DEFAULT_SEED: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

impl Hasher {
    /// Returns the function for `version` (`s_def_hash_version` or `dx_root_info.hash_version`). An index contains
    /// the versions 0 to 2 and takes `chars` from the super block; 3 to 5 are unsigned.
    pub(crate) fn new(version: u8, chars: Chars, seed: [u32; 4]) -> Result<Self> {
        let (algorithm, chars) = match version {
            0 => (Algorithm::Legacy, chars),
            1 => (Algorithm::HalfMd4, chars),
            2 => (Algorithm::Tea, chars),
            3 => (Algorithm::Legacy, Chars::Unsigned),
            4 => (Algorithm::HalfMd4, Chars::Unsigned),
            5 => (Algorithm::Tea, Chars::Unsigned),
            6 => return Err(Error::Unsupported(Feature::Named("directory hash SIPHASH"))),
            _ => return Err(Error::Unsupported(Feature::Named("directory hash of an unknown version"))),
        };
        let seed = if seed == [0; 4] { DEFAULT_SEED } else { seed };
        Ok(Self { algorithm, chars, seed })
    }

    /// Returns the hash of `name`.
    pub(crate) fn hash(&self, name: &[u8]) -> NameHash {
        let mut state = self.seed;
        let (major, minor) = match self.algorithm {
            Algorithm::Legacy => (self.legacy(name), 0),
            Algorithm::HalfMd4 => {
                pieces(name, 32).for_each(|(piece, left)| half_md4(&mut state, &self.words(piece, left)));
                let [_, major, minor, _] = state;
                (major, minor)
            }
            Algorithm::Tea => {
                pieces(name, 16).for_each(|(piece, left)| tea(&mut state, &self.words(piece, left)));
                let [major, minor, ..] = state;
                (major, minor)
            }
        };
        let major = major & !CONTINUED;
        NameHash { major: if major == END { LAST } else { major }, minor }
    }

    fn char(&self, byte: u8) -> u32 {
        match self.chars {
            Chars::Signed => i32::from(byte.cast_signed()).cast_unsigned(),
            Chars::Unsigned => u32::from(byte),
        }
    }

    fn legacy(&self, name: &[u8]) -> u32 {
        let (mut last, mut before) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
        for &byte in name {
            let mut next = before.wrapping_add(last ^ self.char(byte).wrapping_mul(7_152_373));
            if next & 0x8000_0000 != 0 {
                next = next.wrapping_sub(0x7fff_ffff);
            }
            before = last;
            last = next;
        }
        last << 1
    }

    /// Returns the piece as big-endian words, padded with the number of bytes that were left at its start.
    fn words<const N: usize>(&self, piece: &[u8], left: u32) -> [u32; N] {
        let pad = left | left << 8;
        let pad = pad | pad << 16;
        let mut words = [pad; N];
        for (word, bytes) in words.iter_mut().zip(piece.chunks(4)) {
            *word = match bytes.first_chunk() {
                Some(&four) if self.are_plain(u32::from_be_bytes(four)) => u32::from_be_bytes(four),
                _ => bytes.iter().fold(pad, |word, &byte| self.char(byte).wrapping_add(word << 8)),
            };
        }
        words
    }

    /// Returns whether the numbers of four characters are their bytes.
    fn are_plain(&self, four: u32) -> bool {
        self.chars == Chars::Unsigned || four & 0x8080_8080 == 0
    }
}

/// Returns the pieces of `size` bytes that are hashed at a time. Each piece has the number of bytes from its start to
/// the name's end.
fn pieces(name: &[u8], size: usize) -> impl Iterator<Item = (&[u8], u32)> {
    let mut left = name.len();
    name.chunks(size).map(move |piece| {
        let from_here = u32::try_from(left).unwrap_or(u32::MAX);
        left = left.saturating_sub(piece.len());
        (piece, from_here)
    })
}

/// The first three rounds of MD4 (RFC 1320) on half a block, with its constants and half of its steps.
fn half_md4(state: &mut [u32; 4], words: &[u32; 8]) {
    const ROOT_2: u32 = 0x5a82_7999;
    const ROOT_3: u32 = 0x6ed9_eba1;
    let &[w0, w1, w2, w3, w4, w5, w6, w7] = words;
    let choose = |x: u32, y: u32, z: u32| z ^ (x & (y ^ z));
    let majority = |x: u32, y: u32, z: u32| (x & y).wrapping_add((x ^ y) & z);
    let parity = |x: u32, y: u32, z: u32| x ^ y ^ z;
    let mut sum = *state;
    for round in [[w0, w1, w2, w3], [w4, w5, w6, w7]] {
        sum = four_steps(sum, choose, round, 0, [3, 7, 11, 19]);
    }
    for round in [[w1, w3, w5, w7], [w0, w2, w4, w6]] {
        sum = four_steps(sum, majority, round, ROOT_2, [3, 5, 9, 13]);
    }
    for round in [[w3, w7, w2, w6], [w1, w5, w0, w4]] {
        sum = four_steps(sum, parity, round, ROOT_3, [3, 9, 11, 15]);
    }
    add(state, sum);
}

#[inline(always)]
fn four_steps(
    [a, b, c, d]: [u32; 4],
    mix: impl Fn(u32, u32, u32) -> u32,
    words: [u32; 4],
    constant: u32,
    turns: [u32; 4],
) -> [u32; 4] {
    let step = |sum: u32, x, y, z, word: u32, turn| {
        sum.wrapping_add(mix(x, y, z)).wrapping_add(word).wrapping_add(constant).rotate_left(turn)
    };
    let ([w0, w1, w2, w3], [t0, t1, t2, t3]) = (words, turns);
    let a = step(a, b, c, d, w0, t0);
    let d = step(d, a, b, c, w1, t1);
    let c = step(c, d, a, b, w2, t2);
    let b = step(b, c, d, a, w3, t3);
    [a, b, c, d]
}

/// Sixteen cycles of the Tiny Encryption Algorithm with the name as the key.
fn tea(state: &mut [u32; 4], &[a, b, c, d]: &[u32; 4]) {
    const DELTA: u32 = 0x9e37_79b9;
    let [mut x, mut y, ..] = *state;
    let mut sum = 0u32;
    for _ in 0..16 {
        sum = sum.wrapping_add(DELTA);
        let half = (y << 4).wrapping_add(a) ^ y.wrapping_add(sum) ^ (y >> 5).wrapping_add(b);
        x = x.wrapping_add(half);
        let half = (x << 4).wrapping_add(c) ^ x.wrapping_add(sum) ^ (x >> 5).wrapping_add(d);
        y = y.wrapping_add(half);
    }
    add(state, [x, y, 0, 0]);
}

fn add(state: &mut [u32; 4], other: [u32; 4]) {
    state.iter_mut().zip(other).for_each(|(word, other)| *word = word.wrapping_add(other));
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: [u32; 4] = [0x7d5b_3d3c, 0x9f0a_4c3f, 0x1234_5678, 0x9abc_def0];

    fn hash(version: u8, chars: Chars, seed: [u32; 4], name: &[u8]) -> (u32, u32) {
        let hash = Hasher::new(version, chars, seed).unwrap().hash(name);
        (hash.major, hash.minor)
    }

    /// A name, and (major, minor) of the versions 0 to 5 as `debugfs` prints them with `dx_hash -h ALG -s SEED`.
    type Vector<'a> = (&'a [u8], [(u32, u32); 6]);

    #[test]
    fn hashes_equal_those_of_e2fsprogs_for_every_version_and_length_class() {
        let long: std::vec::Vec<u8> = (0x80..=0xff).chain([0xfe; 127]).collect();
        let vectors: &[Vector<'_>] = &[
            (
                b"a",
                [
                    (0xe74b_53e2, 0x0000_0000),
                    (0xc94f_0d24, 0x4c07_261a),
                    (0x47f1_e81a, 0x6d90_3a7a),
                    (0xe74b_53e2, 0x0000_0000),
                    (0xc94f_0d24, 0x4c07_261a),
                    (0x47f1_e81a, 0x6d90_3a7a),
                ],
            ),
            (
                b"lost+found",
                [
                    (0x5e2a_ba24, 0x0000_0000),
                    (0xc52d_0f52, 0x2872_95c6),
                    (0x8aa1_3376, 0x7e0a_f8f0),
                    (0x5e2a_ba24, 0x0000_0000),
                    (0xc52d_0f52, 0x2872_95c6),
                    (0x8aa1_3376, 0x7e0a_f8f0),
                ],
            ),
            (
                b"exactly-sixteen!",
                [
                    (0xccdc_5236, 0x0000_0000),
                    (0xeca1_3e08, 0x0407_6d48),
                    (0xb8b2_c434, 0xa30f_a509),
                    (0xccdc_5236, 0x0000_0000),
                    (0xeca1_3e08, 0x0407_6d48),
                    (0xb8b2_c434, 0xa30f_a509),
                ],
            ),
            (
                b"na\xefve-\xff\x80-name",
                [
                    (0x48f2_399e, 0x0000_0000),
                    (0xb18b_cb42, 0xa480_ba51),
                    (0x5bee_183c, 0x2cf7_7b5f),
                    (0x7de4_39a2, 0x0000_0000),
                    (0x97f5_894a, 0x031e_c11b),
                    (0x9d45_7f08, 0x3b18_f3c1),
                ],
            ),
            (
                b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
                [
                    (0x4e0d_46ea, 0x0000_0000),
                    (0xe449_a07e, 0x9448_7f56),
                    (0x5882_d4d8, 0x1084_dad9),
                    (0x4e0d_46ea, 0x0000_0000),
                    (0xe449_a07e, 0x9448_7f56),
                    (0x5882_d4d8, 0x1084_dad9),
                ],
            ),
            (
                &long,
                [
                    (0x4ac8_405e, 0x0000_0000),
                    (0xf722_4960, 0xb73a_d564),
                    (0x5c44_a194, 0xc46d_48d3),
                    (0x5ecb_3d84, 0x0000_0000),
                    (0xb4ac_c96c, 0x6a1d_2228),
                    (0x9e3d_982c, 0x3f87_31de),
                ],
            ),
            (
                b"a name of 40 bytes with \xc3\xa9 in it, done",
                [
                    (0x7f04_d8e0, 0x0000_0000),
                    (0x7550_2464, 0xa948_2849),
                    (0x718f_4492, 0xcf2a_52eb),
                    (0x11f3_3c2c, 0x0000_0000),
                    (0xaf87_beb4, 0xa448_3755),
                    (0x304b_701c, 0x8bc0_4b8d),
                ],
            ),
        ];
        for (name, expected) in vectors {
            for (version, &expected) in (0..).zip(expected) {
                assert_eq!(
                    hash(version, Chars::Signed, SEED, name),
                    expected,
                    "version {version} of {name:?}"
                );
            }
        }
    }

    #[test]
    fn a_seed_of_zeros_means_the_initial_state_of_md4() {
        assert_eq!(hash(1, Chars::Signed, [0; 4], b"lost+found"), (0x591d_e422, 0x6ffc_56e0));
        assert_eq!(hash(1, Chars::Signed, DEFAULT_SEED, b"lost+found"), (0x591d_e422, 0x6ffc_56e0));
    }

    #[test]
    fn versions_three_to_five_are_the_first_three_with_unsigned_characters() {
        for version in 0..3 {
            let name = b"na\xefve \xff name that is longer than one piece of any of the hashes";
            let unsigned = hash(version, Chars::Unsigned, SEED, name);
            assert_eq!(hash(version + 3, Chars::Signed, SEED, name), unsigned);
            assert_ne!(hash(version, Chars::Signed, SEED, name), unsigned);
        }
    }

    #[test]
    fn siphash_and_unknown_versions_are_unsupported() {
        for version in [6, 7, 255] {
            assert!(matches!(Hasher::new(version, Chars::Signed, SEED), Err(Error::Unsupported(_))));
        }
    }
}
