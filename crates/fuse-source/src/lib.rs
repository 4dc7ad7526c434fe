//! FUSE servers as file systems: `sshfs`, `squashfuse` and others, without a mount, without root, and without `/dev/fuse`.
//!
//! obento is the kernel's side of the protocol. The server gets its connection as `/dev/fd/0`, a socket in place of its
//! standard input. libfuse 3.3 and later accept such a path as a mount point. Servers of libfuse 2 and of Go run
//! `fusermount` instead: `folder` prepares for them that they find `helper` under this name. `wire` has the structures,
//! `connection` one request and its reply, `server` the process, `nodes` the known inodes, and `open_files` the open
//! files. `idle` evicts inodes that are not in use. `contract` implements the contract for reading, `listing` for
//! directories, `change` and `write` for changes, and `xattrs` for extended attributes.
//!
//! The server is not trusted. Every request has a deadline. A server gets no further requests after it misses a
//! deadline, ends, or sends an invalid reply: each later call fails at once.
//! Source of the protocol: Linux include/uapi/linux/fuse.h, protocol 7.36; fs/fuse for what is sent when.

// These macros panic if the output is closed.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod change;
mod connection;
mod contract;
mod error;
mod folder;
mod helper;
mod idle;
mod listing;
mod nodes;
mod open_files;
mod server;
mod wire;
mod write;
mod xattrs;

pub use helper::mount_helper;
pub use server::{FuseServer, StartError, connect};
