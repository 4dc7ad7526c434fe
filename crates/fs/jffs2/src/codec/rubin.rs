//! Rubin: an arithmetic coder of bits, with a probability for each bit of a byte.
//!
//! Linux registers the two models under the numbers of each other (`compr_rubin.c`: `jffs2_rubinmips_comp` has the number
//! `JFFS2_COMPR_DYNRUBIN`). Older writers did not. The right model reads exactly the stored bytes, so that the other one is
//! tried if the first does not.
//! Source: Linux `fs/jffs2/compr_rubin.c`.

/// Bits of the registers.
const BITS: u32 = 16;
/// The upper bit of a register.
const UPPER: u32 = 1 << (BITS - 1);
/// The other bits.
const LOWER: u32 = UPPER - 1;
/// `BIT_DIVIDER_MIPS`.
const MIPS_DIVIDER: u32 = 1043;
/// `bits_mips`: how many of `MIPS_DIVIDER` bytes have each bit set.
const MIPS: [u32; 8] = [277, 249, 290, 267, 229, 341, 212, 241];
/// Bytes of probabilities before the data of the dynamic model.
const DYNAMIC: usize = 8;

/// Where the probabilities come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Model {
    /// A constant.
    Mips,
    /// The first eight bytes of the data.
    Dynamic,
}

/// Fills `output`, by `first` or by the other model. Returns `None` if the input is that of no model.
pub fn decompress(input: &[u8], output: &mut [u8], first: Model) -> Option<()> {
    let other = if first == Model::Mips { Model::Dynamic } else { Model::Mips };
    match by_model(input, output, first) {
        Some(true) => Some(()),
        guess => match by_model(input, output, other) {
            Some(true) => Some(()),
            // Neither reads all bytes: the first model is that of Linux.
            _ => guess.and_then(|_| by_model(input, output, first)).map(|_| ()),
        },
    }
}

/// Fills `output`. Returns whether the input was read exactly, or `None` if it is too short.
fn by_model(input: &[u8], output: &mut [u8], model: Model) -> Option<bool> {
    let (divider, ones, data) = match model {
        Model::Mips => (MIPS_DIVIDER, MIPS, input),
        Model::Dynamic => {
            let (ones, data) = input.split_first_chunk::<DYNAMIC>()?;
            (256, ones.map(u32::from), data)
        }
    };
    let mut decoder = Decoder::new(data);
    for byte in output.iter_mut() {
        let mut value = 0_u8;
        for (bit, &ones) in (0_u32..).zip(&ones) {
            let zeros = divider.checked_sub(ones)?;
            value |= u8::from(decoder.bit(zeros, divider)).checked_shl(bit)?;
        }
        *byte = value;
    }
    let read = decoder.read.div_ceil(8);
    if read > data.len() { None } else { Some(read == data.len()) }
}

/// The registers of the coder.
struct Decoder<'i> {
    input: &'i [u8],
    /// Bits that were read, also past the end.
    read: usize,
    p: u32,
    q: u32,
    stored: u32,
}

impl<'i> Decoder<'i> {
    fn new(input: &'i [u8]) -> Self {
        let mut decoder = Self { input, read: 0, p: 2 * UPPER, q: 0, stored: 0 };
        for _ in 0..BITS {
            decoder.stored = decoder.stored << 1 | decoder.pull();
        }
        decoder
    }

    /// Returns the next bit of the input; past the end, zeros.
    fn pull(&mut self) -> u32 {
        let byte = self.input.get(self.read / 8).copied().unwrap_or(0);
        let place = u32::try_from(self.read % 8).unwrap_or(0);
        self.read = self.read.saturating_add(1);
        u32::from(byte).checked_shr(7_u32.saturating_sub(place)).unwrap_or(0) & 1
    }

    /// Decodes a bit that is 0 in `zeros` of `all` cases.
    fn bit(&mut self, zeros: u32, all: u32) -> bool {
        while self.q >= UPPER || self.p.saturating_add(self.q) <= UPPER {
            self.q = (self.q & LOWER) << 1;
            self.p = self.p.wrapping_shl(1);
            self.stored = (self.stored & LOWER) << 1 | self.pull();
            // A hostile model cannot make `p` 0, since each step leaves at least 1 of it.
            if self.p == 0 {
                break;
            }
        }
        let share = u64::from(zeros).saturating_mul(self.p.into()).checked_div(all.into()).unwrap_or(0);
        let most = self.p.saturating_sub(1);
        let share = u32::try_from(share).unwrap_or(u32::MAX).max(1).min(most);
        let threshold = self.q.saturating_add(share);
        let is_one = self.stored >= threshold;
        if is_one {
            self.q = threshold;
            self.p = self.p.saturating_sub(share);
        } else {
            self.p = share;
        }
        is_one
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    /// The encoder of Linux, for the tests alone.
    fn compress(input: &[u8], divider: u64, ones: [u64; 8]) -> Vec<u8> {
        let (mut p, mut q, mut bits) = (u64::from(2 * UPPER), 0_u64, Vec::new());
        let (upper, lower) = (u64::from(UPPER), u64::from(LOWER));
        for &byte in input {
            for (bit, ones) in ones.iter().enumerate() {
                while q >= upper || p + q <= upper {
                    bits.push(q & upper != 0);
                    q = (q & lower) << 1;
                    p <<= 1;
                }
                let share = ((divider - ones) * p / divider).max(1).min(p - 1);
                if byte >> bit & 1 == 0 {
                    p = share;
                } else {
                    q += share;
                    p -= share;
                }
            }
        }
        for _ in 0..BITS {
            bits.push(q & upper != 0);
            q = (q & lower) << 1;
        }
        bits.chunks(8)
            .map(|bits| bits.iter().enumerate().fold(0, |byte, (at, &bit)| byte | u8::from(bit) << (7 - at)))
            .collect()
    }

    #[test]
    fn both_models_are_found_under_either_number() {
        let input: Vec<u8> =
            (0..2000_u32).map(|n| b"a small text"[n as usize % 12] ^ u8::from(n % 97 == 0)).collect();
        let fixed = compress(&input, MIPS_DIVIDER.into(), MIPS.map(u64::from));
        let ones: [u8; 8] = core::array::from_fn(|bit| {
            let count = input.iter().filter(|&&byte| byte >> bit & 1 == 1).count();
            u8::try_from((count * 256 / input.len()).clamp(1, 255)).unwrap()
        });
        let dynamic = [ones.to_vec(), compress(&input, 256, ones.map(u64::from))].concat();
        for packed in [fixed, dynamic] {
            for first in [Model::Mips, Model::Dynamic] {
                let mut output = vec![0; input.len()];
                decompress(&packed, &mut output, first).expect("it is valid");
                assert!(output == input, "{first:?}");
            }
        }
    }
}
