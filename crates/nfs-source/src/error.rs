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
/// A directory has more entries than the caller permits.
pub const TOO_MANY_ENTRIES: Error =
    Error::Device(DeviceError::Nfs("lists more entries of a directory than permitted"));
/// The table of files is full.
pub const TOO_MANY_FILES: Error =
    Error::Device(DeviceError::Nfs("has more directories than obento can remember"));
/// `NFS3ERR_JUKEBOX`: the server asks to try again later.
pub const LATER: u32 = 10008;

/// `NFS3ERR_NOTSUPP`: the server does not support the call.
pub const NOT_SUPPORTED: u32 = 10004;

/// Returns the error with this number (RFC 1813, `nfsstat3`).
pub fn of_status(status: u32) -> Error {
    let reason = match status {
        63 => return Error::NameTooLong,
        66 => return Error::NotEmpty,
        69 => return Error::QuotaExceeded,
        70 | 10001 => return Error::Stale,
        NOT_SUPPORTED | 10007 => return Error::NotSupported,
        5 => "reports an input/output error",
        LATER => "is not ready",
        // Statuses up to this one have the numbers of errors of Linux.
        _ => match i32::try_from(status).ok().filter(|status| *status <= 31).and_then(Refusal::of_errno) {
            Some(refusal) if refusal != Refusal::NoSuchOffset => return Error::Refused(refusal),
            _ => {
                tracing::debug!(status, "an NFS server reports an error number without a name here");
                "reports an unknown error"
            }
        },
    };
    DeviceError::Nfs(reason).into()
}
