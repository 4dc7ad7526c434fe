//! The errors of the host, with the operation and the path.

use std::fmt::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use obento_base::{FileKind, Name};
use rustix::io::Errno;

use crate::compressed::UnpackError;
use crate::interrupt;
use crate::io::IoBackend;
use crate::lock::{Purpose, User};

/// A call to the host that failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// A system call failed.
    #[error("cannot {operation} '{}': {}", PathText(path), Reason(*errno))]
    System {
        /// The operation as a verb: `open`, `set the times of`.
        operation: &'static str,
        /// The path.
        path: PathBuf,
        /// The reason.
        errno: Errno,
    },
    /// The image is neither a file nor a block device.
    #[error("cannot open '{}': is {}, not an image file or a block device", PathText(path), kind_text(*kind))]
    NotAnImage {
        /// The path.
        path: PathBuf,
        /// The kind of the file.
        kind: Option<FileKind>,
    },
    /// The requested back end cannot open the image.
    #[error(
        "cannot open '{}' with the back end {backend}: {}",
        PathText(path),
        Reason(*errno)
    )]
    NoBackend {
        /// The path.
        path: PathBuf,
        /// The back end.
        backend: IoBackend,
        /// The reason.
        errno: Errno,
    },
    /// Another process has the image open in a way that excludes the request.
    #[error(
        "cannot {} '{}': it is {} by {user}",
        match purpose { Purpose::Read => "read", Purpose::Change => "change", Purpose::Replace => "replace" },
        PathText(path),
        match purpose { Purpose::Read => "being changed", Purpose::Change | Purpose::Replace => "in use" }
    )]
    InUse {
        /// The path.
        path: PathBuf,
        /// The requested purpose.
        purpose: Purpose,
        /// The other user.
        user: User,
    },
    /// The target exists and may not be replaced.
    #[error("cannot create '{}': file exists", PathText(path))]
    Exists {
        /// The path.
        path: PathBuf,
    },
    /// The same run created this entry before: the sources contain the name twice, or the volume treats two
    /// of their names as the same.
    #[error(
        "cannot write '{}' again: an earlier source has the same name, or a name that the target treats as the same",
        PathText(path)
    )]
    Duplicate {
        /// The path.
        path: PathBuf,
    },
    /// A file that is not a directory would replace a directory.
    #[error("cannot replace '{}': it is a directory, but the source is not", PathText(path))]
    IsDirectory {
        /// The path.
        path: PathBuf,
    },
    /// A directory would replace a file that is not a directory.
    #[error("cannot replace '{}': it is not a directory, but the source is", PathText(path))]
    NotDirectory {
        /// The path.
        path: PathBuf,
    },
    /// The file is one that the source is read from.
    #[error("cannot write '{}': the command reads this image", PathText(path))]
    IsSource {
        /// The path.
        path: PathBuf,
    },
    /// Another process changed the tree while it was written.
    #[error("cannot use '{}': another process changed it during the operation", PathText(path))]
    Changed {
        /// The path.
        path: PathBuf,
    },
    /// A symbolic link of another user, which may lead anywhere.
    #[error("cannot follow '{}': the path contains a symbolic link of another user", PathText(path))]
    ForeignLink {
        /// The path that leads through it.
        path: PathBuf,
    },
    /// A directory for private files in which another user can replace them.
    #[error(
        "cannot use '{}' for private files: another user can replace files in '{}'",
        PathText(path),
        PathText(directory)
    )]
    Untrusted {
        /// The path of the directory, as the caller named it.
        path: PathBuf,
        /// The directory, or one above it.
        directory: PathBuf,
    },
    /// A FIFO of another user, who decides how long reading or writing it takes.
    #[error("cannot use '{}': it is a FIFO of another user", PathText(path))]
    ForeignFifo {
        /// The path of the FIFO.
        path: PathBuf,
    },
    /// A character device of another user, such as a terminal.
    #[error("cannot read '{}': it is a device of another user", PathText(path))]
    ForeignDevice {
        /// The path of the device.
        path: PathBuf,
    },
    /// More bytes than the caller allows.
    #[error("cannot copy '{}': the limit of bytes ({limit}) is reached", PathText(path))]
    Limit {
        /// The path at which the limit was reached.
        path: PathBuf,
        /// The limit in bytes.
        limit: u64,
    },
    /// More files than the caller allows.
    #[error("cannot create '{}': the limit of files ({limit}) is reached", PathText(path))]
    FileLimit {
        /// The path at which the limit was reached.
        path: PathBuf,
        /// The limit.
        limit: u64,
    },
    /// A compressed stream is not unpacked further, or a file is not copied again.
    #[error("cannot {operation} '{}': {error}", PathText(path))]
    Unpack {
        /// The operation as a verb: `decompress`, `copy`.
        operation: &'static str,
        /// The path.
        path: PathBuf,
        /// The limit.
        error: UnpackError,
    },
    /// The observer stopped the work.
    #[error("stopped")]
    Stopped,
    /// A compressed stream is damaged at its start, so that no byte could be decoded.
    #[error("cannot read '{}': damaged {format} data: {reason}", PathText(path))]
    Damaged {
        /// The path.
        path: PathBuf,
        /// The name of the format.
        format: &'static str,
        /// The message of the decoder.
        reason: String,
    },
    /// A source is not an archive.
    #[error("cannot read '{}': not a {format} archive: {reason}", PathText(path))]
    NotAnArchive {
        /// The path.
        path: PathBuf,
        /// The name of the format.
        format: &'static str,
        /// A description of the source.
        reason: &'static str,
    },
    /// A source is not an archive, but a compressed file or a disk image.
    #[error("cannot read '{}': not a {format} archive: the data looks like {like}", PathText(path))]
    Packed {
        /// The path.
        path: PathBuf,
        /// The name of the format.
        format: &'static str,
        /// The format of the data.
        like: &'static str,
    },
    /// A source contains several images, or lacks the requested one.
    #[error("cannot read '{}': {reason}", PathText(path))]
    Unselected {
        /// The path.
        path: PathBuf,
        /// The reason.
        reason: SelectionError,
    },
    /// The container uses a feature that obento does not support.
    #[error("cannot open '{}': {format} with {feature} is not supported", PathText(path))]
    Unsupported {
        /// The path.
        path: PathBuf,
        /// The name of the format.
        format: &'static str,
        /// The feature.
        feature: String,
    },
    /// The container cannot be changed before its reference counts are repaired.
    #[error(
        "cannot change '{}': the reference counts of the {format} image must be repaired first",
        PathText(path)
    )]
    WrongCounts {
        /// The path.
        path: PathBuf,
        /// The name of the format.
        format: &'static str,
    },
    /// The container refers to another file, and the caller does not allow opening it.
    #[error(
        "cannot open '{}': it refers to the {role} '{}', and opening other files is not allowed",
        PathText(path),
        PathText(file)
    )]
    Reference {
        /// The path.
        path: PathBuf,
        /// `backing file` or `data file`.
        role: &'static str,
        /// The other file.
        file: PathBuf,
    },
    /// The data source or target of the caller failed.
    #[error("cannot {operation} '{}': {reason}", PathText(path))]
    Stream {
        /// The operation as a verb.
        operation: &'static str,
        /// The path.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
}

/// The reason why no image of a source is selected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SelectionError {
    /// The files are no container image.
    #[error("neither an OCI layout nor an output of docker save")]
    NotALayout,
    /// The source has no image.
    #[error("the index lists no image")]
    NoImage,
    /// The source has several images, and the caller requested none.
    #[error("the index lists {count} images")]
    SeveralImages {
        /// The number of images.
        count: usize,
        /// Their names, without control characters.
        names: Vec<String>,
    },
    /// No image has the requested name.
    #[error("no image is named '{wanted}'")]
    NoSuchImage {
        /// The requested name, without control characters.
        wanted: String,
        /// The names of the images, without control characters.
        names: Vec<String>,
    },
}

impl HostError {
    /// Creates the error for `operation` on `path`.
    pub fn system(operation: &'static str, path: impl Into<PathBuf>, errno: Errno) -> Self {
        Self::System { operation, path: path.into(), errno }
    }

    /// Converts an error of the standard library, which contains a limit, a signal, an error number or a message.
    pub(crate) fn io(operation: &'static str, path: &Path, error: &std::io::Error) -> Self {
        if let Some(error) = UnpackError::of(error) {
            return Self::Unpack { operation: "decompress", path: path.to_owned(), error };
        }
        if interrupt::is_stop(error) {
            return Self::Stopped;
        }
        match Errno::from_io_error(error) {
            Some(errno) => Self::system(operation, path, errno),
            None => Self::Stream { operation, path: path.to_owned(), reason: error.to_string() },
        }
    }

    /// Like [`Self::system`], for an error of the standard library.
    pub fn of_io(operation: &'static str, path: &Path, error: &std::io::Error) -> Self {
        Self::io(operation, path, error)
    }

    /// Creates the error for a lack of memory during `operation`.
    pub(crate) fn out_of_memory(operation: &'static str) -> Self {
        Self::system(operation, PathBuf::new(), Errno::NOMEM)
    }

    /// Returns the path of a failed system call, or of a file that another process changed.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::System { path, .. } | Self::Changed { path } => Some(path),
            _ => None,
        }
    }

    /// Returns the error number of a failed system call.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::System { errno, .. } => Some(*errno),
            _ => None,
        }
    }
}

impl From<HostError> for std::io::Error {
    /// Keeps the number of a failed system call.
    fn from(error: HostError) -> Self {
        error.errno().map_or_else(|| Self::other(error), Self::from)
    }
}

fn kind_text(kind: Option<FileKind>) -> &'static str {
    match kind {
        Some(FileKind::Regular) => "a file",
        Some(FileKind::Directory) => "a directory",
        Some(FileKind::Symlink) => "a symbolic link",
        Some(FileKind::CharDevice) => "a character device",
        Some(FileKind::BlockDevice) => "a block device",
        Some(FileKind::Fifo) => "a FIFO",
        Some(FileKind::Socket) => "a socket",
        None => "of an unknown kind",
    }
}

/// Prints the host's message for an error number in lower case, without the number that the standard library
/// appends.
pub(crate) struct Reason(pub(crate) Errno);

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = std::io::Error::from(self.0).to_string();
        let text = text.split(" (os error").next().unwrap_or(&text);
        let (first, rest) = text.split_at_checked(1).unwrap_or((text, ""));
        write!(f, "{}{rest}", first.to_ascii_lowercase())
    }
}

/// Prints a path without control characters: every component is escaped like a [`Name`].
pub struct PathText<'a>(pub &'a Path);

impl fmt::Display for PathText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.0.as_os_str().as_bytes().split(|&byte| byte == b'/').enumerate() {
            if index > 0 {
                f.write_char('/')?;
            }
            match Name::new(part) {
                Ok(name) => name.fmt(f)?,
                // The component is empty or consists of dots, or is longer than any file system allows: only
                // NULs need escaping.
                Err(_) => part.escape_ascii().fmt(f)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_failed_where_and_why_and_never_repeats_control_characters() {
        let error = HostError::system("open", "/tmp/a\x1b[2Jb", Errno::NOENT);
        assert_eq!(error.to_string(), r"cannot open '/tmp/a\033[2Jb': no such file or directory");
        assert_eq!(error.errno(), Some(Errno::NOENT));
    }
}
