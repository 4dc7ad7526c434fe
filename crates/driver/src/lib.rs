//! The contract between file systems and the layers above them. This documentation is the specification;
//! the conformance cases are named after its sentences.
//!
//! A *driver* supports one format. It implements [`Driver`] (recognise and open a volume), [`FileSystem`]
//! (an open volume), and the capabilities that its format has: [`Build`], [`Check`], [`Format`],
//! [`WritableFileSystem`], [`Xattrs`], [`Nameless`], [`Bulk`], [`Trim`], [`Inspect`]. Each capability has
//! an accessor that returns an `Option`, so that a missing capability is visible in the type.
//!
//! - Files are identified by inode number, never by path. Names are [`Name`](obento_base::Name)s. Paths
//!   exist in `obento-vfs` and above.
//! - Methods are synchronous and take `&self`; implementations are `Send + Sync`. A driver locks
//!   internally, and the host owns the threads. Two operations on different files run in parallel.
//! - A driver returns the location of file data ([`FileSystem::map`]); the layer above reads and writes it.
//! - Each method lists its errors in the order in which they are checked. In addition, every method can
//!   fail with `Corrupt` or `Device` if the volume is damaged, with `Unsupported` if the inode uses a
//!   feature that the driver lacks, and with `NoMemory`.
//! - Damage affects the files that contain it, never the whole volume. For any contents of the device, no
//!   method panics, hangs, or allocates more than its budget.
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
    Access, Checksums, DataMode, Driver, Evidence, Fact, Journalling, Notice, OpenOptions, Probe, Replay,
    Shown, VolumeInfo,
};
pub use tree::{NodeId, Tree, TreeBuilder};
pub use writable::{
    AskUsage, INHERITED, NewNode, RenameFlags, SetAttr, Size, TimeChange, Usage, Victim, WritableFileSystem,
    XattrMode,
};
