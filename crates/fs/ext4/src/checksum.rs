//! The checksums of ext4: crc32c for `metadata_csum`, crc16 for the descriptors of `uninit_bg` (gdt_csum).
//!
//! Every crc32c starts from a seed of the volume, so that a block of another volume is not mistaken for one of this;
//! what belongs to a file goes on with its inode number and generation.
//! Source: Linux `Documentation/filesystems/ext4/checksums.rst`.

use obento_base::crc::{crc16, crc32c};

/// A running crc32c over parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crc(u32);

impl Crc {
    /// Goes on from `seed`.
    pub fn new(seed: u32) -> Self {
        Self(seed)
    }

    /// Adds bytes.
    #[must_use]
    pub fn add(self, bytes: &[u8]) -> Self {
        Self(crc32c(self.0, bytes))
    }

    /// Returns the value so far.
    pub fn get(self) -> u32 {
        self.0
    }

    /// Returns its low 16 bits, for the fields that keep no more.
    pub fn low(self) -> u32 {
        self.0 & 0xffff
    }
}

/// What the structures of one inode (extent nodes, directory blocks) go on from.
pub fn inode_seed(volume_seed: u32, ino: u32, generation: u32) -> u32 {
    // Both at once, since short runs cost the most.
    let both = u64::from(ino) | u64::from(generation) << 32;
    Crc::new(volume_seed).add(&both.to_le_bytes()).get()
}

/// Returns the crc16 over parts that `uninit_bg` descriptors carry.
pub fn gdt_crc16(parts: &[&[u8]]) -> u16 {
    parts.iter().fold(!0, |crc, part| crc16(crc, part))
}
