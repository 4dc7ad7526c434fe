//! Everything that is Linux rather than obento: files and block devices as devices, compressed images, qcow2, directory
//! trees that are written from hostile input or read as a source, tar archives, and giving up rights.
//!
//! What comes from an image is hostile here too: names, link targets, modes and sizes are what an attacker chose.
//! [`tree`] therefore never hands the kernel a path with more than one component, and [`sandbox`] takes away what a
//! bug in a decoder could use.
//!
//! `unsafe` stands where a trait of another crate asks for it, and for what `rustix` lacks: locks of open files, mappings and
//! their faults, rings, signals.

pub mod base64;
pub mod build;
pub mod compressed;
mod directory;
mod error;
pub mod file;
mod guard;
pub mod interrupt;
pub mod io;
pub mod lock;
mod meta;
pub mod qcow2;
pub mod sandbox;
pub mod source;
pub mod tar;
pub mod tree;

pub use directory::{HostDir, open_output, reopen};
pub use error::{HostError, PathText};
pub use file::{FileDevice, FileId, HostFile, path_of_open};
pub use meta::{DataSink, Metadata, SinkError, Xattr};
/// Error numbers of the system, as [`HostError::system`] takes them.
pub use rustix::io::Errno as SystemErrno;
