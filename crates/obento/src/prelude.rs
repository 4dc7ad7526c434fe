//! The types that most programs use: `use obento::prelude::*`.
//!
//! ```
//! use obento::prelude::*;
//!
//! let volume = Volume::in_memory();
//! volume.create_dir("/etc")?;
//! volume.write("/etc/issue", "obento\n")?;
//! let sizes: Vec<u64> = volume.walk("/etc")?.filter_map(Result::ok).map(|entry| entry.attr.size).collect();
//! assert!(sizes.contains(&7));
//! # Ok::<(), obento::fs::FsError>(())
//! ```

pub use crate::fs::{File, FsError};
pub use crate::{FileKind, Image, Mode, Options, Registry, SetAttr, Step, Symlinks, Volume};
