//! [`FileSystem`] over a connection: reading.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use obento_base::{Attr, Error, FileKind, Ino, Name, Result};
use obento_block::BlockDevice;
use obento_driver::{
    Access, Cookie, Crash, DirEntry, EntrySink, Extent, FileSystem, Layout, Limits, Probe, Span, StatFs,
    StoredProperties, VolumeInfo, WritableFileSystem,
};
use obento_remote_nodes::{FoundBy, ListedCount};

use crate::ahead::Streams;
use crate::error::{LATER, NONSENSE, TOO_MANY_ENTRIES, of_status};
use crate::nodes::{Node, Nodes};
use crate::protocol::{Attributes, Handle, Part, procedure};
use crate::rpc::{Connection, Deadline};
use crate::unstable::Unstable;
use crate::xdr::{Reader, Writer};

/// How long attributes and data hold: a copy asks for attributes more than once.
pub(crate) const VALID: Duration = Duration::from_secs(3);
/// Reads or writes that are under way at once.
pub(crate) const CALLS: usize = 8;
/// The least and the most bytes of a read or a write.
const LEN_MIN: u32 = 4096;
const LEN_MAX: u32 = 1 << 20;
/// The most bytes of names and of all of a part of a listing.
const NAMES: u32 = 16 << 10;
const LISTING: u32 = 64 << 10;
/// The most entries of a directory, unless the address sets another limit: about as many as an ext4 directory has at most
/// without `large_dir` (Linux Documentation/filesystems/ext4, 10 to 12 million).
pub(crate) const ENTRIES: u64 = 10_000_000;
/// The cookie of the last entry of a directory on a server with ext4 (`ext4_get_htree_eof`). Hosts reserve the greatest
/// cookies, so that the entry gets another one. No other cookie is that great.
const LAST_COOKIE: u64 = i64::MAX.unsigned_abs();
const COOKIE_MAX: u64 = LAST_COOKIE - 2;
/// The longest target of a link.
pub(crate) const TARGET_MAX: usize = 4095;
/// How often a call is repeated that the server is not ready for.
pub(crate) const REPEATS: u32 = 20;
/// How long to wait before a call is repeated.
pub(crate) const LATER_PAUSE: Duration = Duration::from_millis(250);

/// The largest size that an offset of the contract reaches.
const SIZE_MAX: u64 = i64::MAX.unsigned_abs();

/// What a server can use at most.
#[derive(Clone, Copy, Debug)]
pub struct Maxima {
    /// Entries of a directory.
    pub entries: u64,
    /// Files that are known at a time.
    pub files: usize,
}

/// The file system of an export.
pub struct Mounted {
    pub(crate) connection: Connection,
    nodes: Mutex<Nodes>,
    /// Bytes of a read.
    pub(crate) read_len: u32,
    /// Bytes of a write.
    pub(crate) write_len: u32,
    /// The largest size of a file.
    pub(crate) size_max: u64,
    /// How long attributes and data that was read ahead are used.
    pub(crate) valid: Duration,
    /// The most entries of a directory. A hostile server may return entries without end.
    pub(crate) entries_max: u64,
    /// Whether files can be changed: the caller wants to, and has not closed the file system.
    pub(crate) is_writable: AtomicBool,
    /// Written data that the server may lose.
    pub(crate) unstable: Mutex<Unstable>,
    /// Files that are read in order.
    pub(crate) streams: Mutex<Streams>,
}

/// Takes a status, and results if it is 0.
pub(crate) type Status<T> = Result<T, u32>;

impl Mounted {
    /// Asks the server for the properties of the export.
    pub fn new(
        connection: Connection,
        root: Handle,
        access: Access,
        valid: Duration,
        maxima: Maxima,
    ) -> Result<Self> {
        let attributes = connection.call(procedure::GETATTR, root.arguments(), |mut reply| {
            Some(match reply.u32()? {
                0 => Ok(Attributes::take(&mut reply)?),
                status => Err(status),
            })
        })?;
        let attributes = attributes.map_err(of_status)?;
        if attributes.kind != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        // A server without FSINFO gets transfers of the least length.
        let (lens, size) = connection.call(procedure::FSINFO, root.arguments(), |mut reply| {
            if reply.u32()? != 0 {
                return Some(([LEN_MIN; 2], SIZE_MAX));
            }
            Attributes::take_optional(&mut reply)?;
            let read = reply.u32()?;
            // The preferred length and the unit of reads.
            reply.fixed(8)?;
            let write = reply.u32()?;
            // The same of writes, and the preferred length of listings.
            reply.fixed(12)?;
            Some(([read, write], reply.u64()?))
        })?;
        let [read_len, write_len] = lens.map(|len| len.clamp(LEN_MIN, LEN_MAX));
        // Some servers return 0 for an unknown size.
        let size_max = if size == 0 { SIZE_MAX } else { size.min(SIZE_MAX) };
        let nodes = Mutex::new(Nodes::new(root, attributes, Instant::now() + valid, maxima.files));
        let is_writable = AtomicBool::new(access == Access::ReadWrite);
        let (unstable, streams) = (Mutex::default(), Mutex::default());
        Ok(Self {
            connection,
            nodes,
            read_len,
            write_len,
            size_max,
            valid,
            entries_max: maxima.entries,
            is_writable,
            unstable,
            streams,
        })
    }

    pub(crate) fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a procedure, and repeats the call while the server is not ready. The call and its repetitions have one deadline.
    pub(crate) fn ask<T>(
        &self,
        number: u32,
        arguments: &Writer,
        f: impl FnMut(&mut Reader<'_>) -> Option<T>,
    ) -> Result<T> {
        self.ask_noting(number, arguments, f)?.0.map_err(of_status)
    }

    /// As [`ask`](Self::ask), with the status of the server. Also returns whether the call was sent again because the
    /// connection ended.
    pub(crate) fn ask_noting<T>(
        &self,
        number: u32,
        arguments: &Writer,
        mut f: impl FnMut(&mut Reader<'_>) -> Option<T>,
    ) -> Result<(Status<T>, bool)> {
        let (mut repeats, mut is_repeated, mut deadline) = (0, false, Deadline::default());
        loop {
            let take = |mut reply: Reader<'_>| {
                Some(match reply.u32()? {
                    0 => Ok(f(&mut reply)?),
                    status => Err(status),
                })
            };
            let (found, again) =
                self.connection.call_noting(number, arguments.clone(), &mut deadline, take)?;
            is_repeated |= again;
            match found {
                Err(LATER) if repeats < REPEATS => {
                    repeats += 1;
                    self.connection.pause(LATER_PAUSE, &deadline)?;
                }
                found => return Ok((found, is_repeated)),
            }
        }
    }

    /// Returns until when attributes hold that the server sends now.
    pub(crate) fn until(&self) -> Instant {
        Instant::now() + self.valid
    }

    pub(crate) fn directory(&self, dir: Ino) -> Result<Node> {
        let node = self.nodes().get(dir)?;
        if node.kind == FileKind::Directory { Ok(node) } else { Err(Error::NotDirectory) }
    }

    pub(crate) fn regular(&self, ino: Ino) -> Result<Attr> {
        let attr = self.getattr(ino)?;
        match attr.kind {
            FileKind::Regular => Ok(attr),
            FileKind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    pub(crate) fn attributes(&self, handle: &Handle) -> Result<Attributes> {
        self.ask(procedure::GETATTR, &handle.arguments(), Attributes::take)
    }

    pub(crate) fn look_up(&self, dir: Ino, node: &Node, name: &[u8], by: FoundBy) -> Result<Ino> {
        let arguments = node.own.handle.arguments().bytes(name);
        let (handle, attributes) = self.ask(procedure::LOOKUP, &arguments, |reply| {
            let handle = Handle::new(reply.bytes(64)?);
            Some((handle, Attributes::take_optional(reply)?))
        })?;
        let attributes = match attributes {
            Some(attributes) => attributes,
            None => self.attributes(&handle)?,
        };
        self.nodes().found(dir.0, handle, attributes, self.until(), by)
    }

    /// Passes the entries of a part of a listing to `sink`. Returns the last cookie, or `None` after the end.
    fn list_part(
        &self,
        dir: Ino,
        at: u64,
        count: &mut ListedCount,
        sink: &mut EntrySink<'_>,
    ) -> Result<Option<u64>> {
        self.forget_idle_files();
        let node = self.directory(dir)?;
        let from = if at == COOKIE_MAX { LAST_COOKIE } else { at };
        let arguments =
            node.own.handle.arguments().u64(from).fixed(if at == 0 { &[0; 8] } else { &node.own.verifier });
        let arguments = arguments.u32(NAMES).u32(LISTING);
        let (verifier, entries, is_last) = self.ask(procedure::READDIRPLUS, &arguments, |reply| {
            let part = Part::take(reply)?;
            let owned = part
                .entries
                .iter()
                .map(|entry| (entry.name.to_vec(), entry.cookie, entry.attributes, entry.handle.clone()));
            Some((part.verifier, owned.collect::<Vec<_>>(), part.is_last))
        })?;
        self.nodes().update(dir, |node| node.own.verifier = verifier);
        let last = entries.last().map(|&(_, cookie, ..)| cookie.min(COOKIE_MAX));
        if last.is_none() && !is_last {
            return Err(NONSENSE);
        }
        let mut before = at;
        for (name, cookie, attributes, handle) in entries {
            if cookie == 0 || cookie >= 1 << 63 || cookie == before {
                return Err(NONSENSE);
            }
            before = cookie;
            let is_dots = name == b"." || name == b"..";
            // An entry that is not passed counts too, so that every listing ends.
            if count.add(is_dots) > self.entries_max {
                return Err(TOO_MANY_ENTRIES);
            }
            if is_dots {
                continue;
            }
            let Ok(known) = Name::new(&name) else { return Err(NONSENSE) };
            let found = match (handle, attributes) {
                (Some(handle), Some(attributes)) => {
                    self.nodes().found(dir.0, handle, attributes, self.until(), FoundBy::Listing)
                }
                _ => self.look_up(dir, &node, &name, FoundBy::Listing),
            };
            let ino = match found {
                Ok(ino) => ino,
                // The file was removed during the listing.
                Err(Error::NotFound | Error::Stale) => continue,
                Err(error) => return Err(error),
            };
            let kind = self.nodes().get(ino).ok().map(|node| node.kind);
            let next = Cookie(cookie.min(COOKIE_MAX));
            if sink(Ok(DirEntry { name: known, ino, kind, next })).is_break() {
                return Ok(None);
            }
        }
        Ok(if is_last { None } else { last })
    }
}

impl Mounted {
    /// Forgets idle files while there are too many of them. Data of a file goes to stable storage before,
    /// since another file may get its number. `sync` returns the error of such a commit.
    fn forget_idle_files(&self) {
        loop {
            let idle = self.nodes().idle();
            let Some(idle) = idle else { return };
            // The error is stored.
            let _ = self.commit(Ino(idle.number));
            self.nodes().evict(&idle);
        }
    }
}

impl FileSystem for Mounted {
    fn root(&self) -> Ino {
        self.nodes().root()
    }

    fn limits(&self) -> Limits {
        Limits {
            name_max: 255,
            symlink_max: 4095,
            link_max: u32::MAX,
            file_size_max: self.size_max,
            time_granularity: 1,
            uid_max: u32::MAX,
            gid_max: u32::MAX,
            keeps: StoredProperties::all(),
            crash: Crash::Repairable,
        }
    }

    fn info(&self) -> VolumeInfo {
        VolumeInfo {
            probe: Probe { fs_type: "nfs", ..Probe::default() },
            state: "served".into(),
            ..VolumeInfo::default()
        }
    }

    fn statfs(&self) -> Result<StatFs> {
        let root = self.root();
        let root = self.nodes().get(root)?;
        let counts = self.ask(procedure::FSSTAT, &root.own.handle.arguments(), |reply| {
            Attributes::take_optional(reply)?;
            Some([reply.u64()?, reply.u64()?, reply.u64()?, reply.u64()?, reply.u64()?])
        })?;
        let [total, free, available, inodes, free_inodes] = counts;
        let unit = 4096;
        let (blocks, free) = (total / unit, free / unit);
        let free = free.min(blocks);
        Ok(StatFs {
            block_size: 4096,
            blocks,
            free,
            available: (available / unit).min(free),
            inodes,
            free_inodes: free_inodes.min(inodes),
        })
    }

    fn device(&self) -> Option<&Arc<dyn BlockDevice>> {
        None
    }

    fn lookup(&self, dir: Ino, name: &Name) -> Result<Ino> {
        let node = self.directory(dir)?;
        match self.look_up(dir, &node, name.as_bytes(), FoundBy::Lookup) {
            Err(Error::NameTooLong) => Err(Error::NotFound),
            found => found,
        }
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        Ok(Ino(self.directory(dir)?.parent))
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        let node = self.nodes().get(ino)?;
        if let Some((attributes, until)) = node.own.attributes.as_deref()
            && Instant::now() < *until
        {
            return Ok(attributes.attr(ino));
        }
        let attributes = self.attributes(&node.own.handle)?;
        if attributes.kind != node.kind {
            return Err(NONSENSE);
        }
        self.nodes().update(ino, |node| node.own.attributes = Some(Arc::new((attributes, self.until()))));
        Ok(attributes.attr(ino))
    }

    fn read_dir(&self, dir: Ino, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        let known = self.directory(dir)?.listed;
        let mut count = if from == Cookie::START { ListedCount::default() } else { known };
        let mut at = Ok(Some(from.0));
        while let Ok(Some(cookie)) = at {
            at = self.list_part(dir, cookie, &mut count, sink);
        }
        self.nodes().update(dir, |node| node.listed = count);
        at.map(drop)
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        let node = self.nodes().get(ino)?;
        if node.kind != FileKind::Symlink {
            return Err(Error::Invalid);
        }
        self.ask(procedure::READLINK, &node.own.handle.arguments(), |reply| {
            Attributes::take_optional(reply)?;
            let target = reply.bytes(TARGET_MAX)?;
            (!target.is_empty() && !target.contains(&0)).then(|| target.to_vec())
        })
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
        let attr = self.regular(ino)?;
        let node = self.nodes().get(ino)?;
        let left = usize::try_from(attr.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let end = buf.len().min(left);
        self.read_ahead(ino, &node.own.handle, attr.size, offset, &mut buf[..end])
    }

    fn acquire(&self, ino: Ino) -> bool {
        self.nodes().acquire(ino)
    }

    fn forget(&self, ino: Ino) {
        self.forget_stream(ino);
        self.nodes().released(ino);
        self.forget_idle_files();
    }

    fn writable(&self) -> Option<&dyn WritableFileSystem> {
        self.is_writable.load(Ordering::Relaxed).then_some(self)
    }
}
