//! What the drivers of FAT and exFAT share: volumes of clusters, whose files have no inodes.
//!
//! Chains of clusters as runs ([`Chain`]), which clusters are free ([`Allocator`]), inode numbers that outlive a change of
//! place ([`Numbers`]), which clusters belong to directories ([`Known`]) and what else a mounted volume keeps ([`Kept`]), times in a date and a time of 16 bits ([`time`]), names in UTF-16 ([`utf16`]), sectors on their way to
//! the device ([`sectors`]), what making volumes has in common ([`mod@format`]), and the contract itself ([`Mounted`]) with what is done to names ([`ops`]), what waits for a commit ([`Waiting`]) and commits by age.
//! It knows no format: what an entry of a table or a directory looks like the drivers say, by the traits of [`Volume`].
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
mod chain;
mod check;
mod contract;
pub mod format;
mod inode;
pub mod inspect;
mod kept;
mod known;
mod numbers;
pub mod ops;
mod owner;
mod pieces;
mod promises;
pub mod sectors;
pub mod time;
mod trim;
pub mod unit;
pub mod utf16;
mod volume;
mod waiting;
mod writable;

pub use allocator::Allocator;
pub use chain::{Chain, Entry, Links, Run};
pub use check::Bits;
pub use contract::Mounted;
pub use inode::{FileEntry, Inode, ROOT, Times};
pub use kept::Kept;
pub use known::{Known, Placed, cut_at_return};
pub use numbers::Numbers;
pub use owner::Owner;
pub use pieces::{Piece, last_of, split};
pub use promises::{Promise, Promises};
pub use time::Zone;
pub use unit::{Cluster, Slot};
pub use volume::{At, Commit, Data, Entries, Grain, Listed, Location, Volume};
pub use waiting::{MARK, Waiting, links};
