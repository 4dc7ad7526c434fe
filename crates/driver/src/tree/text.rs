//! Storage of names and targets in one buffer.

use alloc::vec::Vec;

use obento_base::wire::to_usize;

/// The position of a name or a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Text(pub(super) u32);

/// The texts, each preceded by its length in two bytes.
#[derive(Debug, Default)]
pub(super) struct Texts(Vec<u8>);

impl Texts {
    /// Stores `bytes`. Returns `None` if the buffer is full or `bytes` is longer than 65,535 bytes.
    pub(super) fn add(&mut self, bytes: &[u8]) -> Option<Text> {
        let len = u16::try_from(bytes.len()).ok()?;
        let start = u32::try_from(self.0.len()).ok()?;
        self.0.try_reserve(bytes.len().checked_add(2)?).ok()?;
        self.0.extend_from_slice(&len.to_le_bytes());
        self.0.extend_from_slice(bytes);
        Some(Text(start))
    }

    pub(super) fn get(&self, text: Text) -> &[u8] {
        let rest = self.0.get(to_usize(text.0.into())..).unwrap_or_default();
        match rest.split_first_chunk() {
            Some((len, rest)) => rest.get(..u16::from_le_bytes(*len).into()).unwrap_or_default(),
            None => &[],
        }
    }

    pub(super) fn shrink(&mut self) {
        self.0.shrink_to_fit();
    }
}
