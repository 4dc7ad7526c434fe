//! What the tests of every crate share: programs and mounts of the host as second opinions, trees to put into
//! images, images in every combination of features, and lists of entries that two sides can be compared by.
//!
//! A development dependency only: it may panic, and says why.

pub mod age;
pub mod btrfs;
pub mod changes;
pub mod conformance;
pub mod crash;
pub mod entries;
pub mod fault;
pub mod host_snapshot;
pub mod hosts;
pub mod image;
pub mod matrix;
pub mod model;
pub mod mutants;
pub mod null;
pub mod oracle;
pub mod outcome;
pub mod passed;
pub mod plan;
pub mod recipes;
pub mod record;
pub mod repairs;
pub mod second;
pub mod snapshot;
mod tar_stream;
pub mod tree;
pub mod trials;
pub mod walk;

pub use oracle::{Oracle, require};
