//! Files of a volume as an application knows them from `std::fs`.
//!
//! The calls that take a path are methods of [`Volume`](crate::Volume), called as their counterparts in `std::fs`; [`File`], [`OpenOptions`],
//! [`Metadata`] and [`ReadDir`] are what they answer. A path is bytes, so `"/etc/fstab"`, `b"/etc/fstab"` and what a
//! [`Walk`](crate::Walk) says all serve; it starts at the root whether or not it begins with a slash. Everything is done as root would do it
//! in the image; whoever acts for somebody else uses [`Vfs`](crate::Vfs) with a [`Caller`](crate::Caller).
//!
//! What is written is on stable storage after [`File::sync_all`], [`Volume::sync`](crate::Volume::sync) or [`Volume::close`](crate::Volume::close). Each call is
//! there wholly or not at all after a crash, but for large writes, which are so a step at a time.
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

/// What the calls of this module answer.
pub type Result<T> = std::result::Result<T, FsError>;
