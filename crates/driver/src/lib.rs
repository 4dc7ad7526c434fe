//! The contract between file systems and the layers above them. This documentation is the specification;
//! the conformance cases are named after its sentences.
//!
//! A *driver* supports one format. It implements two traits: [`Driver`] recognises and opens volumes, and
//! [`FileSystem`] is an open volume. A format may have further capabilities. Each capability is a trait:
//!
//! - of the format: [`Format`], [`Build`], [`Check`], [`Resize`], [`Tune`], [`Undelete`];
//! - of an open volume: [`WritableFileSystem`], [`Xattrs`], [`Nameless`], [`Whiteouts`], [`Relabel`], [`Bulk`],
//!   [`Trim`], [`Handover`], [`Failover`], [`Inspect`].
//!
//! For each capability, `Driver` or `FileSystem` has a method that returns an `Option`: `None` if the format
//! or the volume lacks the capability. A capability may be incomplete: a method may fail with `NotSupported` if its
//! documentation lists this error.
//!
//! These rules apply to all methods:
//!
//! - Files are identified by inode number, never by path. Names are [`Name`](obento_base::Name)s. Paths exist in
//!   `obento-vfs` and above.
//! - Methods are synchronous and take `&self`; implementations are `Send + Sync`. A driver locks internally,
//!   so any thread may call any method at any time. The caller has the duties that [`LayoutLock`] and
//!   [`WritableFileSystem`] list. A driver starts threads only through `obento_env`.
//! - A driver returns the location of file data ([`FileSystem::map`]). The layer above reads and writes the
//!   data.
//! - The caller keeps track of the inodes that it uses; the driver does not. The use of an inode starts with the first
//!   of these calls:
//!   - `lookup`, `create` or `create_nameless`, if the call returns the inode;
//!   - any call to which the caller passes the number of the inode.
//!
//!   The use ends with the last call, other than [`FileSystem::forget`], to which the caller passes the number. The
//!   inode is *in use* from the start to the end of its use. Afterwards, the caller calls `forget` once. `root`,
//!   `parent` and the entries of a listing return inode numbers, but start no use. The caller passes the number of an
//!   entry to [`FileSystem::acquire`] before any other call.
//! - A driver frees an inode only if the inode has no name, and only in these calls
//!   ([`remove`](WritableFileSystem::remove) lists exceptions):
//!   - `forget`;
//!   - [`remove`](WritableFileSystem::remove) of an inode that is not in use;
//!   - [`close`](WritableFileSystem::close);
//!   - opening the volume for writing.
//! - An error list names the variants and constants of [`Error`](obento_base::Error). `ReadOnly` is
//!   `Error::ReadOnly`, and `Device` is any `Error::Device`. An error of
//!   [`DeviceError`](obento_base::DeviceError) has the prefix `DeviceError::`.
//! - A method checks the errors of a numbered list in the order of the list. If several errors apply, the
//!   method returns the first one in the list. A list with dashes has no order.
//! - In addition, every method that returns a `Result` can fail with:
//!   - `Stale`, if the volume contains no inode with the passed number. A method that changes names may
//!     return `NotFound` instead;
//!   - `Corrupt`, if the volume is damaged;
//!   - `Device`, if the device fails (any variant of `Error::Device`);
//!   - `Unsupported`, if the inode uses a feature that the driver does not support;
//!   - `NoMemory`, if memory is exhausted.
//! - Damage on an open volume affects only the files that contain the damage. Exception: a volume can require
//!   that the driver rejects all changes after the driver has found damage (`errors=remount-ro` of ext4).
//! - For any contents of the device, no method panics or hangs, and the open volume does not use more memory
//!   than its budget. The budget is [`OpenOptions::cache`] plus fixed limits of the driver.
//!
//! The driver `tmpfs` (`obento-tmpfs`) is the reference implementation. It supports every property of a POSIX file
//! system, since it has no on-disk format that could restrict it.
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
mod erase;
mod file_system;
mod format;
mod handover;
pub mod history;
mod inspect;
mod issues;
mod layout;
mod open;
mod probe;
pub mod record;
mod resize;
mod rounds;
pub mod tree;
mod tune;
mod undelete;
mod writable;
mod write;

pub use build::{Build, BuildError, BuildOptions, BuildPlan, FileBytes, FreeSpace, Receive, Unfit};
pub use capability::{
    Bulk, Failover, Handover, NEW_FILE_MAX, Nameless, NewFile, Relabel, Trim, Whiteouts, Xattrs, whole_units,
};
pub use check::{
    Check, CheckObserver, CheckOptions, CheckProgress, CheckReport, Finding, RepairMode, Severity, ToField,
    about_inode, escaped_name,
};
pub use data::{Extent, Span};
pub use entry::{Cookie, DirEntry, EntrySink};
pub use erase::erase_signatures;
pub use file_system::{Crash, FileSystem, Limits, StatFs, StoredProperties};
pub use format::{Allowed, Contents, Format, FormatError, FormatNotice, FormatOptions, Formatted, Setting};
pub use handover::VolumeState;
pub use inspect::{ByteUse, Field, FieldValue, Inspect, Record, Target, for_commands, inspectable};
pub use layout::{ExclusiveLayout, Layout, LayoutLock};
pub use open::{
    Access, Checksums, DataMode, Driver, Fact, HandoverState, Journalling, Notice, OpenOptions, QuotaLimits,
    Replay, VolumeInfo, VolumeOptions,
};
pub use probe::{Decoded, Evidence, Probe};
pub use resize::{
    Resize, ResizeError, ResizeObserver, ResizeOptions, ResizePlan, ResizeRefusal, ResizeResult,
};
pub use rounds::{CheckEvent, CheckIssue, CheckRound, FoundIssue, check_in_rounds, issues_of};
pub use tree::{NodeId, Tree, TreeBuilder};
pub use tune::{Tune, TuneError, TuneOptions};
pub use undelete::{Certainty, DeletedFile, Undelete, Unsearched, UnsearchedReason};
pub use writable::{
    AskUsage, INHERITED, NewNode, RemovalKind, RenameFlags, SetAttr, Size, TimeChange, Usage,
    WritableFileSystem, XattrMode,
};
pub use write::{Reserves, WritePlace, WriteTicket};
