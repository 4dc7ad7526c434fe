//! The address syntax. Every command uses it for files on the host, files in an image, and standard input and output.
//!
//! | text | meaning |
//! |---|---|
//! | `disk.img:/etc/passwd` | a path in the only file system of the image |
//! | `disk.img@2:/etc`, `disk.img@label=root:/etc` | a path in a partition |
//! | `disk.img@+1048576:/` | a path in the file system that starts at this byte |
//! | `disk.qcow2%NAME:/etc`, `disk.qcow2%NAME@2:/etc` | a path in a snapshot of a qcow2 image |
//! | `disk.img:#12`, `disk.img:12`, `disk.img:<12>` | an inode by its number (a shell needs quotes around the last) |
//! | `nfs://host/export:/etc` | a path in an NFS export |
//! | `fuse:sshfs host:/dir:/etc` | a path on a FUSE server; the last `:/` ends the command line of the server |
//! | `-` | standard input or output |
//! | `host:odd:/name` | a host path that looks like an address |
//! | anything else | a host path |
//!
//! The parser checks a text in this order:
//!
//! 1. A text with one of the prefixes `host:`, `fuse:` and `nfs://`, or the text `-`, has the meaning in the
//!    table. A text with the prefix `fuse:` is an error if it has no path, or if a pattern of the shell may have
//!    produced it. The parser assumes such a pattern if the whole text, or its part before any `:`, `@`, `%` or
//!    `/`, is the name of a file. The caller must also refuse the text if another user can rename this file before
//!    the parser checks the name, see [`is_server`].
//! 2. The parser looks for a colon that a path or an inode number follows. The first such colon whose left
//!    side names an existing image (`IMAGE`, `IMAGE%NAME`, each also with `@PART`) separates the image from
//!    the file in it.
//! 3. If a file with the whole text as its path exists on the host, the text is a host path.
//! 4. Otherwise, a text in the form of an address is an error. It is not the path of a new host file, since a
//!    mistyped image must not become a directory.
//! 5. Any other text is a host path.
//!
//! If the image exists, `disk.img:etc` without the `/` is an error. `IMAGE:12` without brackets is an address only if
//! the image exists.
//!
//! The parser accesses the host only through [`HostEntry`], which is a parameter. Apart from that, the result depends
//! only on the text.

mod error;
mod part;
mod snapshot;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use obento_base::Ino;

use crate::os_text::{OsStrExt as _, OsStringExt as _};
use crate::text::{self, Typed, escaped};
pub use error::AddressError;
pub use part::PartSelector;
pub use snapshot::snapshot_of;

/// The file that an argument of a command refers to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operand {
    /// A path of the host, which need not exist.
    Host(PathBuf),
    /// `-`: standard input or output.
    Stdio,
    /// A file in an image.
    Image(Address),
}

/// A file or file system in an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// The image file or device, or `FILE%NAME` for a snapshot in it (see [`snapshot_of`]).
    pub image: PathBuf,
    /// The file system in the image. With `None`, the image must contain only one.
    pub part: Option<PartSelector>,
    /// The file in the file system. `None` if the text contains only the image; most commands then use the root
    /// directory.
    pub place: Option<FileSelector>,
}

/// A file in a file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileSelector {
    /// An absolute path as bytes, in any encoding.
    Path(Vec<u8>),
    /// An inode number.
    Inode(Ino),
}

/// The kind of host file at a path, as needed by the parser.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostEntry {
    /// The path does not exist.
    Missing,
    /// A file or device, which can be an image.
    File,
    /// A directory.
    Directory,
    /// A symbolic link whose target does not exist.
    DanglingLink,
}

impl HostEntry {
    /// Looks up `path` on the host. If the host cannot determine whether the file exists, returns `File`.
    /// Opening the file then fails with the reason.
    pub fn look_up(path: &Path) -> Self {
        match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => Self::Directory,
            Ok(_) => Self::File,
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound if std::fs::symlink_metadata(path).is_ok() => Self::DanglingLink,
                // A file system has no file with a name that is too long.
                io::ErrorKind::NotFound
                | io::ErrorKind::NotADirectory
                | io::ErrorKind::InvalidInput
                | io::ErrorKind::InvalidFilename => Self::Missing,
                _ => Self::File,
            },
        }
    }
}

impl Operand {
    /// Parses an argument. Looks up files on the host to distinguish addresses from host paths.
    pub fn parse(text: &OsStr) -> Result<Self, AddressError> {
        Self::parse_with(text, &HostEntry::look_up)
    }

    /// Parses an argument. `entry` looks up the files of the host.
    ///
    /// ```
    /// use obento::address::{FileSelector, HostEntry, Operand, PartSelector};
    /// # use std::path::Path;
    ///
    /// let host = |path: &Path| match path.to_str() {
    ///     Some("disk.img") => HostEntry::File,
    ///     _ => HostEntry::Missing,
    /// };
    /// let Ok(Operand::Image(address)) = Operand::parse_with("disk.img@2:/etc".as_ref(), &host) else { panic!() };
    /// assert_eq!(address.image, Path::new("disk.img"));
    /// assert_eq!(address.part, Some(PartSelector::Number(2)));
    /// assert_eq!(address.place, Some(FileSelector::Path(b"/etc".to_vec())));
    ///
    /// // A mistyped image is an error, never a new file on the host.
    /// assert!(Operand::parse_with("dsik.img:/etc".as_ref(), &host).is_err());
    /// ```
    pub fn parse_with(text: &OsStr, entry: &dyn Fn(&Path) -> HostEntry) -> Result<Self, AddressError> {
        let bytes = text.as_bytes();
        match bytes {
            b"" => return Err(AddressError::Empty),
            b"-" => return Ok(Self::Stdio),
            b"host:" => return Err(AddressError::EmptyHostPath),
            _ => {}
        }
        if let Some(path) = bytes.strip_prefix(b"host:") {
            return Ok(Self::Host(PathBuf::from(OsString::from_vec(path.to_vec()))));
        }
        if let Some(address) = server_address(bytes) {
            return expect_intended(bytes, entry).map(|()| Self::Image(address));
        }
        let splits = splits(bytes);
        for split in &splits {
            if let Some((image, part)) = image_and_part(split.left, entry) {
                let part = part.map(PartSelector::parse).transpose()?;
                return Ok(Self::Image(Address { image, part, place: Some(split.place.clone()) }));
            }
        }
        let whole = Path::new(text);
        if !matches!(entry(whole), HostEntry::Missing | HostEntry::DanglingLink) {
            return Ok(Self::Host(whole.to_path_buf()));
        }
        match splits.first() {
            Some(split) if !split.bare_number => Err(missing_image(split.left, entry)),
            _ => relative_path(bytes, entry).map_or_else(|| Ok(Self::Host(whole.to_path_buf())), Err),
        }
    }
}

/// Returns the error for an existing image with a path that does not start with `/`.
fn relative_path(text: &[u8], entry: &dyn Fn(&Path) -> HostEntry) -> Option<AddressError> {
    let colons = text.iter().enumerate().filter(|&(_, &byte)| byte == b':');
    let mut images = colons.filter_map(|(at, _)| Some((at, image_and_part(&text[..at], entry)?)));
    let (at, _) = images.next()?;
    let (image, path) = (Typed(&text[..at]).to_string(), Typed(&text[at + 1..]).to_string());
    Some(match path.starts_with('#') {
        true => AddressError::Inode { image, path },
        false => AddressError::RelativePath { image, path },
    })
}

impl Address {
    /// Parses an argument of a command that uses the root directory if the text contains only an image. Accepts
    /// `disk.img`, `disk.img@2`, and all addresses.
    pub fn parse(text: &OsStr) -> Result<Self, AddressError> {
        Self::parse_with(text, &HostEntry::look_up)
    }

    /// Like [`Address::parse`], but `entry` looks up the files of the host.
    pub fn parse_with(text: &OsStr, entry: &dyn Fn(&Path) -> HostEntry) -> Result<Self, AddressError> {
        let path = match Operand::parse_with(text, entry)? {
            Operand::Image(address) => return Ok(address),
            Operand::Stdio => return Err(AddressError::ImageFromStdin),
            Operand::Host(path) => path,
        };
        if entry(&path) == HostEntry::Directory {
            return Err(AddressError::HostDirectory { path });
        }
        match image_and_part(path.as_os_str().as_bytes(), entry) {
            Some((image, part)) => {
                Ok(Self { image, part: part.map(PartSelector::parse).transpose()?, place: None })
            }
            None => Err(match missing_image(path.as_os_str().as_bytes(), entry) {
                AddressError::MissingImage { image } => AddressError::MissingFile { image },
                error => error,
            }),
        }
    }

    /// Returns the command line of the FUSE server or the URL of the NFS export, if the address refers to a
    /// server. Returns `None` for a file or device.
    ///
    /// ```
    /// use obento::address::Address;
    ///
    /// let address = Address::parse("fuse:sshfs host:/dir:/etc".as_ref())?;
    /// assert_eq!(address.server(), Some("sshfs host:/dir".as_ref()));
    /// # Ok::<(), obento::address::AddressError>(())
    /// ```
    pub fn server(&self) -> Option<&OsStr> {
        server_of(&self.image)
    }
}

/// The start of an address that names a FUSE server.
const SERVER: &[u8] = b"fuse:";
/// The start of an address that names an NFS export.
const EXPORT: &[u8] = b"nfs://";
/// The bytes of a path of Linux with its final zero (limits.h).
const PATH_MAX: usize = 4096;

/// Returns the command line of the FUSE server or the whole URL of the NFS export that `image` refers to.
pub fn server_of(image: &Path) -> Option<&OsStr> {
    let bytes = image.as_os_str().as_bytes();
    let export = Some(bytes).filter(|bytes| bytes.starts_with(EXPORT));
    bytes.strip_prefix(SERVER).or(export).map(OsStr::from_bytes)
}

/// Parses the address of a FUSE server or of an NFS export. A server has one file system.
fn server_address(text: &[u8]) -> Option<Address> {
    let start = [SERVER, EXPORT].into_iter().find(|start| text.starts_with(start))?.len();
    let end = text[start..].windows(2).rposition(|pair| pair == b":/");
    let (image, place) = text.split_at(end.map_or(text.len(), |end| start + end));
    let place = place.get(1..).map(|path| FileSelector::Path(path.to_vec()));
    Some(Address { image: PathBuf::from(OsString::from_vec(image.to_vec())), part: None, place })
}

/// Checks that no pattern of a shell has produced the command line of a server. Such a command line would run
/// the name of a file as a program. No file name contains `/`, so a pattern such as `*` produces no text with
/// `:/`. A pattern such as `*/*` can produce such a text, and so can a loop that appends `:/etc` or `@2:/etc` to each
/// name. The function detects both cases while the file exists. The first component of a text that a pattern has
/// produced is the name of a file in the current directory, even if a file that later components refer to was removed.
fn expect_intended(bytes: &[u8], entry: &dyn Fn(&Path) -> HostEntry) -> Result<(), AddressError> {
    if !bytes.starts_with(SERVER) {
        return Ok(());
    }
    let command = &bytes[SERVER.len()..];
    let marks = command.iter().enumerate().filter(|&(_, byte)| b":@%/".contains(byte));
    let ends = marks.map(|(at, _)| SERVER.len() + at).chain([bytes.len()]).filter(|&end| end < PATH_MAX);
    let mut names = ends.map(|end| Path::new(OsStr::from_bytes(&bytes[..end])));
    if let Some(name) = names.find(|&name| entry(name) != HostEntry::Missing) {
        return Err(AddressError::ServerOrFile { text: escaped(name.as_os_str().as_bytes()).to_string() });
    }
    match command.windows(2).any(|pair| pair == b":/") {
        true => Ok(()),
        false => Err(AddressError::ServerWithoutPath { text: escaped(bytes).to_string() }),
    }
}

/// Returns whether `text` is an address of a FUSE server or of an NFS export. Opening such an address starts
/// a program, or connects to a host. A caller must not open such an address in these cases:
///
/// - The text does not come from the user, for example because it is a name in a list.
/// - Another user can change the current directory. A pattern of the shell may then have produced the text from the
///   name of a file of this user.
pub fn is_server(text: &OsStr) -> bool {
    server_address(text.as_bytes()).is_some()
}

/// A way to split the text into the parts of an address.
struct Split<'a> {
    left: &'a [u8],
    place: FileSelector,
    /// Whether the place is a number without brackets. `IMAGE:12` is an address only if the image exists,
    /// because the name of a file may have this form.
    bare_number: bool,
}

/// Returns every way to split `text`, from the left.
fn splits(text: &[u8]) -> Vec<Split<'_>> {
    let colons = text.iter().enumerate().filter(|&(at, &byte)| byte == b':' && at > 0);
    colons
        .filter_map(|(at, _)| {
            let (left, right) = (&text[..at], &text[at + 1..]);
            let bracketed = right.strip_prefix(b"<").and_then(|rest| rest.strip_suffix(b">"));
            let marked = bracketed.or_else(|| right.strip_prefix(b"#"));
            let (place, bare_number) = match (right.first()?, marked) {
                (b'/', _) => (FileSelector::Path(right.to_vec()), false),
                (_, Some(digits)) => (FileSelector::Inode(number(digits)?), false),
                _ => (FileSelector::Inode(number(right)?), true),
            };
            Some(Split { left, place, bare_number })
        })
        .collect()
}

fn number(digits: &[u8]) -> Option<Ino> {
    let all_digits = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| all_digits)?.parse().ok().map(Ino)
}

/// Parses the left side of an address, `IMAGE` or `IMAGE@PART`, if the image exists. `IMAGE` is a file or a snapshot,
/// `FILE%NAME`. A file whose own name contains an `@` takes precedence over a partition of another file.
fn image_and_part<'a>(
    left: &'a [u8],
    entry: &dyn Fn(&Path) -> HostEntry,
) -> Option<(PathBuf, Option<&'a [u8]>)> {
    let as_file = |bytes: &[u8]| {
        let path = Path::new(OsStr::from_bytes(bytes));
        let is_image = |path| entry(path) == HostEntry::File || snapshot_of(path, entry).is_some();
        (!bytes.is_empty() && is_image(path)).then(|| path.to_path_buf())
    };
    if let Some(image) = as_file(left) {
        return Some((image, None));
    }
    let (image, part) = split_part(left)?;
    Some((as_file(image)?, Some(part)))
}

/// Splits at the last `@`. A PART contains no `@`, because it is percent-encoded, and no `/`.
fn split_part(left: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = left.iter().rposition(|&byte| byte == b'@')?;
    let (image, part) = (&left[..at], &left[at + 1..]);
    (!part.contains(&b'/')).then_some((image, part))
}

/// Returns the error for a left side that names no file. The error contains the name of the image without the
/// partition, if a partition is recognised.
fn missing_image(left: &[u8], entry: &dyn Fn(&Path) -> HostEntry) -> AddressError {
    let image = split_part(left).map_or(left, |(image, _)| image);
    let image = PathBuf::from(OsString::from_vec(image.to_vec()));
    match entry(&image) {
        _ if image.as_os_str().is_empty() => AddressError::NoImage { part: Typed(left).to_string() },
        HostEntry::Directory => AddressError::HostDirectory { path: image },
        _ => AddressError::MissingImage { image },
    }
}

/// Prints the address in its syntax. Control characters are printed as the escape sequences of C.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", text::escaped(self.image.as_os_str().as_bytes()))?;
        if let Some(part) = &self.part {
            write!(f, "@{part}")?;
        }
        match &self.place {
            Some(place) => write!(f, ":{place}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for FileSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", text::escaped(path)),
            Self::Inode(ino) => write!(f, "#{ino}"),
        }
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(path) => write!(f, "{}", text::escaped(path.as_os_str().as_bytes())),
            Self::Stdio => f.write_str("-"),
            Self::Image(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
