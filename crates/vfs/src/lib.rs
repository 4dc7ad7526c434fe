//! What every file system needs above its driver, written once: path walk, name cache, life of inodes, permissions,
//! order of renames, and file I/O through the driver's mappings.
//!
//! A [`Vfs`] is one open volume; a [`Node`] is one inode of it that is in use. Nodes are asked directly and without
//! permission checks; whoever acts for somebody else goes through [`Vfs::resolve`], [`Vfs::open`] and the changing
//! methods of [`Vfs`], which take a [`Caller`].
//!
//! Invariant: an inode lives while a `Node`, an open [`File`] or the name cache holds it. When the last of them goes,
//! the driver is told once by `forget`, and no new use of that number begins before `forget` came back.
//! Invariant: all changes of a volume pass through one `Vfs`, or the name cache would tell of the past.
//!
//! Locking, outermost first; each is taken at most once at a time but the directory guards:
//! 1. the rename lock: a name that moves from one directory to another;
//! 2. guards of inodes, in ascending order of inode numbers: shared to look a name up on a cache miss, exclusive to
//!    change the names of a directory or to write to a file;
//! 3. what one inode gathers, while it goes out;
//! 4. the layout lock of one inode: shared while bytes move through a mapping, exclusive to take blocks away;
//! 5. what a driver locks inside itself;
//! 6. leaves, never held while a driver is called: one shard of the inode table, one set of the name cache, the list of
//!    what is gathered.
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
