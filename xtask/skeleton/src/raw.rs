//! The structures on disk, and nothing else. All integers are little-endian.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What a volume begins with.
pub const MAGIC: [u8; 8] = *b"flatfs 1";
/// Bytes of a name, padded with NULs.
pub const NAME_MAX: usize = 48;

/// The super block, at byte 0.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawSuperBlock {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// How many files there are.
    pub files: U32,
    /// Zero.
    pub reserved: U32,
    /// Bytes of the volume.
    pub len: U64,
}
const _: () = assert!(size_of::<RawSuperBlock>() == 24);

/// A file, in a table right behind the super block.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawFile {
    /// Its name.
    pub name: [u8; NAME_MAX],
    /// Where its bytes begin.
    pub offset: U64,
    /// How many they are.
    pub len: U64,
}
const _: () = assert!(size_of::<RawFile>() == 64);

impl RawSuperBlock {
    pub(crate) fn new(files: u32, len: u64) -> Self {
        Self { magic: MAGIC, files: files.into(), reserved: 0.into(), len: len.into() }
    }
}

impl RawFile {
    pub(crate) fn new(name: &str, offset: u64, len: u64) -> Self {
        let mut padded = [0; NAME_MAX];
        padded[..name.len()].copy_from_slice(name.as_bytes());
        Self { name: padded, offset: offset.into(), len: len.into() }
    }
}

pub(crate) fn bytes(super_block: &RawSuperBlock, files: &[RawFile]) -> Vec<u8> {
    [super_block.as_bytes(), files.as_bytes()].concat()
}
