//! Targets: the file systems to measure.
//!
//! Each run has a fresh file system. An image is created, mounted or opened, and prepared by the workload. The caches
//! are brought to the state that the workload requires. After the measurement the image is removed. All images are in
//! one folder of the host, so that all targets use the same disk.
//!
//! A workload that only reads uses the existing files of a target that has files: an image, a directory, an export, or
//! the file system that a command mounts. Such a run creates nothing there, and never removes anything.

mod bed;
mod export;
mod mounted;
mod setup;
mod stored;
mod zram;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

pub use bed::TestBed;
pub use setup::TargetSetup;
pub use stored::{Reader, StoredImage};

use crate::BenchError;

/// A target, such as `fuse:ext4` on the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// A directory of the host.
    Path(PathBuf),
    /// A driver of obento, in the measuring process. The only option is `provenance`.
    Image(Mount),
    /// A driver of obento, mounted through FUSE.
    Fuse(Mount),
    /// A file system of the kernel, mounted by root.
    Kernel(Mount),
    /// ext4, mounted by fuse2fs of e2fsprogs.
    Fuse2fs,
    /// A command that mounts at the directory `$1` and may use the folder `$2` for files.
    Command(String),
    /// An NFS export or a FUSE server, by its address, used by the client of obento in the measuring process.
    Export(String),
    /// An existing image, which is only read.
    Stored(StoredImage),
}

/// A file system type and its mount options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// The type, such as `ext4`.
    pub kind: String,
    /// The options of mount(8), separated by commas.
    pub options: String,
}

impl FromStr for Target {
    type Err = BenchError;

    /// Reads `path:DIR`, `image:TYPE[,provenance]`, `fuse:TYPE[,OPTION...]`, `kernel:TYPE[,OPTION...]`, `fuse2fs`,
    /// `image:IMAGE[@PART]`, `fuse:IMAGE[@PART][,OPTION...]`, `kernel:IMAGE[@PART][,OPTION...]`, `mount-cmd:COMMAND`,
    /// `nfs://HOST/EXPORT`, `fuse:SERVER ARGUMENT...`. The command line of a FUSE server contains a blank. The name of
    /// an image contains a `/`, a `.`, an `@` or a `%`, and a type contains none of these. The existing files do not
    /// change the meaning of a text.
    ///
    /// ```
    /// use obento_bench::Target;
    ///
    /// let target: Target = "kernel:ext4,data=journal".parse()?;
    /// assert_eq!(target.to_string(), "kernel:ext4,data=journal");
    /// assert!(matches!("image:./disk".parse::<Target>()?, Target::Stored(_)));
    /// assert!("kernel:".parse::<Target>().is_err());
    /// # Ok::<(), obento_bench::BenchError>(())
    /// ```
    fn from_str(text: &str) -> Result<Self, BenchError> {
        let none = || BenchError::NoTarget(text.to_owned());
        if text == "fuse2fs" {
            return Ok(Self::Fuse2fs);
        }
        let (sort, rest) = text.split_once(':').filter(|(_, rest)| !rest.is_empty()).ok_or_else(none)?;
        match sort {
            "nfs" if rest.starts_with("//") => Ok(Self::Export(text.to_owned())),
            "path" => Ok(Self::Path(rest.into())),
            "mount-cmd" => Ok(Self::Command(rest.to_owned())),
            "fuse" if rest.trim().contains(' ') => Ok(Self::Export(text.to_owned())),
            "image" => Self::of(rest, Reader::Driver, Self::Image).ok_or_else(none),
            "fuse" => Self::of(rest, Reader::Fuse, Self::Fuse).ok_or_else(none),
            "kernel" => Self::of(rest, Reader::Kernel, Self::Kernel).ok_or_else(none),
            _ => Err(none()),
        }
    }
}

impl Target {
    /// Returns the target for the text after the `:`, an existing image or a type.
    fn of(text: &str, reader: Reader, fresh: fn(Mount) -> Self) -> Option<Self> {
        let stored = StoredImage::parse(reader, text).map(Self::Stored);
        stored.or_else(|| Mount::parse(text).map(fresh))
    }

    /// Returns whether the target has files before a run, which a workload that only reads uses.
    pub fn has_files(&self) -> bool {
        matches!(self, Self::Path(_) | Self::Command(_) | Self::Export(_) | Self::Stored(_))
    }
}

impl Mount {
    fn parse(text: &str) -> Option<Self> {
        let (kind, options) = text.split_once(',').unwrap_or((text, ""));
        let plain =
            |kind: &str| kind.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        (!kind.is_empty() && plain(kind)).then(|| Self { kind: kind.to_owned(), options: options.to_owned() })
    }
}

impl fmt::Display for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if self.options.is_empty() { Ok(()) } else { write!(f, ",{}", self.options) }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "path:{}", path.display()),
            Self::Image(mount) => write!(f, "image:{mount}"),
            Self::Fuse(mount) => write!(f, "fuse:{mount}"),
            Self::Kernel(mount) => write!(f, "kernel:{mount}"),
            Self::Fuse2fs => f.write_str("fuse2fs"),
            Self::Command(command) => write!(f, "mount-cmd:{command}"),
            Self::Export(address) => f.write_str(address),
            Self::Stored(stored) => stored.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_read_and_written_alike() {
        for text in [
            "path:/mnt",
            "image:ext4",
            "image:ext4,provenance",
            "nfs://server:2049/srv?mountport=20048",
            "fuse:sshfs host:/srv",
            "fuse:vfat,uid=1",
            "kernel:xfs",
            "fuse2fs",
            "mount-cmd:mount -t tmpfs x $1",
            "image:win.ntfs@2",
            "kernel:../x,noatime",
        ] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        for text in ["", "ext4", "image:", "nfs:server", "fuse:,ro", "kernel:$x", "disk:ext4"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
