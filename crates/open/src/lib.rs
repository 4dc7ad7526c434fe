//! Opens disk images, and the files of the volumes in them. The crate `obento` contains this crate, and its
//! documentation describes both.
//!
//! - [`address`] parses `IMAGE@PART:/PATH`.
//! - [`image`] decodes the layers of an image, finds its partitions, and selects a driver of the [`registry`].
//! - [`partition`] reads and changes partition tables.
//! - [`pattern`] matches names with the patterns of a shell.
//! - [`volume`] and [`mod@fs`] are an open file system with the interface of `std::fs`. [`walk`] and [`remove`] visit
//!   and remove its trees.
//! - [`mod@check`], [`mod@tune`] and `resize` check and change a whole volume.
//!
//! Without the feature `host`, an image is a device that the caller supplies ([`Image::on_device`]), and it has no
//! layers. The crate then needs no operating system that has files: it builds for `wasm32-unknown-unknown`. Without the
//! feature `engine`, the registry contains only the drivers of obento.

// These macros panic if the output is closed.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod address;
pub mod check;
mod finding_paths;
#[cfg(feature = "host")]
mod format_target;
pub mod fs;
mod history_check;
pub mod image;
mod os_text;
pub mod partition;
pub mod pattern;
pub mod registry;
pub mod remove;
#[cfg(feature = "host")]
pub mod resize;
pub mod text;
#[cfg(test)]
mod toy;
pub mod tune;
pub mod volume;
pub mod walk;

pub use image::{Image, OpenError, Options};
pub use registry::Registry;
pub use volume::Volume;
