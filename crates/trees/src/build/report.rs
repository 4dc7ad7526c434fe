//! The result of a build.

use obento_driver::Formatted;

use super::SourceProblem;

/// The result of a build.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BuildReport {
    /// The volume.
    pub formatted: Formatted,
    /// The number of files that are not directories.
    pub files: u64,
    /// The number of directories.
    pub directories: u64,
    /// The number of bytes of files that were copied.
    pub bytes: u64,
    /// The number of source entries that a pattern excluded.
    pub excluded: u64,
    /// Notices about the sources.
    pub notes: Vec<String>,
    /// Files without some entries of their access control lists, because the tree does not define a user or group in
    /// the entry.
    pub lost: Vec<SourceProblem>,
}
