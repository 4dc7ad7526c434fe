//! The contract between a file system and everything above it. This documentation is the specification: the
//! conformance cases are named after its sentences.
//!
//! A *driver* knows one format. It implements [`Driver`] (recognise and open a volume) and [`FileSystem`] (an open
//! volume), and those capabilities that its format has: [`Build`], [`Check`], [`Format`], [`WritableFileSystem`], [`Xattrs`], [`Nameless`], [`Bulk`], [`Trim`], [`Inspect`]. A capability
//! is asked for by its accessor, so that what is missing shows in the type.
//!
//! - Inode numbers, never paths; names are [`Name`](obento_base::Name)s. Paths exist in `obento-vfs` and above.
//! - Synchronous, `&self`, `Send + Sync`: a driver locks inside itself, hosts own threads. Two operations on
//!   different files run in parallel.
//! - A driver says where bytes live ([`FileSystem::map`]); the layer above moves them.
//! - Every method lists its errors in the order in which they are tested. Any method can also answer `Corrupt` and
//!   `Device` when the volume is damaged, `Unsupported` when the inode uses what the driver lacks, and `NoMemory`.
//! - A damaged part costs the files it belongs to, never the volume; no method panics, hangs, or allocates more than
//!   its budget, whatever the bytes.
#![no_std]
#![cfg_attr(
    not(test),
    warn(
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic
    )
)]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

mod build;
mod capability;
mod check;
mod data;
mod entry;
mod file_system;
mod format;
mod inspect;
mod issues;
mod layout;
mod open;
pub mod record;
pub mod tree;
mod writable;

pub use build::{Build, BuildError, BuildOptions, BuildPlan, Receive, Room, Unfit};
pub use capability::{Bulk, NEW_FILE_MAX, Nameless, NewFile, Trim, Xattrs};
pub use check::{
    Check, CheckObserver, CheckOptions, CheckProgress, CheckReport, Finding, Mending, Severity, ToField,
};
pub use data::{Extent, Span};
pub use entry::{Cookie, DirEntry, EntrySink};
pub use file_system::{Crash, FileSystem, Keeps, Limits, StatFs};
pub use format::{Allowed, Contents, Format, FormatError, FormatNotice, FormatOptions, Formatted, Setting};
pub use inspect::{Field, FieldValue, Inspect, Record, Spot, Target};
pub use layout::{ExclusiveLayout, Layout, LayoutLock};
pub use open::{
    Access, DataMode, Driver, Fact, Journalling, Notice, OpenOptions, Probe, Replay, Shown, VolumeInfo,
};
pub use tree::{NodeId, Tree, TreeBuilder};
pub use writable::{
    AskUsage, INHERITED, NewNode, RenameFlags, SetAttr, Size, TimeChange, Usage, Victim, WritableFileSystem,
    XattrMode,
};
