//! The mapping from a disk to the file that contains it.

use alloc::sync::Arc;

use obento_base::Result;
use obento_block::BlockDevice;

/// The location of a range of the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// The range reads as zeros and takes no space.
    Zeros,
    /// The range repeats a pattern that begins at a multiple of 4 bytes of the disk.
    Fill([u8; 4]),
    /// The bytes at this offset of the file.
    Data(u64),
    /// A compressed unit, of which the range is a part.
    Packed(Unit),
}

/// A unit of a disk that is compressed as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unit {
    /// The first byte on the disk.
    pub start: u64,
    /// The length when decompressed.
    pub len: u64,
    /// The offset of the compressed stream in the file.
    pub at: u64,
    /// The length of the compressed stream.
    pub packed: u64,
}

/// A range of the disk with one location.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    /// The length, at least 1.
    pub len: u64,
    pub place: Place,
}

/// A decoded format.
pub(crate) trait Layout: Send + Sync {
    /// Returns the size of the disk in bytes.
    fn len(&self) -> u64;

    /// Returns the extent that begins at `offset`, which is less than [`len`](Self::len). The extent may be longer
    /// than `want` bytes, which limits the search for an end.
    ///
    /// # Errors
    ///
    /// An error of the device, or `DeviceError::Read` if a table entry violates the format.
    fn locate(&self, file: &Arc<dyn BlockDevice>, offset: u64, want: u64) -> Result<Extent>;
}
