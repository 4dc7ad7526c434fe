//! The layer above all drivers. It resolves paths, caches names, counts the uses of inodes, checks permissions,
//! orders renames, and transfers file data through the mappings of the driver.
//!
//! A [`Vfs`] is an open volume. A [`Node`] is a reference to an inode that is in use. The methods of a node check no
//! permissions. A program that acts for another user calls [`Vfs::resolve`], [`Vfs::open`] and the changing methods
//! of [`Vfs`] instead, which take a [`Caller`].
//!
//! A small append may be *gathered*: the write accepts the data and returns, and the data is passed to the driver
//! later. Gathered data is *lost* if the driver then cannot write it. In this case, the volume accepts no further
//! changes, and every sync returns the error.
//!
//! Invariant: an inode stays alive while a `Node`, an open [`File`] or the name cache refers to it. After the last
//! reference is dropped, the driver receives one `forget`. No new use of the inode number begins before `forget` has
//! returned.
//! Invariant: all changes of a volume are made through one `Vfs`. Otherwise, the name cache would be stale.
//!
//! Locking, outermost first. A thread holds each lock at most once at a time, except for the guards of directories:
//! 1. The rename lock, for a name that moves from one directory to another.
//! 2. The guards of inodes, in ascending order of inode numbers. A guard is shared for a lookup that misses the
//!    cache. It is exclusive for a change of the names of a directory, and for a write to a file.
//! 3. The gathered data of an inode, while it is passed to the driver.
//! 4. The layout lock of an inode. It is shared while data is transferred through a mapping, and exclusive while
//!    blocks are removed or moved.
//! 5. The locks inside the driver.
//! 6. Leaf locks: a shard of the inode table, a set of the name cache, and the list of gathering files. They are
//!    never held during a call to the driver.
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
mod places;
mod read;
mod space;
mod table;
mod vfs;
mod walk;
mod write;

pub use access::{AccessRequest, Caller};
pub use file::{File, OpenFlags};
pub use node::Node;
pub use read::Run;
pub use vfs::{Atime, Config, Vfs, WeakVfs};
pub use walk::{Last, Symlinks};
