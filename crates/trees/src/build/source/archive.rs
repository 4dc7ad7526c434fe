//! Reads a tar archive once, from front to back. An archive with whiteouts is a layer of a container image.
//!
//! Handling of the bytes of files:
//! - Bytes of a plain archive in a file are copied from that file, unless their digest is verified.
//! - Bytes from a pipe are written to the image at once, if the driver supports that.
//! - Bytes of a compressed archive or with a digest are stored in an unnamed file beside the image, in the order of the
//!   tree.
//!
//! Source: OCI image specification, layer.md, "Whiteouts"; moby, pkg/archive/diff.go, for remains of AUFS in
//! layers.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use obento_base::{FileKind, Mode, Name, NameBuf};
use obento_driver::NodeId;
use obento_driver::tree::{Body, NodeAttr, XattrsId};
use obento_host::compressed::{Stream, UnpackError};
use obento_host::tar::{Member, MemberKind, TarError, TarReader};
use obento_host::{HostError, SystemErrno, Xattr};
use obento_open::image::DataDescription;
use sha2::{Digest as _, Sha256};

use super::store::{FilePart, HashedPart, Writers};
use super::{EntryError, Raw, SourceReader, data, input_name, open};
use crate::build::Input;
use crate::build::model::names;

/// Bytes read at once.
const CHUNK: usize = 256 << 10;
/// The prefix of whiteouts.
const WHITEOUT: &[u8] = b".wh.";
/// The whiteout of all entries of lower layers in its directory.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// The prefix of the metadata of AUFS.
const METADATA: &[u8] = b".wh..wh.";
/// The directory in which AUFS stored files with several names, as the targets of its hard links.
const LINKED: &[u8] = b".wh..wh.plnk";

/// The treatment of entries whose names are names of whiteouts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Whiteouts {
    /// The entries are files.
    AreFiles,
    /// The entries hide entries of lower layers.
    Hide,
}

/// A layer of a container image, without its bytes.
#[derive(Debug)]
pub(super) struct ContainerLayer<'a> {
    /// The path for messages.
    pub path: &'a Path,
    /// The digest of the layer's stored bytes, if the image contains it.
    pub digest: Option<&'a str>,
    /// The digest of the layer's uncompressed bytes, if the image contains it.
    pub diff_id: Option<&'a str>,
    /// The budget of uncompressed bytes for this layer and those above it. `None` gives the layer a limit of
    /// its own.
    pub unpacks: Option<&'a mut u64>,
}

/// Reads an archive into the tree. Fails with `Host` if it cannot be read or is not an archive.
pub(super) fn read(
    reader: &mut SourceReader<'_>,
    input: &Input,
    whiteouts: Whiteouts,
) -> Result<(), HostError> {
    let path = input_name(input);
    let file = match input {
        Input::File(path) => open(path)?,
        Input::Standard => {
            use std::os::fd::AsFd;
            let stdin = std::io::stdin().as_fd().try_clone_to_owned();
            File::from(stdin.map_err(|error| HostError::of_io("read", path, &error))?)
        }
    };
    // Standard input may be a file that was partially read before.
    let bytes = match input {
        Input::File(_) if file.metadata().is_ok_and(|meta| meta.is_file()) => {
            Bytes::Stored(file.try_clone().map_err(|error| HostError::of_io("open", path, &error))?, 0)
        }
        _ => Bytes::Streamed,
    };
    let mut layer = ContainerLayer { path, digest: None, diff_id: None, unpacks: None };
    read_stream(reader, file, bytes, &mut layer, whiteouts)
}

/// Reads a layer of a container image, which is a part of a file.
pub(super) fn read_layer(
    reader: &mut SourceReader<'_>,
    part: FilePart,
    layer: &mut ContainerLayer<'_>,
) -> Result<(), HostError> {
    let is_verified = layer.digest.is_some() || layer.diff_id.is_some();
    let bytes = match part.writers() {
        // The file could change between the verification and the copying of its bytes.
        Writers::Any if is_verified => Bytes::Verified,
        Writers::Any | Writers::ThisProcess => Bytes::Stored(part.file()?, part.start()),
    };
    let Some(digest) = layer.digest else {
        return read_stream(reader, part, bytes, layer, Whiteouts::Hide);
    };
    let part = HashedPart::new(part);
    let read = read_stream(reader, part.clone(), bytes, layer, Whiteouts::Hide);
    if matches!(read, Err(HostError::Stopped)) {
        return read;
    }
    // A wrong digest explains other errors.
    let found = part.finish().map_err(|error| HostError::of_io("read", layer.path, &error))?;
    super::oci::expect_digest(found, digest, layer.path)?;
    read
}

/// The access to the bytes of an archive.
enum Bytes {
    /// The bytes can be read at any time from this file, in which the archive starts at this byte. The
    /// archive is not compressed.
    Stored(File, u64),
    /// The bytes can be read once.
    Streamed,
    /// The bytes are used as they were when their digest was computed.
    Verified,
}

fn read_stream(
    reader: &mut SourceReader<'_>,
    input: impl Read + Send + 'static,
    bytes: Bytes,
    layer: &mut ContainerLayer<'_>,
    whiteouts: Whiteouts,
) -> Result<(), HostError> {
    let path = layer.path;
    let mut limits = reader.settings.unpack;
    limits.bytes = layer.unpacks.as_deref().copied().or(limits.bytes);
    let stream = Stream::new(input, limits);
    let stream = stream.map_err(|error| HostError::of_io("read", path, &error))?;
    // The digest of the stored bytes is verified anyway.
    let is_stored = stream.compression().is_none() && layer.digest == layer.diff_id;
    let is_hashed = layer.diff_id.is_some() && !is_stored;
    let bytes = match bytes {
        Bytes::Streamed if reader.stream.is_some() => Way::Stream,
        Bytes::Stored(file, start) if stream.compression().is_none() => {
            Way::Copy(reader.supply.file(file, path)?, start)
        }
        Bytes::Streamed | Bytes::Stored(..) | Bytes::Verified => Way::Spool,
    };
    let mut archive = Archive {
        tar: TarReader::new(Hashed::new(stream, is_hashed)),
        bytes,
        whiteouts,
        buffer: vec![0; CHUNK],
        members: 0,
        before: reader.bytes,
        has_absolute: false,
        has_linked: false,
        unknown: 0,
        last_xattrs: None,
    };
    archive.read(reader, path)?;
    if let Some(left) = &mut layer.unpacks {
        **left = left.saturating_sub(archive.tar.input().stream.required());
    }
    archive.expect_digest(layer)
}

/// Converts the error of a reader of the archive at `path`.
pub(super) fn of_tar(error: TarError, path: &Path) -> HostError {
    match error {
        TarError::Input(error) => HostError::of_io("read", path, &error),
        error => HostError::Damaged { path: path.into(), format: "tar", reason: error.to_string() },
    }
}

struct Archive {
    tar: TarReader<Hashed>,
    bytes: Way,
    whiteouts: Whiteouts,
    buffer: Vec<u8>,
    members: u64,
    before: u64,
    has_absolute: bool,
    /// Whether the tree contains the directory of AUFS, which is removed at the end.
    has_linked: bool,
    /// The number of members of unknown types.
    unknown: u64,
    /// The attributes of the last member, and their set in the model. Members share those of global headers.
    last_xattrs: Option<(Arc<[Xattr]>, Option<XattrsId>)>,
}

/// The path of the bytes to the image.
#[derive(Clone, Copy)]
enum Way {
    /// The bytes are copied from the source file with this index, in which the archive starts at this byte.
    Copy(u16, u64),
    /// The bytes are written to the image when they arrive.
    Stream,
    /// The bytes are stored in the spool file first.
    Spool,
}

/// The reason why other data is not an archive.
pub(super) const NO_HEADER: &str = "the file does not begin with a tar header";

/// The reason why a member was not added to the tree.
enum MemberError {
    Entry(EntryError),
    Archive(TarError),
}

impl<E: Into<EntryError>> From<E> for MemberError {
    fn from(error: E) -> Self {
        Self::Entry(error.into())
    }
}

impl Archive {
    fn read(&mut self, reader: &mut SourceReader<'_>, path: &Path) -> Result<(), HostError> {
        let failed = |error| of_tar(error, path);
        loop {
            let member = match self.tar.next_member() {
                Ok(None) if self.tar.offset() == 0 => return Err(self.no_archive(path)),
                Ok(None) => break,
                Ok(Some(member)) => member,
                Err(TarError::Unfit { path, reason }) => {
                    self.members += 1;
                    reader.problem(path, reason);
                    continue;
                }
                Err(TarError::Damaged { .. } | TarError::Truncated { .. }) if self.members == 0 => {
                    return Err(self.no_archive(path));
                }
                Err(error) => return Err(failed(error)),
            };
            self.members += 1;
            reader.bytes = self.before + self.tar.offset();
            reader.progress(|| &member.path)?;
            match self.member(reader, &member) {
                Ok(()) => {}
                Err(MemberError::Entry(error)) => reader.settle(Err(error), || member.path)?,
                Err(MemberError::Archive(error)) => return Err(failed(error)),
            }
        }
        if !matches!(self.bytes, Way::Copy(..)) || self.tar.input().sum.is_some() || self.tar.is_empty() {
            let is_empty = self.tar.is_empty();
            match self.tar.finish() {
                Err(TarError::Damaged { .. }) if is_empty => return Err(self.no_archive(path)),
                finished => finished.map_err(failed)?,
            }
        }
        if let (true, Ok(linked)) = (self.has_linked, Name::new(LINKED)) {
            reader.model.builder.remove(NodeId::ROOT, linked);
        }
        let mut note = |words: &str| reader.notes.push(format!("{}: {words}", path.display()));
        if self.has_absolute {
            note("absolute paths were stored below the root directory");
        }
        if !self.tar.has_end() {
            note("the mark at the end of the archive is missing, so members may be missing too");
        }
        match self.unknown {
            0 => {}
            1 => note("1 member of an unknown type became a regular file"),
            many => note(&format!("{many} members of unknown types became regular files")),
        }
        Ok(())
    }

    /// Returns the error for a source that is not an archive. The error contains a description of the data,
    /// if it is recognised.
    fn no_archive(&self, path: &Path) -> HostError {
        let (stream, path, format) = (&self.tar.input().stream, path.into(), "tar");
        match DataDescription::packed(stream.start()).filter(|_| stream.compression().is_none()) {
            Some(like) => HostError::Packed { path, format, like },
            None if stream.start().is_empty() => {
                HostError::NotAnArchive { path, format, reason: "the file is empty" }
            }
            None => HostError::NotAnArchive { path, format, reason: NO_HEADER },
        }
    }

    /// Compares the digest of the bytes with the one in the image's configuration.
    fn expect_digest(self, layer: &ContainerLayer<'_>) -> Result<(), HostError> {
        let (Some(sum), Some(expected)) = (self.tar.into_input().sum, layer.diff_id) else { return Ok(()) };
        let found = super::oci::text(sum);
        if found == expected {
            return Ok(());
        }
        let reason =
            format!("the uncompressed data has the digest {found}, but the image requires {expected}");
        Err(HostError::Damaged { path: layer.path.into(), format: "OCI image", reason })
    }

    fn member(&mut self, reader: &mut SourceReader<'_>, member: &Member) -> Result<(), MemberError> {
        self.has_absolute |= member.path.starts_with(b"/");
        if reader.is_excluded(&member.path) {
            return Ok(());
        }
        self.tar.input_mut().stream.require(member.additional()).map_err(exceeded)?;
        let path = names(&member.path)?;
        if self.whiteouts == Whiteouts::Hide
            && (self.is_metadata(&path, member) || self.whiteout(reader, &path, member)?)
        {
            return Ok(());
        }
        let kind = match member.kind {
            MemberKind::File => FileKind::Regular,
            MemberKind::HardLink => return self.hard_link(reader, &path, member),
            MemberKind::Symlink => FileKind::Symlink,
            MemberKind::CharDevice => FileKind::CharDevice,
            MemberKind::BlockDevice => FileKind::BlockDevice,
            MemberKind::Directory => FileKind::Directory,
            MemberKind::Fifo => FileKind::Fifo,
            MemberKind::Continued => {
                return Err("the member continues a file of another volume of the archive".into());
            }
            MemberKind::Other(_) => {
                self.unknown += 1;
                FileKind::Regular
            }
        };
        let attr = self.attr(reader, member, kind)?;
        let body = match kind {
            FileKind::Directory => Body::Directory,
            FileKind::Symlink => Body::Symlink,
            FileKind::CharDevice => Body::CharDevice(member.rdev),
            FileKind::BlockDevice => Body::BlockDevice(member.rdev),
            FileKind::Fifo => Body::Fifo,
            FileKind::Socket => Body::Socket,
            FileKind::Regular => return self.file(reader, &path, member, attr),
        };
        if body == Body::Directory && self.keeps_link(reader, &path, attr)? {
            return Ok(());
        }
        reader.put(&path, body, attr, &member.link)?;
        Ok(())
    }

    fn attr(
        &mut self,
        reader: &mut SourceReader<'_>,
        member: &Member,
        kind: FileKind,
    ) -> Result<NodeAttr, MemberError> {
        let mode = if kind == FileKind::Symlink { Mode::new(0o777) } else { member.mode };
        let known = self.last_xattrs.as_ref().filter(|(last, _)| Arc::ptr_eq(last, &member.xattrs));
        let known = known.map(|(_, set)| *set);
        let xattrs: &[Xattr] = if known.is_some() { &[] } else { &member.xattrs };
        let raw = Raw { kind, mode, uid: member.uid, gid: member.gid, mtime: member.mtime, xattrs };
        let attr = reader.attr(&raw)?;
        let xattrs = known.unwrap_or(attr.xattrs);
        self.last_xattrs = Some((member.xattrs.clone(), xattrs));
        Ok(NodeAttr { xattrs, ..attr })
    }

    /// Returns whether the member is a directory and a link to a directory has its name. The member then
    /// means that directory, as on a system whose /lib is a link. A layer of a container replaces the link.
    fn keeps_link(
        &self,
        reader: &mut SourceReader<'_>,
        path: &[NameBuf],
        attr: NodeAttr,
    ) -> Result<bool, MemberError> {
        let (Whiteouts::AreFiles, Some((name, parent))) = (self.whiteouts, path.split_last()) else {
            return Ok(false);
        };
        let dir = reader.model.directory(parent, attr.mtime)?;
        Ok(reader.model.link_to_directory(path, dir, name))
    }

    /// Returns whether the member is metadata of AUFS or below a whiteout. Such members are skipped. A file
    /// that hard links of AUFS refer to stays until the end of the layer.
    fn is_metadata(&mut self, path: &[NameBuf], member: &Member) -> bool {
        let Some((name, parent)) = path.split_last() else { return false };
        let first = parent.first().unwrap_or(name).as_bytes();
        if first == LINKED && parent.len() == 1 && member.kind == MemberKind::File {
            self.has_linked = true;
            return false;
        }
        first.starts_with(METADATA) && name.as_bytes() != OPAQUE
            || parent.iter().any(|name| name.as_bytes().starts_with(WHITEOUT))
    }

    /// Returns whether the member is a whiteout, and applies it.
    fn whiteout(
        &self,
        reader: &mut SourceReader<'_>,
        path: &[NameBuf],
        member: &Member,
    ) -> Result<bool, MemberError> {
        let Some((name, parent)) = path.split_last() else { return Ok(false) };
        let Some(hidden) = name.as_bytes().strip_prefix(WHITEOUT) else { return Ok(false) };
        let dir = reader.model.directory(parent, reader.clamped(member.mtime))?;
        if name.as_bytes() == OPAQUE {
            reader.model.hide_children(dir);
        } else if let Ok(hidden) = Name::new(hidden) {
            reader.model.hide(dir, hidden);
        } else {
            return Err("the whiteout names no file".into());
        }
        Ok(true)
    }

    fn hard_link(
        &mut self,
        reader: &mut SourceReader<'_>,
        path: &[NameBuf],
        member: &Member,
    ) -> Result<(), MemberError> {
        let original = reader.model.find(&names(&member.link)?);
        let (Some(node), Some((name, parent))) = (original, path.split_last()) else {
            let original = obento_open::text::escaped(&member.link);
            return Err(format!("the target '{original}' of the hard link does not exist").into());
        };
        let dir = reader.model.directory(parent, reader.clamped(member.mtime))?;
        let linked = reader.model.builder.link(dir, name, node);
        linked.map_err(|_| "a hard link to a directory is not possible".into())
    }

    fn file(
        &mut self,
        reader: &mut SourceReader<'_>,
        path: &[NameBuf],
        member: &Member,
        attr: NodeAttr,
    ) -> Result<(), MemberError> {
        let size = member.size;
        let id = match (size, self.bytes, &member.map) {
            (0, ..) => None,
            (_, Way::Copy(file, start), None) => {
                let at = start.saturating_add(self.tar.offset());
                data(reader.supply.part(file, at).map_err(HostError::from)?)
            }
            (_, Way::Stream, _) => data(self.stream(reader, member)?),
            _ => data(self.keep(reader, member)?),
        };
        let node = reader.put(path, Body::File { size, data: id }, attr, b"")?;
        if let (Some(map), Some(_)) = (&member.map, id) {
            reader.model.set_data_ranges(node, ranges_in(map, member.size))?;
        }
        Ok(())
    }

    /// Stores the bytes of a member in the spool.
    fn keep(&mut self, reader: &mut SourceReader<'_>, member: &Member) -> Result<u32, MemberError> {
        let (spool, file) = reader.spool()?;
        let start = spool.begin();
        self.each_chunk(member, |at, bytes| spool.write(start, at, bytes))?;
        spool.end(start, member.size).map_err(|error| match error.errno() {
            Some(SystemErrno::FBIG) => EntryError::from("the file is longer than the host supports"),
            _ => error.into(),
        })?;
        Ok(reader.supply.part(file, start).map_err(HostError::from)?)
    }

    /// Writes the bytes of a member to the image.
    fn stream(&mut self, reader: &mut SourceReader<'_>, member: &Member) -> Result<u32, MemberError> {
        let id = reader.supply.moved().map_err(HostError::from)?;
        let Some(stream) = &mut reader.stream else { return Ok(id) };
        let size = member.size;
        let whole = 0..size;
        match &member.map {
            None => stream.file(id, size, std::slice::from_ref(&whole))?,
            Some(map) => stream.file(id, size, &ranges_in(map, size))?,
        }
        self.each_chunk(member, |at, bytes| stream.write(at, bytes))?;
        Ok(id)
    }

    /// Passes the bytes of a member to `sink`, with their offsets.
    fn each_chunk(
        &mut self,
        member: &Member,
        mut sink: impl FnMut(u64, &[u8]) -> Result<(), HostError>,
    ) -> Result<(), MemberError> {
        let whole = 0..member.size;
        for range in member.map.as_deref().unwrap_or(std::slice::from_ref(&whole)) {
            let mut at = range.start;
            while at < range.end {
                let most = usize::try_from(range.end - at).unwrap_or(CHUNK).min(CHUNK);
                let len = self.tar.read_data(&mut self.buffer[..most]).map_err(MemberError::Archive)?;
                if len == 0 {
                    return Err(MemberError::Archive(TarError::Truncated { offset: self.tar.offset() }));
                }
                sink(at, &self.buffer[..len])?;
                at += len as u64;
            }
        }
        Ok(())
    }
}

fn exceeded(error: UnpackError) -> MemberError {
    MemberError::Archive(TarError::Input(error.into()))
}

/// The bytes of an archive, and their digest if it is needed.
struct Hashed {
    stream: Stream,
    sum: Option<Sha256>,
}

impl Hashed {
    fn new(stream: Stream, is_wanted: bool) -> Self {
        Self { stream, sum: is_wanted.then(Sha256::new) }
    }
}

impl Read for Hashed {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let len = self.stream.read(buf)?;
        if let Some(sum) = &mut self.sum {
            sum.update(buf.get(..len).unwrap_or_default());
        }
        Ok(len)
    }
}

/// Returns the non-empty parts of a map that are within a file of `size` bytes.
fn ranges_in(map: &[Range<u64>], size: u64) -> Vec<Range<u64>> {
    let inside = map.iter().map(|range| range.start.min(size)..range.end.min(size));
    inside.filter(|range| !range.is_empty()).collect()
}
