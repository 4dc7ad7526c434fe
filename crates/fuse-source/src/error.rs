//! Errors of servers as errors of the contract.

use obento_base::{DeviceError, Error, Refusal};

/// The server did not respond in time.
pub const HUNG: Error = Error::Device(DeviceError::Server("did not respond in time"));
/// The server closed its connection.
pub const ENDED: Error = Error::Device(DeviceError::Server("ended"));
/// The server sent a reply that violates the protocol.
pub const NONSENSE: Error = Error::Device(DeviceError::Server("sent an invalid reply"));
/// `ENOSYS`: the server does not implement the request.
pub const NOT_IMPLEMENTED: i32 = 38;

/// Returns the error with this number: the inverse of [`Error::errno`].
pub fn of_errno(errno: i32) -> Error {
    Error::Refused(match errno {
        1 => Refusal::NotPermitted,
        2 => Refusal::NotFound,
        9 => Refusal::BadHandle,
        12 => Refusal::NoMemory,
        13 => Refusal::AccessDenied,
        16 => Refusal::Busy,
        17 => Refusal::Exists,
        18 => Refusal::CrossDevice,
        20 => Refusal::NotDirectory,
        21 => Refusal::IsDirectory,
        22 => Refusal::Invalid,
        27 => Refusal::FileTooBig,
        // ENOSPC and EDQUOT.
        28 | 122 => Refusal::NoSpace,
        30 => Refusal::ReadOnly,
        31 => Refusal::TooManyLinks,
        34 => Refusal::OutOfRange,
        36 => Refusal::NameTooLong,
        39 => Refusal::NotEmpty,
        40 => Refusal::Loop,
        61 => Refusal::NoData,
        NOT_IMPLEMENTED | 95 => Refusal::NotSupported,
        116 => Refusal::Stale,
        5 => return DeviceError::Server("reports an input/output error").into(),
        107 | 110 | 111 | 113 => return DeviceError::Server("lost its own connection").into(),
        _ => {
            tracing::debug!(errno, "a FUSE server reports an error number without a name here");
            return DeviceError::Server("reports an unknown error").into();
        }
    })
}
