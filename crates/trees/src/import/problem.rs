//! The problems with members of an archive.

use obento_host::compressed::UnpackError;

/// A problem with a member.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MemberProblem {
    /// The path contains `..`.
    #[error("skipped: the path contains '..', which could lead out of the target")]
    LeadsUp,
    /// A component of the path is not a valid name.
    #[error("invalid path")]
    NoPath,
    /// The target of a hard link does not exist.
    #[error("skipped: the target '{0}' of the hard link does not exist")]
    NoOriginal(String),
    /// Access control lists cannot be stored without changes.
    #[error("the access control list is changed: {0}")]
    Names(String),
    /// The member is a hard link to a directory. A directory can have only one name.
    #[error("skipped: a hard link to the directory '{0}' is not possible")]
    SecondDirectory(String),
    /// The member is the continuation of a file that begins in another archive.
    #[error("skipped: the member continues a file of another volume of the archive")]
    Continued,
    /// The image cannot store the member.
    #[error("skipped: {0}")]
    Unfit(&'static str),
    /// The archive is damaged.
    #[error("{0}")]
    Archive(String),
    /// The archive unpacks to more than the limit.
    #[error("cannot read: {0}")]
    Limit(UnpackError),
}
