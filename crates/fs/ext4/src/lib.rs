//! The ext2, ext3 and ext4 driver.
//!
//! One decoder serves all three formats, which differ only in feature bits. [`raw`] structures, which mirror the
//! bytes, are decoded to checked types ([`SuperBlock`], [`Inode`]), never the other way round. [`Volume`] is the
//! mounted state that everything else uses, and `contract.rs` implements the driver contract.
//!
//! Reading order: `open.rs` (opening a volume), `volume.rs`, `inode/`, `map/`, `dir/`.
//!
//! Source of the format: Linux `Documentation/filesystems/ext4/`, `fs/ext4/ext4.h`, `fs/ext4/ext4_extents.h`;
//! e2fsprogs `lib/ext2fs/ext2_fs.h`. `docs/formats/ext4.md` describes what is supported and what is refused.
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

mod acl;
mod allocator;
mod batch;
mod build;
mod check;
mod checksum;
mod contract;
mod dir;
mod fast_commit;
mod feature;
mod format;
mod gate;
mod geometry;
mod group;
mod info;
mod inode;
mod inspect;
mod layout;
mod locate;
mod map;
mod open;
mod ops;
mod overlay;
mod quota;
mod ranges;
pub mod raw;
mod replay;
mod resize;
mod size;
mod super_block;
mod symlink;
mod tune;
mod undelete;
mod unit;
mod usage;
mod volume;
mod writable;
mod writer;
mod xattr;
mod zones;

pub use check::{Event as CheckEvent, Issue, check_volume, issues, reason};
pub use contract::Ext4;
pub use feature::{Compat, Incompat, RoCompat};
pub use inode::{Inode, InodeFlags};
pub use map::{Blocks, InlineData, MappedRun};
pub use open::{Ext4Driver, open_volume};
pub use size::{BlockSize, ClusterSize};
pub use super_block::SuperBlock;
pub use unit::{FileBlock, VolBlock};
pub use volume::Volume;
