//! The amount and the range of transferred data.

use core::ops::Range;

/// Bytes that were read or written, and the smallest range that contains them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Transferred {
    /// Number of bytes, including repeated ones.
    pub bytes: u64,
    /// Offset of the first byte; 0 if no byte was transferred.
    pub start: u64,
    /// Offset after the last byte.
    pub end: u64,
}

impl Transferred {
    /// Returns the transfer of `range`.
    pub fn of(range: &Range<u64>) -> Self {
        match range.end.saturating_sub(range.start) {
            0 => Self::default(),
            bytes => Self { bytes, start: range.start, end: range.end },
        }
    }

    /// Adds another transfer.
    pub fn add(&mut self, more: &Self) {
        if more.bytes == 0 {
            return;
        }
        self.start = if self.bytes == 0 { more.start } else { self.start.min(more.start) };
        self.end = self.end.max(more.end);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}
