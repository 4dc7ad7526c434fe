//! The xv6 driver: a file system for learning, in the shape of MIT's xv6 and of xv6fs in Bento.
//!
//! It can be read in an hour and does what a file system must do. A crash loses nothing that was synced, a damaged
//! image causes no panic, and holes are holes. `docs/writing-a-driver.md` explains it step by step.
//!
//! Start with [`raw`] (the bytes), then `super_block.rs`. Then read the three traits that a format with inodes
//! implements: `inode.rs` (the inode), `map.rs` (the blocks of a file), `dir.rs` (names in directories). `open.rs`
//! contains the driver, `format.rs` creates volumes, `check.rs` checks them.
//!
//! [`obento_inodes`] contains everything that such formats share: one lock, atomic changes, the log, the bitmap, and
//! operations on names and attributes. It also contains the methods of the contract and the census of a check. Read it
//! next: it shows how a file system works, and this crate shows what it looks like on disk.
//!
//! `docs/formats/xv6.md` describes the layout and its sources.
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

mod check;
mod dir;
mod format;
mod inode;
mod map;
mod open;
pub mod raw;
mod super_block;

pub use open::Xv6Driver;
pub use super_block::SuperBlock;

/// An open volume.
pub type Volume = obento_inodes::Volume<SuperBlock>;

/// The code of that page, which runs with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/writing-a-driver.md")]
struct WritingADriver;
