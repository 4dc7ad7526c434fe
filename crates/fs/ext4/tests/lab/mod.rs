//! Deliberate damage: an intact image in memory, in which a test changes one structure by the names of the format.
//! The checksums that cover it are corrected, so that only that structure is wrong.
//!
//! It uses none of the driver's decoding. Places are found by offsets of the format (`Documentation/filesystems/ext4`),
//! so that an error of the driver cannot hide in its own fixture. `meta_bg` and blocks above 2^32 are not supported.
#![allow(dead_code, unused_imports, reason = "each test file uses a part")]

pub mod bases;
mod disk;
mod edit;
pub mod harm;
pub mod judge;
mod seal;
mod sealed;

pub use disk::{Bits, Disk, I_BLOCK, ROOT};
