//! Code that drivers share if their format has a table of inodes, a bitmap of blocks and a log: everything except the
//! format.
//!
//! A driver defines how an inode is decoded, where the blocks of a file are and how a directory stores names. It does
//! so in the three traits [`Inodes`], [`Map`] and [`Directories`]. It gets an open volume that satisfies the whole
//! contract, including power cuts ([`Volume`]), a consistency check ([`census()`]), and most of its `mkfs`
//! ([`make()`]). The idea is that of Linux `fs/libfs.c` and its buffer heads, under one lock.
//!
//! Reading order: `format.rs` (the traits of a driver), `volume.rs` (locks, changes, commits), `op.rs` (one change),
//! `log.rs`. Then `names.rs` and `data.rs`, and `contract.rs` with `writable.rs`, which implement the contract.
//!
//! Invariant: edits of a change are invisible until the change is complete. A change that fails is therefore undone by
//! dropping it ([`obento_block::Edit`]), and the methods of a format may fail at any point.
//!
//! Limits: changes are serialised, and the log must have room for each commit. A driver that must change many files at
//! once, or whose journal is jbd2, uses `obento-journal` instead (ext4). A driver of a format without inodes uses
//! `obento-clusters` (FAT).
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
mod numbers;
mod op;
mod open;
mod volume;
mod writable;

pub use census::census;
pub use format::{Batch, Directories, Entry, Inodes, Map};
pub use geometry::Geometry;
pub use inode::{Inode, LockedInode};
pub use log::{LOG_MAGIC, RawLogHeader, log_max};
pub use make::make;
pub use op::{Bytes, Op};
pub use volume::Volume;
