//! The reasons why an image was not built.

use obento_base::wire::to_u64;
use obento_base::{Error, Quantity};
use obento_driver::{BuildError, FormatError, Tree};
use obento_host::HostError;
use obento_open::text::escaped;

use super::model::PathError;
use crate::diff::ByteDifference;

/// The reason why an image was not built. No image file was created or replaced.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BuildFailure {
    /// No driver builds images of this type.
    #[error("obento does not build volumes of type '{}'", escaped(fs_type.as_bytes()))]
    UnknownType {
        /// The type.
        fs_type: String,
    },
    /// Sources cannot be read, or contain unusable entries.
    #[error("{} of the sources cannot be used", Quantity::new(to_u64(.0.len()), "entry"))]
    Sources(Vec<SourceProblem>),
    /// The format cannot store these files.
    #[error("{} cannot be stored", Quantity::new(to_u64(.0.len()), "file"))]
    Unfit(Vec<SourceProblem>),
    /// The format does not support a volume with these settings.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The requested size is not sufficient.
    #[error("a size of {} is too small; {needed} bytes are required", Quantity::new(*size, "byte"))]
    TooSmall {
        /// The requested size.
        size: u64,
        /// A sufficient size.
        needed: u64,
    },
    /// The volume became full before the whole tree was written.
    #[error("the files do not fit in {size} bytes")]
    Full {
        /// The size of the volume.
        size: u64,
    },
    /// The volume cannot be filled, closed or read.
    #[error(transparent)]
    Volume(Error),
    /// Another step of the build failed, for the reason in the text. The steps are the creation of the volume
    /// by a program, opening the volume, the verification, and the conversion to another format.
    #[error("{why}")]
    Other {
        /// The message of the program.
        why: String,
    },
    /// The layout of the disk is not possible.
    #[error("{why}")]
    Layout {
        /// The reason.
        why: String,
    },
    /// A partition cannot be created.
    #[error("partition {number}: {failure}")]
    Partition {
        /// The number.
        number: u32,
        /// The reason.
        failure: Box<BuildFailure>,
    },
    /// A source is standard input or another pipe, which cannot be read twice.
    #[error("standard input can be read only once")]
    OnlyOnce,
    /// The check of the finished volume reports problems, one line each.
    #[error("the check of the image reports {}, first: {}", Quantity::new(to_u64(.0.len()), "problem"), .0.first().map_or("", String::as_str))]
    NotSound(Vec<String>),
    /// Files of the finished volume differ from their sources.
    #[error("files of the image that differ from their sources: {}", .0.len())]
    Differs(Vec<SourceProblem>),
    /// Two builds have different bytes.
    #[error("two builds differ in {}, first in byte {}: {}", Quantity::new(.0.bytes, "byte"), .0.offset, .0.place())]
    NotSame(Box<ByteDifference>),
    /// An error of the host.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// An entry of a source that cannot be used.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SourceProblem {
    /// The path in the source or in the image.
    pub path: Vec<u8>,
    /// The reason.
    pub why: SourceReason,
}

/// The reason why an entry of a source cannot be used.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceReason {
    /// The path is not usable.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A manifest names contents at this path, which is outside of the directories that the settings allow.
    #[error("the contents '{}' are outside of the directory of the manifest", escaped(.0))]
    Outside(Vec<u8>),
    /// Another reason, as a text.
    #[error("{0}")]
    Other(String),
}

impl From<String> for SourceReason {
    fn from(why: String) -> Self {
        Self::Other(why)
    }
}

impl From<&str> for SourceReason {
    fn from(why: &str) -> Self {
        Self::Other(why.to_owned())
    }
}

impl std::fmt::Display for SourceProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", escaped(&self.path), self.why)
    }
}

impl BuildFailure {
    /// Converts an error of the driver, with paths in place of node numbers.
    pub(super) fn of_plan(error: BuildError, tree: &Tree) -> Self {
        match error {
            BuildError::Format(error) => Self::Format(error),
            BuildError::TooSmall { len, needed } if needed <= len => Self::Full { size: len },
            BuildError::TooSmall { len, needed } => Self::TooSmall { size: len, needed },
            BuildError::Unfit(files) => {
                let problem = |(node, why): (_, obento_driver::Unfit)| SourceProblem {
                    path: tree.path(node),
                    why: why.to_string().into(),
                };
                Self::Unfit(files.into_iter().map(problem).collect())
            }
        }
    }
}
