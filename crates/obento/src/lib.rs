//! File systems as a library. This crate opens disk images, reads and changes them, and copies files in and
//! out. A program that uses the crate needs no root privileges and mounts nothing.
//!
//! ```no_run
//! use obento::prelude::*;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let volume = Image::open("disk.img.xz")?.volume(None)?;
//! for entry in volume.walk() {
//!     match entry {
//!         Ok(entry) => println!("{:>10} /{}", entry.attr.size, escaped(&entry.path)),
//!         // Damage affects only the file that it belongs to; the walk continues.
//!         Err(damage) => eprintln!("/{}: {}", escaped(&damage.path), damage.error),
//!     }
//! }
//! print!("{}", volume.read_to_string("/etc/fstab")?);
//! volume.extract("/etc", "copy-of-etc")?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Image`] opens or creates an image: a file or device that may be compressed, be a virtual disk, or
//! contain a partition table. [`Volume`] is an open file system. Its methods are named like the functions of `std::fs`.
//! [`Registry`] contains the drivers, and an application can add its own. [`prelude`] contains the types that
//! most programs use.
//!
//! | job | module |
//! |---|---|
//! | read and write files of a volume | [`mod@fs`], [`volume`], [`walk`] |
//! | open and create images, parse addresses such as `disk.img@2:/etc/passwd` | [`image`], [`address`], [`partition`] |
//! | copy and compare trees | [`mod@copy`], [`mod@export`], [`mod@import`], [`mod@diff`], [`remove`] |
//! | build and convert whole images | [`mod@build`], [`mod@convert`] |
//! | check, resize and tune a file system | [`mod@check`], [`resize`], [`mod@tune`] |
//! | print names, sizes and UUIDs | [`text`] |
//!
//! An application needs to depend on this crate only. The crate is a facade: `obento-open` opens images and volumes,
//! and `obento-trees` builds, copies and compares trees of files. The lower layers are the modules [`base`], [`block`],
//! [`driver`], [`env`](mod@env), [`host`] and [`vfs`].
//!
//! | feature | contents | default |
//! |---|---|---|
//! | `host` | images in files of the host, also compressed or virtual disks; building, copying, comparing trees | yes |
//! | `engine` | the kernel engine, which opens the types without a driver of obento; contains `host` | yes |
//!
//! Without these features, the crate opens volumes of devices that the application supplies
//! ([`Image::on_device`]), and builds for `wasm32-unknown-unknown`.

// These macros panic if the output is closed.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod prelude;

#[cfg(feature = "host")]
pub use obento_open::resize;
pub use obento_open::{
    address, check, image, partition, pattern, registry, remove, text, tune, volume, walk,
};
#[cfg(feature = "host")]
pub use obento_trees::{VolumeTrees, build, convert, copy, diff, export, import};

/// The files of a volume, with the interface of `std::fs`. The documentation of `obento_open::fs` contains the rules
/// and an example.
pub mod fs {
    #[doc(inline)]
    pub use obento_open::fs::*;
    #[cfg(feature = "host")]
    pub use obento_trees::TreeError;
}

/// Files, locks and processes of the host.
#[cfg(feature = "host")]
pub mod host {
    pub use obento_host::build::{AccessLimit, FolderAccess, FreshFile, Publish};
    pub use obento_host::compressed::{Progress as Unpacking, ReservedFile, UnpackError, UnpackLimits};
    pub use obento_host::io::IoBackend;
    pub use obento_host::lock::{ENDING, LockNotice, Purpose, ReplacedFile, User};
    pub use obento_host::qcow2::change::Snapshot;
    pub use obento_host::{
        CopiedEntries, FileId, HostDir, HostError, HostFile, PrivateDir, SelectionError, SystemErrno, base64,
        close_on_exec, open_existing_input, open_existing_output, open_input, open_output, reopen,
    };
    pub use obento_host::{interrupt, path_of_open, sandbox, source};
    pub use obento_trees::{free_name, take_place, unfinished_name};
}

/// Errors, inode numbers, names, modes and timestamps.
pub use obento_base as base;
/// Block devices and the cache.
pub use obento_block as block;
/// The contract between drivers and the layers above, for applications that add a driver.
pub use obento_driver as driver;
/// Clocks, random numbers and threads.
pub use obento_env as env;
/// The kernel engine, which opens file systems with a Linux kernel that runs as an ordinary process. The
/// module lists its types, the programs that create and check them, and the installed parts.
#[cfg(feature = "engine")]
pub use obento_linux as engine;
/// The provenance layer: records which process created, read and changed which file.
pub use obento_prov as provenance;
/// The file system in memory.
pub use obento_tmpfs as tmpfs;
/// Paths, permissions and open files on top of a driver.
pub use obento_vfs as vfs;

pub use obento_base::{Error, Result};
pub use obento_open::{Image, OpenError, Options, Registry, Volume};
pub use obento_vfs::Node;
