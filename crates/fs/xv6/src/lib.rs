//! The xv6 driver: a file system to learn from, in the shape of MIT's xv6 and of Bento's xv6fs.
//!
//! It is small enough to be read in an afternoon and does what a file system must: a crash loses nothing that was
//! synced, a damaged image panics nobody, holes are holes. `docs/writing-a-driver.md` walks through it.
//!
//! Where to start reading: [`raw`] (the bytes), `volume.rs` (locks, changes, commits), `op.rs` (one change), `log.rs`,
//! then `inode.rs`, `map.rs`, `dir.rs`, `ops.rs`, and `contract.rs`, which shows it all to the layers above.
//!
//! Invariant: what a change edits is seen by nobody until all of it is there, so that a change which fails is undone by
//! being dropped ([`obento_block::Edit`]).
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
mod contract;
mod dir;
mod format;
mod inode;
mod log;
mod map;
mod op;
mod open;
mod ops;
pub mod raw;
mod super_block;
mod volume;

pub use open::Xv6Driver;
pub use super_block::SuperBlock;
pub use volume::Volume;

/// The code of that page, which runs with the documentation's tests.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/writing-a-driver.md")]
struct WritingADriver;
