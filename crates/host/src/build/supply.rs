//! The sources of the bytes of the files in a new image: host files, parts of host files, and bytes from a
//! pipe.
//!
//! Memory: 16 bytes for each file, and each name once.
//! Invariant: a file is opened by names from the directory that the user named, never through a link.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use obento_base::Name;
use obento_base::wire::{to_u64, to_usize};
use rustix::fs::{CWD, Mode, OFlags};

use crate::source::SourceDir;
use crate::{HostDir, HostError};

/// A directory of the host that was scanned.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DirId(u32);

/// The supply cannot have more files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("too many files")]
pub struct SupplyError;

impl From<SupplyError> for HostError {
    fn from(error: SupplyError) -> Self {
        Self::Stream { operation: "read", path: PathBuf::new(), reason: error.to_string() }
    }
}

#[derive(Clone, Copy, Debug)]
enum Item {
    /// A file of a directory.
    Entry { dir: u32, name: u32 },
    /// A part of an open file.
    Part { file: u16, offset: u64 },
    /// Bytes that are already in the image.
    Moved,
}

#[derive(Debug)]
enum Dir {
    Root(PathBuf),
    /// A directory at a path beneath an open one.
    Beneath {
        root: SourceDir,
        relative: PathBuf,
    },
    Below {
        parent: u32,
        name: u32,
    },
}

/// The bytes of files, by number.
#[derive(Debug, Default)]
pub struct Supply {
    items: Vec<Item>,
    dirs: Vec<Dir>,
    names: Vec<u8>,
    files: Vec<(Arc<File>, PathBuf)>,
}

/// An open source of bytes.
pub(super) enum OpenedSource {
    /// A separate file, which is used from its start.
    Whole(OwnedFd),
    /// A part of a shared file.
    Part(Arc<File>, u64),
}

impl OpenedSource {
    /// Returns the file, and the position of the first byte in it.
    pub(super) fn place(&self) -> (BorrowedFd<'_>, u64) {
        match self {
            Self::Whole(fd) => (fd.as_fd(), 0),
            Self::Part(file, offset) => (file.as_fd(), *offset),
        }
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const FILE: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

impl Supply {
    /// Adds a directory that the user named.
    pub fn root(&mut self, path: &Path) -> Result<DirId, SupplyError> {
        self.add_dir(Dir::Root(path.into()))
    }

    /// Adds the directory at `relative` beneath `root`. It is opened beneath `root`, also if names become links meanwhile.
    pub fn beneath(&mut self, root: &SourceDir, relative: &Path) -> Result<DirId, SupplyError> {
        self.add_dir(Dir::Beneath { root: root.clone(), relative: relative.into() })
    }

    /// Adds a directory in another one.
    pub fn dir(&mut self, parent: DirId, name: &Name) -> Result<DirId, SupplyError> {
        let name = self.add_name(name.as_bytes())?;
        self.add_dir(Dir::Below { parent: parent.0, name })
    }

    fn add_dir(&mut self, dir: Dir) -> Result<DirId, SupplyError> {
        let id = u32::try_from(self.dirs.len()).map_err(|_| SupplyError)?;
        self.dirs.push(dir);
        Ok(DirId(id))
    }

    fn add_name(&mut self, name: &[u8]) -> Result<u32, SupplyError> {
        let at = u32::try_from(self.names.len()).map_err(|_| SupplyError)?;
        let len = u16::try_from(name.len()).map_err(|_| SupplyError)?;
        self.names.extend_from_slice(&len.to_le_bytes());
        self.names.extend_from_slice(name);
        Ok(at)
    }

    fn name(&self, at: u32) -> &[u8] {
        let rest = self.names.get(to_usize(at.into())..).unwrap_or_default();
        match rest.split_first_chunk() {
            Some((len, rest)) => rest.get(..u16::from_le_bytes(*len).into()).unwrap_or_default(),
            None => &[],
        }
    }

    fn add(&mut self, item: Item) -> Result<u32, SupplyError> {
        let id = u32::try_from(self.items.len()).map_err(|_| SupplyError)?;
        self.items.push(item);
        Ok(id)
    }

    /// Adds the file `name` in `dir`. Returns its number.
    pub fn entry(&mut self, dir: DirId, name: &Name) -> Result<u32, SupplyError> {
        let name = self.add_name(name.as_bytes())?;
        self.add(Item::Entry { dir: dir.0, name })
    }

    /// Adds an open file, for [`Supply::part`]. `path` is for messages.
    pub fn file(&mut self, file: File, path: &Path) -> Result<u16, SupplyError> {
        let id = u16::try_from(self.files.len()).map_err(|_| SupplyError)?;
        self.files.push((Arc::new(file), path.into()));
        Ok(id)
    }

    /// Adds the bytes from `offset` on in `file`. Returns their number.
    pub fn part(&mut self, file: u16, offset: u64) -> Result<u32, SupplyError> {
        self.add(Item::Part { file, offset })
    }

    /// Adds a file whose bytes are already in the image. Returns its number.
    pub fn moved(&mut self) -> Result<u32, SupplyError> {
        self.add(Item::Moved)
    }

    /// Returns whether the bytes of a file are already in the image.
    pub fn is_moved(&self, id: u32) -> bool {
        matches!(self.items.get(to_usize(id.into())), Some(Item::Moved))
    }

    /// Returns the path of a file, for messages.
    pub fn path(&self, id: u32) -> PathBuf {
        match self.items.get(to_usize(id.into())) {
            Some(Item::Entry { dir, name }) => self.dir_path(*dir).join(os(self.name(*name))),
            Some(Item::Part { file, .. }) => {
                self.files.get(usize::from(*file)).map(|(_, path)| path.clone()).unwrap_or_default()
            }
            Some(Item::Moved) | None => PathBuf::new(),
        }
    }

    fn dir_path(&self, dir: u32) -> PathBuf {
        let (root, names) = self.way(dir);
        let root = match root {
            Some(Dir::Root(path)) => path.clone(),
            Some(Dir::Beneath { root, relative }) => root.path().join(relative),
            Some(Dir::Below { .. }) | None => PathBuf::new(),
        };
        names.iter().rev().fold(root, |path, name| path.join(os(self.name(*name))))
    }

    /// Returns the root above `dir`, and the names from `dir` up to it.
    fn way(&self, dir: u32) -> (Option<&Dir>, Vec<u32>) {
        let (mut at, mut names) = (dir, Vec::new());
        loop {
            match self.dirs.get(to_usize(at.into())) {
                Some(Dir::Below { parent, name }) => {
                    names.push(*name);
                    at = *parent;
                }
                root => return (root, names),
            }
        }
    }

    /// Opens a file. `last` caches the directory that was opened last, which the next file usually shares.
    pub(super) fn open(&self, id: u32, last: &mut Option<(u32, OwnedFd)>) -> Result<OpenedSource, HostError> {
        let failed = |errno| HostError::system("open", self.path(id), errno);
        match self.items.get(to_usize(id.into())) {
            Some(&Item::Entry { dir, name }) => {
                let fd = match last.take() {
                    Some((held, fd)) if held == dir => fd,
                    _ => self.open_dir(dir)?,
                };
                let opened = rustix::fs::openat(&fd, self.name(name), FILE, Mode::empty()).map_err(failed);
                *last = Some((dir, fd));
                opened.map(OpenedSource::Whole)
            }
            Some(&Item::Part { file, offset }) => match self.files.get(usize::from(file)) {
                Some((file, _)) => Ok(OpenedSource::Part(file.clone(), offset)),
                None => Err(failed(rustix::io::Errno::BADF)),
            },
            Some(Item::Moved) | None => Err(failed(rustix::io::Errno::BADF)),
        }
    }

    fn open_dir(&self, dir: u32) -> Result<OwnedFd, HostError> {
        let (root, names) = self.way(dir);
        let failed = |errno| HostError::system("open", self.dir_path(dir), errno);
        let mut fd = match root {
            Some(Dir::Root(path)) => {
                rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty()).map_err(failed)?
            }
            Some(Dir::Beneath { root, relative }) => root.open_path_beneath(relative)?,
            Some(Dir::Below { .. }) | None => return Err(failed(rustix::io::Errno::BADF)),
        };
        for name in names.into_iter().rev() {
            let flags = DIRECTORY | OFlags::NOFOLLOW;
            fd = rustix::fs::openat(&fd, self.name(name), flags, Mode::empty()).map_err(failed)?;
        }
        Ok(fd)
    }
}

fn os(name: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(name)
}

/// An unnamed file beside an image that stores bytes that cannot be read twice.
#[derive(Debug)]
pub struct Spool {
    file: File,
    folder: PathBuf,
    end: u64,
}

/// The alignment of files in a spool: the unit in which file systems share blocks.
const GRAIN: u64 = 4096;

impl Spool {
    /// Creates an empty spool beside `target`. Fails with `System`.
    pub fn beside(target: &Path) -> Result<Self, HostError> {
        let folder =
            target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = crate::compressed::unnamed(&HostDir::open(folder)?)?;
        Ok(Self { file, folder: folder.into(), end: 0 })
    }

    /// Returns the start of the next file.
    pub fn begin(&mut self) -> u64 {
        self.end = self.end.next_multiple_of(GRAIN);
        self.end
    }

    /// Writes bytes of the current file, `at` bytes after its `start`. Fails with `System`.
    pub fn write(&mut self, start: u64, at: u64, bytes: &[u8]) -> Result<(), HostError> {
        let offset = start.saturating_add(at);
        self.file
            .write_all_at(bytes, offset)
            .map_err(|error| HostError::io("write a temporary file in", &self.folder, &error))?;
        self.end = self.end.max(offset.saturating_add(to_u64(bytes.len())));
        Ok(())
    }

    /// Ends the file at `start` with a length of `len` bytes, the last of which may be a hole. Fails with `System`.
    pub fn end(&mut self, start: u64, len: u64) -> Result<(), HostError> {
        let end = start.saturating_add(len);
        if end > self.end {
            self.file
                .set_len(end)
                .map_err(|error| HostError::io("write a temporary file in", &self.folder, &error))?;
            self.end = end;
        }
        Ok(())
    }

    /// Returns another handle of the file, for reading.
    pub fn reader(&self) -> Result<File, HostError> {
        let file = self.file.try_clone();
        file.map_err(|error| HostError::io("read a temporary file in", &self.folder, &error))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_directory_that_became_a_link_out_of_its_root_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for (folder, bytes) in [("top/inner", "harmless"), ("secret", "of root")] {
            fs::create_dir_all(at(folder)).unwrap();
            fs::write(at(folder).join("f"), bytes).unwrap();
        }
        let mut supply = Supply::default();
        let root = supply.beneath(&SourceDir::open(&at("top")).unwrap(), Path::new("inner")).unwrap();
        let file = supply.entry(root, Name::new(b"f").unwrap()).unwrap();
        assert_eq!(supply.path(file), at("top/inner/f"));
        assert!(supply.open(file, &mut None).is_ok());
        fs::rename(at("top/inner"), at("moved")).unwrap();
        symlink("../secret", at("top/inner")).unwrap();
        assert!(supply.open(file, &mut None).is_err());
    }
}
