//! What drivers share whose format has inodes in a table, a bitmap of blocks and a log: all but the format.
//!
//! A driver says how an inode is decoded, where the blocks of a file are and how a directory holds its names, by the three
//! traits of [`Inodes`], [`Map`] and [`Directories`]; it gets an open volume that keeps the whole contract, power cuts included
//! ([`Volume`]), the census that its check needs ([`census()`]), and most of its `mkfs` ([`make()`]). The idea is that of Linux
//! `fs/libfs.c` and its buffer heads, under one lock.
//!
//! Where to start reading: `format.rs` (what is asked of a driver), `volume.rs` (locks, changes, commits), `op.rs` (one
//! change), `log.rs`, then `names.rs` and `data.rs`, and `contract.rs` with `writable.rs`, which show it to the layers above.
//!
//! Invariant: what a change edits is seen by nobody until all of it is there, so that a change which fails is undone by
//! being dropped ([`obento_block::Edit`]): a format's methods may fail wherever they like.
//!
//! When not to use it: changes wait for each other, and one commit holds what fits into the log. A format that must change many
//! files at once, or whose journal is jbd2, goes by `obento-journal` (ext4); one without inodes by `obento-clusters` (FAT).
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

mod bitmap;
mod census;
mod contract;
mod data;
mod format;
mod geometry;
mod inode;
mod log;
mod make;
mod names;
mod op;
mod open;
mod volume;
mod writable;

pub use census::census;
pub use format::{Batch, Directories, Entry, Inodes, Map};
pub use geometry::Geometry;
pub use inode::Inode;
pub use log::{LOG_MAGIC, RawLogHeader, log_max};
pub use make::make;
pub use op::{Bytes, Op};
pub use volume::Volume;
