//! A directory tree of the host as a source: to compare with an image, to copy into one.
//!
//! Invariant: links are not followed unless that is asked for ([`Links::Follow`]), and directories are opened one component at a time, so that the tree that is read
//! is the one below the root, whoever changes it meanwhile; and its depth is bounded by the file system, not by the
//! length of a path.
//! Entries come in the order of their names' bytes, a directory before what is in it, so that two trees can be read
//! side by side.

mod entry;
mod runs;
mod together;
mod walk;

pub(crate) use entry::xattrs_of;
pub use entry::{Links, OpenEntry, SourceDir, SourceEntry};
pub use runs::{Run, Runs, SourceFile};
pub use together::{Piece, Step, Way, walk_together};
pub use walk::Walk;

#[cfg(test)]
mod tests;
