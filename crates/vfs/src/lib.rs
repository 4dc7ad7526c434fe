//! The layer above all drivers: path walk, name cache, life cycle of inodes, permissions, ordering of
//! renames, and file I/O through the mappings of the driver.
//!
//! A [`Vfs`] is an open volume. A [`Node`] is an inode of it that is in use. Methods of a node check no
//! permissions. A caller that acts for another user uses [`Vfs::resolve`], [`Vfs::open`] and the changing
//! methods of [`Vfs`], which take a [`Caller`].
//!
//! Invariant: an inode stays alive while a `Node`, an open [`File`] or the name cache refers to it. After
//! the last reference is dropped, the driver receives one `forget`, and no new use of the inode number
//! begins before `forget` has returned.
//! Invariant: all changes of a volume go through one `Vfs`; otherwise the name cache would be stale.
//!
//! Locking, outermost first. Each lock is held at most once at a time, except for the guards of
//! directories:
//! 1. The rename lock, for a name that moves from one directory to another.
//! 2. The guards of inodes, in ascending order of inode numbers: shared for a lookup that misses the cache,
//!    exclusive for a change of the names of a directory and for a write to a file.
//! 3. The gathered data of an inode, while it is written out.
//! 4. The layout lock of an inode: shared while data is transferred through a mapping, exclusive for
//!    removing blocks.
//! 5. The locks inside the driver.
//! 6. Leaf locks, never held during a call to the driver: a shard of the inode table, a set of the name
//!    cache, the list of gathering files.
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

mod access;
pub mod acl;
mod attributes;
mod change;
mod file;
mod files;
mod gather;
mod names;
mod node;
mod read;
mod space;
mod table;
mod vfs;
mod walk;
mod write;

pub use access::{Caller, Want};
pub use file::{File, Handle, Handles, OpenFlags};
pub use node::Node;
pub use read::Run;
pub use vfs::{Atime, Config, Vfs, WeakVfs};
pub use walk::{Last, Symlinks};
