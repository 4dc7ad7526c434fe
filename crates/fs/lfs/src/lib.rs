//! The LFS driver: the log-structured file system of NetBSD. It reads and checks volumes; changing them is refused.
//!
//! A volume is a log of partial segments, and a checkpoint in the super block names the inode of the index file. That
//! file has the address of every inode (`volume.rs`). Partial segments after the checkpoint are replayed in memory
//! (`roll.rs`). `map.rs` finds blocks of files, `dir.rs` names, and `contract.rs` is the contract.
//!
//! Where to start reading: `raw.rs`, `super_block.rs`, `volume.rs`.
//!
//! Invariant: memory does not depend on the number of files, except for what was written after the checkpoint.
//! Invariant: a directory that a lookup returns has the searched directory as its parent.
//! Source of the format: NetBSD `sys/ufs/lfs/lfs.h` and `sys/ufs/lfs/lfs_rfw.c`. `docs/formats/lfs.md` has the facts,
//! `docs/lfs.md` what is supported.
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

mod check;
mod contract;
mod dir;
mod inode;
mod inspect;
mod map;
mod open;
mod raw;
mod roll;
mod super_block;
mod volume;

pub use check::Issue;
pub use open::LfsDriver;
