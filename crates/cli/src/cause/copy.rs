//! The hints for problems of copies.

use obento::copy::{CopyError, ProblemReason, Shortage, special_word};
use obento::import::MemberProblem;

use super::{Cause, Complete};

impl Cause for Shortage {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Inodes(_) => "remove files, or create a volume with more inodes: obento mkfs -N COUNT",
            Self::Entries => {
                "use a subdirectory, remove files, or create a volume with a larger root directory: obento mkfs \
                 -t vfat -E root_entries=COUNT, or -E fat=32"
            }
            Self::Attributes => "use a smaller value, or remove other attributes of the file",
        };
        Some(hint.to_owned())
    }
}

impl Cause for ProblemReason {
    fn inner(&self) -> Option<&dyn Cause> {
        match self {
            Self::Volume(error) | Self::Listing(error) | Self::Target { error, .. } => Some(error),
            Self::Exhausted { shortage, .. } => Some(shortage),
            Self::Host(error) => Some(error),
            Self::Member(MemberProblem::Limit(error)) => Some(error),
            _ => None,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::DirectoryOmitted => "use -r to copy directories",
            Self::SpecialOmitted(kind) => {
                return Some(format!("use -r to copy the {} itself", special_word(*kind)));
            }
            Self::Nameless => "name the copy, not a directory",
            _ => return self.inner()?.hint(),
        };
        Some(hint.to_owned())
    }
}

impl Complete for CopyError {}

impl Cause for CopyError {
    fn inner(&self) -> Option<&dyn Cause> {
        match self {
            Self::Problem(reason) => Some(reason),
            Self::Host(error) => Some(error),
            Self::Volume(error) | Self::Target { error, .. } => Some(error),
            Self::Input(error) | Self::Output(error) => Some(error),
            _ => None,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::BadTarget { .. } => "name a file or an existing directory",
            Self::Packed { .. } => "unpack the file first",
            _ => return self.inner()?.hint(),
        };
        Some(hint.to_owned())
    }
}
