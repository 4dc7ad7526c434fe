//! The errors of parsing an address, each with what to do next.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::text::{Escaped, escaped};

/// The error of parsing an address. Each message ends with what to do next.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddressError {
    /// The text is empty.
    #[error("an empty argument names nothing: give a path, or IMAGE:/PATH")]
    Empty,
    /// The text is `host:` without a path.
    #[error("`host:` needs a path after it: `host:./name`")]
    EmptyHostPath,
    /// The text has the form of an address, but the image does not exist.
    #[error(
        "{}: no such image file; check the name, or write `host:` before a host path that holds `:/`",
        shown(image)
    )]
    MissingImage {
        /// The image that does not exist.
        image: PathBuf,
    },
    /// The path in the image does not start with `/`.
    #[error(
        "`{image}:{path}`: a path in an image starts with `/`: write `{image}:/{path}`, or `host:` before a host path"
    )]
    RelativePath {
        /// The text before the colon.
        image: String,
        /// The text after the colon.
        path: String,
    },
    /// The image is a directory.
    #[error("{}: is a directory of the host, not an image; name a file or device", shown(path))]
    HostDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// The text is `-`, but the command needs an image.
    #[error(
        "an image cannot be read from standard input, because it is read out of order; save it to a file"
    )]
    ImageFromStdin,
    /// The syntax of the partition is wrong.
    #[error("`@{part}`: {why}")]
    Part {
        /// The text after the `@`.
        part: String,
        /// The error, and what to write instead.
        why: &'static str,
    },
}

fn shown(path: &Path) -> Escaped<'_> {
    escaped(path.as_os_str().as_bytes())
}
