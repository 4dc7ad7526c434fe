//! What the host refuses, with what was tried and where.

use std::fmt::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use obento_base::{FileKind, Name};
use rustix::io::Errno;

use crate::compressed::UnpackError;
use crate::io::IoBackend;
use crate::lock::{Purpose, User};

/// A call to the host that failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// A system call failed.
    #[error("cannot {operation} {}: {}", PathText(path), Reason(*errno))]
    System {
        /// What was tried, as a verb: `open`, `set the times of`.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        errno: Errno,
    },
    /// An image must be a file or a block device.
    #[error("{}: is {}, not an image file or a block device", PathText(path), kind_text(*kind))]
    NotAnImage {
        /// Which.
        path: PathBuf,
        /// What it is.
        kind: Option<FileKind>,
    },
    /// The image cannot be read and written in the way that was asked for.
    #[error(
        "{}: cannot be opened with the back end {backend} here: {}; `--io buffered` works everywhere",
        PathText(path),
        Reason(*errno)
    )]
    NoBackend {
        /// Which.
        path: PathBuf,
        /// The way.
        backend: IoBackend,
        /// Why not.
        errno: Errno,
    },
    /// Somebody has the image open in a way that excludes what was asked.
    #[error(
        "{}: {} by {user}; {}",
        PathText(path),
        match purpose { Purpose::Read => "is being changed", Purpose::Change => "cannot be changed: it is in use" },
        user.advice()
    )]
    InUse {
        /// Which.
        path: PathBuf,
        /// What was asked.
        purpose: Purpose,
        /// Who.
        user: User,
    },
    /// The target exists and may not be replaced.
    #[error("{}: already exists", PathText(path))]
    Exists {
        /// Which.
        path: PathBuf,
    },
    /// The same run created this entry before: the sources have the name twice, or the volume takes two of their names for one.
    #[error("{}: this command has just created it, and does not overwrite it", PathText(path))]
    Duplicate {
        /// Which.
        path: PathBuf,
    },
    /// Something that is no directory would replace a directory.
    #[error("{}: is a directory, which only a directory can replace", PathText(path))]
    IsDirectory {
        /// Which.
        path: PathBuf,
    },
    /// A directory would replace something that is none.
    #[error("{}: is not a directory", PathText(path))]
    NotDirectory {
        /// Which.
        path: PathBuf,
    },
    /// The file is one that the source is read from.
    #[error("{}: is the image that is read, and stays as it is; name another target", PathText(path))]
    IsSource {
        /// Which.
        path: PathBuf,
    },
    /// Somebody else changed the tree while it was written.
    #[error("{}: was changed by somebody else meanwhile", PathText(path))]
    Changed {
        /// Which.
        path: PathBuf,
    },
    /// A symbolic link that may lead anywhere.
    #[error(
        "{}: a symbolic link of another user, which is not followed; name its target instead",
        PathText(path)
    )]
    ForeignLink {
        /// The path that leads through it.
        path: PathBuf,
    },
    /// More bytes than the caller allows.
    #[error("{}: more than {limit} bytes, the limit that was set", PathText(path))]
    Limit {
        /// Where it was reached.
        path: PathBuf,
        /// The limit in bytes.
        limit: u64,
    },
    /// A compressed stream is not unpacked further.
    #[error("{}: {error}", PathText(path))]
    Unpack {
        /// Which.
        path: PathBuf,
        /// The limit.
        error: UnpackError,
    },
    /// Whoever watches the work asked it to end.
    #[error("stopped")]
    Stopped,
    /// A compressed stream is damaged where it starts, so that nothing could be decoded.
    #[error("{}: damaged {format} data: {reason}", PathText(path))]
    Damaged {
        /// Which.
        path: PathBuf,
        /// The format's name.
        format: &'static str,
        /// The decoder's words.
        reason: String,
    },
    /// A source is not an archive.
    #[error("{}: this is not a {format} archive: {reason}", PathText(path))]
    NotAnArchive {
        /// Which.
        path: PathBuf,
        /// The format's name.
        format: &'static str,
        /// What is there instead.
        reason: String,
    },
    /// The container uses what obento cannot read.
    #[error("{}: {format} with {feature} is not supported", PathText(path))]
    Unsupported {
        /// Which.
        path: PathBuf,
        /// The format's name.
        format: &'static str,
        /// What it uses.
        feature: String,
    },
    /// The container names another file, which was not allowed to be opened.
    #[error(
        "{}: needs the {role} {}, which may only be opened if that is allowed",
        PathText(path),
        PathText(file)
    )]
    Reference {
        /// Which.
        path: PathBuf,
        /// `backing file` or `data file`.
        role: &'static str,
        /// The file named.
        file: PathBuf,
    },
    /// The caller's data source or target failed.
    #[error("cannot {operation} {}: {reason}", PathText(path))]
    Stream {
        /// What was tried, as a verb.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
}

impl HostError {
    /// `errno` of a call that did `operation` to `path`.
    pub fn system(operation: &'static str, path: impl Into<PathBuf>, errno: Errno) -> Self {
        Self::System { operation, path: path.into(), errno }
    }

    /// An error of the standard library, which wraps an error number or words of its own.
    pub(crate) fn io(operation: &'static str, path: &Path, error: &std::io::Error) -> Self {
        match Errno::from_io_error(error) {
            Some(errno) => Self::system(operation, path, errno),
            None => Self::Stream { operation, path: path.to_owned(), reason: error.to_string() },
        }
    }

    /// [`Self::system`] for an error of the standard library.
    pub fn of_io(operation: &'static str, path: &Path, error: &std::io::Error) -> Self {
        Self::io(operation, path, error)
    }

    /// Memory ran out doing `operation`.
    pub(crate) fn out_of_memory(operation: &'static str) -> Self {
        Self::system(operation, PathBuf::new(), Errno::NOMEM)
    }

    /// The file that a system call failed on, or that somebody else changed.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::System { path, .. } | Self::Changed { path } => Some(path),
            _ => None,
        }
    }

    /// The error number, if a system call gave one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::System { errno, .. } => Some(*errno),
            _ => None,
        }
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

/// An error number in the host's words, without the number that the standard library puts behind them.
pub(crate) struct Reason(pub(crate) Errno);

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = std::io::Error::from(self.0).to_string();
        f.write_str(text.split(" (os error").next().unwrap_or(&text))
    }
}

/// Shows a path so that a hostile name in it cannot speak to a terminal: every component as [`Name`] shows itself.
pub struct PathText<'a>(pub &'a Path);

impl fmt::Display for PathText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.0.as_os_str().as_bytes().split(|&byte| byte == b'/').enumerate() {
            if index > 0 {
                f.write_char('/')?;
            }
            match Name::new(part) {
                Ok(name) => name.fmt(f)?,
                // Empty or dots, else longer than any file system has: nothing to escape but NULs.
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
        assert_eq!(error.to_string(), r"cannot open /tmp/a\x1b[2Jb: No such file or directory");
        assert_eq!(error.errno(), Some(Errno::NOENT));
    }
}
