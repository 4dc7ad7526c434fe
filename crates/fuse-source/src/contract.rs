//! [`FileSystem`] over a server, for reading.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use obento_base::{Attr, Error, FileKind, Ino, Name, Result};
use obento_block::BlockDevice;
use obento_driver::{
    Cookie, Crash, DirEntry, EntrySink, Extent, FileSystem, Layout, Limits, Probe, Span, StatFs,
    StoredProperties, VolumeInfo, XattrMode, Xattrs,
};
use zerocopy::IntoBytes as _;

use crate::connection::{Connection, DATA_MAX};
use crate::error::{NONSENSE, NOT_IMPLEMENTED, of_errno};
use crate::nodes::{Node, Nodes};
use crate::server::FuseServer;
use crate::wire::{
    AttrOut, Dirent, EntryOut, ForgetIn, GetattrIn, GetxattrIn, InitIn, InitOut, MAJOR, MINOR, MINOR_MIN,
    OpenIn, OpenOut, ROOT, RawAttr, ReadIn, ReleaseIn, StatfsOut, XATTR_MAX, flag, opcode, take,
};

/// How long a server may take to start: it may connect to a host, and ask for a password.
pub const START: Duration = Duration::from_secs(120);
/// Files that stay open.
const OPEN_MAX: usize = 64;
/// How long attributes hold at least and at most: a copy asks for them more than once.
const VALID_MIN: Duration = Duration::from_secs(1);
const VALID_MAX: Duration = Duration::from_secs(60);
/// The longest target of a link.
const TARGET_MAX: usize = 4095;

/// The file system of a server.
pub struct Mounted {
    connection: Arc<Connection>,
    nodes: Mutex<Nodes>,
    open: Mutex<VecDeque<(u64, u64)>>,
    has_readdirplus: bool,
    /// Dropped last: ends the server. `None` if the server is not a child of this process.
    _server: Option<FuseServer>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns until when attributes hold.
fn valid_until(seconds: u64, nanos: u32) -> Instant {
    let valid = Duration::from_secs(seconds.min(60)) + Duration::from_nanos(nanos.into());
    Instant::now() + valid.clamp(VALID_MIN, VALID_MAX)
}

impl Mounted {
    /// Agrees with the server on the protocol.
    pub fn new(connection: Arc<Connection>, server: Option<FuseServer>) -> Result<Self> {
        let offer = InitIn { major: MAJOR, minor: MINOR, max_readahead: DATA_MAX, flags: flag::OFFERED };
        let agreed = connection
            .exchange(opcode::INIT, 0, &[offer.as_bytes()], START, |body| Some(take::<InitOut>(body)?.0))?
            .map_err(of_errno)?;
        if agreed.major != MAJOR || agreed.minor < MINOR_MIN {
            return Err(NONSENSE);
        }
        let has_readdirplus = agreed.flags & flag::DO_READDIRPLUS != 0;
        let nodes = Mutex::new(Nodes::new());
        Ok(Self { connection, nodes, open: Mutex::default(), has_readdirplus, _server: server })
    }

    /// Records an inode that the server returned. `None` means that the name does not exist.
    fn found(&self, parent: u64, entry: &EntryOut) -> Result<Option<Ino>> {
        if entry.nodeid == 0 {
            return Ok(None);
        }
        let ino = Ino(entry.nodeid);
        let attr = entry.attr.decode(ino, entry.generation).ok_or(NONSENSE)?;
        let until = valid_until(entry.attr_valid, entry.attr_valid_nsec);
        let node = Node {
            parent,
            lookups: 1,
            kind: attr.kind,
            generation: entry.generation,
            attr: Some((attr, until)),
        };
        lock(&self.nodes).found(entry.nodeid, node)?;
        Ok(Some(ino))
    }

    fn look_up(&self, dir: u64, name: &[u8]) -> Result<Ino> {
        let entry = self
            .connection
            .ask(opcode::LOOKUP, dir, &[name, &[0]], |body| Some(take::<EntryOut>(body)?.0))?;
        self.found(dir, &entry)?.ok_or(Error::NotFound)
    }

    fn directory(&self, dir: Ino) -> Result<Node> {
        let node = lock(&self.nodes).get(dir)?;
        if node.kind == FileKind::Directory { Ok(node) } else { Err(Error::NotDirectory) }
    }

    fn regular(&self, ino: Ino) -> Result<Attr> {
        let attr = self.getattr(ino)?;
        match attr.kind {
            FileKind::Regular => Ok(attr),
            FileKind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// Opens an inode for reading. A server without open files refuses the request, and handle 0 stands for all.
    fn open(&self, request: u32, node: u64) -> Result<u64> {
        // O_RDONLY, and O_LARGEFILE, which the kernel always sets; the server may look at them.
        let body = OpenIn { flags: 0o100_000, open_flags: 0 };
        let deadline = self.connection.deadline();
        let opened = self.connection.exchange(request, node, &[body.as_bytes()], deadline, |body| {
            Some(take::<OpenOut>(body)?.0.fh)
        })?;
        match opened {
            Ok(handle) => Ok(handle),
            Err(NOT_IMPLEMENTED) => Ok(0),
            Err(errno) => Err(of_errno(errno)),
        }
    }

    fn release(&self, request: u32, node: u64, fh: u64) {
        let body = ReleaseIn { fh, flags: 0o100_000, release_flags: 0, lock_owner: 0 };
        // The result of a release concerns no caller.
        let _ = self.connection.ask(request, node, &[body.as_bytes()], |_| Some(()));
    }

    /// Returns the handle of a file, which stays open for later reads.
    fn handle(&self, ino: Ino) -> Result<u64> {
        let mut open = lock(&self.open);
        if let Some(&(_, handle)) = open.iter().find(|&&(known, _)| known == ino.0) {
            return Ok(handle);
        }
        let handle = self.open(opcode::OPEN, ino.0)?;
        open.push_back((ino.0, handle));
        let old = if open.len() > OPEN_MAX { open.pop_front() } else { None };
        drop(open);
        if let Some((node, handle)) = old {
            self.release(opcode::RELEASE, node, handle);
        }
        Ok(handle)
    }

    /// Reads at most [`DATA_MAX`] bytes of a listing, a file or a directory.
    fn read_part(&self, request: u32, node: u64, fh: u64, offset: u64, size: u32) -> Result<Vec<u8>> {
        let body = ReadIn { fh, offset, size, read_flags: 0, lock_owner: 0, flags: 0o100_000, padding: 0 };
        self.connection.ask(request, node, &[body.as_bytes()], |body| {
            (body.len() <= size as usize).then(|| body.to_vec())
        })
    }

    /// Lists a directory that is open as `handle`.
    fn list(&self, dir: Ino, handle: u64, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        let request = if self.has_readdirplus { opcode::READDIRPLUS } else { opcode::READDIR };
        let mut at = from.0;
        loop {
            let part = self.read_part(request, dir.0, handle, at, 32 << 10)?;
            if part.is_empty() {
                return Ok(());
            }
            // All entries are recorded before one is passed, since a sink may end the listing.
            let entries = self.entries(dir, &part)?;
            let last = entries.last().map_or(at, |entry| entry.next);
            if last == at {
                return Err(NONSENSE);
            }
            for entry in entries {
                let Some(name) = entry.name else { continue };
                let Ok(name) = Name::new(name) else { return Err(NONSENSE) };
                let found = match entry.found {
                    Some(found) => Ok(found),
                    None => self.look_up(dir.0, name.as_bytes()),
                };
                let flow = match found {
                    // Removed since the listing was made.
                    Err(Error::NotFound) => ControlFlow::Continue(()),
                    Err(error @ Error::Device(_)) => return Err(error),
                    Err(error) => sink(Err(error)),
                    Ok(ino) => {
                        let kind = lock(&self.nodes).get(ino).ok().map(|node| node.kind);
                        sink(Ok(DirEntry { name, ino, kind, next: Cookie(entry.next) }))
                    }
                };
                if flow.is_break() {
                    return Ok(());
                }
            }
            at = last;
        }
    }

    /// Decodes a part of a listing.
    fn entries<'a>(&self, dir: Ino, mut part: &'a [u8]) -> Result<Vec<Listed<'a>>> {
        let mut entries = Vec::new();
        while !part.is_empty() {
            let mut found = None;
            if self.has_readdirplus {
                let (entry, rest) = take::<EntryOut>(part).ok_or(NONSENSE)?;
                (found, part) = (Some(entry), rest);
            }
            let (dirent, rest) = take::<Dirent>(part).ok_or(NONSENSE)?;
            let len = usize::try_from(dirent.namelen).map_err(|_| NONSENSE)?;
            let name = rest.get(..len).ok_or(NONSENSE)?;
            // Entries start at multiples of 8 bytes.
            part = rest.get(len.next_multiple_of(8)..).unwrap_or_default();
            if dirent.off == 0 || dirent.off >= 1 << 63 {
                return Err(NONSENSE);
            }
            let is_dots = name == b"." || name == b"..";
            let found = match found {
                Some(entry) if !is_dots => self.found(dir.0, &entry)?,
                _ => None,
            };
            entries.push(Listed { name: (!is_dots).then_some(name), found, next: dirent.off });
        }
        Ok(entries)
    }

    /// Returns the value of a request for an attribute or for the list of attributes.
    fn xattr(&self, request: u32, ino: Ino, name: &[&[u8]]) -> Result<Vec<u8>> {
        let size = GetxattrIn { size: XATTR_MAX, padding: 0 };
        let body = [&[size.as_bytes()], name].concat();
        let deadline = self.connection.deadline();
        let value = self.connection.exchange(request, ino.0, &body, deadline, |body| Some(body.to_vec()))?;
        match value {
            Ok(value) => Ok(value),
            Err(NOT_IMPLEMENTED | 95) => Err(Error::NotSupported),
            Err(errno) => Err(of_errno(errno)),
        }
    }
}

/// An entry of a part of a listing. `.` and `..` have no name.
struct Listed<'a> {
    name: Option<&'a [u8]>,
    found: Option<Ino>,
    next: u64,
}

impl FileSystem for Mounted {
    fn root(&self) -> Ino {
        Ino(ROOT)
    }

    fn limits(&self) -> Limits {
        Limits {
            name_max: 255,
            symlink_max: 4095,
            link_max: u32::MAX,
            file_size_max: i64::MAX.unsigned_abs(),
            time_granularity: 1,
            uid_max: u32::MAX,
            gid_max: u32::MAX,
            keeps: StoredProperties::all(),
            crash: Crash::Repairable,
        }
    }

    fn info(&self) -> VolumeInfo {
        VolumeInfo {
            probe: Probe { fs_type: "fuse", ..Probe::default() },
            state: "served".into(),
            ..VolumeInfo::default()
        }
    }

    fn statfs(&self) -> Result<StatFs> {
        let found =
            self.connection.ask(opcode::STATFS, ROOT, &[], |body| Some(take::<StatfsOut>(body)?.0))?;
        let unit = if found.frsize == 0 { found.bsize } else { found.frsize };
        if !unit.is_power_of_two() {
            return Ok(StatFs { block_size: 4096, ..StatFs::default() });
        }
        Ok(StatFs {
            block_size: unit,
            blocks: found.blocks,
            free: found.bfree.min(found.blocks),
            available: found.bavail.min(found.bfree),
            inodes: found.files,
            free_inodes: found.ffree.min(found.files),
        })
    }

    fn device(&self) -> Option<&Arc<dyn BlockDevice>> {
        None
    }

    fn lookup(&self, dir: Ino, name: &Name) -> Result<Ino> {
        self.directory(dir)?;
        match self.look_up(dir.0, name.as_bytes()) {
            Err(Error::NameTooLong) => Err(Error::NotFound),
            found => found,
        }
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        Ok(Ino(self.directory(dir)?.parent))
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        let node = lock(&self.nodes).get(ino)?;
        if let Some((attr, until)) = node.attr
            && Instant::now() < until
        {
            return Ok(attr);
        }
        let body = GetattrIn { flags: 0, dummy: 0, fh: 0 };
        let found = self
            .connection
            .ask(opcode::GETATTR, ino.0, &[body.as_bytes()], |body| Some(take::<AttrOut>(body)?.0))?;
        let attr = RawAttr::decode(&found.attr, ino, node.generation).ok_or(NONSENSE)?;
        if attr.kind != node.kind {
            return Err(NONSENSE);
        }
        lock(&self.nodes).learnt(ino, attr, valid_until(found.attr_valid, found.attr_valid_nsec));
        Ok(attr)
    }

    fn read_dir(&self, dir: Ino, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        self.directory(dir)?;
        let handle = self.open(opcode::OPENDIR, dir.0)?;
        let done = self.list(dir, handle, from, sink);
        self.release(opcode::RELEASEDIR, dir.0, handle);
        done
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        if lock(&self.nodes).get(ino)?.kind != FileKind::Symlink {
            return Err(Error::Invalid);
        }
        let is_target = |body: &[u8]| !body.is_empty() && body.len() <= TARGET_MAX && !body.contains(&0);
        self.connection.ask(opcode::READLINK, ino.0, &[], |body| is_target(body).then(|| body.to_vec()))
    }

    fn map(&self, _layout: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent> {
        let attr = self.regular(ino)?;
        if range.is_empty() {
            return Err(Error::Invalid);
        }
        let len = range.end - range.start;
        match attr.size.saturating_sub(range.start) {
            0 => Ok(Extent { len, span: Span::Hole }),
            left => Ok(Extent { len: len.min(left), span: Span::Driver }),
        }
    }

    fn read(&self, _layout: &Layout<'_>, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.regular(ino)?;
        let handle = self.handle(ino)?;
        let mut filled = 0;
        while filled < buf.len() {
            let size = DATA_MAX.min(u32::try_from(buf.len() - filled).unwrap_or(u32::MAX));
            let at = offset.checked_add(filled as u64).ok_or(Error::Invalid)?;
            let part = self.read_part(opcode::READ, ino.0, handle, at, size)?;
            buf[filled..][..part.len()].copy_from_slice(&part);
            filled += part.len();
            if part.len() < size as usize {
                break;
            }
        }
        Ok(filled)
    }

    fn forget(&self, ino: Ino) {
        let forgotten = lock(&self.nodes).released(ino);
        for (node, nlookup) in forgotten {
            self.connection.notify(opcode::FORGET, node, &[ForgetIn { nlookup }.as_bytes()]);
        }
    }

    fn xattrs(&self) -> Option<&dyn Xattrs> {
        Some(self)
    }
}

impl Xattrs for Mounted {
    fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        lock(&self.nodes).get(ino)?;
        match self.xattr(opcode::GETXATTR, ino, &[name, &[0]]) {
            Err(Error::NotSupported) => Err(Error::NoData),
            value => value,
        }
    }

    fn list_xattrs(&self, ino: Ino, sink: &mut dyn FnMut(&[u8])) -> Result<()> {
        lock(&self.nodes).get(ino)?;
        let list = match self.xattr(opcode::LISTXATTR, ino, &[]) {
            Err(Error::NotSupported) => return Ok(()),
            list => list?,
        };
        list.split(|&byte| byte == 0).filter(|name| !name.is_empty()).for_each(sink);
        Ok(())
    }

    fn set_xattr(&self, _ino: Ino, _name: &[u8], _value: &[u8], _mode: XattrMode) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn remove_xattr(&self, _ino: Ino, _name: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }
}
