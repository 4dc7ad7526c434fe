//! The progress, the problems and the result of a copy.

use std::fmt;
use std::path::PathBuf;

use obento_base::Error;
use obento_host::HostError;
use obento_host::tree;

use crate::data::Unread;
use crate::import::MemberTrouble;
use crate::text::escaped;
use crate::{Damage, Shortage};

/// The progress of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress<'a> {
    /// Entries copied.
    pub files: u64,
    /// Bytes copied.
    pub bytes: u64,
    /// The path of the current entry.
    pub path: &'a [u8],
}

/// An entry that could not be copied, or not completely. The copy continues.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The path in the source.
    pub path: Vec<u8>,
    /// The reason.
    pub trouble: Trouble,
}

/// The reason of a problem with one entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// An error of the image.
    Volume(Error),
    /// An error of the host.
    Host(HostError),
    /// Bytes that could not be read. The copy has zeros there.
    Unread(Unread),
    /// Extended attributes that could not be read. The copy lacks them.
    Xattrs(Error),
    /// A directory, but the options exclude directories.
    DirectoryOmitted,
    /// The source has no name, because it was not given by a path.
    Nameless,
    /// An error of the image that is written to.
    Target {
        /// The path in the target.
        path: Vec<u8>,
        /// The error.
        error: Error,
    },
    /// The image that is written to has no more of something other than blocks.
    Exhausted {
        /// The path in the target.
        path: Vec<u8>,
        /// The resource that ran out.
        shortage: Shortage,
    },
    /// A dangling symbolic link has the name of the copy.
    Dangling(Vec<u8>),
    /// Source and target are the same file.
    SameFile,
    /// A directory would be copied into itself.
    IntoItself,
    /// The file is the image that is changed, or a file that the image is read from.
    IsTarget,
    /// A problem with a member of an archive.
    Member(MemberTrouble),
    /// A name that the format cannot store. The report counts it, and the observer does not receive it.
    Counted,
}

impl From<HostError> for Trouble {
    fn from(error: HostError) -> Self {
        Self::Host(error)
    }
}

impl From<Damage> for Problem {
    fn from(damage: Damage) -> Self {
        Self { path: damage.path, trouble: Trouble::Volume(damage.error) }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volume(error) => error.fmt(f),
            Self::Host(error) => error.fmt(f),
            Self::Unread(Unread { range, error }) => {
                write!(
                    f,
                    "bytes {} to {} cannot be read and are zeros in the copy: {error}",
                    range.start, range.end
                )
            }
            Self::Xattrs(error) => {
                write!(f, "extended attributes cannot be read and are not copied: {error}")
            }
            Self::DirectoryOmitted => f.write_str("is a directory and was left out; `-r` copies directories"),
            Self::Target { path, error } => write!(f, "{}: {error}", escaped(path)),
            Self::Exhausted { path, shortage } => write!(f, "{}: {shortage}", escaped(path)),
            Self::Dangling(path) => {
                write!(f, "{}: not written through: the symbolic link leads nowhere", escaped(path))
            }
            Self::SameFile => f.write_str("is the file that it would replace"),
            Self::IntoItself => f.write_str("a directory cannot be copied into itself"),
            Self::IsTarget => f.write_str("is the image that is being changed, and was left out"),
            Self::Member(trouble) => trouble.fmt(f),
            Self::Counted => f.write_str("has a name that the file system cannot hold"),
            Self::Nameless => f.write_str("has no name to give the copy; name the copy, not a directory"),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", escaped(&self.path), self.trouble)
    }
}

/// Receives the progress and the problems of a copy.
pub trait Observer {
    /// Called after every entry, and at intervals within a long one.
    fn progress(&mut self, progress: &Progress<'_>) {
        let _ = progress;
    }

    /// Receives the total number of files and bytes, which is known after all files were listed. Earlier
    /// reports of progress refer to the listing. A copy from a pipe does not call it.
    fn total(&mut self, files: u64, bytes: u64) {
        let _ = (files, bytes);
    }

    /// Returns whether to end the copy here, with [`HostError::Stopped`]. Called before every entry, and at
    /// intervals within a long one. An unfinished entry is removed.
    fn is_stopped(&self) -> bool {
        false
    }

    /// Receives a problem. The copy continues.
    fn problem(&mut self, problem: &Problem);
}

/// Fails if the observer stops the copy.
pub(crate) fn expect_wanted(observer: &dyn Observer) -> Result<(), HostError> {
    if observer.is_stopped() { Err(HostError::Stopped) } else { Ok(()) }
}

/// An observer that collects the problems and prints nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Quiet(pub Vec<Problem>);

impl Observer for Quiet {
    fn problem(&mut self, problem: &Problem) {
        self.0.push(problem.clone());
    }
}

/// The result of a copy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CopyReport {
    /// The entries that were written, and the properties that could not be kept.
    pub written: tree::Report,
    /// The number of problems that the observer received.
    pub problems: u64,
}

/// The error that prevented or ended a copy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// An error of the host.
    #[error(transparent)]
    Host(#[from] HostError),
    /// An error of the image.
    #[error(transparent)]
    Volume(Error),
    /// An error of the image that is written to.
    #[error("{}: {error}", escaped(path))]
    Target {
        /// The path in the target.
        path: Vec<u8>,
        /// The error.
        error: Error,
    },
    /// A final step of the copy failed.
    #[error("{0}")]
    Problem(Trouble),
    /// The input is not an archive.
    #[error("this is no tar archive: {reason}")]
    NotAnArchive {
        /// A description of the input.
        reason: String,
    },
    /// An error of the input.
    #[error("cannot read: {0}")]
    Input(std::io::Error),
    /// An error of the output.
    #[error("cannot write: {0}")]
    Output(std::io::Error),
    /// Several sources have a target that is not a directory.
    #[error("{}: is not a directory; several files can only be copied into one", PathBuf::from(target).display())]
    NotDirectory {
        /// The target.
        target: PathBuf,
    },
    /// The path of the target has no last component to create.
    #[error("{}: cannot be made; name a file or an existing directory", PathBuf::from(target).display())]
    BadTarget {
        /// The target.
        target: PathBuf,
    },
}
