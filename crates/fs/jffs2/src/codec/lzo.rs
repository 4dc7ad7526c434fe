//! LZO1X.
//!
//! Source: Linux `Documentation/staging/lzo.rst` ("LZO stream format as understood by Linux' LZO decompressor").

/// How many literals the previous instruction copied, which changes the meaning of the instructions 0 to 15.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// None.
    Zero,
    /// One to three.
    Few,
    /// Four and more.
    Many,
}

/// The two ends of a decompression.
struct Streams<'a> {
    input: &'a [u8],
    output: &'a mut [u8],
    at: usize,
}

impl Streams<'_> {
    fn byte(&mut self) -> Option<usize> {
        let (&byte, rest) = self.input.split_first()?;
        self.input = rest;
        Some(byte.into())
    }

    /// Returns a length whose bits in the instruction are zero: bytes of 0 count 255 each.
    fn long(&mut self, base: usize) -> Option<usize> {
        let mut len = base;
        loop {
            match self.byte()? {
                0 => len = len.checked_add(255)?,
                last => return len.checked_add(last),
            }
        }
    }

    fn word(&mut self) -> Option<usize> {
        let (&word, rest) = self.input.split_first_chunk::<2>()?;
        self.input = rest;
        Some(u16::from_le_bytes(word).into())
    }

    fn literals(&mut self, len: usize) -> Option<()> {
        let (found, rest) = self.input.split_at_checked(len)?;
        let end = self.at.checked_add(len)?;
        self.output.get_mut(self.at..end)?.copy_from_slice(found);
        self.input = rest;
        self.at = end;
        Some(())
    }

    fn repeat(&mut self, distance: usize, len: usize) -> Option<()> {
        let from = self.at.checked_sub(distance)?;
        let end = self.at.checked_add(len).filter(|&end| end <= self.output.len())?;
        if distance >= len {
            self.output.copy_within(from..from.checked_add(len)?, self.at);
        } else {
            for (step, to) in (self.at..end).enumerate() {
                let byte = *self.output.get(from.checked_add(step)?)?;
                *self.output.get_mut(to)? = byte;
            }
        }
        self.at = end;
        Some(())
    }
}

/// Fills `output`. Returns `None` if the stream is damaged or has another length.
pub fn decompress(input: &[u8], output: &mut [u8]) -> Option<()> {
    let mut streams = Streams { input, output, at: 0 };
    let mut state = State::Zero;
    if let Some(first @ 18..) = streams.input.first().copied().map(usize::from) {
        streams.byte()?;
        let len = first.checked_sub(17)?;
        streams.literals(len)?;
        state = after(len);
    }
    loop {
        let code = streams.byte()?;
        let (distance, len, low) = match (code, state) {
            (0..=15, State::Zero) => {
                let len = if code == 0 { streams.long(15)? } else { code };
                streams.literals(len.checked_add(3)?)?;
                state = State::Many;
                continue;
            }
            (0..=15, State::Few) => (((code >> 2) | streams.byte()? << 2).checked_add(1)?, 2, code),
            (0..=15, State::Many) => (((code >> 2) | streams.byte()? << 2).checked_add(2049)?, 3, code),
            (64.., _) => {
                let distance = ((code >> 2 & 7) | streams.byte()? << 3).checked_add(1)?;
                (distance, (code >> 5).checked_add(1)?, code)
            }
            (32.., _) => {
                let len = if code & 31 == 0 { streams.long(31)? } else { code & 31 };
                let word = streams.word()?;
                ((word >> 2).checked_add(1)?, len.checked_add(2)?, word)
            }
            _ => {
                let len = if code & 7 == 0 { streams.long(7)? } else { code & 7 };
                let word = streams.word()?;
                let near = (code & 8) << 11 | word >> 2;
                if near == 0 {
                    // The end.
                    return (streams.at == streams.output.len()).then_some(());
                }
                (near.checked_add(16_384)?, len.checked_add(2)?, word)
            }
        };
        streams.repeat(distance, len)?;
        let literals = low & 3;
        streams.literals(literals)?;
        state = after(literals);
    }
}

fn after(literals: usize) -> State {
    match literals {
        0 => State::Zero,
        1..=3 => State::Few,
        _ => State::Many,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_with_each_kind_of_match_decompresses() {
        let mut output = [0; 6];
        // Three literals, a match of three at distance 3, the end.
        let stream = [20, b'a', b'b', b'c', 0x48, 0, 17, 0, 0];
        decompress(&stream, &mut output).expect("it is valid");
        assert_eq!(&output, b"abcabc");
        assert_eq!(decompress(&stream, &mut [0; 7]), None);
        assert_eq!(decompress(&stream, &mut [0; 5]), None);
        assert_eq!(decompress(&stream[..7], &mut output), None);
    }
}
