//! The exFAT driver.
//!
//! Decoding goes from [`raw`] structures, which mirror the bytes, to checked types ([`SuperBlock`], [`Inode`]). The format
//! has no inodes: a set of directory entries stands for one, and the place of its first is its number while the volume is
//! open. What this driver has in common with that of FAT is in `obento-clusters`.
//!
//! Where to start reading: `open.rs` (how a volume comes up), `super_block.rs`, `set.rs` (what a file is), `dir/`, `volume.rs`;
//! for changes `writer/mod.rs` and `writer/commit.rs`.
//!
//! Source of the format: Microsoft, "exFAT file system specification", revision 1.00, called the specification here; where it
//! leaves a choice, Linux `fs/exfat` and exfatprogs. `docs/formats/exfat.md` has the facts, `docs/exfat.md` what is there and what
//! is missing.
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

mod boot;
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
mod set;
mod super_block;
mod table;
mod tables;
mod time;
mod up_case;
mod volume;
mod writer;

pub use contract::ExFat;
pub use inode::{Attributes, Inode};
pub use obento_clusters::{Cluster, Owner, Slot, Zone};
pub use open::{ExFatDriver, open_volume};
pub use options::ExFatOptions;
pub use set::EntrySet;
pub use super_block::SuperBlock;
pub use up_case::UpCase;
pub use volume::Volume;
