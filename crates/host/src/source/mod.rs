//! A directory tree of the host as a source, to compare with an image or to copy into one.
//!
//! Invariant: links are followed only with [`SymlinkPolicy::Follow`], and directories are opened one component at a
//! time. So the tree that is read is the one below the root, even if another process changes it meanwhile.
//! The file system bounds its depth, and not the length of a path. Entries are sorted by the bytes of their
//! names, and a directory comes before its contents, so that two trees can be read in parallel.

mod entry;
mod runs;
mod together;
mod walk;

pub(crate) use entry::xattrs_of;
pub use entry::{OpenEntry, SourceDir, SourceEntry, SymlinkPolicy};
pub use runs::{Run, Runs, SourceFile};
pub use together::{Step, WalkedSteps, WalkerPath, walk_together};
pub use walk::Walk;

#[cfg(test)]
mod tests;
