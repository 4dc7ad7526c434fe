//! Errors of servers as errors of the contract.

use obento_base::{DeviceError, Error, Refusal};

/// The server did not respond in time.
pub const HUNG: Error = Error::Device(DeviceError::Nfs("did not respond in time"));
/// The connection ended and cannot be opened again.
pub const ENDED: Error = Error::Device(DeviceError::Nfs("closed the connection"));
/// The server sent a reply that violates the protocol.
pub const NONSENSE: Error = Error::Device(DeviceError::Nfs("sent an invalid reply"));
/// The server rejects the call: another version, or other credentials.
pub const REJECTED: Error = Error::Device(DeviceError::Nfs("rejects the call"));
/// `NFS3ERR_JUKEBOX`: the server asks to try again later.
pub const LATER: u32 = 10008;

/// `NFS3ERR_NOTSUPP`: the server does not support the call.
pub const NOT_SUPPORTED: u32 = 10004;

/// Returns the error with this number (RFC 1813, `nfsstat3`).
pub fn of_status(status: u32) -> Error {
    Error::Refused(match status {
        1 => Refusal::NotPermitted,
        2 => Refusal::NotFound,
        13 => Refusal::AccessDenied,
        17 => Refusal::Exists,
        18 => Refusal::CrossDevice,
        20 => Refusal::NotDirectory,
        21 => Refusal::IsDirectory,
        22 => Refusal::Invalid,
        27 => Refusal::FileTooBig,
        28 => Refusal::NoSpace,
        69 => Refusal::QuotaExceeded,
        30 => Refusal::ReadOnly,
        31 => Refusal::TooManyLinks,
        63 => Refusal::NameTooLong,
        66 => Refusal::NotEmpty,
        70 | 10001 => Refusal::Stale,
        10004 | 10007 => Refusal::NotSupported,
        5 => return DeviceError::Nfs("reports an input/output error").into(),
        LATER => return DeviceError::Nfs("is not ready").into(),
        _ => {
            tracing::debug!(status, "an NFS server reports an error number without a name here");
            return DeviceError::Nfs("reports an unknown error").into();
        }
    })
}
