//! File systems as a library. This crate opens disk images, reads and changes them, and copies files in and out. It
//! needs neither root privileges nor mounting.
//!
//! An application needs to depend on this crate only. It re-exports the types of the lower layers that its interface
//! uses.
//!
//! - [`Operand`] and [`Address`] parse the address syntax, `disk.img@2:/etc/passwd`.
//! - [`Image`] opens an image file or device: compressed and qcow2 images, partition tables, file systems.
//! - [`Volume`] is an open file system, with paths, patterns and names of owners. [`Node`] is one of its
//!   files.
//! - [`mod@fs`] offers the calls of `std::fs`: [`Volume::read`], [`Volume::write`], [`fs::File`].
//! - [`Walk`] iterates over a tree. [`copy_out`] copies a tree to the host and [`copy_in`] copies one into an
//!   image. [`export()`] writes a tree as a tar archive and [`import()`] unpacks an archive into an image.
//!   [`diff()`] compares two trees.
//! - [`check()`] finds the errors of a volume and repairs them.
//! - [`Registry`] holds the drivers. An application can add its own.
//! - [`prelude`] contains the types that most programs use.
//!
//! ```no_run
//! use obento::{Image, Options, Registry, Walk};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let image = Image::open("disk.img.xz".as_ref(), &Registry::default(), &Options::default())?;
//! for entry in Walk::new(image.volume(None)?.root()) {
//!     match entry {
//!         Ok(entry) => println!("{:>10} /{}", entry.attr.size, obento::escaped(&entry.path)),
//!         // Damage affects only the file that it belongs to; the walk continues.
//!         Err(damage) => eprintln!("/{}: {}", obento::escaped(&damage.path), damage.error),
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod acls;
mod address;
mod backup;
mod build;
mod check;
mod convert;
mod copy;
mod data;
mod diff;
mod export;
mod finding_paths;
mod format_target;
pub mod fs;
mod image;
mod import;
pub mod partition;
pub mod prelude;
mod registry;
mod remove;
mod resize;
mod shortage;
mod text;
#[cfg(test)]
mod toy;
mod tune;
mod unfinished;
mod volume;
mod walk;
mod xattrs;

pub use obento_base::{
    Attr, Corrupt, DeviceError, DeviceNumber, Errno, Error, Feature, FileFlags, FileKind, Generation, Ino,
    Mode, Name, NameBuf, NameError, Refusal, Result, Structure, Timestamp, is_printable, is_printable_after,
};
pub use obento_block::{Block, BlockDevice, BlockImage, Cache, Handoff, MemDevice, RedoLog};
/// The contract between drivers and the layers above, for applications that add a driver.
pub use obento_driver as driver;
pub use obento_driver::FreeSpace;
pub use obento_driver::{
    Access, ByteUse, Certainty, CheckObserver, CheckOptions, CheckProgress, CheckReport, Checksums, Contents,
    Cookie, DataMode, DeletedFile, DirEntry, Driver, Extent, Fact, Field, FieldValue, FileSystem, Finding,
    Format, FormatError, FormatNotice, FormatOptions, Formatted, Inspect, Journalling, Limits, NewNode,
    Notice, Probe, Record, RenameFlags, RepairMode, Replay, ResizeError, ResizeOptions, ResizePlan,
    ResizeRefusal, SetAttr, Severity, Size, Span, StatFs, StoredProperties, Target, TimeChange, TuneError,
    TuneOptions, Undelete, VolumeInfo, VolumeOptions, XattrMode,
};
pub use obento_env::{Clock, FixedClock, FixedRandom, Random, SystemClock, SystemRandom};
pub use obento_host::base64;
pub use obento_host::build::Publish;
pub use obento_host::compressed::{Progress as Unpacking, UnpackError, UnpackLimits};
pub use obento_host::io::IoBackend;
pub use obento_host::lock::{ENDING, LockNotice, Purpose, User};
pub use obento_host::qcow2::change::Snapshot;
pub use obento_host::{FileId, HostDir, open_output, reopen};
pub use obento_host::{interrupt, path_of_open, sandbox, source};
/// The kernel engine, which opens file systems with a Linux kernel in a virtual machine. The module lists its types,
/// the programs that create and check them, and the installed parts.
pub use obento_linux as engine;
/// The provenance layer: records which process created, read and changed which file.
pub use obento_prov as provenance;
pub use obento_tmpfs as tmpfs;
pub use obento_vfs::{AccessRequest, Atime, Caller, Node, Run, Symlinks, Vfs, acl};

pub use address::{
    Address, AddressError, FileSelector, HostEntry, Operand, PartSelector, server_of, snapshot_of,
};
pub use backup::take_place;
pub use build::{
    Blob, BuildFailure, BuildReport, BuildSettings, BuildSource, ChangeMode, DiskReport, DiskSettings,
    EmptyMaker, FillReport, IdMap, Input, MakeEmpty, Owner, PartitionContent, PartitionReport,
    PartitionSettings, PartitionSize, Pipes, SourceProblem, build, build_disk, build_disk_verified,
    build_filled, build_verified,
};
pub use check::{CheckError, check};
pub use convert::{
    BACKING_NAME_MAX, Backing, ConvertError, ConvertFailure, ConvertFormat, ConvertOptions, ConvertStep,
    Converted, Qcow2Version, Stream, convert, convert_target, create_overlay,
};
pub use copy::{
    Backup, CopyError, CopyFrom, CopyOptions, CopyReport, CopySource, Existing, HardLinks, Holes, HostError,
    HostTarget, ImageTarget, Keep, Loss, Lost, NewMode, Observer, Problem, ProblemReason, Progress, Quiet,
    TargetIs, TreeOptions, Trust, WriteReport, copy_from_reader, copy_in, copy_out, copy_out_to,
    copy_to_writer, read_full,
};
pub use data::Unread;
pub use diff::{
    ByteDifference, BytePlace, Change, DiffOptions, DiffReport, DiffSide, DiffSink, Difference, diff,
    diff_bytes, place_of,
};
pub use export::{ExportOptions, ExportReport, export};
pub use format_target::FormatTarget;
pub use image::{
    Candidate, DataDescription, FallbackOutcome, Image, ImageFile, ImageNotice, Locking, OpenError, Options,
    PartitionChoice, PartitionContents, Recording, Writing,
};
pub use import::{ImportOptions, ImportReport, MemberProblem, import};
pub use registry::{Engine, Registry};
pub use remove::{Removal, RemoveObserver, remove_children, remove_tree};
pub use resize::{NewSize, PlannedResize, ResizeFailure, plan_resize};
pub use shortage::Shortage;
pub use text::{Escaped, escaped, human_size, probe_id_text, uuid_text, volume_id_text};
pub use tune::{TuneFailure, tune};
pub use unfinished::{free_name, unfinished_name};
pub use volume::{GlobError, Owners, Volume, is_pattern, matches};
pub use walk::{Damage, Entry, Order, Step, Walk};
