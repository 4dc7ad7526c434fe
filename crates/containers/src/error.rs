//! The errors of opening a disk image.

use obento_base::Error;

use crate::Format;

/// The name of qcow2 in messages.
const QCOW2: &str = "qcow2";

/// A disk image that cannot be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenFailure {
    /// A structure violates the format.
    #[error("damaged {format} data: {structure}: {reason}")]
    Damaged {
        /// The name of the format.
        format: &'static str,
        /// The structure, as the specification names it.
        structure: &'static str,
        /// The violation.
        reason: &'static str,
    },
    /// The image uses a feature that this crate does not support.
    #[error("{format} with {feature} is not supported")]
    Unsupported {
        /// The name of the format.
        format: &'static str,
        /// The feature.
        feature: &'static str,
    },
    /// The image cannot be changed before its reference counts are repaired.
    #[error("the reference counts of the {format} image must be repaired first")]
    WrongCounts {
        /// The name of the format.
        format: &'static str,
    },
    /// A read failed.
    #[error(transparent)]
    Device(Error),
}

/// An [`OpenFailure`] without the format, which the caller adds.
#[derive(Debug)]
pub(crate) enum Opening {
    Damaged { structure: &'static str, reason: &'static str },
    Unsupported(&'static str),
    WrongCounts,
    Device(Error),
}

impl Opening {
    pub fn damaged(structure: &'static str, reason: &'static str) -> Self {
        Self::Damaged { structure, reason }
    }

    pub fn of(self, format: Format) -> OpenFailure {
        self.named(format.name())
    }

    pub fn of_qcow2(self) -> OpenFailure {
        self.named(QCOW2)
    }

    fn named(self, format: &'static str) -> OpenFailure {
        match self {
            Self::Damaged { structure, reason } => OpenFailure::Damaged { format, structure, reason },
            Self::Unsupported(feature) => OpenFailure::Unsupported { format, feature },
            Self::WrongCounts => OpenFailure::WrongCounts { format },
            Self::Device(error) => OpenFailure::Device(error),
        }
    }
}

impl From<Error> for Opening {
    fn from(error: Error) -> Self {
        Self::Device(error)
    }
}
