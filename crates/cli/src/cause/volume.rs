//! The hints for errors of volumes and devices, and of the operations that contain such errors.

use obento::Error;
use obento::base::DeviceError;
use obento::check::CheckError;
use obento::convert::{ConvertError, ConvertFailure, OverwriteFailure};
use obento::driver::{ResizeError, TuneError, UnsearchedReason};
use obento::fs::FsError;
use obento::partition::{CreateError, EditError};
use obento::resize::ResizeFailure;
use obento::tune::TuneFailure;
use obento::volume::GlobError;

use super::Cause;
use crate::report::{IMAGE_IS_FULL, VOLUME_IS_FULL};

/// ENOSPC and EDQUOT.
const FULL: [i32; 2] = [28, 122];

impl Cause for Error {
    fn inner(&self) -> Option<&dyn Cause> {
        match self {
            Self::Device(error) => Some(error),
            _ => None,
        }
    }

    fn hint(&self) -> Option<String> {
        match *self {
            Self::NoSpace => Some(VOLUME_IS_FULL.to_owned()),
            _ => self.inner()?.hint(),
        }
    }
}

impl Cause for DeviceError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Write { errno, .. } | Self::Flush { errno } if FULL.contains(errno) => {
                Some(IMAGE_IS_FULL.to_owned())
            }
            _ => None,
        }
    }
}

impl Cause for FsError {
    fn hint(&self) -> Option<String> {
        self.error().hint()
    }
}

containing! {
    CheckError {
        Self::Open(error) => error,
        Self::Failed(error) => error,
    }
    ConvertFailure {
        Self::Convert(error) => error,
        Self::Host(error) => error,
    }
    CreateError { Self::Device(error) => error }
    GlobError { Self::Volume(error) => error }
    EditError { Self::Device(error) => error }
    ResizeFailure {
        Self::Open(error) => error,
        Self::Table(error) => error,
        Self::File(error) => error,
        Self::Resize(ResizeError::Failed(error)) => error,
        Self::Longer { failure, .. } => &**failure,
    }
    TuneFailure {
        Self::Open(error) => error,
        Self::Tune(TuneError::Failed(error)) => error,
    }
    UnsearchedReason { Self::Device(error) => error }
}

impl Cause for ConvertError {
    fn inner(&self) -> Option<&dyn Cause> {
        match self {
            Self::Read(error) => Some(error),
            Self::Write(error) => Some(error),
            Self::Unpack(error) => Some(error),
            Self::TooLarge(_) | Self::Stopped => None,
        }
    }

    fn is_stop(&self) -> bool {
        matches!(self, Self::Stopped)
    }
}

impl Cause for OverwriteFailure {
    fn inner(&self) -> Option<&dyn Cause> {
        match self {
            Self::Read(error) | Self::Partition(error) => Some(error),
            Self::Unpack(error) => Some(error),
            Self::TooSmall { .. } | Self::Differs | Self::Stopped => None,
        }
    }

    fn is_stop(&self) -> bool {
        matches!(self, Self::Stopped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_about_a_full_disk_names_the_disk_of_the_image_only_if_the_image_could_not_be_written() {
        for errno in FULL {
            let full = DeviceError::Write { offset: 0, len: 512, errno };
            assert_eq!(Error::from(full).hint().as_deref(), Some(IMAGE_IS_FULL));
        }
        assert_eq!(Error::from(DeviceError::Flush { errno: 5 }).hint(), None);
        assert_eq!(Error::NoSpace.hint().as_deref(), Some(VOLUME_IS_FULL));
        // A quota is a limit of the volume: another disk does not help.
        assert_eq!(Error::QuotaExceeded.hint(), None);
    }
}
