//! [`FileSystem`] over a server: reading. `change`, `write` and `xattrs` have the other operations.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use obento_base::{Attr, Error, FileKind, Ino, Name, Result};
use obento_block::BlockDevice;
use obento_driver::{
    Access, Cookie, Crash, EntrySink, Extent, FileSystem, Layout, Limits, Probe, Span, StatFs,
    StoredProperties, VolumeInfo, WritableFileSystem, Xattrs,
};
use obento_fuse_abi::{
    AttrOut, EntryOut, ForgetIn, GETATTR_FH, GetattrIn, InitIn, MAJOR, ROOT, ReadIn, StatfsOut, opcode,
};
use obento_remote_nodes::{FoundBy, ListedCount};
use zerocopy::IntoBytes as _;

use crate::connection::{Connection, DATA_MAX};
use crate::error::{NONSENSE, of_errno};
use crate::nodes::{Node, Nodes};
use crate::open_files::{Intent, OpenDirectories, OpenFile, OpenFiles};
use crate::server::FuseServer;
use crate::wire::{InitReply, MINOR, MINOR_MIN, decode, flag, take};

/// How long a server may take to start: it may connect to a host, and ask for a password.
pub const START: Duration = Duration::from_secs(120);
/// How long attributes hold at least and at most: a copy asks for them more than once.
const VALID_MIN: Duration = Duration::from_secs(1);
const VALID_MAX: Duration = Duration::from_secs(60);
/// The maximum length of a name.
const NAME_MAX: usize = 255;
/// The most entries of a directory: about as many as an ext4 directory has at most without `large_dir` (Linux
/// Documentation/filesystems/ext4, 10 to 12 million). A hostile server may return entries without end.
const ENTRIES_MAX: u64 = 10_000_000;
/// The longest target of a link.
pub const TARGET_MAX: usize = 4095;
/// The most bytes that a server gets in one request unless it agrees on more.
const WRITE_MIN: u32 = 4096;
/// `EOPNOTSUPP`
pub const NOT_SUPPORTED: i32 = 95;

/// The file system of a server.
pub struct Mounted {
    pub(crate) connection: Arc<Connection>,
    pub(crate) nodes: Mutex<Nodes>,
    pub(crate) open: Mutex<OpenFiles>,
    pub(crate) listed: Mutex<OpenDirectories>,
    pub(crate) unsynced: Mutex<Unsynced>,
    /// Shared by callers that sync: no inode is evicted between its removal from `unsynced` and its sync.
    pub(crate) syncing: RwLock<()>,
    /// The lock for changes of names, so that a name refers to the same inode during the whole change.
    pub(crate) names: Mutex<()>,
    pub(crate) is_writable: AtomicBool,
    /// The maximum size of a write, in bytes.
    pub(crate) write_len: usize,
    pub(crate) has_readdirplus: bool,
    /// The most entries of a directory.
    pub(crate) entries_max: u64,
    has_xattrs: bool,
    /// Dropped last: ends the server. `None` if the server is not a child of this process.
    server: Option<FuseServer>,
}

/// The inodes whose changes the server may not have stored.
#[derive(Default)]
pub struct Unsynced {
    pub nodes: BTreeSet<u64>,
    /// The first error of a write that the server reported late. Data may be lost.
    pub failed: Option<Error>,
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns until when attributes hold.
pub fn valid_until(seconds: u64, nanos: u32) -> Instant {
    let valid = Duration::from_secs(seconds.min(60)) + Duration::from_nanos(nanos.into());
    Instant::now() + valid.clamp(VALID_MIN, VALID_MAX)
}

impl Mounted {
    /// Agrees with the server on the protocol.
    pub fn new(connection: Arc<Connection>, server: Option<FuseServer>, access: Access) -> Result<Self> {
        let offer = InitIn {
            major: MAJOR,
            minor: MINOR,
            max_readahead: DATA_MAX,
            flags: flag::OFFERED,
            flags2: 0,
            unused: [0; 11],
        };
        let agreed = connection
            .exchange(opcode::INIT, 0, &[offer.as_bytes()], START, |body| Some(take::<InitReply>(body)?.0))?
            .map_err(of_errno)?;
        if agreed.major != MAJOR || agreed.minor < MINOR_MIN {
            return Err(NONSENSE);
        }
        let has_readdirplus = agreed.flags & flag::DO_READDIRPLUS != 0;
        let has_large_writes = agreed.flags & flag::BIG_WRITES != 0;
        let write_len =
            if has_large_writes { agreed.max_write.clamp(WRITE_MIN, DATA_MAX) } else { WRITE_MIN };
        let mut mounted = Self {
            connection,
            nodes: Mutex::new(Nodes::new()),
            open: Mutex::default(),
            listed: Mutex::default(),
            unsynced: Mutex::default(),
            syncing: RwLock::default(),
            names: Mutex::default(),
            is_writable: AtomicBool::new(access == Access::ReadWrite),
            write_len: usize::try_from(write_len).unwrap_or_default(),
            has_readdirplus,
            entries_max: ENTRIES_MAX,
            has_xattrs: true,
            server,
        };
        if access == Access::ReadWrite {
            // Without attributes, a caller that creates files need not ask for access control lists.
            mounted.has_xattrs =
                mounted.xattr(opcode::GETXATTR, Ino(ROOT), &[b"user.none\0"]) != Err(Error::NotSupported);
        }
        Ok(mounted)
    }

    /// Records an inode that the server returned. `None` means that the name does not exist.
    pub(crate) fn found(&self, parent: u64, entry: &EntryOut, by: FoundBy) -> Result<Option<Ino>> {
        if entry.nodeid == 0 {
            return Ok(None);
        }
        let ino = Ino(entry.nodeid);
        let attr = decode(&entry.attr, ino, entry.generation).ok_or(NONSENSE)?;
        let until = valid_until(entry.attr_valid, entry.attr_valid_nsec);
        lock(&self.nodes).found(parent, entry.generation, attr, until, by)?;
        Ok(Some(ino))
    }

    pub(crate) fn look_up(&self, dir: u64, name: &[u8], by: FoundBy) -> Result<Ino> {
        let entry = self
            .connection
            .ask(opcode::LOOKUP, dir, &[name, &[0]], |body| Some(take::<EntryOut>(body)?.0))?;
        self.found(dir, &entry, by)?.ok_or(Error::NotFound)
    }

    pub(crate) fn directory(&self, dir: Ino) -> Result<Node> {
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

    /// Reads at most [`DATA_MAX`] bytes of a listing, a file or a directory.
    pub(crate) fn read_part(&self, request: u32, file: &OpenFile, offset: u64, size: u32) -> Result<Vec<u8>> {
        let OpenFile { node, fh, flags } = *file;
        let body = ReadIn { fh, offset, size, read_flags: 0, lock_owner: 0, flags, padding: 0 };
        self.connection.ask(request, node, &[body.as_bytes()], |body| {
            (body.len() <= size as usize).then(|| body.to_vec())
        })
    }

    /// Records attributes that the server returned for a known inode.
    pub(crate) fn learnt(&self, ino: Ino, node: &Node, found: &AttrOut) -> Result<Attr> {
        let attr = decode(&found.attr, ino, node.own.generation).ok_or(NONSENSE)?;
        if attr.kind != node.kind {
            return Err(NONSENSE);
        }
        lock(&self.nodes).learnt(attr, valid_until(found.attr_valid, found.attr_valid_nsec));
        Ok(attr)
    }

    /// Informs the server that an inode is no longer known, after this number of lookups.
    pub(crate) fn send_forget(&self, (node, nlookup): (u64, u64)) {
        let listed = lock(&self.listed).take(Ino(node));
        listed.into_iter().for_each(|file| self.release(opcode::RELEASEDIR, &file));
        self.connection.notify(opcode::FORGET, node, &[ForgetIn { nlookup }.as_bytes()]);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.server.is_none() {
            self.connection.destroy();
        }
    }
}

impl FileSystem for Mounted {
    fn root(&self) -> Ino {
        Ino(ROOT)
    }

    fn limits(&self) -> Limits {
        Limits {
            name_max: NAME_MAX as u32,
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
        match self.look_up(dir.0, name.as_bytes(), FoundBy::Lookup) {
            // A server may have a shorter limit than that of `limits`.
            Err(Error::NameTooLong) if name.as_bytes().len() > NAME_MAX => Err(Error::NotFound),
            found => found,
        }
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        Ok(Ino(self.directory(dir)?.parent))
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        let (node, known) = {
            let nodes = lock(&self.nodes);
            (nodes.get(ino)?, nodes.attr(ino))
        };
        if let Some(attr) = known {
            return Ok(attr);
        }
        // Some servers find a file without a name only by its handle.
        let handle = if node.is_removed() { self.handle_of(ino) } else { None };
        let flags = if handle.is_some() { GETATTR_FH } else { 0 };
        let body = GetattrIn { getattr_flags: flags, dummy: 0, fh: handle.unwrap_or(0) };
        let found = self
            .connection
            .ask(opcode::GETATTR, ino.0, &[body.as_bytes()], |body| Some(take::<AttrOut>(body)?.0))?;
        self.learnt(ino, &node, &found)
    }

    fn read_dir(&self, dir: Ino, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        let known = self.directory(dir)?.listed;
        let mut count = if from == Cookie::START { ListedCount::default() } else { known };
        let file = self.directory_at(dir, from)?;
        let listed = self.list(dir, &file, from, &mut count, sink);
        lock(&self.nodes).listed(dir, count);
        // A listing that the caller interrupts continues with the same open directory.
        if listed == Ok(ControlFlow::Break(())) {
            self.keep_directory(file);
        } else {
            self.release(opcode::RELEASEDIR, &file);
        }
        listed.map(drop)
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
        self.with_file(ino, Intent::Read, |file| {
            let mut filled = 0;
            while filled < buf.len() {
                let size = DATA_MAX.min(u32::try_from(buf.len() - filled).unwrap_or(u32::MAX));
                let at = offset.checked_add(filled as u64).ok_or(Error::Invalid)?;
                let part = self.read_part(opcode::READ, file, at, size)?;
                buf[filled..][..part.len()].copy_from_slice(&part);
                filled += part.len();
                if part.len() < size as usize {
                    break;
                }
            }
            Ok(filled)
        })
    }

    fn acquire(&self, ino: Ino) -> bool {
        lock(&self.nodes).acquire(ino)
    }

    fn forget(&self, ino: Ino) {
        self.close_files(ino);
        let forgotten = lock(&self.nodes).released(ino);
        forgotten.into_iter().for_each(|node| self.send_forget(node));
        self.evict_idle_files();
    }

    fn writable(&self) -> Option<&dyn WritableFileSystem> {
        self.is_writable.load(Ordering::Relaxed).then_some(self)
    }

    fn xattrs(&self) -> Option<&dyn Xattrs> {
        self.has_xattrs.then_some(self)
    }
}
