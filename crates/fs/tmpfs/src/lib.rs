//! A file system in memory: the reference implementation of the contract, and a scratch space for tests.
//!
//! It supports all properties of POSIX files, writes nothing anywhere, and ends with its last owner. With a device in
//! [`Options`], file data is stored there instead of in memory. A writable driver then exercises both kinds of extents
//! (`Driver` and `Mapped`).
//!
//! Invariant: an inode is in the table from `create` until it has no name and `forget` was called.
//! Invariant: the link count of an inode is the number of entries that refer to it. A directory has one more for itself
//! and one for each subdirectory.
//! Locking, outermost first: the states of inodes, as a set in ascending order of their numbers. Then leaf locks: a
//! shard of the inode table, the free numbers, the free pages of the device.
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
#[cfg(test)]
extern crate std;

mod contract;
mod dir;
mod inode;
mod map;
mod names;
mod rename;
mod space;
mod volume;
mod xattr;

pub use volume::{Options, Tmpfs};
