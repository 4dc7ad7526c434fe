//! Structures of NFSv3 (RFC 1813).

use std::sync::Arc;

use obento_base::{Attr, DeviceNumber, FileFlags, FileKind, Generation, Ino, Mode, Timestamp};

use crate::rpc::Program;
use crate::xdr::{Reader, Writer};

/// The program.
pub const NFS: Program = Program(100_003, 3);

/// Numbers of procedures.
pub mod procedure {
    pub const GETATTR: u32 = 1;
    pub const SETATTR: u32 = 2;
    pub const LOOKUP: u32 = 3;
    pub const READLINK: u32 = 5;
    pub const READ: u32 = 6;
    pub const WRITE: u32 = 7;
    pub const CREATE: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const SYMLINK: u32 = 10;
    pub const MKNOD: u32 = 11;
    pub const REMOVE: u32 = 12;
    pub const RMDIR: u32 = 13;
    pub const RENAME: u32 = 14;
    pub const LINK: u32 = 15;
    pub const READDIRPLUS: u32 = 17;
    pub const FSSTAT: u32 = 18;
    pub const FSINFO: u32 = 19;
    pub const COMMIT: u32 = 21;
}

/// The most bytes of a name that is accepted.
const NAME_MAX: usize = 1024;
/// The most entries of a part of a listing.
const ENTRIES_MAX: usize = 8192;

/// The name that a server gives to a file: at most 64 bytes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Handle(Arc<[u8]>);

impl Handle {
    /// Creates a handle.
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// Returns the start of the arguments of a call about this file.
    pub fn arguments(&self) -> Writer {
        Writer::default().bytes(&self.0)
    }
}

/// The attributes of a file (`fattr3`).
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    pub kind: FileKind,
    mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    used: u64,
    device: DeviceNumber,
    /// The file system of the server.
    pub file_system: u64,
    /// Number in the file system.
    pub number: u64,
    times: [Timestamp; 3],
}

impl Attributes {
    /// Takes attributes.
    pub fn take(reader: &mut Reader<'_>) -> Option<Self> {
        let kind = match reader.u32()? {
            1 => FileKind::Regular,
            2 => FileKind::Directory,
            3 => FileKind::BlockDevice,
            4 => FileKind::CharDevice,
            5 => FileKind::Symlink,
            6 => FileKind::Socket,
            7 => FileKind::Fifo,
            _ => return None,
        };
        let [mode, links, uid, gid] = [reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?];
        let (size, used) = (reader.u64()?, reader.u64()?);
        let device = DeviceNumber { major: reader.u32()?, minor: reader.u32()? };
        let (file_system, number) = (reader.u64()?, reader.u64()?);
        let mut time = || {
            let (secs, nanos) = (reader.u32()?, reader.u32()?);
            (nanos < 1_000_000_000).then(|| Timestamp::new(secs.into(), nanos))
        };
        let times = [time()?, time()?, time()?];
        if size > i64::MAX.unsigned_abs() {
            return None;
        }
        Some(Self { kind, mode, links, uid, gid, size, used, device, file_system, number, times })
    }

    /// Takes attributes that a server may omit (`post_op_attr`).
    pub fn take_optional(reader: &mut Reader<'_>) -> Option<Option<Self>> {
        if reader.flag()? { Self::take(reader).map(Some) } else { Some(None) }
    }

    /// Takes what a change did to a file (`wcc_data`). Returns the attributes after the change.
    pub fn take_after_change(reader: &mut Reader<'_>) -> Option<Option<Self>> {
        if reader.flag()? {
            // Size, modification time and change time before the change.
            reader.fixed(24)?;
        }
        Self::take_optional(reader)
    }

    /// Returns the attributes in terms of the contract.
    pub fn attr(&self, ino: Ino) -> Attr {
        let [atime, mtime, ctime] = self.times;
        let low = u16::try_from(self.mode & 0o7777).unwrap_or(0);
        let nanos =
            ctime.secs().unsigned_abs().wrapping_mul(1_000_000_000).wrapping_add(ctime.nanos().into());
        Attr {
            ino,
            generation: Generation::default(),
            kind: self.kind,
            mode: Mode::new(low),
            nlink: self.links,
            uid: self.uid,
            gid: self.gid,
            rdev: if self.kind.is_device() { self.device } else { DeviceNumber::default() },
            size: self.size,
            blocks: self.used.div_ceil(512),
            block_size: 1 << 16,
            atime,
            mtime,
            ctime,
            btime: None,
            flags: FileFlags::empty(),
            change: nanos,
            project: 0,
        }
    }
}

/// A new time of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewTime {
    /// The time of the server.
    Server,
    /// This time, in seconds since 1970 and nanoseconds.
    At(u32, u32),
}

/// The attributes to set (`sattr3`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NewAttributes {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<NewTime>,
    pub mtime: Option<NewTime>,
}

impl NewAttributes {
    /// Adds the attributes to the arguments of a call.
    pub fn put(&self, to: Writer) -> Writer {
        let word = |to: Writer, value: Option<u32>| match value {
            Some(value) => to.u32(1).u32(value),
            None => to.u32(0),
        };
        let time = |to: Writer, value: Option<NewTime>| match value {
            None => to.u32(0),
            Some(NewTime::Server) => to.u32(1),
            Some(NewTime::At(secs, nanos)) => to.u32(2).u32(secs).u32(nanos),
        };
        let to = [self.mode, self.uid, self.gid].into_iter().fold(to, word);
        let to = match self.size {
            Some(size) => to.u32(1).u64(size),
            None => to.u32(0),
        };
        [self.atime, self.mtime].into_iter().fold(to, time)
    }
}

/// The results of creating a file.
#[derive(Clone, Debug)]
pub struct Created {
    pub handle: Option<Handle>,
    pub attributes: Option<Attributes>,
    /// The attributes of the directory.
    pub dir: Option<Attributes>,
}

impl Created {
    /// Takes the results of `CREATE`, `MKDIR`, `SYMLINK` and `MKNOD` after the status.
    pub fn take(reader: &mut Reader<'_>) -> Option<Self> {
        let handle = if reader.flag()? { Some(Handle::new(reader.bytes(64)?)) } else { None };
        let attributes = Attributes::take_optional(reader)?;
        Some(Self { handle, attributes, dir: Attributes::take_after_change(reader)? })
    }
}

/// An entry of a directory (`entryplus3`).
pub struct Entry<'a> {
    pub name: &'a [u8],
    pub cookie: u64,
    pub attributes: Option<Attributes>,
    pub handle: Option<Handle>,
}

/// A part of a listing: its verifier, its entries, and whether it is the last one.
pub struct Part<'a> {
    pub verifier: [u8; 8],
    pub entries: Vec<Entry<'a>>,
    pub is_last: bool,
}

impl<'a> Part<'a> {
    /// Takes the results of `READDIRPLUS` after the status.
    pub fn take(reader: &mut Reader<'a>) -> Option<Self> {
        Attributes::take_optional(reader)?;
        let verifier = reader.fixed(8)?.try_into().ok()?;
        let mut entries = Vec::new();
        while reader.flag()? {
            reader.u64()?;
            let name = reader.bytes(NAME_MAX)?;
            let cookie = reader.u64()?;
            let attributes = Attributes::take_optional(reader)?;
            let handle = if reader.flag()? { Some(Handle::new(reader.bytes(64)?)) } else { None };
            if entries.len() >= ENTRIES_MAX {
                return None;
            }
            entries.push(Entry { name, cookie, attributes, handle });
        }
        Some(Self { verifier, entries, is_last: reader.flag()? })
    }
}
