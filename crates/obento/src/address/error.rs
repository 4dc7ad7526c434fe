//! What can be wrong with an address, each with what to do about it.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::text::{Escaped, escaped};

/// Why a text is no address. Each message ends with what to do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddressError {
    /// Nothing was written.
    #[error("an empty argument names nothing: give a path, or IMAGE:/PATH")]
    Empty,
    /// `host:` alone.
    #[error("`host:` needs a path after it: `host:./name`")]
    EmptyHostPath,
    /// The text looks like an address, but there is no such image.
    #[error(
        "{}: no such image file; check the name, or write `host:` before a host path that holds `:/`",
        shown(image)
    )]
    MissingImage {
        /// The file that is not there.
        image: PathBuf,
    },
    /// A path in an image that does not start with `/`.
    #[error(
        "`{image}:{path}`: a path in an image starts with `/`: write `{image}:/{path}`, or `host:` before a host path"
    )]
    RelativePath {
        /// What is before the colon.
        image: String,
        /// What is after it.
        path: String,
    },
    /// A directory stands where an image should.
    #[error("{}: is a directory of the host, not an image; name a file or device", shown(path))]
    HostDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// `-` where an image is needed.
    #[error(
        "an image cannot be read from standard input, because it is read out of order; save it to a file"
    )]
    ImageFromStdin,
    /// A partition that is written wrongly.
    #[error("`@{part}`: {why}")]
    Part {
        /// What stands after the `@`.
        part: String,
        /// What is wrong and what to write.
        why: &'static str,
    },
}

fn shown(path: &Path) -> Escaped<'_> {
    escaped(path.as_os_str().as_bytes())
}
