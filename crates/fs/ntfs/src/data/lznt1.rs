//! LZNT1, the compression of NTFS.
//!
//! Layout: chunks of up to 4,096 bytes of data. A chunk starts with 16 bits: its length less 3, the number 3, and
//! whether it is compressed. In a compressed chunk, a byte of flags precedes eight elements. An element is a byte, or
//! 16 bits with the distance and the length of a copy, whose widths depend on the position.
//! Source: MS-XCA 2.5, "LZNT1 Algorithm Details"; linux-ntfs documentation, "Compression".

use crate::layout::bytes::{slice, u16_at};

/// Bytes of a chunk of data.
const CHUNK: usize = 4096;

/// Decompresses `input` into `output`. Data that the input does not contain reads as zeros. Returns `None` if the
/// input is not well-formed.
pub fn decompress(input: &[u8], output: &mut [u8]) -> Option<()> {
    let mut at = 0_usize;
    let mut chunks = output.chunks_mut(CHUNK);
    while let Some(chunk) = chunks.next() {
        let header = match u16_at(input, at) {
            // A header of zero, or no room for one, ends the data.
            None | Some(0) => {
                chunk.fill(0);
                chunks.for_each(|chunk| chunk.fill(0));
                return Some(());
            }
            Some(header) => header,
        };
        let len = usize::from(header & 0xfff).saturating_add(1);
        let body = slice(input, at.checked_add(2)?, len)?;
        let written = if header & 0x8000 == 0 {
            let target = chunk.get_mut(..len.min(CHUNK))?;
            target.copy_from_slice(body.get(..target.len())?);
            target.len()
        } else {
            expand(body, chunk)?
        };
        chunk.get_mut(written..)?.fill(0);
        at = at.checked_add(2)?.checked_add(len)?;
    }
    Some(())
}

/// Expands a compressed chunk. Returns the number of bytes.
fn expand(body: &[u8], chunk: &mut [u8]) -> Option<usize> {
    let (mut at, mut to) = (0_usize, 0_usize);
    while let Some(&flags) = body.get(at) {
        at = at.checked_add(1)?;
        for bit in 0..8_u32 {
            if at >= body.len() || to >= chunk.len() {
                break;
            }
            if flags & 1_u8.checked_shl(bit)? == 0 {
                *chunk.get_mut(to)? = *body.get(at)?;
                (at, to) = (at.checked_add(1)?, to.checked_add(1)?);
                continue;
            }
            let token = u16_at(body, at)?;
            at = at.checked_add(2)?;
            let bits = distance_bits(to);
            let length_bits = 16_u32.checked_sub(bits)?;
            let distance = usize::from(token.checked_shr(length_bits)?).checked_add(1)?;
            let length =
                usize::from(token & 1_u16.checked_shl(length_bits)?.checked_sub(1)?).checked_add(3)?;
            to = copy(chunk, to, distance, length)?;
        }
        if to >= chunk.len() {
            break;
        }
    }
    Some(to)
}

/// Returns the width of the distance at a position of a chunk: enough for each distance up to there, at least 4.
pub fn distance_bits(at: usize) -> u32 {
    let last = at.saturating_sub(1);
    usize::BITS.saturating_sub(last.leading_zeros()).clamp(4, 12)
}

/// Copies `length` bytes from `distance` before `to`, which may overlap. Stops at the end of `output`. Returns the
/// position after the copy, or `None` if the distance leads before the start.
pub fn copy(output: &mut [u8], to: usize, distance: usize, length: usize) -> Option<usize> {
    let from = to.checked_sub(distance).filter(|_| distance > 0)?;
    let end = to.checked_add(length)?.min(output.len());
    if distance >= end.saturating_sub(to) {
        let len = end.checked_sub(to)?;
        output.copy_within(from..from.checked_add(len)?, to);
    } else {
        for (at, source) in (to..end).zip(from..) {
            let byte = *output.get(source)?;
            *output.get_mut(at)? = byte;
        }
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Compresses greedily, so that decoding is tested against an encoder.
    fn compress(data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for chunk in data.chunks(CHUNK) {
            let (mut body, mut at) = (Vec::new(), 0);
            while at < chunk.len() {
                let flags_at = body.len();
                body.push(0);
                for bit in 0..8 {
                    if at >= chunk.len() {
                        break;
                    }
                    let bits = distance_bits(at);
                    let (most, reach) = ((1 << (16 - bits)) + 2, 1 << bits);
                    let best = (1..=at.min(reach))
                        .map(|back| {
                            let same = (0..most.min(chunk.len() - at))
                                .take_while(|n| chunk[at + n] == chunk[at + n - back]);
                            (same.count(), back)
                        })
                        .max_by_key(|&(len, back)| (len, usize::MAX - back));
                    match best {
                        Some((len, back)) if len >= 3 => {
                            let token = ((back - 1) << (16 - bits) | (len - 3)) as u16;
                            body[flags_at] |= 1 << bit;
                            body.extend(token.to_le_bytes());
                            at += len;
                        }
                        _ => {
                            body.push(chunk[at]);
                            at += 1;
                        }
                    }
                }
            }
            let (header, body) = if body.len() < chunk.len() { (0xb000, &body[..]) } else { (0x3000, chunk) };
            out.extend((header | (body.len() - 1) as u16).to_le_bytes());
            out.extend(body);
        }
        out
    }

    #[test]
    fn the_output_of_an_encoder_is_decoded() {
        let texts: Vec<Vec<u8>> = std::vec![
            Vec::new(),
            b"a".to_vec(),
            b"abcabcabcabcabcab".repeat(700),
            (0..20_000_u32).map(|n| ((n * n) >> 7) as u8).collect(),
            std::vec![0; 65_536],
            (0..9000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect(),
        ];
        for text in texts {
            let mut found = std::vec![1; text.len()];
            decompress(&compress(&text), &mut found).unwrap();
            assert!(found == text, "{} bytes", text.len());
        }
    }

    #[test]
    fn the_example_of_the_specification_is_read() {
        // MS-XCA 3.3, "LZNT1".
        let input: &[u8] = &[
            0x38, 0xb0, 0x88, 0x46, 0x23, 0x20, 0x00, 0x20, 0x47, 0x20, 0x41, 0x00, 0x10, 0xa2, 0x47, 0x01,
            0xa0, 0x45, 0x20, 0x44, 0x00, 0x08, 0x45, 0x01, 0x50, 0x79, 0x00, 0xc0, 0x45, 0x20, 0x05, 0x24,
            0x13, 0x88, 0x05, 0xb4, 0x02, 0x4a, 0x44, 0xef, 0x03, 0x58, 0x02, 0x8c, 0x09, 0x16, 0x01, 0x48,
            0x45, 0x00, 0xbe, 0x00, 0x9e, 0x00, 0x04, 0x01, 0x18, 0x90, 0x00,
        ];
        let expected = b"F# F# G A A G F# E D D E F# F# E E F# F# G A A G F# E D D E F# E D D E E F# D E F# G F# D E F# G F# E D E A F# F# G A A G F# E D D E F# E D D\0";
        let mut found = std::vec![0; expected.len()];
        decompress(input, &mut found).unwrap();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_copy_from_before_the_start_is_refused() {
        assert_eq!(decompress(&[0x02, 0xb0, 1, 0, 0], &mut [0; 10]), None);
        assert_eq!(decompress(&[0xff, 0xb0, 1], &mut [0; 10]), None);
    }
}
