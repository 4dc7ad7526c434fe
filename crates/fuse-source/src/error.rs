//! Errors of servers as errors of the contract.

use obento_base::{DeviceError, Error, Refusal};

/// The server did not respond in time.
pub const HUNG: Error = Error::Device(DeviceError::Server("did not respond in time"));
/// The server closed its connection.
pub const ENDED: Error = Error::Device(DeviceError::Server("ended"));
/// The server sent a reply that violates the protocol.
pub const NONSENSE: Error = Error::Device(DeviceError::Server("sent an invalid reply"));
/// A directory has more entries than permitted.
pub const TOO_MANY_ENTRIES: Error =
    Error::Device(DeviceError::Server("lists more than 10 million entries of a directory"));
/// The table of inodes is full.
pub const TOO_MANY_FILES: Error =
    Error::Device(DeviceError::Server("has more directories than obento can remember"));
/// `ENOSYS`: the server does not implement the request.
pub const NOT_IMPLEMENTED: i32 = 38;

/// Returns the error with this number: the inverse of [`Error::errno`].
pub fn of_errno(errno: i32) -> Error {
    let reason = match errno {
        // EDQUOT.
        122 => return Error::NoSpace,
        NOT_IMPLEMENTED => return Error::NotSupported,
        5 => "reports an input/output error",
        107 | 110 | 111 | 113 => "lost its own connection",
        _ => match Refusal::of_errno(errno) {
            Some(refusal) if refusal != Refusal::NoSuchOffset => return Error::Refused(refusal),
            _ => {
                tracing::debug!(errno, "a FUSE server reports an error number without a name here");
                "reports an unknown error"
            }
        },
    };
    DeviceError::Server(reason).into()
}
