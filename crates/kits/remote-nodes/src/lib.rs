//! The table of known files, for drivers whose files are on a server.
//!
//! A server names a file by a number or a handle that it returned before. A driver therefore stores each returned file
//! until the caller has no use for it. [`KnownFiles`] stores files by number and selects idle files to be forgotten.
//! [`ListedCount`] counts the entries of a listing, which on a hostile server may have no end.
//!
//! A file is in use from a lookup, or from [`KnownFiles::acquire`], until it is released. A listed file that the caller
//! does not use is idle. A directory is never idle, because `..` of its files needs it.
//!
//! Invariant: a file that is in use is never forgotten. Idle files take at most [`IDLE_BYTES`]: each driver asserts this
//! with [`idle_bytes`].
#![no_std]

extern crate alloc;

mod files;
mod listed;

pub use files::{COUNT_MAX, FoundBy, IDLE_BYTES, IDLE_MAX, IdleFile, KnownFile, KnownFiles, idle_bytes};
pub use listed::ListedCount;
