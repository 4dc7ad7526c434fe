//! What a copy tells while it runs and when it is done.

use std::fmt;
use std::path::PathBuf;

use obento_base::Error;
use obento_host::HostError;
use obento_host::tree;

use crate::Damage;
use crate::data::Unread;
use crate::import::MemberTrouble;
use crate::text::escaped;

/// How far a copy has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress<'a> {
    /// Entries copied.
    pub files: u64,
    /// Bytes copied.
    pub bytes: u64,
    /// What is being copied.
    pub path: &'a [u8],
}

/// Something that could not be copied, or not whole. The rest is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// What, as a path in the source.
    pub path: Vec<u8>,
    /// What is wrong.
    pub trouble: Trouble,
}

/// What is wrong with one entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// The image's side.
    Volume(Error),
    /// The host's side.
    Host(HostError),
    /// Bytes that could not be read; the copy has zeros there.
    Unread(Unread),
    /// Extended attributes that could not be read; the copy lacks them.
    Xattrs(Error),
    /// A directory, which was not asked for.
    DirectoryOmitted,
    /// A name that is none: the source was not named by a path.
    Nameless,
    /// The image that is written to.
    Target {
        /// Where.
        path: Vec<u8>,
        /// What it refuses.
        error: Error,
    },
    /// A symbolic link that leads nowhere has the name of the copy.
    Dangling(Vec<u8>),
    /// Source and target are one file.
    SameFile,
    /// A directory that would come to lie in itself.
    IntoItself,
    /// The image that is being changed, or what it is read from.
    IsTarget,
    /// A member of an archive.
    Member(MemberTrouble),
    /// A name that the format cannot hold, which the report counts. No observer is told.
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

/// Is told how a copy goes on.
pub trait Observer {
    /// After every entry, and now and then within a long one.
    fn progress(&mut self, progress: &Progress<'_>) {
        let _ = progress;
    }

    /// So many files with so many bytes will be copied, which is known when all were looked at; what was told before was of that. Nobody
    /// says so of what comes through a pipe.
    fn total(&mut self, files: u64, bytes: u64) {
        let _ = (files, bytes);
    }

    /// Whether the copy is to end here, with [`HostError::Stopped`]. It is asked before every entry, and now and then
    /// within a long one; of an entry that is not done yet nothing is left.
    fn is_stopped(&self) -> bool {
        false
    }

    /// Something could not be copied; the rest follows.
    fn problem(&mut self, problem: &Problem);
}

/// Errors: whoever watches wants no more.
pub(crate) fn expect_wanted(observer: &dyn Observer) -> Result<(), HostError> {
    if observer.is_stopped() { Err(HostError::Stopped) } else { Ok(()) }
}

/// Keeps the problems and shows nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Quiet(pub Vec<Problem>);

impl Observer for Quiet {
    fn problem(&mut self, problem: &Problem) {
        self.0.push(problem.clone());
    }
}

/// What a copy did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CopyReport {
    /// What was written, and what could not be kept.
    pub written: tree::Report,
    /// How many problems the observer was told.
    pub problems: u64,
}

/// Why a copy could not begin, or had to end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The host's side.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The image's side.
    #[error(transparent)]
    Volume(Error),
    /// The image that is written to.
    #[error("{}: {error}", escaped(path))]
    Target {
        /// Where.
        path: Vec<u8>,
        /// What it refuses.
        error: Error,
    },
    /// What was left to do at the end could not be done.
    #[error("{0}")]
    Problem(Trouble),
    /// The input is no archive.
    #[error("this is no tar archive: {reason}")]
    NotAnArchive {
        /// What is there instead.
        reason: String,
    },
    /// The input that bytes come from.
    #[error("cannot read: {0}")]
    Input(std::io::Error),
    /// The output that bytes are written to.
    #[error("cannot write: {0}")]
    Output(std::io::Error),
    /// Several sources, and the target is no directory.
    #[error("{}: is not a directory; several files can only be copied into one", PathBuf::from(target).display())]
    NotDirectory {
        /// The target.
        target: PathBuf,
    },
    /// The target's path has no last component to make.
    #[error("{}: cannot be made; name a file or an existing directory", PathBuf::from(target).display())]
    BadTarget {
        /// The target.
        target: PathBuf,
    },
}
