//! The files of a container image: a directory, or a tar archive of it.
//!
//! Invariant: only regular files are opened, so that opening never waits for a FIFO.
//! Invariant: memory is bounded by [`MAX_MEMBERS`] and [`MAX_PATHS`] for any archive.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use obento_host::compressed::Stream;
use obento_host::tar::{Member, MemberKind, TarError, TarReader};
use obento_host::{FileId, HostError};
use sha2::{Digest as _, Sha256};

use super::{SourceReader, archive, open_at_once};
use crate::build::model::names;

/// Maximum number of members of an archive of an image. An image has a few for each layer.
const MAX_MEMBERS: usize = 100_000;
/// Maximum number of bytes of the paths of all members.
const MAX_PATHS: usize = 16 << 20;
/// Maximum number of links on the way to a file.
const MAX_LINKS: usize = 8;
/// Bytes copied at once.
const CHUNK: usize = 256 << 10;

/// The files of an image, by their paths.
pub(super) enum Store {
    Folder(PathBuf),
    Archive {
        path: PathBuf,
        file: File,
        writers: Writers,
        members: HashMap<Vec<u8>, StoredEntry>,
        file_len: u64,
    },
}

/// The entry of an archive at a path.
#[derive(Clone, Debug)]
pub(super) enum StoredEntry {
    /// Bytes of the archive.
    Bytes { start: u64, len: u64 },
    /// Another path, which `docker save` writes for equal layers.
    Link(Vec<u8>),
}

impl Store {
    /// Opens the directory or archive `path`, and unpacks a compressed archive. Fails with `Host`, or if the file is
    /// damaged or not an archive.
    pub fn open(reader: &mut SourceReader<'_>, path: &Path) -> Result<Self, HostError> {
        if path.is_dir() {
            return Ok(Self::Folder(path.into()));
        }
        let part = FilePart::of_file(path)?;
        let file_len = part.len();
        let stream = Stream::new(part.again()?, reader.settings.unpack);
        let stream = stream.map_err(|error| HostError::of_io("read", path, &error))?;
        let part = match stream.compression() {
            None => part,
            Some(_) => unpacked(reader, stream, path)?,
        };
        let members = members(part.again()?, path)?;
        Ok(Self::Archive { path: path.into(), file: part.file()?, writers: part.writers, members, file_len })
    }

    /// Returns the length of the archive file before decompression, or `None` for a directory.
    pub fn file_len(&self) -> Option<u64> {
        match self {
            Self::Folder(_) => None,
            Self::Archive { file_len, .. } => Some(*file_len),
        }
    }

    /// Returns whether a file exists at `path`.
    pub fn has(&self, path: &str) -> bool {
        match self {
            Self::Folder(folder) => folder.join(path).is_file(),
            Self::Archive { members, .. } => members.contains_key(path.as_bytes()),
        }
    }

    /// Returns the name of the file at `path` for messages.
    pub fn name(&self, path: &str) -> PathBuf {
        match self {
            Self::Folder(folder) => folder.join(path),
            Self::Archive { path: archive, .. } => archive.join(path),
        }
    }

    /// Opens the file at `path`, which [`names`] allows. Fails with `Host`, and with `Damaged` if it is not a regular
    /// file.
    pub fn part(&self, path: &str) -> Result<FilePart, HostError> {
        let bad = |reason: &str| HostError::Damaged {
            path: self.name(path),
            format: "OCI image",
            reason: reason.into(),
        };
        let way = names(path.as_bytes()).map_err(|error| bad(&error.to_string()))?;
        match self {
            Self::Folder(folder) => FilePart::of_file(&folder.join(OsStr::from_bytes(&joined(&way)))),
            Self::Archive { file, writers, members, .. } => {
                let mut key = joined(&way);
                for _ in 0..MAX_LINKS {
                    match members.get(&key) {
                        Some(StoredEntry::Bytes { start, len }) => {
                            let file = file.try_clone();
                            let file =
                                file.map_err(|error| HostError::of_io("open", &self.name(path), &error))?;
                            return Ok(FilePart {
                                file,
                                start: *start,
                                len: *len,
                                at: 0,
                                writers: *writers,
                                path: self.name(path),
                            });
                        }
                        Some(StoredEntry::Link(target)) => key.clone_from(target),
                        None => return Err(bad("the archive has no such file")),
                    }
                }
                Err(bad("too many levels of symbolic links"))
            }
        }
    }
}

/// Copies the uncompressed bytes of `stream` to the spool.
fn unpacked(reader: &mut SourceReader<'_>, mut stream: Stream, path: &Path) -> Result<FilePart, HostError> {
    let (spool, _) = reader.spool()?;
    let (start, mut len, mut buffer) = (spool.begin(), 0, vec![0; CHUNK]);
    loop {
        match stream.read(&mut buffer).map_err(|error| HostError::of_io("read", path, &error))? {
            0 => break,
            more => {
                spool.write(start, len, buffer.get(..more).unwrap_or_default())?;
                len += more as u64;
            }
        }
    }
    spool.end(start, len)?;
    Ok(FilePart {
        file: spool.reader()?,
        start,
        len,
        at: 0,
        writers: Writers::ThisProcess,
        path: path.into(),
    })
}

/// Returns the positions of the files of an archive.
fn members(part: FilePart, path: &Path) -> Result<HashMap<Vec<u8>, StoredEntry>, HostError> {
    let start = part.start;
    let bad = |reason: String| HostError::Damaged { path: path.into(), format: "tar", reason };
    let (mut tar, mut found, mut bytes) = (TarReader::new(part), HashMap::new(), 0);
    loop {
        let member = match tar.next_member() {
            Ok(None) => return Ok(found),
            Ok(Some(member)) => member,
            Err(TarError::Damaged { .. } | TarError::Truncated { .. }) if found.is_empty() => {
                let reason = archive::NO_HEADER;
                return Err(HostError::NotAnArchive { path: path.into(), format: "tar", reason });
            }
            Err(error) => return Err(archive::of_tar(error, path)),
        };
        let Ok(way) = names(&member.path) else { continue };
        let Some(what) = place(&member, &way, start.saturating_add(tar.offset())) else { continue };
        bytes += member.path.len() + member.link.len();
        if found.len() >= MAX_MEMBERS || bytes > MAX_PATHS {
            return Err(bad(format!(
                "the archive has too many files for an OCI image (more than {MAX_MEMBERS})"
            )));
        }
        found.insert(joined(&way), what);
    }
}

/// Returns the entry for `member`, if it is a file or leads to one.
fn place(member: &Member, way: &[obento_base::NameBuf], at: u64) -> Option<StoredEntry> {
    match member.kind {
        MemberKind::File if member.map.is_none() => Some(StoredEntry::Bytes { start: at, len: member.size }),
        MemberKind::HardLink => Some(StoredEntry::Link(joined(&names(&member.link).ok()?))),
        MemberKind::Symlink => {
            // `../ID/layer.tar`, from the directory of the link.
            let (_, parent) = way.split_last()?;
            let mut to: Vec<&[u8]> = parent.iter().map(|name| name.as_bytes()).collect();
            for part in member.link.split(|&byte| byte == b'/') {
                match part {
                    b"" | b"." => {}
                    b".." => drop(to.pop()),
                    part => to.push(part),
                }
            }
            Some(StoredEntry::Link(to.join(&b'/')))
        }
        _ => None,
    }
}

fn joined(names: &[obento_base::NameBuf]) -> Vec<u8> {
    names.iter().map(|name| name.as_bytes()).collect::<Vec<_>>().join(&b'/')
}

/// The processes that can change a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Writers {
    /// Only this process: the file has no name.
    ThisProcess,
    /// Any process with the permission.
    Any,
}

/// A part of a regular file, read from front to back.
#[derive(Debug)]
pub(super) struct FilePart {
    file: File,
    start: u64,
    len: u64,
    at: u64,
    writers: Writers,
    path: PathBuf,
}

impl FilePart {
    /// Opens the whole file `path`. Fails with `System`, and with `Damaged` if it is not a regular file.
    pub fn of_file(path: &Path) -> Result<Self, HostError> {
        let (file, meta) = open_at_once(path)?;
        if !meta.is_file() {
            let reason = "not a regular file".into();
            return Err(HostError::Damaged { path: path.into(), format: "OCI image", reason });
        }
        Ok(Self { file, start: 0, len: meta.len(), at: 0, writers: Writers::Any, path: path.into() })
    }

    /// Returns the same part, from its first byte. Fails with `System`.
    pub fn again(&self) -> Result<Self, HostError> {
        Ok(Self { file: self.file()?, at: 0, path: self.path.clone(), ..*self })
    }

    /// Returns the file that contains the part. Fails with `System`.
    pub fn file(&self) -> Result<File, HostError> {
        self.file.try_clone().map_err(|error| HostError::of_io("open", &self.path, &error))
    }

    /// Returns its file and the offset of its first byte, which are the same under all names of a blob. Fails with
    /// `System`.
    pub fn place(&self) -> Result<(FileId, u64), HostError> {
        Ok((FileId::of_file(&self.file, &self.path)?, self.start))
    }

    /// Returns the offset of its first byte in the file.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Returns its length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns which processes can change its bytes.
    pub fn writers(&self) -> Writers {
        self.writers
    }

    /// Returns its name for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Read for FilePart {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.len - self.at).unwrap_or(usize::MAX).min(buf.len());
        let len = self.file.read_at(buf.get_mut(..left).unwrap_or_default(), self.start + self.at)?;
        self.at += len as u64;
        Ok(len)
    }
}

/// A part that is hashed while it is read. Clones share the position and the digest.
#[derive(Clone, Debug)]
pub(super) struct HashedPart(Arc<Mutex<(FilePart, Sha256)>>);

impl HashedPart {
    /// Hashes `part` from its first byte.
    pub fn new(part: FilePart) -> Self {
        Self(Arc::new(Mutex::new((part, Sha256::new()))))
    }

    fn state(&self) -> MutexGuard<'_, (FilePart, Sha256)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the bytes that no reader requested. Returns the digest of all bytes as they were read.
    pub fn finish(mut self) -> io::Result<Sha256> {
        let mut buffer = vec![0; CHUNK];
        while self.read(&mut buffer)? > 0 {}
        Ok(std::mem::take(&mut self.state().1))
    }
}

impl Read for HashedPart {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut state = self.state();
        let (part, sum) = &mut *state;
        let len = part.read(buf)?;
        sum.update(buf.get(..len).unwrap_or_default());
        Ok(len)
    }
}
