//! Why an image was not built.

use obento_driver::{BuildError, FormatError, Tree};
use obento_host::HostError;

use crate::ByteDifference;
use crate::text::escaped;

/// Why an image was not built. Nothing has its name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BuildFailure {
    /// No driver makes images of this type.
    #[error("obento does not know how to build the type '{}'", fs_type.escape_default())]
    UnknownType {
        /// The type.
        fs_type: String,
    },
    /// Sources cannot be read, or hold what cannot be.
    #[error("{} entries of the sources cannot be taken", .0.len())]
    Sources(Vec<SourceProblem>),
    /// Files that the format cannot hold.
    #[error("{} files cannot be held", .0.len())]
    Unfit(Vec<SourceProblem>),
    /// The volume cannot be.
    #[error(transparent)]
    Format(FormatError),
    /// The size that was given does not suffice.
    #[error("{size} bytes are too few, {needed} suffice")]
    TooSmall {
        /// What was given.
        size: u64,
        /// What suffices.
        needed: u64,
    },
    /// The volume is full before the tree is in it.
    #[error("{size} bytes are too few for it")]
    Full {
        /// How long it is.
        size: u64,
    },
    /// What makes the volume or opens it failed.
    #[error("{why}")]
    Other {
        /// What it said.
        why: String,
    },
    /// The disk cannot be divided so.
    #[error("{why}")]
    Layout {
        /// Why.
        why: String,
    },
    /// A partition cannot be made.
    #[error("partition {number}: {failure}")]
    Partition {
        /// Its number.
        number: u32,
        /// Why.
        failure: Box<BuildFailure>,
    },
    /// Standard input cannot be read twice.
    #[error("standard input can be read only once")]
    OnlyOnce,
    /// The check of the finished volume reports problems. Each is one line.
    #[error("the check of the image reports {} problems, first: {}", .0.len(), .0.first().map_or("", String::as_str))]
    NotSound(Vec<String>),
    /// Files of the finished volume differ from their sources.
    #[error("{} files of the image differ from their sources", .0.len())]
    Differs(Vec<SourceProblem>),
    /// Two builds had other bytes.
    #[error("two builds differ in {} bytes, first in byte {}: {}", .0.bytes, .0.offset, .0.place())]
    NotSame(Box<ByteDifference>),
    /// The host.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// Something in a source that cannot be taken.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SourceProblem {
    /// Which: a path in the source or in the image.
    pub path: Vec<u8>,
    /// Why.
    pub why: String,
}

impl std::fmt::Display for SourceProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", escaped(&self.path), self.why)
    }
}

impl From<FormatError> for BuildFailure {
    fn from(error: FormatError) -> Self {
        Self::Format(error)
    }
}

impl BuildFailure {
    /// What the driver says, with paths in place of numbers.
    pub(super) fn of_plan(error: BuildError, tree: &Tree) -> Self {
        match error {
            BuildError::Format(error) => Self::Format(error),
            BuildError::TooSmall { len, needed } => Self::TooSmall { size: len, needed },
            BuildError::Unfit(files) => {
                let problem = |(node, why): (_, obento_driver::Unfit)| SourceProblem {
                    path: tree.path(node),
                    why: why.to_string(),
                };
                Self::Unfit(files.into_iter().map(problem).collect())
            }
        }
    }
}
