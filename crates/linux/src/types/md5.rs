//! MD5, from which the UUID of an HFS or HFS+ volume is derived. It has no security purpose here.
//!
//! Source: RFC 1321, section 3.

/// Shift amounts of the four rounds.
const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
/// The longest message that fits one block with its padding: a byte and a length of 8 bytes.
const MAX: usize = 64 - 9;

/// Returns the digest of `message`. `None`: it is longer than one block.
pub(super) fn digest(message: &[u8]) -> Option<[u8; 16]> {
    let mut block = [0; 64];
    block.get_mut(..message.len()).filter(|_| message.len() <= MAX)?.copy_from_slice(message);
    *block.get_mut(message.len())? = 0x80;
    block[56..].copy_from_slice(&(message.len() as u64 * 8).to_le_bytes());
    let mut words = [0_u32; 16];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = u32::from_le_bytes(*bytes.first_chunk()?);
    }
    let start = [0x6745_2301_u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let [mut a, mut b, mut c, mut d] = start;
    for step in 0..64_usize {
        let (mix, word) = match step / 16 {
            0 => (b & c | !b & d, step),
            1 => (d & b | !d & c, 5 * step + 1),
            2 => (b ^ c ^ d, 3 * step + 5),
            _ => (c ^ (b | !d), 7 * step),
        };
        let sum = a.wrapping_add(mix).wrapping_add(sine(step)).wrapping_add(words[word % 16]);
        (a, d, c, b) = (d, c, b, b.wrapping_add(sum.rotate_left(SHIFTS[step / 16][step % 4])));
    }
    let mut digest = [0; 16];
    for ((bytes, start), end) in digest.chunks_exact_mut(4).zip(start).zip([a, b, c, d]) {
        bytes.copy_from_slice(&start.wrapping_add(end).to_le_bytes());
    }
    Some(digest)
}

/// The integer part of 2^32 times the absolute sine of `step` + 1.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
fn sine(step: usize) -> u32 {
    (((step + 1) as f64).sin().abs() * 4_294_967_296.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_specification() {
        let hex = |text: &str| digest(text.as_bytes()).map(u128::from_be_bytes);
        assert_eq!(hex(""), Some(0xd41d_8cd9_8f00_b204_e980_0998_ecf8_427e));
        assert_eq!(hex("message digest"), Some(0xf96b_697d_7cb7_938d_525a_2f31_aaf1_61d0));
        let letters = "abcdefghijklmnopqrstuvwxyz";
        assert_eq!(hex(letters), Some(0xc3fc_d3d7_6192_e400_7dfb_496c_ca67_e13b));
        assert_eq!(digest(&[0; 56]), None);
    }
}
