//! [`FileSystem`] over a connection, for reading.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use obento_base::{Attr, Error, FileKind, Ino, Name, Result};
use obento_block::BlockDevice;
use obento_driver::{
    Cookie, Crash, DirEntry, EntrySink, Extent, FileSystem, Layout, Limits, Probe, Span, StatFs,
    StoredProperties, VolumeInfo,
};

use crate::error::{LATER, NONSENSE, of_status};
use crate::nodes::{Node, Nodes};
use crate::protocol::{Attributes, Handle, Part, procedure};
use crate::rpc::Connection;
use crate::socket::pause;
use crate::xdr::{Reader, Writer};

/// How long attributes hold: a copy asks for them more than once.
const VALID: Duration = Duration::from_secs(3);
/// Reads that are under way at once.
const READS: usize = 8;
/// The least and the most bytes of a read.
const READ_MIN: u32 = 4096;
const READ_MAX: u32 = 1 << 20;
/// The most bytes of names and of all of a part of a listing.
const NAMES: u32 = 16 << 10;
const LISTING: u32 = 64 << 10;
/// The longest target of a link.
const TARGET_MAX: usize = 4095;
/// How often a call is repeated that the server is not ready for.
const REPEATS: u32 = 20;

/// The file system of an export.
pub struct Mounted {
    connection: Connection,
    nodes: Mutex<Nodes>,
    /// Bytes of a read.
    read_len: u32,
}

/// Takes a status, and results if it is 0.
type Status<T> = Result<T, u32>;

impl Mounted {
    /// Asks the server for the properties of the export.
    pub fn new(connection: Connection, root: Handle) -> Result<Self> {
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
        // A server without FSINFO gets reads of the least length.
        let read_len = connection.call(procedure::FSINFO, root.arguments(), |mut reply| {
            if reply.u32()? != 0 {
                return Some(READ_MIN);
            }
            Attributes::take_optional(&mut reply)?;
            reply.u32()
        })?;
        let nodes = Mutex::new(Nodes::new(root, attributes, Instant::now() + VALID));
        Ok(Self { connection, nodes, read_len: read_len.clamp(READ_MIN, READ_MAX) })
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a procedure, and repeats the call while the server is not ready.
    fn ask<T>(
        &self,
        number: u32,
        arguments: &Writer,
        mut f: impl FnMut(&mut Reader<'_>) -> Option<T>,
    ) -> Result<T> {
        let mut repeats = 0;
        loop {
            let reply: Status<T> = self.connection.call(number, arguments.clone(), |mut reply| {
                Some(match reply.u32()? {
                    0 => Ok(f(&mut reply)?),
                    status => Err(status),
                })
            })?;
            match reply {
                Ok(found) => return Ok(found),
                Err(LATER) if repeats < REPEATS => {
                    repeats += 1;
                    pause(Duration::from_millis(250));
                }
                Err(status) => return Err(of_status(status)),
            }
        }
    }

    fn directory(&self, dir: Ino) -> Result<Node> {
        let node = self.nodes().get(dir)?;
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

    fn attributes(&self, handle: &Handle) -> Result<Attributes> {
        self.ask(procedure::GETATTR, &handle.arguments(), Attributes::take)
    }

    fn look_up(&self, dir: Ino, node: &Node, name: &[u8]) -> Result<Ino> {
        let arguments = node.handle.arguments().bytes(name);
        let (handle, attributes) = self.ask(procedure::LOOKUP, &arguments, |reply| {
            let handle = Handle::new(reply.bytes(64)?);
            Some((handle, Attributes::take_optional(reply)?))
        })?;
        let attributes = match attributes {
            Some(attributes) => attributes,
            None => self.attributes(&handle)?,
        };
        self.nodes().found(dir.0, handle, attributes, Instant::now() + VALID)
    }

    /// Passes the entries of a part of a listing to `sink`. Returns the last cookie, or `None` after the end.
    fn list_part(&self, dir: Ino, at: u64, sink: &mut EntrySink<'_>) -> Result<Option<u64>> {
        let node = self.directory(dir)?;
        let arguments = node.handle.arguments().u64(at).fixed(if at == 0 { &[0; 8] } else { &node.verifier });
        let arguments = arguments.u32(NAMES).u32(LISTING);
        let (verifier, entries, is_last) = self.ask(procedure::READDIRPLUS, &arguments, |reply| {
            let part = Part::take(reply)?;
            let owned = part
                .entries
                .iter()
                .map(|entry| (entry.name.to_vec(), entry.cookie, entry.attributes, entry.handle.clone()));
            Some((part.verifier, owned.collect::<Vec<_>>(), part.is_last))
        })?;
        self.nodes().update(dir, |node| node.verifier = verifier);
        let last = entries.last().map(|&(_, cookie, ..)| cookie);
        if last.is_none() && !is_last {
            return Err(NONSENSE);
        }
        let mut before = at;
        for (name, cookie, attributes, handle) in entries {
            if cookie == 0 || cookie >= 1 << 63 || cookie == before {
                return Err(NONSENSE);
            }
            before = cookie;
            if name == b"." || name == b".." {
                continue;
            }
            let Ok(known) = Name::new(&name) else { return Err(NONSENSE) };
            let found = match (handle, attributes) {
                (Some(handle), Some(attributes)) => {
                    self.nodes().found(dir.0, handle, attributes, Instant::now() + VALID)
                }
                _ => self.look_up(dir, &node, &name),
            };
            let ino = match found {
                Ok(ino) => ino,
                // The file was removed during the listing.
                Err(Error::NotFound | Error::Stale) => continue,
                Err(error) => return Err(error),
            };
            let kind = self.nodes().get(ino).ok().map(|node| node.kind);
            if sink(Ok(DirEntry { name: known, ino, kind, next: Cookie(cookie) })).is_break() {
                return Ok(None);
            }
        }
        Ok(if is_last { None } else { last })
    }

    /// Reads parts of a file, several at once. Returns the number of bytes up to the first short part.
    fn read_parts(&self, handle: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let len = usize::try_from(self.read_len).unwrap_or(usize::MAX);
        let calls: Vec<Writer> = (0_u64..)
            .zip(buf.chunks(len))
            .map(|(index, part)| {
                let at = offset + index * u64::from(self.read_len);
                handle.arguments().u64(at).u32(u32::try_from(part.len()).unwrap_or(0))
            })
            .collect();
        let replies = self.connection.calls(procedure::READ, &calls)?;
        let mut filled = 0;
        for (part, reply) in buf.chunks_mut(len).zip(&replies) {
            let data = data_of(Reader(reply), part.len()).ok_or(NONSENSE)?;
            let (data, is_end) = match data {
                Ok(found) => found,
                Err(LATER) if filled > 0 => return Ok(filled),
                Err(status) => return Err(of_status(status)),
            };
            part[..data.len()].copy_from_slice(data);
            filled += data.len();
            if data.is_empty() && !is_end {
                return Err(NONSENSE);
            }
            if data.len() < part.len() {
                break;
            }
        }
        Ok(filled)
    }
}

/// Takes the results of a read of `len` bytes: data, and whether the file ends after them.
fn data_of(mut reply: Reader<'_>, len: usize) -> Option<Status<(&[u8], bool)>> {
    let status = reply.u32()?;
    if status != 0 {
        return Some(Err(status));
    }
    Attributes::take_optional(&mut reply)?;
    let count = usize::try_from(reply.u32()?).ok()?;
    let is_end = reply.flag()?;
    let data = reply.bytes(len)?;
    (data.len() == count).then_some(Ok((data, is_end)))
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
            probe: Probe { fs_type: "nfs", ..Probe::default() },
            state: "served".into(),
            ..VolumeInfo::default()
        }
    }

    fn statfs(&self) -> Result<StatFs> {
        let root = self.root();
        let root = self.nodes().get(root)?;
        let counts = self.ask(procedure::FSSTAT, &root.handle.arguments(), |reply| {
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
        match self.look_up(dir, &node, name.as_bytes()) {
            Err(Error::NameTooLong) => Err(Error::NotFound),
            found => found,
        }
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        Ok(Ino(self.directory(dir)?.parent))
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        let node = self.nodes().get(ino)?;
        if let Some((attributes, until)) = node.attributes
            && Instant::now() < until
        {
            return Ok(attributes.attr(ino));
        }
        let attributes = self.attributes(&node.handle)?;
        if attributes.kind != node.kind {
            return Err(NONSENSE);
        }
        self.nodes().update(ino, |node| node.attributes = Some((attributes, Instant::now() + VALID)));
        Ok(attributes.attr(ino))
    }

    fn read_dir(&self, dir: Ino, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        self.directory(dir)?;
        let mut at = Some(from.0);
        while let Some(cookie) = at {
            at = self.list_part(dir, cookie, sink)?;
        }
        Ok(())
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        let node = self.nodes().get(ino)?;
        if node.kind != FileKind::Symlink {
            return Err(Error::Invalid);
        }
        self.ask(procedure::READLINK, &node.handle.arguments(), |reply| {
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
        let group = usize::try_from(self.read_len).unwrap_or(usize::MAX).saturating_mul(READS);
        let mut filled = 0;
        while filled < end {
            let to = end.min(filled.saturating_add(group));
            let at = offset.checked_add(filled as u64).ok_or(Error::Invalid)?;
            let len = self.read_parts(&node.handle, at, &mut buf[filled..to])?;
            if len == 0 {
                break;
            }
            filled += len;
        }
        Ok(filled)
    }

    fn forget(&self, ino: Ino) {
        self.nodes().released(ino);
    }
}
