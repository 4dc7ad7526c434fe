//! The nodes of a new image, one after another.
//!
//! Invariant: no node crosses the end of an erase block, and each block starts with a clean marker.

use alloc::vec::Vec;

use obento_base::wire::{to_u64, to_usize};
use obento_driver::FormatError;

use super::settings::Shape;
use crate::raw::{self, crc, kind};
use crate::scan::IMAGE_MAX;

/// Erased bytes.
const ERASED: u8 = 0xff;

/// A node without its header: fields are appended in the order of the image.
pub struct NodeBody {
    shape: Shape,
    kind: u16,
    bytes: Vec<u8>,
}

impl NodeBody {
    /// Starts a node of `len` bytes.
    pub fn new(shape: Shape, kind: u16, len: usize) -> Self {
        let mut bytes = raw::start(shape.order, kind, u32::try_from(len).unwrap_or(u32::MAX)).to_vec();
        let sum = crc(&bytes);
        bytes.extend(shape.order.bytes32(sum));
        Self { shape, kind, bytes }
    }

    /// Appends a field of four bytes.
    pub fn word(mut self, value: u32) -> Self {
        self.bytes.extend(self.shape.order.bytes32(value));
        self
    }

    /// Appends a field of two bytes.
    pub fn half(mut self, value: u16) -> Self {
        self.bytes.extend(self.shape.order.bytes16(value));
        self
    }

    /// Appends bytes.
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Appends the checksum of everything before byte `end`.
    pub fn sum(self, end: usize) -> Self {
        let sum = crc(self.bytes.get(..end).unwrap_or_default());
        self.word(sum)
    }
}

/// A new image.
pub struct Flash {
    shape: Shape,
    /// The bytes so far.
    pub bytes: Vec<u8>,
    /// Number of nodes of files.
    pub nodes: u64,
}

impl Flash {
    /// Starts an image.
    pub fn new(shape: Shape) -> Self {
        Self { shape, bytes: Vec::new(), nodes: 0 }
    }

    /// Returns the number of bytes in the current erase block.
    fn used(&self) -> u64 {
        to_u64(self.bytes.len()).checked_rem(self.shape.erase_block.into()).unwrap_or(0)
    }

    /// Returns the number of bytes that a node can have without starting an erase block.
    pub fn room(&self) -> u64 {
        match self.used() {
            0 => self.shape.node_max(),
            used => u64::from(self.shape.erase_block).saturating_sub(used),
        }
    }

    /// Appends a node.
    ///
    /// # Errors
    ///
    /// - `TooLarge`: the image exceeds 4 GiB.
    pub fn put(&mut self, node: &NodeBody) -> Result<(), FormatError> {
        let len = to_u64(node.bytes.len());
        if len > self.room() {
            self.fill();
        }
        if self.used() == 0 {
            self.mark();
        }
        if to_u64(self.bytes.len()).saturating_add(len) > IMAGE_MAX {
            return Err(FormatError::TooLarge { len: IMAGE_MAX.saturating_add(len), max: IMAGE_MAX });
        }
        self.bytes.extend_from_slice(&node.bytes);
        self.align();
        self.nodes = self.nodes.saturating_add(u64::from(node.kind != kind::CLEAN_MARKER));
        Ok(())
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), ERASED);
    }

    /// Writes the clean marker of an erase block.
    fn mark(&mut self) {
        let len = to_usize(self.shape.marker.into());
        if len > 0 {
            let mut marker = NodeBody::new(self.shape, kind::CLEAN_MARKER, len);
            marker.bytes.resize(len, ERASED);
            self.bytes.extend_from_slice(&marker.bytes);
            self.align();
        }
    }

    /// Fills the current erase block.
    pub fn fill(&mut self) {
        let size = to_usize(self.shape.erase_block.into());
        let len = self.bytes.len().checked_next_multiple_of(size).unwrap_or(self.bytes.len());
        self.bytes.resize(len, ERASED);
    }
}

/// Returns the bytes of an empty erase block.
pub fn empty_block(shape: Shape) -> Vec<u8> {
    let mut flash = Flash::new(shape);
    flash.mark();
    flash.bytes.resize(to_usize(shape.erase_block.into()), ERASED);
    flash.bytes
}
