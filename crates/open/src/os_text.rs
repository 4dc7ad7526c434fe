//! Paths of the host as bytes.

#[cfg(not(unix))]
pub use portable::{OsStrExt, OsStringExt};
#[cfg(unix)]
pub use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// For targets whose paths are Unicode. Bytes that are not Unicode become a path that no file has.
#[cfg(not(unix))]
mod portable {
    use std::ffi::{OsStr, OsString};

    pub trait OsStrExt {
        fn as_bytes(&self) -> &[u8];
        fn from_bytes(bytes: &[u8]) -> &Self;
    }

    impl OsStrExt for OsStr {
        fn as_bytes(&self) -> &[u8] {
            self.as_encoded_bytes()
        }

        fn from_bytes(bytes: &[u8]) -> &Self {
            Self::new(str::from_utf8(bytes).unwrap_or_default())
        }
    }

    pub trait OsStringExt {
        fn from_vec(bytes: Vec<u8>) -> Self;
    }

    impl OsStringExt for OsString {
        fn from_vec(bytes: Vec<u8>) -> Self {
            String::from_utf8(bytes).unwrap_or_default().into()
        }
    }
}
