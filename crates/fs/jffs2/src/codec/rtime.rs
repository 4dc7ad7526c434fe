//! rtime: each byte is followed by the number of bytes that repeat what followed its previous occurrence.
//!
//! Source: Linux `fs/jffs2/compr_rtime.c`.

use alloc::vec;
use alloc::vec::Vec;

/// Fills `output`. Returns `None` if the input ends early or a run exceeds the output.
pub fn decompress(input: &[u8], output: &mut [u8]) -> Option<()> {
    let mut pairs = input.chunks_exact(2);
    // The table of Linux has 16 bits for a position.
    let mut places = [0_u16; 256];
    let mut at = 0_usize;
    while at < output.len() {
        let &[value, repeat] = pairs.next()? else { return None };
        *output.get_mut(at)? = value;
        at = at.checked_add(1)?;
        let place = places.get_mut(usize::from(value))?;
        let from = usize::from(core::mem::replace(place, low(at)));
        let end = at.checked_add(repeat.into()).filter(|&end| end <= output.len())?;
        if from >= at && repeat > 0 {
            return None;
        }
        for (step, to) in (at..end).enumerate() {
            let byte = *output.get(from.checked_add(step)?)?;
            *output.get_mut(to)? = byte;
        }
        at = end;
    }
    Some(())
}

/// Returns the lower 16 bits.
fn low(value: usize) -> u16 {
    u16::try_from(value & 0xffff).unwrap_or(0)
}

/// Returns the compressed `input`, or `None` if it is not shorter.
pub fn compress(input: &[u8]) -> Option<Vec<u8>> {
    let mut places = vec![0_usize; 256];
    let mut output = Vec::with_capacity(input.len());
    let mut at = 0_usize;
    while let Some(&value) = input.get(at) {
        if output.len().saturating_add(2) >= input.len() || at > 0xffff {
            return None;
        }
        at = at.saturating_add(1);
        let from = core::mem::replace(places.get_mut(usize::from(value))?, at);
        let (old, new) = (input.get(from..)?, input.get(at..)?);
        let same =
            if from < at { old.iter().zip(new).take(255).take_while(|(a, b)| a == b).count() } else { 0 };
        output.extend([value, u8::try_from(same).unwrap_or(0)]);
        at = at.saturating_add(same);
    }
    Some(output).filter(|output| output.len() < input.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_bytes_decompress_to_themselves() {
        let input: Vec<u8> = (0..4096_u32).map(|n| u8::try_from(n / 9 % 11).unwrap()).collect();
        let packed = compress(&input).expect("it repeats");
        assert!(packed.len() < input.len() / 4, "{}", packed.len());
        let mut output = vec![0; input.len()];
        decompress(&packed, &mut output).expect("it is valid");
        assert!(output == input);
    }

    #[test]
    fn runs_past_the_end_are_refused() {
        assert_eq!(decompress(&[1, 9], &mut [0; 4]), None);
        assert_eq!(decompress(&[1, 0, 2], &mut [0; 4]), None);
    }
}
