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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::encode::{Item, Writer, code_lengths, codes, damage, items, texts};
    use std::vec::Vec;

    fn symbol(item: Item) -> usize {
        match item {
            Item::Literal(byte) => byte.into(),
            Item::Copy(distance, length) => 256 + ((distance.ilog2() as usize) << 4 | (length - 3).min(15)),
        }
    }

    fn compress(data: &[u8]) -> Vec<u8> {
        let items = items(data, 3, 70_000);
        let lengths = code_lengths(items.iter().map(|&item| symbol(item)), SYMBOLS);
        let (codes, mut writer) = (codes(&lengths), Writer::default());
        for item in items {
            writer.bits(codes[symbol(item)]);
            let Item::Copy(distance, length) = item else { continue };
            if length >= 18 {
                match length - 18 {
                    short @ 0..255 => writer.byte(short as u8),
                    _ => {
                        writer.byte(255);
                        let word = length - 3;
                        let long = if word < 1 << 16 {
                            (word as u16).to_le_bytes().to_vec()
                        } else {
                            [&[0, 0][..], &(word as u32).to_le_bytes()].concat()
                        };
                        long.into_iter().for_each(|byte| writer.byte(byte));
                    }
                }
            }
            let log = distance.ilog2();
            writer.bits((distance as u32 - (1 << log), log));
        }
        let table = lengths.chunks(2).map(|pair| pair[0] | pair[1] << 4);
        table.chain(writer.finish()).collect()
    }

    #[test]
    fn the_output_of_an_encoder_is_decoded() {
        for text in texts(16_384) {
            let mut found = std::vec![0; text.len()];
            decompress(&compress(&text), &mut found).unwrap();
            assert!(found == text, "{} bytes", text.len());
        }
        // A copy that needs 32 bits for its length.
        let text = std::vec![9; 69_000];
        let mut found = std::vec![0; text.len()];
        decompress(&compress(&text), &mut found).unwrap();
        assert!(found == text);
    }

    #[test]
    fn damaged_data_ends_with_a_result() {
        texts(4096).iter().for_each(|text| damage(&compress(text), text.len(), decompress));
        assert_eq!(decompress(&[0; 300], &mut [0; 5]), None);
    }
}
