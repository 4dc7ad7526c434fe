//! The xv6 driver: a file system to learn from, in the shape of MIT's xv6 and of Bento's xv6fs.
//!
//! It is small enough to be read in an hour and does what a file system must: a crash loses nothing that was
//! synced, a damaged image panics nobody, holes are holes. `docs/writing-a-driver.md` walks through it.
//!
//! Where to start reading: [`raw`] (the bytes), `super_block.rs`, then the three traits that a format with inodes implements:
//! `inode.rs` (what an inode says), `map.rs` (where the blocks of a file are), `dir.rs` (names in directories). `open.rs` is the
//! driver, `format.rs` makes volumes, `check.rs` checks them.
//!
//! What is the same for every such format is [`obento_inodes`]: one lock, changes that are there wholly or not at all, the log,
//! the bitmap, what is done to names and attributes, the contract's methods, and the census of a check. Read it next: it is
//! how a file system works; this crate is what one looks like on the disk.
//!
//! `docs/formats/xv6.md` tells the layout and its sources.
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

/// The code of that page, which runs with the documentation's tests.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/writing-a-driver.md")]
struct WritingADriver;
