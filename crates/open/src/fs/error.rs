//! The error of a function that takes a path: the action, the path and the reason.

use std::io;

use obento_base::Error;

use crate::text::escaped;

/// The error of a failed function call.
///
/// ```
/// use obento::{Error, Volume};
///
/// let error = Volume::in_memory().open("/none").unwrap_err();
/// assert_eq!(error.to_string(), "cannot open '/none': no such file or directory");
/// assert_eq!(error.error(), Error::NotFound);
/// // The conversion to an error of the standard library preserves the message and the kind.
/// assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::NotFound);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("cannot {action} '{}': {error}", escaped(path))]
pub struct FsError {
    action: &'static str,
    path: Vec<u8>,
    #[source]
    error: Error,
}

impl FsError {
    /// Creates the error for `action`, a verb such as `open`, that failed on `path`.
    pub fn new(action: &'static str, path: impl AsRef<[u8]>, error: impl Into<Error>) -> Self {
        Self { action, path: path.as_ref().to_vec(), error: error.into() }
    }

    /// Returns the action that failed, as a verb.
    pub fn action(&self) -> &'static str {
        self.action
    }

    /// Returns the path in the volume that the action failed on.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Returns the reason.
    pub fn error(&self) -> Error {
        self.error
    }
}

impl From<FsError> for io::Error {
    fn from(error: FsError) -> Self {
        // The host's text for the error number is less precise than the message of `error`.
        let kind = Self::from_raw_os_error(error.error.errno().0).kind();
        Self::new(kind, error)
    }
}
