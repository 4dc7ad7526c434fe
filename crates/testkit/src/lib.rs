//! Support for the tests of all crates: programs and kernel mounts as oracles, and trees for images. Also images with
//! every combination of features, and lists of entries for comparisons.
//!
//! This crate is only a development dependency. It may panic, with a message.

pub mod age;
pub mod btrfs;
pub mod changes;
pub mod conformance;
pub mod cost;
pub mod counting;
pub mod crash;
pub mod entries;
pub mod fault;
pub mod forgetful;
pub mod ganesha;
pub mod host_snapshot;
pub mod hosts;
pub mod image;
pub mod matrix;
pub mod model;
pub mod mutants;
pub mod null;
pub mod open_writes;
pub mod opening;
pub mod oracle;
pub mod outcome;
pub mod passed;
pub mod plan;
pub mod quota;
pub mod recipes;
pub mod record;
pub mod repairs;
pub mod scratch;
pub mod second;
pub mod signals;
pub mod snapshot;
mod tar_stream;
pub mod toy;
pub mod tree;
pub mod trials;
pub mod undelete;
pub mod vhdx;
pub mod walk;
pub mod write_log;

pub use oracle::{Oracle, require};
