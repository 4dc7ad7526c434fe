//! The progress, the problems and the result of a copy.

use std::fmt;
use std::path::PathBuf;

use obento_base::{Attr, Error, FileKind};
use obento_host::HostError;
use obento_host::tree;
use obento_open::text::escaped;
use obento_open::walk::Damage;

use crate::copy::{Loss, Shortage};
use crate::data::Unread;
use crate::import::MemberProblem;

/// The progress of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress<'a> {
    /// Number of entries copied so far.
    pub files: u64,
    /// Number of bytes copied so far.
    pub bytes: u64,
    /// The path of the current entry.
    pub path: &'a [u8],
}

/// A problem with an entry: the copy lacks the entry, a part of its data, or some of its attributes. The copy
/// continues.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The path in the source.
    pub path: Vec<u8>,
    /// The reason.
    pub trouble: ProblemReason,
}

/// The reason of a problem with one entry.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProblemReason {
    /// An error of the image.
    #[error(transparent)]
    Volume(Error),
    /// A part of the directory cannot be listed. The copy has the other entries.
    #[error(transparent)]
    Listing(Error),
    /// An error of the host.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Some bytes could not be read. The copy contains zeros instead.
    #[error(
        "bytes {} to {} cannot be read and are zeros in the copy: {}", .0.range.start, .0.range.end, .0.error
    )]
    Unread(Unread),
    /// Some extended attributes could not be read. The copy lacks them.
    #[error("extended attributes cannot be read and are not copied: {0}")]
    Xattrs(Error),
    /// An extended attribute could not be read. The copy lacks it.
    #[error("the extended attribute '{}' cannot be read and is not copied: {error}", escaped(name))]
    Xattr {
        /// The name of the attribute.
        name: Vec<u8>,
        /// The error.
        error: Error,
    },
    /// The source is a directory, and the options exclude directories.
    #[error("is a directory")]
    DirectoryOmitted,
    /// The source is a device, FIFO or socket, and the options exclude such files.
    #[error("is a {}, whose contents are not copied", special_word(*.0))]
    SpecialOmitted(FileKind),
    /// The source has no name for the copy, because it was not selected by a path.
    #[error("the source has no name")]
    Nameless,
    /// An error of the target image.
    #[error("cannot write '{}': {error}", escaped(path))]
    Target {
        /// The path in the target.
        path: Vec<u8>,
        /// The error.
        error: Error,
    },
    /// The target image has exhausted a resource other than blocks, such as inodes.
    #[error("cannot write '{}': {shortage}", escaped(path))]
    Exhausted {
        /// The path in the target.
        path: Vec<u8>,
        /// The resource that ran out.
        shortage: Shortage,
    },
    /// A dangling symbolic link has the name of the copy.
    #[error("cannot write '{}': the target of the symbolic link does not exist", escaped(.0))]
    Dangling(Vec<u8>),
    /// Source and target are the same file.
    #[error("source and target are the same file")]
    SameFile,
    /// A directory would be copied into itself.
    #[error("a directory cannot be copied into itself")]
    IntoItself,
    /// The file is the target image, or a file that the source image is read from.
    #[error("is the image that this command changes")]
    IsTarget,
    /// A problem with a member of an archive.
    #[error(transparent)]
    Member(MemberProblem),
    /// The format cannot store the name. The report counts this problem, and the observer does not receive it.
    #[error("the file system does not support the name")]
    Counted,
}

impl From<Damage> for Problem {
    fn from(damage: Damage) -> Self {
        let reason = if damage.in_listing { ProblemReason::Listing } else { ProblemReason::Volume };
        Self { path: damage.path, trouble: reason(damage.error) }
    }
}

/// Returns the word for a special file.
pub fn special_word(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Fifo => "FIFO",
        FileKind::Socket => "socket",
        _ => "device",
    }
}

impl ProblemReason {
    /// Returns the problem that the attribute `name`, or some attributes, cannot be read.
    pub(crate) fn unread_xattr(name: Option<&[u8]>, error: Error) -> Self {
        match name {
            Some(name) => Self::Xattr { name: name.to_vec(), error },
            None => Self::Xattrs(error),
        }
    }

    /// Returns the problem to report, or `None` if it is counted only. Fails with a problem that later entries would
    /// also have.
    pub(crate) fn into_report(self) -> Result<Option<Self>, CopyError> {
        match self {
            Self::Host(
                error @ (HostError::Limit { .. } | HostError::FileLimit { .. } | HostError::Stopped),
            ) => Err(error.into()),
            Self::Target { path, error: error @ (Error::ReadOnly | Error::Device(_)) } => {
                Err(CopyError::Target { path, error })
            }
            Self::Counted => Ok(None),
            trouble => Ok(Some(trouble)),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", escaped(&self.path), self.trouble)
    }
}

/// The decision of an [`Observer`] about an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// The entry is copied.
    Full,
    /// The entry is copied without its set-user-ID and set-group-ID bits, and without the extended attributes
    /// `security.*` and `trusted.*`.
    Distrusted,
    /// The entry is copied without its extended attributes and its flags. The observer has replaced its other attributes.
    /// A directory whose contents are copied does not get any attributes.
    ContentsOnly,
    /// The entry is not copied. If the entry is a directory, the entries below it are not copied either.
    Omitted,
}

/// Receives the progress and the problems of a copy.
pub trait Observer {
    /// Receives the path and the attributes of each entry before the copy writes the entry. Returns whether to copy the
    /// entry; a source whose contents are copied is always copied. The function may change the attributes of the copy.
    /// If the size becomes smaller, the copy has fewer bytes.
    fn admit(&mut self, path: &[u8], attr: &mut Attr) -> Admission {
        let _ = (path, attr);
        Admission::Full
    }

    /// Receives the progress. The copy calls this method after every entry, and at intervals within a long
    /// entry.
    fn progress(&mut self, progress: &Progress<'_>) {
        let _ = progress;
    }

    /// Receives the total number of files and bytes of a build. A build first reads all sources, and reports the
    /// progress of this step. It then calls this function, and starts to copy the bytes of files. The number of bytes
    /// may be an estimate. Copies, imports and exports do not call this function.
    fn total(&mut self, files: u64, bytes: u64) {
        let _ = (files, bytes);
    }

    /// Returns whether to end the copy with [`HostError::Stopped`]. The copy calls this method before every
    /// entry, and at intervals within a long entry. The copy then removes an entry that is not complete.
    fn is_stopped(&self) -> bool {
        false
    }

    /// Receives the path of an entry that the target does not store, because of its type or its name. The report counts
    /// such entries.
    fn dropped(&mut self, path: &[u8], loss: Loss) {
        let _ = (path, loss);
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
    #[error("cannot write '{}': {error}", escaped(path))]
    Target {
        /// The path in the target.
        path: Vec<u8>,
        /// The error.
        error: Error,
    },
    /// A problem that ends the copy: the file of [`copy_from_reader`](super::copy_from_reader) cannot be
    /// created, or the last step of a copy failed.
    #[error("{0}")]
    Problem(ProblemReason),
    /// The input is not an archive.
    #[error("not a tar archive: {reason}")]
    NotAnArchive {
        /// A description of the input.
        reason: String,
    },
    /// The input is a compressed file whose compression is not supported, or a disk image.
    #[error("not a tar archive: the data looks like {like}")]
    Packed {
        /// The format of the data.
        like: &'static str,
    },
    /// An error of the input.
    #[error("cannot read: {0}")]
    Input(std::io::Error),
    /// An error of the output.
    #[error("cannot write: {0}")]
    Output(std::io::Error),
    /// The copy has several sources, and the target is not a directory.
    #[error(
        "cannot copy several files to '{}': {}",
        PathBuf::from(target).display(),
        if *exists { "not a directory" } else { "no such directory" }
    )]
    NotDirectory {
        /// The target.
        target: PathBuf,
        /// Whether the target exists.
        exists: bool,
    },
    /// The path of the target has no last component, so it is not the name of a file to create.
    #[error("cannot create '{}'", PathBuf::from(target).display())]
    BadTarget {
        /// The target.
        target: PathBuf,
    },
}
