//! The mapping from errors to the error numbers of Linux. No other module contains such a mapping.

use core::fmt;

use crate::{Error, Refusal};

/// An error number of Linux (include/uapi/asm-generic/errno-base.h and errno.h).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Errno(pub i32);

/// Displays the meaning of the number for an operation on a device, which usually is a file of the host.
/// Displays `error N` for all other numbers.
impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            0 => "the data is damaged",
            1 => "operation not permitted",
            4 => "interrupted",
            5 => "input/output error",
            6 => "no such device or address",
            9 => "not open for this operation",
            11 => "resource temporarily unavailable",
            12 => "out of memory",
            13 => "permission denied",
            16 => "device or resource busy",
            19 => "no such device",
            22 => "invalid argument",
            27 => "file too large",
            28 => "no space left on the disk of the image",
            30 => "read-only file system",
            38 => "function not implemented",
            61 => "no data available",
            84 => "invalid or incomplete data",
            95 => "operation not supported",
            107 => "not connected",
            110 => "timed out",
            116 => "stale file handle",
            121 => "remote input/output error",
            122 => "disk quota exceeded on the file system of the image",
            123 => "no medium found",
            number => return write!(f, "error {number}"),
        })
    }
}

impl Error {
    /// Returns the error number that a system call of Linux would return. Damage is `EUCLEAN`, and a failure of the
    /// device is `EIO`.
    pub fn errno(&self) -> Errno {
        Errno(match self {
            Self::Refused(refusal) => match refusal {
                Refusal::NotPermitted => 1,
                Refusal::NotFound => 2,
                Refusal::BadHandle => 9,
                Refusal::Busy => 16,
                Refusal::AccessDenied => 13,
                Refusal::Exists => 17,
                Refusal::CrossDevice => 18,
                Refusal::NotDirectory => 20,
                Refusal::IsDirectory => 21,
                Refusal::Invalid => 22,
                Refusal::FileTooBig => 27,
                Refusal::NoSpace => 28,
                Refusal::QuotaExceeded => 122,
                Refusal::ReadOnly => 30,
                Refusal::TooManyLinks => 31,
                Refusal::OutOfRange => 34,
                Refusal::NameTooLong => 36,
                Refusal::NotEmpty => 39,
                Refusal::Loop => 40,
                Refusal::NoData => 61,
                Refusal::NoMemory => 12,
                Refusal::Stale => 116,
                Refusal::NotSupported => 95,
                Refusal::NoSuchOffset => 6,
            },
            Self::Unsupported(_) => 95,
            Self::Corrupt(_) => 117,
            Self::Device(_) => 5,
        })
    }
}
