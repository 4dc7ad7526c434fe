//! The hints for images that are not built.

use obento::build::{BuildFailure, PathError, SourceReason};
use obento::driver::FormatError;

use super::Cause;

containing! {
    BuildFailure {
        Self::Format(error) => error,
        Self::Volume(error) => error,
        Self::Host(error) => error,
        Self::Partition { failure, .. } => &**failure,
    }
    FormatError { Self::Device(error) => error }
}

impl Cause for SourceReason {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Path(PathError::Texts(_)) => "use --unpack-memory SIZE to allow more",
            Self::Path(PathError::Implied(_)) => "use --max-unpacked SIZE to allow more",
            Self::Outside(_) => "use --contents DIR to allow another directory",
            _ => return None,
        };
        Some(hint.to_owned())
    }
}
