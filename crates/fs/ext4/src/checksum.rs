//! The checksums of ext4: crc32c for `metadata_csum`, crc16 for the descriptors of `uninit_bg` (gdt_csum).
//!
//! Every crc32c starts from a seed of the volume, so that a block of another volume is detected. The structures of a
//! file continue with its inode number and generation.
//! Source: Linux `Documentation/filesystems/ext4/checksums.rst`.

use obento_base::crc::{crc16, crc32c};

/// A crc32c that is computed in parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crc(u32);

impl Crc {
    /// Starts from `seed`.
    pub fn new(seed: u32) -> Self {
        Self(seed)
    }

    /// Adds bytes.
    #[must_use]
    pub fn add(self, bytes: &[u8]) -> Self {
        Self(crc32c(self.0, bytes))
    }

    /// Returns the value of the bytes so far.
    pub fn get(self) -> u32 {
        self.0
    }

    /// Returns the low 16 bits, for shorter fields.
    pub fn low(self) -> u32 {
        self.0 & 0xffff
    }
}

/// Returns the seed for the structures of one inode (extent nodes, directory blocks).
pub fn inode_seed(volume_seed: u32, ino: u32, generation: u32) -> u32 {
    // One run of eight bytes is faster than two of four.
    let both = u64::from(ino) | u64::from(generation) << 32;
    Crc::new(volume_seed).add(&both.to_le_bytes()).get()
}

/// Returns the crc16 of `parts`, as in descriptors of `uninit_bg`.
pub fn gdt_crc16(parts: &[&[u8]]) -> u16 {
    parts.iter().fold(!0, |crc, part| crc16(crc, part))
}
