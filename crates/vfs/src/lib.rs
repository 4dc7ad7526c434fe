//! The layer above all drivers. It resolves paths, caches names, counts the uses of inodes, checks permissions,
//! orders renames, and transfers file data through the mappings of the driver.
//!
//! A [`Vfs`] is an open volume. A [`Node`] is a reference to an inode that is in use. The methods of `Node`
//! check no permissions, except [`Node::access`]. A program that acts for another user calls the methods of `Vfs`
//! that take a [`Caller`], such as [`Vfs::resolve`] and [`Vfs::open`]. These methods check the permissions of the
//! caller. The *owner of the image* ([`Caller::Owner`]) has the rights of root.
//!
//! A small append may be *gathered*: the write stores the data in memory and returns, and `vfs` passes the
//! data to the driver later. Gathered data is *lost* if the driver then cannot write the data. In this case,
//! the volume accepts no further changes, every sync returns the error, and a read returns the file without
//! the lost data.
//!
//! Error lists follow the rules of [`obento_driver`]: a numbered list is in the order in which a method
//! checks the errors. In addition, every method that returns a `Result` can fail with the errors that
//! `obento_driver` lists for all methods, such as `Stale`, `Corrupt` and `Device`. If a change first passes
//! the gathered data of the file to the driver, the change can also fail with the error of that write. A method that
//! creates or moves a name can also fail with `Busy`, as [`Node::lookup`] does. After a failed change, the volume is
//! in the state that the method of the driver documents, unless the method of `vfs` documents another state.
//!
//! Invariant: an inode stays in use while a `Node`, an open [`File`] or the name cache refers to it. After the last
//! reference is dropped, `vfs` calls `forget` of the driver once. No new use of the inode number begins before `forget`
//! has returned.
//! Invariant: all changes of a volume are made through one `Vfs` and its clones. Otherwise, the name cache
//! would be stale.
//!
//! Locking, in the order of acquisition. A thread holds at most one lock of each kind at a time, with two exceptions:
//! it may hold the guards of two directories, and it may lock the handle of the gathering thread while it holds the
//! lock of the list of gathering files.
//! 1. The rename lock, for a name that moves from one directory to another.
//! 2. The guards of inodes, in ascending order of inode numbers. A lookup that misses the cache holds the guard of its
//!    directory shared. A change of the names of a directory, of the data of a file or of attributes holds the guard
//!    exclusively. These changes hold no guard of the inode: an update of the access time; the access control list
//!    that a new inode inherits; a write of gathered data because of a read, a sync or the age of the data.
//! 3. The lock of the gathered data of an inode, while a thread gathers data or passes the data to the
//!    driver.
//! 4. The layout lock of an inode. A thread holds this lock shared while it transfers data through a mapping, and
//!    exclusively while the driver sets the size, or removes or moves blocks.
//! 5. The locks inside the driver.
//! 6. Leaf locks. No thread calls the driver while it holds a leaf lock. A leaf lock protects one of these:
//!    - a shard of the inode table;
//!    - a set of the name cache;
//!    - the stored locations of a file;
//!    - a stripe of the volume;
//!    - the list of gathering files;
//!    - the handle of the gathering thread.
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
mod caller;
mod change;
mod file;
mod files;
mod gather;
mod gathered;
mod names;
mod node;
mod places;
mod read;
mod space;
mod table;
mod vfs;
mod walk;
mod write;

pub use caller::{AccessRequest, Caller};
pub use file::{File, OpenFlags};
pub use node::Node;
pub use read::Run;
pub use vfs::{Atime, Config, Vfs, WeakVfs};
pub use walk::{Last, Symlinks};
