//! Sequential, checked reading of a byte slice.

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// A position in a byte slice. If too few bytes are left, `take` and `take_raw` return `None` and do not move
/// the position.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    /// Creates a cursor at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// Returns the number of bytes read so far.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Returns the bytes that have not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.position..).unwrap_or_default()
    }

    /// Returns whether no bytes are left.
    pub fn is_empty(&self) -> bool {
        self.rest().is_empty()
    }

    /// Reads the next `len` bytes.
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let end = self.position.checked_add(len)?;
        let bytes = self.bytes.get(self.position..end)?;
        self.position = end;
        Some(bytes)
    }

    /// Reads the next `size_of::<T>()` bytes as a structure of type `T`.
    pub fn take_raw<T: FromBytes + KnownLayout + Immutable + Unaligned>(&mut self) -> Option<&'a T> {
        let bytes = self.take(size_of::<T>())?;
        T::ref_from_bytes(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::le;

    #[test]
    fn a_cursor_never_leaves_its_slice_and_stays_put_when_asked_for_too_much() {
        let mut cursor = Cursor::new(&[1, 0, 2]);
        assert_eq!(cursor.take_raw::<le::U16>().unwrap().get(), 1);
        assert!(cursor.take_raw::<le::U16>().is_none());
        assert_eq!(cursor.position(), 2);
        assert_eq!(cursor.take(1), Some(&[2][..]));
        assert!(cursor.is_empty() && cursor.take(usize::MAX).is_none());
    }
}
