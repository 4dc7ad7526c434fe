//! The hints for problems of copies.

use obento::copy::{CopyError, ProblemReason, special_word};

use super::Hint;

impl Hint for ProblemReason {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::DirectoryOmitted => "use -r to copy directories",
            Self::SpecialOmitted(kind) => {
                return Some(format!("use -r to copy the {} itself", special_word(*kind)));
            }
            Self::Nameless => "name the copy, not a directory",
            Self::Exhausted { shortage, .. } => shortage.remedy(),
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

impl Hint for CopyError {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::BadTarget { .. } => "name a file or an existing directory",
            Self::Packed { .. } => "unpack the file first",
            Self::Problem(reason) => return reason.hint(),
            _ => return None,
        };
        Some(hint.to_owned())
    }
}
