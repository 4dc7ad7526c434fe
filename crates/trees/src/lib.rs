//! Moves trees: copies them between volumes and the host, imports and exports archives, compares, and builds images.
//! The crate `obento` contains this crate, and its documentation describes both.
//!
//! - [`mod@copy`] copies in and out as cp(1) does, and [`VolumeTrees`] adds the short forms to a volume.
//! - [`mod@import`] and [`mod@export`] read and write tar archives.
//! - [`mod@diff`] compares trees.
//! - [`mod@build`] builds images, and [`mod@convert`] changes their format.
//!
//! `copy::tree_sink` is the one interface through which copies, imports, and builds that fill a volume write a tree.

// These macros panic if the output is closed.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod acls;
mod backup;
pub mod build;
pub mod convert;
pub mod copy;
mod data;
pub mod diff;
pub mod export;
pub mod import;
mod shortage;
#[cfg(test)]
mod toy;
mod unfinished;
mod volume_trees;
mod xattrs;

pub use backup::take_place;
pub use unfinished::{free_name, unfinished_name};
pub use volume_trees::{TreeError, VolumeTrees};
