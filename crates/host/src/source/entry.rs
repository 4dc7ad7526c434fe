//! Directories of the host and their entries.

use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use obento_base::wire::to_u64;
use obento_base::{Attr, DeviceNumber, FileFlags, FileKind, Generation, Ino, Mode, Name, NameBuf, Timestamp};
use rustix::fs::{Access, AtFlags, Dir, FileType, OFlags, ResolveFlags, Statx, StatxFlags, StatxTimestamp};
use rustix::io::Errno;

use super::SourceFile;
use crate::directory::open_existing_input;
use crate::{FileId, HostDir, HostError, Xattr};

/// How symbolic links are treated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SymlinkPolicy {
    /// A link is an entry like any other.
    #[default]
    Keep,
    /// An entry is the target of its link. A dangling link is an entry itself.
    Follow,
}

/// A directory of the host.
#[derive(Clone, Debug)]
pub struct SourceDir(Arc<OpenDir>);

/// A directory that stays open while it is used.
#[derive(Debug)]
struct OpenDir {
    fd: Arc<OwnedFd>,
    path: PathBuf,
}

/// An entry of a directory, with its attributes.
#[derive(Clone, Debug)]
pub struct SourceEntry {
    dir: SourceDir,
    /// `None` for the root of a tree.
    name: Option<NameBuf>,
    attr: Attr,
    id: FileId,
    /// Whether a link of this name was followed.
    links: SymlinkPolicy,
    /// The file, if it was opened to read its attributes.
    opened: Option<Arc<OwnedFd>>,
}

/// A regular file that was just opened.
#[derive(Debug)]
pub struct OpenEntry<'a> {
    entry: &'a SourceEntry,
    fd: OwnedFd,
    size: u64,
    blocks: u64,
}

/// Without NONBLOCK, opening a file that was replaced by a FIFO would wait for a writer.
const FILE: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
/// Some processors copy several times more slowly to memory that is not aligned to a cache line.
const ALIGN: usize = 64;
/// A handle, which waits for no other process.
const STREAM: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// A directory in which only names are looked up. It needs no right to list the directory.
const SEARCHED: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// The most bytes of a generated file, because some never end.
const MADE: usize = 16 << 20;
/// The bytes of a generated file that the kernel returns at once.
const PAGE: usize = 4096;

impl SourceDir {
    fn new(fd: OwnedFd, path: PathBuf) -> Self {
        Self(Arc::new(OpenDir { fd: Arc::new(fd), path }))
    }

    /// Returns the same open directory with another path for messages.
    #[must_use]
    pub fn shown_as(&self, path: &Path) -> Self {
        Self(Arc::new(OpenDir { fd: Arc::clone(&self.0.fd), path: path.into() }))
    }

    /// Opens the directory `path` of the caller, and follows symbolic links in it. Fails with `System`.
    pub fn open(path: &Path) -> Result<Self, HostError> {
        let fd = rustix::fs::open(path, DIRECTORY, rustix::fs::Mode::empty())
            .map_err(|errno| HostError::system("open", path, errno))?;
        Ok(Self::new(fd, path.into()))
    }

    /// Like [`Self::open`], but needs only the right to search the directory: its entries are found by their names,
    /// and cannot be listed. Fails with `System`.
    pub fn open_to_search(path: &Path) -> Result<Self, HostError> {
        let fd = rustix::fs::open(path, SEARCHED, rustix::fs::Mode::empty())
            .map_err(|errno| HostError::system("open", path, errno))?;
        Ok(Self::new(fd, path.into()))
    }

    /// Opens the current directory, whose entries have paths without a directory. Fails with `System`.
    pub fn current() -> Result<Self, HostError> {
        let fd = rustix::fs::open(".", DIRECTORY, rustix::fs::Mode::empty())
            .map_err(|errno| HostError::system("open", ".", errno))?;
        Ok(Self::new(fd, PathBuf::new()))
    }

    /// Opens `dir` for reading, even if its path leads elsewhere by now. Fails with `System`.
    pub fn of(dir: &HostDir) -> Result<Self, HostError> {
        // Paths in the current directory are shown without it.
        let path = if dir.path() == Path::new(".") { Path::new("") } else { dir.path() };
        Ok(Self::new(dir.to_readable()?, path.into()))
    }

    /// Opens the directory at `relative`, which is beneath this one whatever links and `..` it contains. Needs only
    /// the right to search the directories, so that the result cannot be listed. Fails with `System`.
    pub fn open_beneath(&self, relative: &Path) -> Result<Self, HostError> {
        Ok(Self::new(self.open_path_beneath(relative)?, self.0.path.join(relative)))
    }

    /// Like [`Self::open_beneath`]. Without openat2(2), links and `..` are refused.
    pub(crate) fn open_path_beneath(&self, relative: &Path) -> Result<OwnedFd, HostError> {
        let failed = |errno| HostError::system("open", self.0.path.join(relative), errno);
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(&self.0.fd, relative, SEARCHED, rustix::fs::Mode::empty(), how) {
            // Linux before 5.6, or a container that refuses unknown calls.
            Err(Errno::NOSYS | Errno::PERM) => {}
            opened => return opened.map_err(failed),
        }
        let mut fd = self.0.fd.try_clone().map_err(|_| failed(Errno::MFILE))?;
        for component in relative.components() {
            let Component::Normal(name) = component else {
                if component == Component::CurDir { continue } else { return Err(failed(Errno::XDEV)) }
            };
            let flags = SEARCHED | OFlags::NOFOLLOW;
            fd = rustix::fs::openat(&fd, name, flags, rustix::fs::Mode::empty()).map_err(failed)?;
        }
        Ok(fd)
    }

    /// Opens the file `name` for reading, or the target of a link of this name. Fails as [`open_existing_input`] does.
    pub fn open_named(&self, name: &OsStr) -> Result<File, HostError> {
        let path = self.0.path.join(name);
        let handle = rustix::fs::openat(&self.0.fd, name, STREAM, rustix::fs::Mode::empty());
        open_existing_input(handle.map_err(|errno| HostError::system("open", &path, errno))?, &path)
    }

    /// Returns the path, for messages.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Returns the names of the entries, sorted. Fails with `System`.
    pub fn names(&self) -> Result<Vec<NameBuf>, HostError> {
        Ok(self.listed()?.into_iter().map(|(name, _)| name).collect())
    }

    /// Returns the names of the entries, sorted, and whether each is known to be a regular file. A name longer than
    /// [`Name::MAX`] does not exist on Linux. Fails with `System`.
    pub(super) fn listed(&self) -> Result<Vec<(NameBuf, bool)>, HostError> {
        let failed = |errno| HostError::system("list", &self.0.path, errno);
        let mut names = Vec::new();
        for entry in Dir::read_from(&*self.0.fd).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // `.` and `..` are not names.
            let is_file = entry.file_type() == FileType::RegularFile;
            names.extend(Name::new(entry.file_name().to_bytes()).map(|name| (name.to_buf(), is_file)));
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Returns the entry `name`. Fails with `System`.
    pub fn entry(&self, name: &Name) -> Result<SourceEntry, HostError> {
        self.look(name, SymlinkPolicy::Keep)
    }

    /// Returns the entry `name`, or its target. Fails with `System`.
    pub fn look(&self, name: &Name, links: SymlinkPolicy) -> Result<SourceEntry, HostError> {
        let (mut links, mut found) = (links, look(&self.0.fd, name.as_bytes(), links));
        if links == SymlinkPolicy::Follow && matches!(found, Err(Errno::NOENT | Errno::LOOP)) {
            links = SymlinkPolicy::Keep;
            found = look(&self.0.fd, name.as_bytes(), links);
        }
        let (attr, id) = found.map_err(|errno| HostError::system("examine", self.child(name), errno))?;
        Ok(SourceEntry { dir: self.clone(), name: Some(name.to_buf()), attr, id, links, opened: None })
    }

    /// Returns the entry `name`, which is a regular file according to its directory, and opens it in the same call.
    /// If it cannot be opened or has another kind by now, the result is that of [`look`](Self::look). Fails with
    /// `System`.
    pub fn look_into(&self, name: &Name, links: SymlinkPolicy) -> Result<SourceEntry, HostError> {
        let flags = if links == SymlinkPolicy::Keep { FILE | OFlags::NOFOLLOW } else { FILE };
        let opened = rustix::fs::openat(&*self.0.fd, name.as_bytes(), flags, rustix::fs::Mode::empty());
        let looked = opened.and_then(|fd| look(&fd, b"", links).map(|(attr, id)| (fd, attr, id)));
        match looked {
            Ok((fd, attr, id)) if attr.kind == FileKind::Regular => {
                let (dir, name) = (self.clone(), Some(name.to_buf()));
                Ok(SourceEntry { dir, name, attr, id, links, opened: Some(Arc::new(fd)) })
            }
            _ => self.look(name, links),
        }
    }

    /// Returns the directory itself as an entry without a name. Fails with `System`.
    pub fn as_entry(&self) -> Result<SourceEntry, HostError> {
        let (attr, id) = look(&self.0.fd, b"", SymlinkPolicy::Keep)
            .map_err(|errno| HostError::system("examine", &self.0.path, errno))?;
        Ok(SourceEntry { dir: self.clone(), name: None, attr, id, links: SymlinkPolicy::Keep, opened: None })
    }

    /// Returns the parent directory, if it is still `expected`.
    pub(super) fn parent(&self, expected: FileId, path: &Path) -> Result<Self, HostError> {
        let failed = |errno| HostError::system("open", path, errno);
        let fd =
            rustix::fs::openat(&*self.0.fd, "..", DIRECTORY, rustix::fs::Mode::empty()).map_err(failed)?;
        let stat = rustix::fs::fstat(&fd).map_err(failed)?;
        if FileId::of(&stat) != expected {
            return Err(HostError::Changed { path: path.into() });
        }
        Ok(Self::new(fd, path.into()))
    }

    fn child(&self, name: &Name) -> PathBuf {
        self.0.path.join(std::ffi::OsStr::from_bytes(name.as_bytes()))
    }
}

impl SourceEntry {
    /// Returns the name, or `None` for the root of a tree.
    pub fn name(&self) -> Option<&Name> {
        self.name.as_deref()
    }

    /// Returns the path, for messages.
    pub fn path(&self) -> PathBuf {
        match &self.name {
            Some(name) => self.dir.child(name),
            None => self.dir.0.path.clone(),
        }
    }

    /// Returns the attributes at the time of the lookup.
    pub fn attr(&self) -> &Attr {
        &self.attr
    }

    /// Returns the identity of the file. Hard links have the same identity.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Opens a directory. Fails with `System`, and with `Changed` if it is not the one that was looked up.
    pub fn open_dir(&self) -> Result<SourceDir, HostError> {
        let Some(name) = &self.name else { return Ok(self.dir.clone()) };
        let fd = self.open_as(name, DIRECTORY)?;
        Ok(SourceDir::new(fd, self.path()))
    }

    /// Opens a regular file for reading. Fails with `System`, with EINVAL if it is not a regular file, and with
    /// `Changed`.
    pub fn open_file(&self) -> Result<SourceFile, HostError> {
        self.clone().open()?.into_file()
    }

    /// Opens a regular file, to read it at once or to create a [`SourceFile`] from it. Fails with `System`, with
    /// EINVAL if it is not a regular file, and with `Changed`.
    pub fn open(&mut self) -> Result<OpenEntry<'_>, HostError> {
        if let Some(fd) = self.opened.take().and_then(Arc::into_inner) {
            let (size, blocks) = (self.attr.size, self.attr.blocks);
            return Ok(OpenEntry { entry: self, fd, size, blocks });
        }
        let (FileKind::Regular, Some(name)) = (self.attr.kind, &self.name) else {
            return Err(HostError::system("read", self.path(), Errno::INVAL));
        };
        let (fd, stat) = self.open_and_look(name, FILE)?;
        let (size, blocks) = (stat.st_size.cast_unsigned(), stat.st_blocks.cast_unsigned());
        Ok(OpenEntry { entry: self, fd, size, blocks })
    }

    /// Opens a FIFO or device for reading. Waits for a writer of a FIFO. Fails with `System`, with EINVAL for a file
    /// of another type, and with EINTR after a signal that was caught, and with `Changed`.
    pub fn open_stream(&self) -> Result<File, HostError> {
        match &self.name {
            Some(name) if self.attr.kind == FileKind::Fifo || self.attr.kind.is_device() => {
                open_existing_input(self.open_as(name, STREAM)?, &self.path())
            }
            _ => Err(HostError::system("read", self.path(), Errno::INVAL)),
        }
    }

    fn open_as(&self, name: &Name, flags: OFlags) -> Result<OwnedFd, HostError> {
        self.open_and_look(name, flags).map(|(fd, _)| fd)
    }

    fn open_and_look(&self, name: &Name, flags: OFlags) -> Result<(OwnedFd, rustix::fs::Stat), HostError> {
        let failed = |errno| HostError::system("open", self.path(), errno);
        let flags = if self.links == SymlinkPolicy::Keep { flags | OFlags::NOFOLLOW } else { flags };
        let fd = rustix::fs::openat(&*self.dir.0.fd, name.as_bytes(), flags, rustix::fs::Mode::empty())
            .map_err(failed)?;
        let stat = rustix::fs::fstat(&fd).map_err(failed)?;
        if FileId::of(&stat) == self.id {
            Ok((fd, stat))
        } else {
            Err(HostError::Changed { path: self.path() })
        }
    }

    /// Returns whether the file may contain bytes although its size is 0. Files like those of /proc are
    /// generated when they are read. A disk has no such files.
    fn may_be_made(&self) -> bool {
        self.attr.kind == FileKind::Regular && self.attr.size == 0 && rustix::fs::major(self.id.dev) == 0
    }

    /// Returns the bytes of a regular file with size 0 that contains some. Fails with `System`, `Limit` or `Changed`.
    pub fn made_bytes(&self) -> Result<Vec<u8>, HostError> {
        let mut bytes = Vec::new();
        if self.may_be_made() {
            let made = self.clone().open()?.read(&mut bytes)?;
            bytes.drain(..made.start);
        }
        Ok(bytes)
    }

    /// Returns whether this process may read a regular file.
    pub fn is_readable(&self) -> bool {
        // A file that all users can read needs no query. If an access control list denies access, opening the
        // file reports it.
        const ALL: u16 = 0o444;
        let name = self.name.as_deref().map_or(&b"."[..], Name::as_bytes);
        let ask = || rustix::fs::accessat(&*self.dir.0.fd, name, Access::READ_OK, AtFlags::EACCESS).is_ok();
        self.attr.mode.bits() & ALL == ALL || ask()
    }

    /// Returns the target of a symbolic link. Fails with `System`.
    pub fn read_link(&self) -> Result<Vec<u8>, HostError> {
        let name = self.name.as_deref().map_or(&b""[..], Name::as_bytes);
        let target = rustix::fs::readlinkat(&*self.dir.0.fd, name, Vec::new());
        let target = target.map_err(|errno| HostError::system("read the link", self.path(), errno))?;
        Ok(target.into_bytes())
    }

    /// Returns the extended attributes that the caller may read, sorted by name. Returns none if the file system does
    /// not support them. Fails with `System`.
    pub fn xattrs(&self) -> Result<Vec<Xattr>, HostError> {
        let failed = |errno| HostError::system("read the attributes of", self.path(), errno);
        match self.read_xattrs() {
            Err(Errno::OPNOTSUPP) => Ok(Vec::new()),
            result => result.map_err(failed),
        }
    }

    fn read_xattrs(&self) -> Result<Vec<Xattr>, Errno> {
        // Before Linux 6.13, no call takes a directory and a name. This path is equivalent.
        let mut path = format!("/proc/self/fd/{}/", self.dir.0.fd.as_fd().as_raw_fd()).into_bytes();
        path.extend(self.name.as_deref().map_or(&b"."[..], Name::as_bytes));
        let path = path.as_slice();
        match self.links {
            SymlinkPolicy::Keep => all_xattrs(
                |buffer| rustix::fs::llistxattr(path, buffer),
                |name, buffer| rustix::fs::lgetxattr(path, name, buffer),
            ),
            SymlinkPolicy::Follow => all_xattrs(
                |buffer| rustix::fs::listxattr(path, buffer),
                |name, buffer| rustix::fs::getxattr(path, name, buffer),
            ),
        }
    }
}

impl OpenEntry<'_> {
    /// Returns the present length.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns whether some bytes may be holes.
    pub fn may_have_holes(&self) -> bool {
        // st_blocks counts 512 bytes (stat(2)).
        self.blocks.saturating_mul(512) < self.size
    }

    /// Appends all bytes of a small file to `bytes`, and returns their range. Fails with `System` or `Limit`.
    pub fn read(&self, bytes: &mut Vec<u8>) -> Result<Range<usize>, HostError> {
        let is_made = self.size == 0 && self.entry.may_be_made();
        let len = if is_made { MADE } else { usize::try_from(self.size).unwrap_or(usize::MAX) };
        let failed = |errno| HostError::system("read", self.entry.path(), errno);
        // Grows in large steps, because more files follow.
        let room = if is_made { PAGE } else { len.saturating_add(ALIGN) };
        bytes.try_reserve(room).map_err(|_| failed(Errno::NOMEM))?;
        let start = bytes.len() + bytes.spare_capacity_mut().as_ptr().align_offset(ALIGN).min(ALIGN);
        bytes.resize(start, 0);
        let end = start.saturating_add(len);
        while bytes.len() < end {
            bytes.try_reserve(1).map_err(|_| failed(Errno::NOMEM))?;
            // Reads into uninitialised memory, which saves zeroing it.
            match rustix::io::read(&self.fd, rustix::buffer::spare_capacity(bytes)) {
                // Another process shortened the file.
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        if is_made && bytes.len() >= end {
            return Err(HostError::Limit { path: self.entry.path(), limit: to_u64(MADE) });
        }
        bytes.truncate(end);
        Ok(start..bytes.len())
    }

    /// Returns the extended attributes, as [`SourceEntry::xattrs`]. Fails with `System`.
    pub fn xattrs(&self) -> Result<Vec<Xattr>, HostError> {
        match xattrs_of(&self.fd) {
            Err(Errno::OPNOTSUPP) => Ok(Vec::new()),
            read => {
                read.map_err(|errno| HostError::system("read the attributes of", self.entry.path(), errno))
            }
        }
    }

    /// Returns the file, to be read in parts. Fails with `System`.
    pub fn into_file(self) -> Result<SourceFile, HostError> {
        SourceFile::new(self.fd.into(), &self.entry.path())
    }
}

/// Returns the extended attributes of the open file `fd`.
pub(crate) fn xattrs_of(fd: &OwnedFd) -> Result<Vec<Xattr>, Errno> {
    all_xattrs(
        |buffer| rustix::fs::flistxattr(fd, buffer),
        |name, buffer| rustix::fs::fgetxattr(fd, name, buffer),
    )
}

fn all_xattrs(
    list: impl FnMut(&mut [u8]) -> Result<usize, Errno>,
    mut get: impl FnMut(&[u8], &mut [u8]) -> Result<usize, Errno>,
) -> Result<Vec<Xattr>, Errno> {
    let list = grown(list)?;
    let mut xattrs = Vec::new();
    for name in list.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        match grown(|buffer| get(name, buffer)) {
            Ok(value) => xattrs.push(Xattr { name: name.into(), value }),
            // The attribute was removed, or it is listed but the caller may not read it.
            Err(Errno::NODATA | Errno::PERM | Errno::ACCESS) => {}
            Err(errno) => return Err(errno),
        }
    }
    xattrs.sort_unstable();
    Ok(xattrs)
}

/// Calls `read` with a larger buffer each time until the result fits. Linux allows 64 KiB (limits.h).
fn grown(mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; 256];
    loop {
        match read(&mut buffer) {
            Ok(len) => {
                buffer.truncate(len);
                return Ok(buffer);
            }
            Err(Errno::RANGE) if buffer.len() < 64 << 10 => buffer.resize(buffer.len() * 16, 0),
            Err(errno) => return Err(errno),
        }
    }
}

/// Looks up `name` in `dir`, or `dir` itself if the name is empty.
fn look(dir: &OwnedFd, name: &[u8], links: SymlinkPolicy) -> Result<(Attr, FileId), Errno> {
    let mut flags = AtFlags::empty();
    flags.set(AtFlags::SYMLINK_NOFOLLOW, links == SymlinkPolicy::Keep);
    flags.set(AtFlags::EMPTY_PATH, name.is_empty());
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let stat = rustix::fs::statx(dir, name, flags, mask)?;
    let attr = attr_of(&stat).ok_or(Errno::INVAL)?;
    let dev = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    Ok((attr, FileId { dev, ino: stat.stx_ino }))
}

fn attr_of(stat: &Statx) -> Option<Attr> {
    let has_btime = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    let time = |time: StatxTimestamp| Timestamp::new(time.tv_sec, time.tv_nsec);
    let ctime = time(stat.stx_ctime);
    Some(Attr {
        ino: Ino(stat.stx_ino),
        generation: Generation::default(),
        kind: FileKind::from_mode(stat.stx_mode)?,
        mode: Mode::new(stat.stx_mode),
        nlink: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        rdev: DeviceNumber { major: stat.stx_rdev_major, minor: stat.stx_rdev_minor },
        size: stat.stx_size,
        blocks: stat.stx_blocks,
        block_size: stat.stx_blksize,
        atime: time(stat.stx_atime),
        mtime: time(stat.stx_mtime),
        ctime,
        btime: has_btime.then(|| time(stat.stx_btime)),
        // Flags of `statx` have the values of `FS_IOC_GETFLAGS` where both exist (include/uapi/linux/stat.h).
        flags: FileFlags::from_bits_retain(
            u32::try_from(stat.stx_attributes.bits() & KNOWN_FLAGS).unwrap_or(0),
        ),
        change: ctime.secs().cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(ctime.nanos().into()),
        project: 0,
    })
}

/// `STATX_ATTR_` COMPRESSED, IMMUTABLE, APPEND, NODUMP, ENCRYPTED.
const KNOWN_FLAGS: u64 = 0x4 | 0x10 | 0x20 | 0x40 | 0x800;
