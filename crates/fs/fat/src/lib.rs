//! The FAT12, FAT16 and FAT32 driver, with the long names of VFAT.
//!
//! [`raw`] structures, which mirror the bytes, are decoded to checked types ([`SuperBlock`], [`Inode`]). The format
//! has no inodes: a directory entry takes their place, and its position is the inode number while the volume is open.
//! Code that this driver shares with exFAT is in `obento-clusters`.
//!
//! Reading order: `open.rs` (opening a volume), `super_block.rs`, `table/`, `dir/`, `volume.rs`.
//!
//! Source of the format: Microsoft, "FAT: General Overview of On-Disk Format", version 1.03, called fatgen103 here;
//! Linux `Documentation/filesystems/vfat.rst`. `docs/fat.md` describes what the driver supports.
#![no_std]
#![cfg_attr(
    not(test),
    warn(
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic
    )
)]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod check;
mod contract;
mod dir;
mod format;
mod info;
mod inode;
mod inspect;
mod map;
mod name;
mod open;
mod options;
pub mod raw;
mod resize;
mod super_block;
mod table;
mod tune;
mod undelete;
mod volume;
mod writer;

use obento_clusters::{time, unit};

pub use contract::Fat;
pub use inode::{Attributes, Inode};
pub use name::CodePage;
pub use obento_clusters::Owner;
pub use open::{FatDriver, open_volume};
pub use options::FatOptions;
pub use super_block::{Root, SuperBlock, Width};
pub use time::Zone;
pub use unit::{Cluster, Slot};
pub use volume::Volume;
