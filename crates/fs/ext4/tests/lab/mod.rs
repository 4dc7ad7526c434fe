//! Damage to order: a sound image in memory, of which a test changes one thing by the names of the format, with the
//! checksums around it made right again so that only that one thing is wrong.
//!
//! Nothing of the driver's decoding has a part in it: places are found by offsets of the format
//! (`Documentation/filesystems/ext4`), so that a mistake of the driver cannot hide in its own fixture. Not for
//! `meta_bg` and not for blocks above 2^32.
#![allow(dead_code, unused_imports, reason = "each test file uses a part")]

pub mod bases;
mod disk;
mod edit;
pub mod harm;
pub mod judge;
mod seal;
mod sealed;

pub use disk::{Bits, Disk, I_BLOCK, ROOT};
