//! Code that the drivers of FAT and exFAT share: volumes of clusters, whose files have no inodes.
//!
//! - [`Chain`]: cluster chains as runs; [`Allocator`]: free clusters.
//! - [`Numbers`]: inode numbers that survive a move of the directory entry.
//! - [`Bits`]: sets of clusters; [`SparseTable`], [`Portions`]: tables that contain mostly zeros. Their memory depends
//!   on the used parts, not on the number of clusters that a volume declares.
//! - [`DirectoryOwners`]: the owners of directory clusters; [`MountState`]: the other state of a mounted volume.
//! - [`time`]: dates and times of 16 bits; [`utf16`]: names.
//! - [`sectors`]: writing sectors to the device; [`Waiting`]: changes that wait for a commit.
//! - [`mod@format`]: common steps of creating volumes; [`ops`]: operations on names.
//! - [`Locked`], [`InodeWrite`], [`DirWrite`]: a locked volume, and the views of it that a change requires.
//! - [`Mounted`]: the driver contract, and passing an open volume to another process.
//!
//! This crate contains no on-disk format: the drivers implement the traits of [`Volume`] for their tables and directory
//! entries.
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

mod age;
mod allocator;
mod bits;
mod chain;
mod contract;
mod directory_owners;
pub mod format;
mod guard;
mod handover;
mod inode;
pub mod inspect;
mod late;
mod mount_state;
mod numbers;
pub mod ops;
mod owner;
mod pieces;
mod portions;
mod promises;
mod reservations;
pub mod sectors;
mod table;
pub mod time;
mod trim;
pub mod undelete;
pub mod unit;
pub mod utf16;
mod volume;
mod waiting;
mod writable;

pub use allocator::Allocator;
pub use bits::{Bits, Runs};
pub use chain::{Chain, Entry, Links, Run};
pub use contract::Mounted;
pub use directory_owners::{DirectoryOwners, Placed, cut_at_return};
pub use guard::{DirWrite, InodeWrite, Locked};
pub use inode::{FileEntry, Inode, ROOT, Times};
pub use mount_state::MountState;
pub use numbers::Numbers;
pub use owner::Owner;
pub use pieces::{Piece, clusters_of, last_of, split};
pub use portions::{Portions, skip_zeros};
pub use reservations::{Reservation, Reservations};
pub use table::SparseTable;
pub use time::Zone;
pub use unit::{Cluster, Slot};
pub use volume::{At, Commit, Data, Entries, Grain, Listed, Location, Volume};
pub use waiting::{MARK, Waiting, links};
