//! A driver that has nothing to do: what calls of it take is what the layers above cost.
//!
//! A volume is whatever begins with [`MAGIC`]. Its root holds a file of [`SIZE`] bytes for every number, by its decimal name;
//! each call is answered in constant time without a lock, and reading fills nothing.

use std::ops::Range;
use std::sync::Arc;

use obento_base::{
    Attr, DeviceNumber, Error, FileFlags, FileKind, Generation, Ino, Mode, Name, Result, Timestamp,
};
use obento_block::BlockDevice;
use obento_driver::{
    Access, Cookie, Crash, Driver, EntrySink, Extent, FileSystem, Keeps, Layout, Limits, OpenOptions, Probe,
    Span, StatFs, VolumeInfo,
};

/// What a volume begins with.
pub const MAGIC: &[u8; 8] = b"nullfs 1";
/// Bytes of every file.
pub const SIZE: u64 = 1 << 30;
const ROOT: Ino = Ino(1);
/// The number of the file `0`.
const FIRST: u64 = 2;

/// The format.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullDriver;

impl Driver for NullDriver {
    fn names(&self) -> &'static [&'static str] {
        &["null"]
    }

    fn probe(&self, device: &dyn BlockDevice) -> Result<Option<Probe>> {
        let mut magic = [0; MAGIC.len()];
        if device.len() < magic.len() as u64 {
            return Ok(None);
        }
        device.read_at(0, &mut magic)?;
        let probe = Probe { fs_type: "null", len: device.len(), ..Probe::default() };
        Ok((magic == *MAGIC).then_some(probe))
    }

    fn open(&self, _device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Arc<dyn FileSystem>> {
        match options.access {
            Access::ReadOnly => Ok(Arc::new(Null)),
            Access::ReadWrite => Err(Error::ReadOnly),
        }
    }
}

/// An open volume.
#[derive(Clone, Copy, Debug, Default)]
pub struct Null;

fn expect_root(dir: Ino) -> Result<()> {
    if dir == ROOT { Ok(()) } else { Err(Error::NotDirectory) }
}

impl FileSystem for Null {
    fn root(&self) -> Ino {
        ROOT
    }

    fn limits(&self) -> Limits {
        Limits {
            name_max: 20,
            symlink_max: 0,
            link_max: 1,
            file_size_max: SIZE,
            time_granularity: 1,
            uid_max: u32::MAX,
            gid_max: u32::MAX,
            keeps: Keeps::DIRECTORIES,
            crash: Crash::Whole,
        }
    }

    fn info(&self) -> VolumeInfo {
        VolumeInfo { probe: Probe { fs_type: "null", ..Probe::default() }, ..VolumeInfo::default() }
    }

    fn statfs(&self) -> Result<StatFs> {
        Ok(StatFs { block_size: 4096, ..StatFs::default() })
    }

    fn device(&self) -> Option<&Arc<dyn BlockDevice>> {
        None
    }

    fn lookup(&self, dir: Ino, name: &Name) -> Result<Ino> {
        expect_root(dir)?;
        let number = str::from_utf8(name.as_bytes()).ok().and_then(|name| name.parse::<u32>().ok());
        number.map(|number| Ino(u64::from(number) + FIRST)).ok_or(Error::NotFound)
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        expect_root(dir).map(|()| ROOT)
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        let (kind, mode, size) = match ino {
            ROOT => (FileKind::Directory, 0o555, 0),
            Ino(number) if !(FIRST..=u64::from(u32::MAX) + FIRST).contains(&number) => {
                return Err(Error::Stale);
            }
            _ => (FileKind::Regular, 0o444, SIZE),
        };
        Ok(Attr {
            ino,
            generation: Generation(0),
            kind,
            mode: Mode::new(mode),
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: DeviceNumber::default(),
            size,
            blocks: 0,
            block_size: 4096,
            atime: Timestamp::EPOCH,
            mtime: Timestamp::EPOCH,
            ctime: Timestamp::EPOCH,
            btime: None,
            flags: FileFlags::empty(),
            change: 0,
            project: 0,
        })
    }

    /// What is looked up is not listed: there would be no end.
    fn read_dir(&self, dir: Ino, _from: Cookie, _sink: &mut EntrySink<'_>) -> Result<()> {
        expect_root(dir)
    }

    fn read_link(&self, _ino: Ino) -> Result<Vec<u8>> {
        Err(Error::Invalid)
    }

    fn map(&self, _layout: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent> {
        match () {
            () if ino == ROOT => Err(Error::IsDirectory),
            () if range.is_empty() => Err(Error::Invalid),
            () if range.start >= SIZE => Ok(Extent { len: range.end - range.start, span: Span::Hole }),
            () => Ok(Extent { len: range.end.min(SIZE) - range.start, span: Span::Driver }),
        }
    }

    fn read(&self, _layout: &Layout<'_>, _ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let rest = usize::try_from(SIZE.saturating_sub(offset)).unwrap_or(usize::MAX);
        Ok(buf.len().min(rest))
    }

    fn forget(&self, _ino: Ino) {}
}
