//! The errors of parsing an address.

use std::path::{Path, PathBuf};

use crate::text::Typed;

/// The error of parsing an address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddressError {
    /// The text is empty.
    #[error("the argument is empty")]
    Empty,
    /// The text is `host:` without a path.
    #[error("'host:' requires a path")]
    EmptyHostPath,
    /// The text names a part without an image.
    #[error("invalid address '{part}': the image before '@' is missing")]
    NoImage {
        /// The text.
        part: String,
    },
    /// The text has the form of an address, but the image does not exist.
    #[error("cannot open '{}': no such file", shown(image))]
    MissingImage {
        /// The image that does not exist.
        image: PathBuf,
    },
    /// The text consists of an image only, which does not exist.
    #[error("cannot open '{}': no such file", shown(image))]
    MissingFile {
        /// The image that does not exist.
        image: PathBuf,
    },
    /// The path in the image starts with `#`, but is not the number of an inode.
    #[error("invalid address '{image}:{path}': '#' must be followed by the number of an inode")]
    Inode {
        /// The text before the colon.
        image: String,
        /// The text after the colon.
        path: String,
    },
    /// The path in the image does not start with `/`.
    #[error("invalid address '{image}:{path}': a path in an image starts with '/'")]
    RelativePath {
        /// The text before the colon.
        image: String,
        /// The text after the colon.
        path: String,
    },
    /// The image is a directory.
    #[error("cannot open '{}': is a directory of the host, not an image", shown(path))]
    HostDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// The text is the command line of a FUSE server, but also the name of a file of the host.
    #[error("'{text}' is also the name of a file of the host")]
    ServerOrFile {
        /// The text, or the part that is the name of the file.
        text: String,
    },
    /// The command line of a FUSE server is not followed by a path.
    #[error("'{text}' has no path after the command of the server")]
    ServerWithoutPath {
        /// The text.
        text: String,
    },
    /// The text is `-`, but the command needs an image.
    #[error("cannot open standard input as an image: an image is read at arbitrary offsets")]
    ImageFromStdin,
    /// The syntax of the partition is wrong.
    #[error("invalid partition '@{part}': {why}")]
    Part {
        /// The text after the `@`.
        part: String,
        /// The reason and the correct syntax.
        why: &'static str,
    },
}

fn shown(path: &Path) -> Typed<'_> {
    Typed(path.as_os_str().as_encoded_bytes())
}
