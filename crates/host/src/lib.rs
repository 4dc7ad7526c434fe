//! The Linux interface of obento: files and block devices as devices, compressed images, qcow2, tar archives, and
//! dropping privileges. Directory trees are written from hostile input or read as a source.
//!
//! Data from an image is hostile here too: an attacker chooses names, link targets, modes and sizes.
//! Therefore [`tree`] never passes the kernel a path with more than one component, and [`sandbox`] removes
//! privileges that a bug in a decoder could abuse.
//!
//! `unsafe` is used where a trait of another crate requires it. It is also used for features that `rustix` lacks: locks
//! of open files, mappings and their faults, rings, signals, and addresses that a
//! filter of system calls compares.

// These macros panic if the output is closed.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod base64;
pub mod build;
pub mod compressed;
pub mod container;
pub mod convert;
mod copied;
mod directory;
mod error;
pub mod file;
mod file_id;
mod guard;
mod handle;
mod hook;
mod inherited;
pub mod interrupt;
pub mod io;
pub mod lock;
mod meta;
mod owner;
mod private;
pub mod qcow2;
mod removal;
pub mod sandbox;
pub mod source;
pub mod tar;
pub mod tree;

pub use copied::CopiedEntries;
pub use directory::{HostDir, open_existing_input, open_existing_output, open_input, open_output, reopen};
pub use error::{HostError, PathText, SelectionError};
pub use file::{FileDevice, HostFile, path_of_open};
pub use file_id::FileId;
pub use inherited::close_on_exec;
pub use meta::{DataSink, Metadata, SinkError, Xattr};
pub use private::PrivateDir;
/// Error numbers of the system, for [`HostError::system`].
pub use rustix::io::Errno as SystemErrno;
