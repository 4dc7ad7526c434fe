//! The purpose of opening an image, and the users of an image.

use std::fmt;
use std::path::PathBuf;

use crate::PathText;

/// The purpose of opening an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Reading, together with other readers.
    Read,
    /// Changing, exclusively.
    Change,
    /// Replacing by another file of the same name. Readers keep the old file.
    Replace,
}

/// A user of an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum User {
    /// This process, through another open file.
    Ourselves,
    /// A process and its command: `obento find`.
    Process {
        /// The process number.
        pid: u32,
        /// The program and subcommand, as reported by the process itself.
        name: String,
    },
    /// A loop device of the kernel, and the mount of it or of one of its partitions.
    Loop {
        /// The device node.
        device: PathBuf,
        /// The mount point.
        mount: Option<PathBuf>,
    },
    /// The kernel has mounted the block device, or a partition of it, here.
    Mount(PathBuf),
    /// Another block device is built from this one.
    Device(PathBuf),
    /// A user that this process cannot identify.
    Unknown,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ourselves => f.write_str("this process"),
            Self::Process { pid, name } => write!(f, "pid {pid} ({name})"),
            Self::Loop { device, mount: None } => write!(f, "the loop device {}", PathText(device)),
            Self::Loop { device, mount: Some(mount) } => {
                write!(f, "the loop device {}, mounted at {}", PathText(device), PathText(mount))
            }
            Self::Mount(mount) => write!(f, "the kernel, mounted at {}", PathText(mount)),
            Self::Device(device) => write!(f, "the device {}, which is built on it", PathText(device)),
            Self::Unknown => f.write_str("an unknown process, perhaps of another user or PID namespace"),
        }
    }
}
