//! The exFAT driver.
//!
//! [`raw`] structures, which mirror the bytes, are decoded to checked types ([`SuperBlock`], [`Inode`]). The format has
//! no inodes. A set of directory entries takes their place, and the position of its first entry is the inode number
//! while the volume is open. Code that this driver shares with FAT is in `obento-clusters`.
//!
//! Reading order: `open.rs` (opening a volume), `super_block.rs`, `set.rs` (entry sets), `dir/`, `volume.rs`; for
//! changes `writer/mod.rs` and `writer/commit.rs`.
//!
//! Source of the format: Microsoft, "exFAT file system specification", revision 1.00, called the specification here.
//! If the specification leaves a choice, the driver follows Linux `fs/exfat` and exfatprogs. `docs/formats/exfat.md`
//! lists the facts, `docs/exfat.md` describes what the driver supports.
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
mod resize;
mod set;
mod super_block;
mod table;
mod tables;
mod time;
mod tune;
mod undelete;
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
