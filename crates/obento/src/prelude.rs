//! The types that most programs use: `use obento::prelude::*`.
//!
//! ```
//! use obento::prelude::*;
//!
//! let volume = Volume::in_memory();
//! volume.create_dir("/etc")?;
//! volume.write("/etc/issue", "obento\n")?;
//! let sizes: Vec<u64> = volume.walk_from("/etc")?.filter_map(Result::ok).map(|entry| entry.attr.size).collect();
//! assert!(sizes.contains(&7));
//! # Ok::<(), obento::fs::FsError>(())
//! ```

#[cfg(feature = "host")]
pub use crate::VolumeTrees;
pub use crate::base::{DeviceNumber, FileKind, Mode};
pub use crate::driver::SetAttr;
#[cfg(feature = "host")]
pub use crate::fs::TreeError;
pub use crate::fs::{File, FsError};
#[cfg(feature = "host")]
pub use crate::image::ImageBuilder;
pub use crate::image::{Image, OpenError, Options};
pub use crate::registry::Registry;
pub use crate::text::escaped;
pub use crate::vfs::{Node, Symlinks};
pub use crate::volume::Volume;
pub use crate::walk::Step;
