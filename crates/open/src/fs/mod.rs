//! The files of a volume, with the interface of `std::fs`.
//!
//! The functions that take a path are methods of [`Volume`](crate::Volume) with the names of their counterparts in
//! `std::fs`. They return [`File`], [`Metadata`] and [`ReadDir`]. [`OpenOptions`] opens files with other options.
//!
//! `extract` and `insert` of `obento::VolumeTrees` copy whole trees between a volume and the host.
//!
//! A path is a sequence of bytes: `"/etc/fstab"`, `b"/etc/fstab"` and the paths of a
//! [`Walk`](crate::walk::Walk) are all accepted. A path starts at the root directory, with or without a
//! leading slash.
//!
//! Every call has the permissions of root inside the image, and root owns the files that it creates. A
//! program that acts for another user uses [`Vfs`](obento_vfs::Vfs) with a [`Caller`](obento_vfs::Caller).
//!
//! A change is on stable storage after [`File::sync_all`], [`Volume::sync`](crate::Volume::sync) or
//! [`Volume::close`](crate::Volume::close). The format defines the state of later changes after a crash
//! ([`Crash`](obento_driver::Crash)). On a format with a journal such as ext4, each change is present in full
//! or not at all. A change is present only if all earlier changes are present. On a format without a journal
//! such as FAT, a part of a change may be present.
//!
//! Some calls make several changes, and a crash can separate these changes: a large write, `write`,
//! `create_dir_all`, `remove_dir_all`, `extract`, `insert`, `allocate` and `punch_hole`.
//!
//! ```
//! use std::io::{BufRead, BufReader, Write};
//! use obento::Volume;
//! use obento::fs::OpenOptions;
//!
//! let volume = Volume::in_memory();
//! volume.create_dir_all("/srv/www")?;
//! volume.write("/srv/www/index.html", "<h1>Hello</h1>\n")?;
//! let mut page = OpenOptions::new().append(true).open(&volume, "/srv/www/index.html")?;
//! writeln!(page, "<p>Second line</p>")?;
//! page.sync_all()?;
//!
//! let lines = BufReader::new(volume.open("/srv/www/index.html")?).lines();
//! assert_eq!(lines.map_while(Result::ok).last().as_deref(), Some("<p>Second line</p>"));
//! for entry in volume.read_dir("/srv")? {
//!     assert_eq!(entry?.file_name(), b"www");
//! }
//! volume.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod attributes;
mod error;
mod file;
mod metadata;
mod open;
mod paths;
mod read_dir;
#[cfg(test)]
mod tests;

pub use error::FsError;
pub use file::File;
pub use metadata::Metadata;
pub use open::OpenOptions;
pub use read_dir::{DirEntry, ReadDir};

/// The result type of this module.
pub type Result<T> = std::result::Result<T, FsError>;
