//! A file system in memory: the second driver, which keeps the contract honest, and the scratch space of tests.
//!
//! It holds all that POSIX files have, writes nothing anywhere, and ends with its last owner. With a device in
//! [`Options`], the bytes of files live there instead of in memory, so that every way data can go (`Driver` and
//! `Mapped` spans) is walked by some driver that can write.
//!
//! Invariant: an inode is in the table from `create` until it has no name and `forget` came.
//! Invariant: the link count of an inode is the number of entries that name it; a directory has one more for itself
//! and one for each directory in it.
//! Locking, outermost first: the states of inodes, as a set in ascending order of their numbers; then leaves: a
//! shard of the inode table, the numbers that are free, the pages of the device that are free.
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
