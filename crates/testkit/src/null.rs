//! A driver that does nothing, so that a benchmark measures only the layers above it.
//!
//! A volume is any device that begins with [`MAGIC`]. Its root contains a file of [`SIZE`] bytes for every number, with
//! the decimal number as its name, and lists the files below [`LISTED`]. Each call returns in constant time without a
//! lock, and reads leave the buffer unchanged.
//!
//! A volume that is open for changes reports success for each change and stores nothing.

use std::ops::Range;
use std::sync::Arc;

use obento_base::{
    Attr, DeviceNumber, Error, FileFlags, FileKind, Generation, Ino, Mode, Name, Result, Timestamp,
};
use obento_block::BlockDevice;
use obento_driver::{
    Access, AskUsage, Cookie, Crash, DirEntry, Driver, EntrySink, ExclusiveLayout, Extent, FileSystem,
    Layout, Limits, NewNode, OpenOptions, Probe, RemovalKind, RenameFlags, SetAttr, Size, Span, StatFs,
    StoredProperties, TimeChange, VolumeInfo, WritableFileSystem, WritePlace, WriteTicket,
};

/// The first bytes of a volume.
pub const MAGIC: &[u8; 8] = b"nullfs 1";
/// The size of every file.
pub const SIZE: u64 = 1 << 30;
/// The number of listed files.
pub const LISTED: u64 = 100;
const ROOT: Ino = Ino(1);
/// The inode number of the file `0`.
const FIRST: u64 = 2;
/// The number after the last inode.
const END: u64 = FIRST + (1 << 32);
/// The inode of all new files.
const MADE: Ino = Ino(END);

/// The driver.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullDriver;

impl Driver for NullDriver {
    fn names(&self) -> &'static [&'static str] {
        &["null"]
    }

    fn access(&self) -> Access {
        Access::ReadWrite
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
        Ok(Arc::new(Null(options.access)))
    }
}

/// An open volume.
#[derive(Clone, Copy, Debug)]
pub struct Null(pub Access);

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
            keeps: StoredProperties::DIRECTORIES,
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
            ROOT => (FileKind::Directory, 0o755, 0),
            MADE => (FileKind::Regular, 0o644, 0),
            Ino(number) if !(FIRST..END).contains(&number) => return Err(Error::Stale),
            _ => (FileKind::Regular, 0o644, SIZE),
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

    fn read_dir(&self, dir: Ino, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        expect_root(dir)?;
        for number in from.0..LISTED {
            let name = number.to_string();
            let name = Name::new(name.as_bytes()).map_err(|_| Error::Invalid)?;
            let (ino, kind) = (Ino(number + FIRST), Some(FileKind::Regular));
            if sink(Ok(DirEntry { name, ino, kind, next: Cookie(number + 1) })).is_break() {
                break;
            }
        }
        Ok(())
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

    fn writable(&self) -> Option<&dyn WritableFileSystem> {
        (self.0 == Access::ReadWrite).then_some(self)
    }
}

impl WritableFileSystem for Null {
    fn create(&self, dir: Ino, name: &Name, node: &NewNode<'_>) -> Result<Attr> {
        match self.lookup(dir, name) {
            Err(Error::NotFound) if node.kind == FileKind::Regular => self.getattr(MADE),
            Err(Error::NotFound) => Err(Error::NotPermitted),
            found => found.and(Err(Error::Exists)),
        }
    }

    fn link(&self, _ino: Ino, _dir: Ino, _name: &Name) -> Result<Attr> {
        Err(Error::TooManyLinks)
    }

    fn remove(&self, dir: Ino, name: &Name, victim: RemovalKind, ask: &mut AskUsage<'_>) -> Result<()> {
        expect_root(dir)?;
        let attr = self.getattr(self.lookup(dir, name).unwrap_or(MADE))?;
        match victim {
            RemovalKind::File => ask(&attr).map(drop),
            RemovalKind::EmptyDirectory => Err(Error::NotDirectory),
        }
    }

    fn rename(&self, from: Ino, _name: &Name, to: Ino, _new_name: &Name, _flags: RenameFlags) -> Result<()> {
        expect_root(from).and(expect_root(to))
    }

    fn set_attr(&self, ino: Ino, _change: &SetAttr) -> Result<Attr> {
        self.getattr(ino)
    }

    fn truncate(&self, _layout: &ExclusiveLayout<'_>, _ino: Ino, _size: u64) -> Result<()> {
        Ok(())
    }

    fn begin_write<'a>(
        &'a self,
        _layout: &'a Layout<'_>,
        ino: Ino,
        range: Range<u64>,
    ) -> Result<WriteTicket<'a>> {
        let extent = Extent { len: range.end.saturating_sub(range.start), span: Span::Driver };
        let place = WritePlace { extent, was: Span::Driver, size: 0, mtime: Timestamp::EPOCH };
        Ok(WriteTicket::new(ino, &range, place, None))
    }

    fn resume_write<'a>(&'a self, _layout: &'a Layout<'_>, ino: Ino, range: Range<u64>) -> WriteTicket<'a> {
        WriteTicket::resumed(ino, &range, None)
    }

    fn end_write(&self, ticket: WriteTicket<'_>, _when: TimeChange) -> Result<()> {
        ticket.publish(|_| Ok(()))
    }

    fn write(&self, _layout: &Layout<'_>, _ino: Ino, _offset: u64, bytes: &[u8]) -> Result<usize> {
        Ok(bytes.len())
    }

    fn punch(&self, _layout: &ExclusiveLayout<'_>, _ino: Ino, _range: Range<u64>) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn allocate(&self, _layout: &Layout<'_>, _ino: Ino, _range: Range<u64>, _size: Size) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn zero_range(
        &self,
        _layout: &ExclusiveLayout<'_>,
        _ino: Ino,
        _range: Range<u64>,
        _size: Size,
    ) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn collapse(&self, _layout: &ExclusiveLayout<'_>, _ino: Ino, _range: Range<u64>) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn insert(&self, _layout: &ExclusiveLayout<'_>, _ino: Ino, _range: Range<u64>) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn now(&self) -> Timestamp {
        Timestamp::EPOCH
    }

    fn sync_file(&self, _ino: Ino) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}
