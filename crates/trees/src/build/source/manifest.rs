//! The common part of both kinds of manifests. A line describes a file, or changes attributes of an existing file.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Read as _};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use obento_base::{DeviceNumber, FileKind, Mode, Name, NameBuf, Quantity, Timestamp};
use obento_driver::NodeId;
use obento_driver::tree::{Body, NodeAttr};
use obento_host::compressed::{Stream, UnpackError, UnpackLimits};
use obento_host::source::SymlinkPolicy;
use obento_host::{FileId, HostError, Xattr};
use obento_open::text::escaped;

use super::folders::ContentFolders;
use super::{EntryError, SourceReader, data, directory};
use crate::build::SourceReason;
use crate::build::model::PathError;

/// The attributes that a manifest sets for a path. Unset attributes keep their values or get defaults.
#[derive(Clone, Debug, Default)]
pub(super) struct ManifestAttributes {
    pub kind: Option<FileKind>,
    pub mode: Option<Mode>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub mtime: Option<Timestamp>,
    pub size: Option<u64>,
    pub target: Option<Vec<u8>>,
    pub device: Option<DeviceNumber>,
    pub content: Option<ManifestContent>,
    pub xattrs: Vec<Xattr>,
}

/// The source of the bytes of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ManifestContent {
    /// A file, as a path relative to the directory of the manifest.
    File(Vec<u8>),
    /// The manifest itself.
    Here(Vec<u8>),
}

/// The reason why a line is not valid.
pub(super) type Wrong = SourceReason;

/// Decodes the sequences of `text` that start with a backslash. `decode` returns the byte of the sequence at the start
/// of the bytes after the backslash, and its length.
pub(super) fn unescape(text: &[u8], decode: impl Fn(&[u8]) -> Option<(u8, usize)>) -> Result<Vec<u8>, Wrong> {
    let (mut bytes, mut rest) = (Vec::new(), text);
    while let Some((&byte, after)) = rest.split_first() {
        let (byte, len) = if byte == b'\\' { decode(after) } else { Some((byte, 0)) }
            .ok_or_else(|| format!("'{}' contains an invalid escape sequence", escaped(text)))?;
        bytes.push(byte);
        rest = after.get(len..).unwrap_or_default();
    }
    Ok(bytes)
}

/// Maximum number of bytes of a line with its continuation lines: more than an encoded attribute of 64 KiB.
pub(super) const MAX_LINE: u64 = 1 << 20;

/// The lines of a manifest, which may be compressed.
pub(super) struct Lines<'a> {
    input: BufReader<Stream>,
    path: &'a Path,
    /// The number of the previous line.
    number: usize,
}

impl<'a> Lines<'a> {
    /// Opens the manifest `path` in its directory, which is already open. Fails with `System`.
    pub fn open(folders: &ContentFolders, path: &'a Path, limits: UnpackLimits) -> Result<Self, HostError> {
        let file = match (folders.manifest(), path.file_name()) {
            (Some(dir), Some(name)) => dir.open_named(name)?,
            _ => super::open(path)?,
        };
        let stream = Stream::new(file, limits);
        let input = BufReader::new(stream.map_err(|error| HostError::of_io("read", path, &error))?);
        Ok(Self { input, path, number: 0 })
    }

    /// Reads the next line into `line`, without its line feed. Returns false at the end. Fails with `System`, and
    /// with `Damaged` if the line is longer than [`MAX_LINE`] less the bytes that `line` contains.
    pub fn next(&mut self, line: &mut Vec<u8>) -> Result<bool, HostError> {
        let before = line.len();
        let most = MAX_LINE.saturating_sub(before as u64).saturating_add(1);
        let read = (&mut self.input).take(most).read_until(b'\n', line);
        let len = read.map_err(|error| HostError::of_io("read", self.path, &error))?;
        self.number += 1;
        if line.len() as u64 > MAX_LINE {
            let reason = format!("line {} has more than {MAX_LINE} bytes", self.number);
            return Err(HostError::Damaged { path: self.path.into(), format: "manifest", reason });
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        Ok(len > 0)
    }

    /// Returns the place of the line `number` for messages.
    pub fn place(&self, number: usize) -> Vec<u8> {
        [self.path.as_os_str().as_bytes(), format!(":{number}").as_bytes()].concat()
    }

    /// Returns the number of the line that was read last.
    pub fn number(&self) -> usize {
        self.number
    }
}

/// Applies a line to the tree at `path`. `folders` are the directories that may contain the files that the
/// line names.
pub(super) fn put(
    reader: &mut SourceReader<'_>,
    folders: &ContentFolders,
    path: &[NameBuf],
    said: ManifestAttributes,
) -> Result<(), EntryError> {
    let there = reader.model.find(path);
    let held = there.and_then(|node| reader.model.builder.node(node)).copied();
    let kind = said.kind.or(held.map(|node| node.body.kind())).unwrap_or(FileKind::Regular);
    let same = held.filter(|node| node.body.kind() == kind);
    let before = same.map(|node| node.attr);
    let xattrs = match (said.xattrs.is_empty(), before) {
        (true, before) => before.and_then(|attr| attr.xattrs),
        (false, before) => {
            let set = before.and_then(|attr| attr.xattrs);
            let mut all: Vec<Xattr> = set.map_or(Vec::new(), |set| {
                let list = reader.model.builder.xattr_list(set);
                list.iter()
                    .map(|(name, value)| Xattr { name: name.to_vec(), value: value.to_vec() })
                    .collect()
            });
            all.extend(said.xattrs.iter().cloned());
            reader.xattrs(&all)?
        }
    };
    let bare = if kind == FileKind::Directory { 0o755 } else { 0o644 };
    let bare = if kind == FileKind::Symlink { 0o777 } else { bare };
    let mtime = said.mtime.or(before.map(|attr| attr.mtime)).unwrap_or(Timestamp::EPOCH);
    let attr = NodeAttr {
        mode: said.mode.or(before.map(|attr| attr.mode)).unwrap_or(Mode::new(bare)),
        uid: said.uid.or(before.map(|attr| attr.uid)).unwrap_or(0),
        gid: said.gid.or(before.map(|attr| attr.gid)).unwrap_or(0),
        mtime: reader.clamped(mtime),
        xattrs,
    };
    if let (Some(node), Some(_), true) = (there, same, is_override(&said)) {
        if let Some(held) = reader.model.builder.attr_mut(node) {
            *held = attr;
        }
        return Ok(());
    }
    let (body, ranges) = body(reader, folders, kind, &said)?;
    let node = reader.put(path, body, attr, said.target.as_deref().unwrap_or_default())?;
    if let Some(ranges) = ranges {
        reader.model.set_data_ranges(node, ranges)?;
    }
    Ok(())
}

/// The body of a file, and its data ranges if the file has holes.
type Made = (Body, Option<Vec<Range<u64>>>);

/// Returns whether the line only changes attributes of an existing file.
fn is_override(said: &ManifestAttributes) -> bool {
    said.content.is_none() && said.target.is_none() && said.device.is_none()
}

fn body(
    reader: &mut SourceReader<'_>,
    folders: &ContentFolders,
    kind: FileKind,
    said: &ManifestAttributes,
) -> Result<Made, EntryError> {
    let device = || said.device.ok_or("the line has no device number");
    let body = match kind {
        FileKind::Directory => Body::Directory,
        FileKind::Symlink => match &said.target {
            Some(target) if !target.is_empty() => Body::Symlink,
            _ => return Err("the line has no link target".into()),
        },
        FileKind::CharDevice => Body::CharDevice(device()?),
        FileKind::BlockDevice => Body::BlockDevice(device()?),
        FileKind::Fifo => Body::Fifo,
        FileKind::Socket => Body::Socket,
        FileKind::Regular => return file(reader, folders, said),
    };
    Ok((body, None))
}

fn file(
    reader: &mut SourceReader<'_>,
    folders: &ContentFolders,
    said: &ManifestAttributes,
) -> Result<Made, EntryError> {
    match &said.content {
        Some(ManifestContent::Here(bytes)) => {
            let size = bytes.len() as u64;
            if said.size.is_some_and(|said| said != size) {
                return Err(wrong_size(size).into());
            }
            Ok((reader.kept(bytes)?, None))
        }
        Some(ManifestContent::File(path)) => host_file(reader, folders, path, said.size),
        None if said.size.unwrap_or(0) > 0 => Err("the line has a size, but names no contents".into()),
        None => Ok((Body::File { size: 0, data: None }, None)),
    }
}

fn host_file(
    reader: &mut SourceReader<'_>,
    folders: &ContentFolders,
    path: &[u8],
    size: Option<u64>,
) -> Result<Made, EntryError> {
    let path = folders.path().join(PathBuf::from(std::ffi::OsString::from_vec(path.to_vec())));
    let (Some(Ok(name)), Some(parent)) =
        (path.file_name().map(|name| Name::new(name.as_bytes())), path.parent())
    else {
        return Err("the path of the contents is invalid".into());
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let Some((root, relative)) = folders.find(parent) else {
        return Err(match parent.symlink_metadata() {
            Err(error) if !parent.has_root() => HostError::of_io("open", parent, &error).to_string().into(),
            _ => SourceReason::Outside(path.into_os_string().into_vec()).into(),
        });
    };
    // Another line may name contents that can be read.
    let wrong = |error: HostError| EntryError::from(error.to_string());
    let dir = root.open_beneath(&relative).map(|dir| dir.shown_as(parent));
    let entry = dir.and_then(|dir| dir.look(name, SymlinkPolicy::Keep)).map_err(wrong)?;
    if entry.attr().kind != FileKind::Regular || !entry.is_readable() {
        let shown = escaped(path.as_os_str().as_bytes());
        return Err(format!("cannot read the contents from {shown}").into());
    }
    let made = entry.made_bytes().map_err(wrong)?;
    let found = entry.attr().size.max(made.len() as u64);
    if size.is_some_and(|size| size != found) {
        return Err(wrong_size(found).into());
    }
    if entry.attr().size == 0 {
        return Ok((reader.kept(&made)?, None));
    }
    let ranges = directory::data_ranges(&entry)?;
    let len = ranges.as_ref().map_or(found, |runs| runs.iter().map(|run| run.end - run.start).sum());
    let taken = reader.contents.take(entry.id(), len, reader.settings.unpack);
    taken.map_err(|error| HostError::Unpack { operation: "copy", path: path.clone(), error })?;
    let root = reader.supply.beneath(root, &relative).map_err(HostError::from)?;
    let id = reader.supply.entry(root, name).map_err(HostError::from)?;
    Ok((Body::File { size: found, data: data(id) }, ranges))
}

/// The bytes of the files that manifests name. A short manifest can name one file many times, and each time is a copy.
#[derive(Debug, Default)]
pub(super) struct ContentsBudget {
    files: HashSet<FileId>,
    /// The bytes of different files.
    once: u64,
    /// The bytes of the further copies.
    again: u64,
}

impl ContentsBudget {
    /// Counts `len` bytes of the file `id`. Fails with `Bytes`.
    fn take(&mut self, id: FileId, len: u64, limits: UnpackLimits) -> Result<(), UnpackError> {
        if self.files.insert(id) {
            self.once = self.once.saturating_add(len);
            return Ok(());
        }
        self.again = self.again.saturating_add(len);
        let limit = limits.bytes_for(self.once);
        if self.again <= limit { Ok(()) } else { Err(UnpackError::Bytes { limit }) }
    }
}

/// Adds the name `path` to the node `original`.
pub(super) fn link(
    reader: &mut SourceReader<'_>,
    path: &[NameBuf],
    original: &[NameBuf],
) -> Result<(), Wrong> {
    let node: NodeId = reader.model.find(original).ok_or("the target of the hard link does not exist")?;
    let (name, parent) = path.split_last().ok_or("the root directory cannot be a hard link")?;
    let dir = reader.model.directory(parent, Timestamp::EPOCH)?;
    Ok(reader.model.builder.link(dir, name, node).map_err(PathError::from)?)
}

/// Returns the reason why contents of `size` bytes are not those that a line describes.
fn wrong_size(size: u64) -> String {
    format!("the contents have {}, which is not the size in the line", Quantity::new(size, "byte"))
}
