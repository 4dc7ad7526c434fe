//! XDR (RFC 4506): big-endian numbers, and bytes with a length, padded to four.

/// A message being written.
#[derive(Clone, Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// Adds a number of 32 bits.
    pub fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    /// Adds a number of 64 bits.
    pub fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    /// Adds bytes without their length.
    pub fn fixed(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Adds bytes with their length, which is below 2^32.
    pub fn bytes(self, bytes: &[u8]) -> Self {
        self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX)).fixed(bytes)
    }
}

/// A message being read. Each method returns `None` past the end.
#[derive(Clone, Copy)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// Takes a number of 32 bits.
    pub fn u32(&mut self) -> Option<u32> {
        let (&value, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(value))
    }

    /// Takes a number of 64 bits.
    pub fn u64(&mut self) -> Option<u64> {
        let (&value, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_be_bytes(value))
    }

    /// Takes a truth value.
    pub fn flag(&mut self) -> Option<bool> {
        match self.u32()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// Takes bytes of a fixed length.
    pub fn fixed(&mut self, len: usize) -> Option<&'a [u8]> {
        let found = self.0.get(..len)?;
        self.0 = self.0.get(len.checked_next_multiple_of(4)?..)?;
        Some(found)
    }

    /// Takes at most `max` bytes with their length.
    pub fn bytes(&mut self, max: usize) -> Option<&'a [u8]> {
        let len = usize::try_from(self.u32()?).ok().filter(|&len| len <= max)?;
        self.fixed(len)
    }
}
