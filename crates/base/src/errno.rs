//! The mapping from errors to the error numbers of Linux. No other module contains such a mapping.

use core::fmt;

use crate::{Error, Refusal};

/// An error number of Linux (include/uapi/asm-generic/errno-base.h and errno.h).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Errno(pub i32);

/// Displays the meaning of the number for an operation on a device, which usually is a file of the host.
/// Displays `error N` for a number whose meaning this function does not list.
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
    /// Returns the error number that a system call of Linux would return: for `Refused`, the number that the
    /// documentation of [`Refusal`] contains; for `Unsupported`, `EOPNOTSUPP`; for `Corrupt`, `EUCLEAN`; for `Device`,
    /// `EIO`.
    pub fn errno(&self) -> Errno {
        Errno(match self {
            Self::Refused(refusal) => refusal.errno(),
            Self::Unsupported(_) => 95,
            Self::Corrupt(_) => 117,
            Self::Device(_) => 5,
        })
    }
}

macro_rules! numbers {
    ($($refusal:ident $number:literal),*) => {
        impl Refusal {
            fn errno(self) -> i32 {
                match self {
                    $(Self::$refusal => $number,)*
                }
            }

            /// Returns the refusal with this error number of Linux, or `None` if no refusal has this number. This is
            /// the inverse of [`Error::errno`] for `Error::Refused`.
            pub fn of_errno(errno: i32) -> Option<Self> {
                Some(match errno {
                    $($number => Self::$refusal,)*
                    _ => return None,
                })
            }
        }
    };
}
numbers! {
    NotPermitted 1, NotFound 2, NoSuchOffset 6, BadHandle 9, NoMemory 12, AccessDenied 13, Busy 16, Exists 17,
    CrossDevice 18, NotDirectory 20, IsDirectory 21, Invalid 22, FileTooBig 27, NoSpace 28, ReadOnly 30,
    TooManyLinks 31, OutOfRange 34, NameTooLong 36, NotEmpty 39, Loop 40, NoData 61, NotSupported 95, Stale 116,
    QuotaExceeded 122
}
