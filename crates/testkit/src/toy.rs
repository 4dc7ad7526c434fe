//! A file system for tests: any tree that a test describes, including impossible ones, without a format.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use obento_base::{
    Attr, DeviceNumber, Error, FileFlags, FileKind, Generation, Ino, Mode, Name, Result, Timestamp,
};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{
    Access, Cookie, DirEntry, Driver, EntrySink, Extent, FileSystem, Layout, Limits, OpenOptions, Probe,
    Span, StatFs, VolumeInfo, XattrMode, Xattrs,
};

/// An inode of a toy volume.
#[derive(Clone, Debug)]
pub enum Toy {
    /// Names and inodes, or damage.
    Dir(Vec<Result<(&'static str, u64)>>),
    /// The runs of a regular file.
    File(Vec<ToyPiece>),
    /// The target of a symbolic link.
    Link(&'static str),
    /// A file of another kind.
    Node(FileKind),
}

/// A run of a file.
#[derive(Clone, Debug)]
pub enum ToyPiece {
    /// On the device: this byte, repeated this many times.
    Mapped(u8, u64),
    /// Stored by the driver, and not on the device.
    Inside(&'static str),
    /// A hole of this many bytes.
    Hole(u64),
    /// Mapped past the end of the device.
    Lost(u64),
    /// Cannot be mapped.
    Unmapped(u64),
}

impl ToyPiece {
    fn len(&self) -> u64 {
        match self {
            Self::Inside(text) => text.len() as u64,
            Self::Mapped(_, len) | Self::Hole(len) | Self::Lost(len) | Self::Unmapped(len) => *len,
        }
    }
}

/// The file system. Inode 2 is the root directory.
pub struct ToyFs {
    nodes: BTreeMap<u64, Toy>,
    device: Arc<dyn BlockDevice>,
    /// The label of the volume.
    pub label: Vec<u8>,
}

impl ToyFs {
    /// Creates a volume with these inodes.
    pub fn new(nodes: impl IntoIterator<Item = (u64, Toy)>) -> Self {
        // Each byte value fills 64 KiB, in ascending order.
        let device = (0..=255).flat_map(|byte| std::iter::repeat_n(byte, 1 << 16)).collect();
        let device = Arc::new(MemDevice::read_only(device));
        Self { nodes: nodes.into_iter().collect(), device, label: Vec::new() }
    }

    fn node(&self, ino: Ino) -> Result<&Toy> {
        self.nodes.get(&ino.0).ok_or(Error::Stale)
    }

    fn entries(&self, dir: Ino) -> Result<&[Result<(&'static str, u64)>]> {
        match self.node(dir)? {
            Toy::Dir(entries) => Ok(entries),
            _ => Err(Error::NotDirectory),
        }
    }

    fn links(&self, ino: Ino) -> usize {
        let entries = self.nodes.values().filter_map(|toy| match toy {
            Toy::Dir(entries) => Some(entries.iter().flatten()),
            _ => None,
        });
        entries.flatten().filter(|(_, found)| *found == ino.0).count()
    }
}

/// Returns a directory without damage.
pub fn dir(entries: &[(&'static str, u64)]) -> Toy {
    Toy::Dir(entries.iter().copied().map(Ok).collect())
}

/// Returns a file with this text.
pub fn text(text: &'static str) -> Toy {
    Toy::File(vec![ToyPiece::Inside(text)])
}

impl FileSystem for ToyFs {
    fn root(&self) -> Ino {
        Ino(2)
    }

    fn limits(&self) -> Limits {
        Limits {
            name_max: 255,
            symlink_max: 4096,
            link_max: 100,
            file_size_max: u64::MAX,
            time_granularity: 1,
            uid_max: u32::MAX,
            gid_max: u32::MAX,
            keeps: obento_driver::StoredProperties::all(),
            crash: obento_driver::Crash::Whole,
        }
    }

    fn info(&self) -> VolumeInfo {
        let probe = Probe { fs_type: "toy", label: self.label.clone(), ..Probe::default() };
        VolumeInfo { probe, ..VolumeInfo::default() }
    }

    fn statfs(&self) -> Result<StatFs> {
        Ok(StatFs::default())
    }

    fn device(&self) -> Option<&Arc<dyn BlockDevice>> {
        Some(&self.device)
    }

    fn lookup(&self, dir: Ino, name: &Name) -> Result<Ino> {
        let mut entries = self.entries(dir)?.iter().flatten();
        let found = entries.find(|(known, _)| known.as_bytes() == name.as_bytes());
        found.map(|(_, ino)| Ino(*ino)).ok_or(Error::NotFound)
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        self.entries(dir)?;
        let holds = |toy: &Toy| matches!(toy, Toy::Dir(e) if e.iter().flatten().any(|(_, i)| *i == dir.0));
        Ok(self.nodes.iter().find(|(_, toy)| holds(toy)).map_or(Ino(2), |(ino, _)| Ino(*ino)))
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        let node = self.node(ino)?;
        let (kind, size) = match node {
            Toy::Dir(_) => (FileKind::Directory, 4096),
            Toy::File(pieces) => (FileKind::Regular, pieces.iter().map(ToyPiece::len).sum()),
            Toy::Link(target) => (FileKind::Symlink, target.len() as u64),
            Toy::Node(kind) => (*kind, 0),
        };
        let at = Timestamp::new(1_000_000 + i64::try_from(ino.0).unwrap(), 123_456_789);
        Ok(Attr {
            ino,
            generation: Generation(0),
            kind,
            mode: Mode::new(if kind == FileKind::Directory { 0o755 } else { 0o640 }),
            nlink: u32::try_from(self.links(ino)).unwrap(),
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: DeviceNumber { major: 1, minor: 3 },
            size,
            blocks: size.div_ceil(512),
            block_size: 4096,
            atime: at,
            mtime: at,
            ctime: at,
            btime: None,
            flags: FileFlags::empty(),
            change: 0,
            project: 0,
        })
    }

    fn read_dir(&self, dir: Ino, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        for (at, entry) in (1..).zip(self.entries(dir)?).skip(usize::try_from(from.0).unwrap()) {
            let entry = entry.as_ref().map_err(|&error| error).map(|(name, ino)| DirEntry {
                name: Name::new(name.as_bytes()).unwrap(),
                ino: Ino(*ino),
                kind: None,
                next: Cookie(at),
            });
            if sink(entry) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        match self.node(ino)? {
            Toy::Link(target) => Ok(target.as_bytes().to_vec()),
            _ => Err(Error::Invalid),
        }
    }

    fn map(&self, _layout: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent> {
        let Toy::File(pieces) = self.node(ino)? else { return Err(Error::Invalid) };
        let mut start = 0;
        for piece in pieces {
            let (skip, end) = (range.start - start, start + piece.len());
            if range.start < end {
                let len = (end.min(range.end)) - range.start;
                let span = match piece {
                    ToyPiece::Mapped(byte, _) => Span::Mapped((u64::from(*byte) << 16) + skip),
                    ToyPiece::Inside(_) => Span::Driver,
                    ToyPiece::Hole(_) => Span::Hole,
                    ToyPiece::Lost(_) => Span::Mapped(1 << 40),
                    ToyPiece::Unmapped(_) => return Err(Error::OutOfRange),
                };
                return Ok(Extent { len, span });
            }
            start = end;
        }
        Ok(Extent { len: range.end - range.start, span: Span::Hole })
    }

    fn read(&self, _layout: &Layout<'_>, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let Toy::File(pieces) = self.node(ino)? else { return Err(Error::Invalid) };
        let mut start = 0;
        for piece in pieces {
            let end = start + piece.len();
            if let (ToyPiece::Inside(text), true) = (piece, offset < end) {
                let rest = &text.as_bytes()[usize::try_from(offset - start).unwrap()..];
                let len = rest.len().min(buf.len());
                buf[..len].copy_from_slice(&rest[..len]);
                return Ok(len);
            }
            start = end;
        }
        Ok(0)
    }

    fn forget(&self, _ino: Ino) {}

    fn xattrs(&self) -> Option<&dyn Xattrs> {
        Some(self)
    }
}

/// Every file has one attribute that contains its inode number.
impl Xattrs for ToyFs {
    fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        if name == b"user.toy" { Ok(ino.to_string().into_bytes()) } else { Err(Error::NoData) }
    }

    fn list_xattrs(&self, ino: Ino, sink: &mut dyn FnMut(&[u8])) -> Result<()> {
        if matches!(self.node(ino)?, Toy::File(_)) {
            sink(b"user.toy");
        }
        Ok(())
    }

    fn set_xattr(&self, _ino: Ino, _name: &[u8], _value: &[u8], _mode: XattrMode) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn remove_xattr(&self, _ino: Ino, _name: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }
}

/// Recognises `toy:` at the start of a device. A label follows, up to a NUL.
pub struct ToyDriver;

impl Driver for ToyDriver {
    fn names(&self) -> &'static [&'static str] {
        &["toy"]
    }

    fn access(&self) -> Access {
        Access::ReadOnly
    }

    fn probe(&self, device: &dyn BlockDevice) -> Result<Option<Probe>> {
        let mut start = [0; 36];
        if device.read_at(0, &mut start).is_err() || &start[..4] != b"toy:" {
            return Ok(None);
        }
        let label = start[4..20].split(|&byte| byte == 0).next().unwrap().to_vec();
        let uuid = start[20..].try_into().ok().filter(|uuid| *uuid != [0; 16]);
        Ok(Some(Probe { fs_type: "toy", label, uuid, len: device.len(), ..Probe::default() }))
    }

    fn open(&self, device: Arc<dyn BlockDevice>, _options: &OpenOptions) -> Result<Arc<dyn FileSystem>> {
        let probe = self.probe(&*device)?.ok_or(Error::Invalid)?;
        Ok(Arc::new(ToyFs { label: probe.label, ..ToyFs::new([(2, dir(&[]))]) }))
    }
}
