//! What the drivers of FAT and exFAT share: volumes of clusters, whose files have no inodes.
//!
//! Chains of clusters as runs ([`Chain`]), which clusters are free ([`Allocator`]), inode numbers that outlive a change of
//! place ([`Numbers`]), times in a date and a time of 16 bits ([`time`]), names in UTF-16 ([`utf16`]), and sectors on their way to
//! the device ([`sectors`]). It knows no format: what an entry of a table or a directory looks like is for the drivers to say.
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

mod allocator;
mod chain;
mod check;
mod numbers;
pub mod sectors;
pub mod time;
pub mod unit;
pub mod utf16;

pub use allocator::Allocator;
pub use chain::{Chain, Entry, Links, Run};
pub use check::Bits;
pub use numbers::Numbers;
pub use time::Zone;
pub use unit::{Cluster, Slot};
