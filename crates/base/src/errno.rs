//! The one place where errors become the numbers of POSIX.

use crate::{Error, Refusal};

/// An error number as Linux has them (include/uapi/asm-generic/errno-base.h and errno.h).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Errno(pub i32);

impl Error {
    /// The error number that a system call would answer with.
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
