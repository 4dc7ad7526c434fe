//! XPRESS with Huffman codes, which WOF uses for chunks of 4, 8 and 16 KiB.
//!
//! Layout: the lengths of 512 codes in 4 bits each, then a bit stream. Symbols below 256 are bytes; the others are copies
//! with the logarithm of their distance and their length. Long lengths follow as bytes between the words of the stream.
//! Source: MS-XCA 2.2, "LZ77+Huffman Decompression Algorithm Details".

use super::huffman::{Bits, Huffman, lengths};
use super::lznt1::copy;

/// Number of symbols.
const SYMBOLS: usize = 512;
/// Length of the table.
const TABLE: usize = SYMBOLS / 2;

/// Decompresses `input` into the whole of `output`. Returns `None` if the input is not well-formed.
pub fn decompress(input: &[u8], output: &mut [u8]) -> Option<()> {
    let mut sizes = lengths(SYMBOLS);
    for (pair, &byte) in sizes.chunks_exact_mut(2).zip(input.get(..TABLE)?) {
        pair.copy_from_slice(&[byte & 15, byte >> 4]);
    }
    let mut code = Huffman::default();
    code.build(&sizes)?;
    let mut bits = Bits::new(input, TABLE);
    let mut at = 0_usize;
    while at < output.len() {
        let symbol = code.take(&mut bits)?;
        if bits.is_past_end() {
            return None;
        }
        if let Ok(byte) = u8::try_from(symbol) {
            *output.get_mut(at)? = byte;
            at = at.checked_add(1)?;
            continue;
        }
        bits.fill();
        let mut length = usize::from(symbol & 15);
        if length == 15 {
            length = long_length(&mut bits)?;
        }
        let log = u32::from(symbol >> 4 & 15);
        let distance = 1_u32.checked_shl(log)? | bits.take(log);
        at = copy(output, at, crate::layout::bytes::index(distance), length.checked_add(3)?)?;
    }
    Some(())
}

/// Reads a length of 15 or more, less 3.
fn long_length(bits: &mut Bits<'_>) -> Option<usize> {
    let &[byte] = bits.bytes(1)? else { return None };
    if byte < 255 {
        return Some(usize::from(byte).saturating_add(15));
    }
    let word = u16::from_le_bytes(*bits.bytes(2)?.first_chunk()?);
    if word != 0 {
        return Some(usize::from(word)).filter(|&length| length >= 15);
    }
    let long = u32::from_le_bytes(*bits.bytes(4)?.first_chunk()?);
    Some(crate::layout::bytes::index(long)).filter(|&length| length >= 15)
}
