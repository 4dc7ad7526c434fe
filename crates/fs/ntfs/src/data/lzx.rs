//! LZX, as WOF uses it: chunks of 32 KiB, each with a window of its own.
//!
//! Layout: blocks with a type in 3 bits and a size, which is 32 KiB if the next bit is set. A verbatim block has the
//! lengths of the main code and of the code of lengths. Each is stored as differences from the previous block, in a
//! separate code. An aligned block also has a code for the low three bits of distances. An uncompressed block has the
//! three last distances and bytes. Afterwards, the operands of x86 calls become relative again.
//! Source: MS-PATCH 2, "LZX"; wimlib documentation on the variant of WIM (block sizes, no header of the translation).

use alloc::vec::Vec;

use super::huffman::{Bits, Huffman, lengths};
use super::lznt1::copy;
use crate::layout::bytes::{index, u32_at};

/// Bytes of a chunk.
pub const CHUNK: usize = 32 << 10;
/// Number of distance slots for a window of 32 KiB.
const SLOTS: usize = 30;
/// Symbols of the main code: bytes, and eight lengths for each slot.
const MAIN: usize = 256 + 8 * SLOTS;
/// Symbols of the code of lengths.
const LONG: usize = 249;
/// Symbols of the code of code lengths.
const PRE: usize = 20;
/// The size of a file that the translation of calls assumes.
const CALLS: i32 = 12_000_000;

/// The state between blocks.
struct Decoder {
    main_lengths: Vec<u8>,
    long_lengths: Vec<u8>,
    main: Huffman,
    long: Huffman,
    aligned: Huffman,
    recent: [usize; 3],
}

/// Decompresses `input` into the whole of `output`, at most 32 KiB. Returns `None` if the input is not well-formed.
pub fn decompress(input: &[u8], output: &mut [u8]) -> Option<()> {
    if output.len() > CHUNK {
        return None;
    }
    let mut decoder = Decoder {
        main_lengths: lengths(MAIN),
        long_lengths: lengths(LONG),
        main: Huffman::default(),
        long: Huffman::default(),
        aligned: Huffman::default(),
        recent: [1; 3],
    };
    let mut bits = Bits::new(input, 0);
    let mut at = 0_usize;
    while at < output.len() {
        at = decoder.block(&mut bits, output, at)?;
    }
    undo_calls(output);
    Some(())
}

impl Decoder {
    /// Decodes the block at `at`. Returns the position after it.
    fn block(&mut self, bits: &mut Bits<'_>, output: &mut [u8], at: usize) -> Option<usize> {
        let kind = bits.take(3);
        let size = if bits.take(1) == 1 { CHUNK } else { index(bits.take(16)) };
        let end = at.checked_add(size).filter(|&end| size > 0 && end <= output.len())?;
        match kind {
            1 => {
                self.codes(bits)?;
                self.copies(bits, output, at, end, false)?;
            }
            2 => {
                let mut sizes = lengths(8);
                for size in &mut sizes {
                    *size = u8::try_from(bits.take(3)).ok()?;
                }
                self.aligned.build(&sizes)?;
                self.codes(bits)?;
                self.copies(bits, output, at, end, true)?;
            }
            3 => self.stored(bits, output.get_mut(at..end)?)?,
            _ => return None,
        }
        Some(end)
    }

    /// Reads the codes of a block.
    fn codes(&mut self, bits: &mut Bits<'_>) -> Option<()> {
        let (bytes, matches) = self.main_lengths.split_at_mut_checked(256)?;
        read_lengths(bits, bytes)?;
        read_lengths(bits, matches)?;
        self.main.build(&self.main_lengths)?;
        read_lengths(bits, &mut self.long_lengths)?;
        self.long.build(&self.long_lengths)
    }

    fn stored(&mut self, bits: &mut Bits<'_>, output: &mut [u8]) -> Option<()> {
        bits.align();
        let head = bits.bytes(12)?;
        for (slot, at) in self.recent.iter_mut().zip([0, 4, 8]) {
            *slot = index(u32_at(head, at)?);
        }
        output.copy_from_slice(bits.bytes(output.len())?);
        let next = bits.position().checked_next_multiple_of(2)?;
        bits.restart(next);
        Some(())
    }

    fn copies(
        &mut self,
        bits: &mut Bits<'_>,
        output: &mut [u8],
        start: usize,
        end: usize,
        is_aligned: bool,
    ) -> Option<()> {
        let output = output.get_mut(..end)?;
        let mut at = start;
        while at < end {
            let symbol = self.main.take(bits)?;
            if bits.is_past_end() {
                return None;
            }
            let Some(copied) = symbol.checked_sub(256) else {
                *output.get_mut(at)? = u8::try_from(symbol).ok()?;
                at = at.checked_add(1)?;
                continue;
            };
            let mut length = usize::from(copied & 7);
            if length == 7 {
                length = length.checked_add(self.long.take(bits)?.into())?;
            }
            let distance = self.distance(bits, copied >> 3, is_aligned)?;
            let length = length.checked_add(2)?;
            if at.checked_add(length)? > end {
                return None;
            }
            at = copy(output, at, distance, length)?;
        }
        Some(())
    }

    /// Reads the rest of a distance, and remembers it as the most recent one.
    fn distance(&mut self, bits: &mut Bits<'_>, slot: u16, is_aligned: bool) -> Option<usize> {
        let [first, second, third] = self.recent;
        self.recent = match slot {
            0 => [first, second, third],
            1 => [second, first, third],
            2 => [third, second, first],
            _ => {
                let (base, extra) = slot_base(slot)?;
                let low = match extra.checked_sub(3) {
                    Some(high) if is_aligned => {
                        let value = bits.take(high).checked_mul(8)?;
                        value.checked_add(self.aligned.take(bits)?.into())?
                    }
                    _ => bits.take(extra),
                };
                let distance = base.checked_add(index(low))?.checked_sub(2)?;
                [distance, first, second]
            }
        };
        self.recent.first().copied()
    }
}

/// Returns the smallest distance of a slot plus 2, and the number of further bits.
fn slot_base(slot: u16) -> Option<(usize, u32)> {
    let extra = u32::from(slot / 2).saturating_sub(1);
    let base = match slot {
        0..4 => usize::from(slot),
        _ => usize::from(slot & 1 | 2).checked_shl(extra)?,
    };
    Some((base, extra))
}

/// Reads code lengths as differences from the previous ones.
fn read_lengths(bits: &mut Bits<'_>, sizes: &mut [u8]) -> Option<()> {
    let mut pre = lengths(PRE);
    for size in &mut pre {
        *size = u8::try_from(bits.take(4)).ok()?;
    }
    let mut code = Huffman::default();
    code.build(&pre)?;
    let mut at = 0_usize;
    while at < sizes.len() {
        if bits.is_past_end() {
            return None;
        }
        let symbol = code.take(bits)?;
        let (count, value) = match symbol {
            17 => (bits.take(4).checked_add(4)?, Some(0)),
            18 => (bits.take(5).checked_add(20)?, Some(0)),
            19 => {
                let count = bits.take(1).checked_add(4)?;
                let symbol = code.take(bits)?;
                (count, Some(difference(*sizes.get(at)?, symbol)?))
            }
            _ => (1, None),
        };
        let value = match value {
            Some(value) => value,
            None => difference(*sizes.get(at)?, symbol)?,
        };
        // The last repetition may be longer than what is left.
        let end = at.checked_add(index(count))?.min(sizes.len());
        sizes.get_mut(at..end)?.fill(value);
        at = end;
    }
    Some(())
}

fn difference(previous: u8, symbol: u16) -> Option<u8> {
    let symbol = u8::try_from(symbol).ok().filter(|&symbol| symbol <= 16)?;
    previous.checked_add(17)?.checked_sub(symbol)?.checked_rem(17)
}

/// Makes the operands of x86 calls relative, as they were before compression.
fn undo_calls(data: &mut [u8]) {
    let mut at = 0_usize;
    let end = data.len().saturating_sub(10);
    while at < end {
        let Some([0xe8, operand @ ..]) = data.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<5>())
        else {
            at = at.saturating_add(1);
            continue;
        };
        let (absolute, here) = (i32::from_le_bytes(*operand), i32::try_from(at).unwrap_or(i32::MAX));
        if absolute >= here.saturating_neg() && absolute < CALLS {
            let step = if absolute >= 0 { absolute.wrapping_sub(here) } else { absolute.wrapping_add(CALLS) };
            operand.copy_from_slice(&step.to_le_bytes());
        }
        at = at.saturating_add(5);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::encode::{Item, Writer, code_lengths, codes, damage, items, texts};

    fn slot(distance: usize) -> u16 {
        (3..SLOTS as u16).rev().find(|&slot| slot_base(slot).unwrap().0 <= distance + 2).unwrap()
    }

    fn symbols(item: Item) -> (usize, Option<usize>) {
        match item {
            Item::Literal(byte) => (byte.into(), None),
            Item::Copy(distance, length) => {
                let header = (length - 2).min(7);
                let main = 256 + (usize::from(slot(distance)) << 3 | header);
                (main, (header == 7).then(|| length - 9))
            }
        }
    }

    /// Writes code lengths as differences from zeros, without repetitions.
    fn write_lengths(writer: &mut Writer, lengths: &[u8]) {
        let pre = code_lengths(0..17, PRE);
        pre.iter().for_each(|&length| writer.bits((length.into(), 4)));
        let codes = codes(&pre);
        lengths.iter().for_each(|&length| writer.bits(codes[(17 - usize::from(length)) % 17]));
    }

    fn compress(data: &[u8], is_aligned: bool) -> Vec<u8> {
        let items = items(data, 3, 257);
        let main = code_lengths(items.iter().map(|&item| symbols(item).0), MAIN);
        let long = code_lengths(items.iter().filter_map(|&item| symbols(item).1), LONG);
        let mut writer = Writer::default();
        writer.bits((if is_aligned { 2 } else { 1 }, 3));
        if data.len() == CHUNK {
            writer.bits((1, 1));
        } else {
            writer.bits((0, 1));
            writer.bits((data.len() as u32, 16));
        }
        if is_aligned {
            (0..8).for_each(|_| writer.bits((3, 3)));
        }
        write_lengths(&mut writer, &main[..256]);
        write_lengths(&mut writer, &main[256..]);
        write_lengths(&mut writer, &long);
        let (main, long) = (codes(&main), codes(&long));
        for item in items {
            let (symbol, length) = symbols(item);
            writer.bits(main[symbol]);
            length.into_iter().for_each(|length| writer.bits(long[length]));
            let Item::Copy(distance, _) = item else { continue };
            let (base, extra) = slot_base(slot(distance)).unwrap();
            let rest = (distance + 2 - base) as u32;
            if is_aligned && extra >= 3 {
                writer.bits((rest >> 3, extra - 3));
                writer.bits((rest & 7, 3));
            } else {
                writer.bits((rest, extra));
            }
        }
        writer.finish()
    }

    #[test]
    fn the_output_of_an_encoder_is_decoded() {
        for text in texts(CHUNK) {
            for is_aligned in [false, true] {
                let mut found = std::vec![0; text.len()];
                decompress(&compress(&text, is_aligned), &mut found).unwrap();
                assert!(found == text, "{} bytes, aligned: {is_aligned}", text.len());
            }
        }
    }

    #[test]
    fn bytes_that_are_not_compressed_are_read() {
        let mut packed = std::vec![0x00, 0x30, 0x50, 0x00];
        // Kind 3, size 5 in 16 bits: 011 0 0000000000000101 and padding.
        packed.extend([1, 0, 0, 0].repeat(3));
        packed.extend(*b"hello\0");
        packed[..4].copy_from_slice(&[0x00, 0x60, 0x00, 0x50]);
        let mut found = [0; 5];
        decompress(&packed, &mut found).unwrap();
        assert_eq!(&found, b"hello");
    }

    #[test]
    fn calls_become_relative_again() {
        let mut data = std::vec![0; 64];
        data[20..25].copy_from_slice(&[0xe8, 100, 0, 0, 0]);
        data[40..45].copy_from_slice(&[0xe8, 0xff, 0xff, 0xff, 0xff]);
        data[60] = 0xe8;
        undo_calls(&mut data);
        assert_eq!(data[21..25], 80_i32.to_le_bytes());
        assert_eq!(data[41..45], (CALLS - 1).to_le_bytes());
    }

    #[test]
    fn damaged_data_ends_with_a_result() {
        texts(4096).iter().for_each(|text| damage(&compress(text, true), text.len(), decompress));
    }
}
