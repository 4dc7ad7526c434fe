//! An open volume: the table, checked and in memory, and the device that has the bytes of the files.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use obento::driver::{Crash, EntrySink, Layout};
use obento::{
    Attr, BlockDevice, Cookie, Corrupt, DeviceNumber, DirEntry, Error, Extent, FileFlags, FileKind, FileSystem,
    Generation, Ino, Keeps, Limits, Mode, Name, NameBuf, Probe, Result, Span, StatFs, Structure, Timestamp,
    VolumeInfo,
};
use zerocopy::FromBytes as _;

use crate::raw::{MAGIC, NAME_MAX, RawFile, RawSuperBlock};

const ROOT: Ino = Ino(1);
/// The number of the first file of the table.
const FIRST: u64 = 2;
/// How much of the table is read at once: what a damaged super block says of its length costs no memory before it is read.
const BATCH: u64 = 256;

/// A file of the table.
struct File {
    name: NameBuf,
    bytes: Range<u64>,
}

/// An open volume.
pub struct Volume {
    device: Arc<dyn BlockDevice>,
    len: u64,
    files: Vec<File>,
    by_name: HashMap<NameBuf, Ino>,
}

impl Volume {
    /// Reads the table. Errors: Corrupt; those of the device.
    pub(crate) fn decode(device: Arc<dyn BlockDevice>) -> Result<Self> {
        let mut bytes = [0; size_of::<RawSuperBlock>()];
        read(&*device, 0, &mut bytes)?;
        let raw = RawSuperBlock::read_from_bytes(&bytes).map_err(|_| Error::Invalid)?;
        if raw.magic != MAGIC {
            return Err(wrong("magic", 0, 0, 0));
        }
        let (count, len) = (u64::from(raw.files.get()), raw.len.get());
        if len > device.len() {
            return Err(wrong("len", 0, 16, len));
        }
        let mut volume = Self { device, len, files: Vec::new(), by_name: HashMap::new() };
        for first in (0..count).step_by(BATCH as usize) {
            volume.decode_batch(first, BATCH.min(count - first), count)?;
        }
        Ok(volume)
    }

    fn decode_batch(&mut self, first: u64, count: u64, all: u64) -> Result<()> {
        let record = size_of::<RawFile>() as u64;
        let table = size_of::<RawSuperBlock>() as u64;
        let mut bytes = vec![0; (count * record) as usize];
        read(&*self.device, table + first * record, &mut bytes)?;
        for (n, bytes) in (first..).zip(bytes.chunks_exact(size_of::<RawFile>())) {
            let raw = RawFile::read_from_bytes(bytes).map_err(|_| Error::Invalid)?;
            let end = raw.name.iter().position(|&byte| byte == 0).unwrap_or(NAME_MAX);
            let name = NameBuf::new(raw.name[..end].to_vec());
            let name = name.map_err(|_| Corrupt::EntryName { dir: ROOT, block: n, offset: 0 })?;
            let (start, len) = (raw.offset.get(), raw.len.get());
            if start < table + all * record {
                return Err(wrong("offset", n, 48, start));
            }
            let Some(end) = start.checked_add(len).filter(|&end| end <= self.len) else {
                return Err(wrong("len", n, 56, len));
            };
            if self.by_name.insert(name.clone(), Ino(n + FIRST)).is_some() {
                return Err(Corrupt::EntryName { dir: ROOT, block: n, offset: 0 }.into());
            }
            self.files.push(File { name, bytes: start..end });
        }
        Ok(())
    }

    /// The file `ino`; none for the root. Errors: Stale.
    fn file(&self, ino: Ino) -> Result<Option<&File>> {
        if ino == ROOT {
            return Ok(None);
        }
        let at = ino.0.checked_sub(FIRST).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.files.get(at)).map(Some).ok_or(Error::Stale)
    }

    /// Errors: Stale; NotDirectory.
    fn expect_directory(&self, ino: Ino) -> Result<()> {
        self.file(ino)?.map_or(Ok(()), |_| Err(Error::NotDirectory))
    }
}

/// `field` of record `block` of the table, or of the super block, is wrong.
fn wrong(field: &'static str, block: u64, offset: u32, found: u64) -> Error {
    Corrupt::Field { structure: Structure::SuperBlock, field, block, offset, found }.into()
}

/// Errors: Corrupt past the end of the device.
fn read(device: &dyn BlockDevice, offset: u64, buf: &mut [u8]) -> Result<()> {
    let end = offset.checked_add(buf.len() as u64);
    match end.filter(|&end| end <= device.len()) {
        Some(_) => device.read_at(offset, buf),
        None => Err(wrong("files", 0, 8, device.len())),
    }
}

impl FileSystem for Volume {
    fn root(&self) -> Ino {
        ROOT
    }

    fn limits(&self) -> Limits {
        Limits {
            name_max: NAME_MAX as u32,
            symlink_max: 0,
            link_max: 1,
            file_size_max: u64::MAX >> 1,
            time_granularity: 1_000_000_000,
            keeps: Keeps::NAMES,
            crash: Crash::Whole,
        }
    }

    fn info(&self) -> VolumeInfo {
        let probe = Probe { fs_type: crate::TYPE, len: self.len, ..Probe::default() };
        VolumeInfo { probe, state: "clean".into(), ..VolumeInfo::default() }
    }

    fn statfs(&self) -> Result<StatFs> {
        let blocks = self.len.div_ceil(512);
        Ok(StatFs { block_size: 512, blocks, inodes: self.files.len() as u64 + 1, ..StatFs::default() })
    }

    fn device(&self) -> Option<&Arc<dyn BlockDevice>> {
        Some(&self.device)
    }

    fn lookup(&self, dir: Ino, name: &Name) -> Result<Ino> {
        self.expect_directory(dir)?;
        self.by_name.get(name).copied().ok_or(Error::NotFound)
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        self.expect_directory(dir).map(|()| ROOT)
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        let (kind, mode, size) = match self.file(ino)? {
            None => (FileKind::Directory, 0o555, 0),
            Some(file) => (FileKind::Regular, 0o444, file.bytes.end - file.bytes.start),
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
            blocks: size.div_ceil(512),
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
        self.expect_directory(dir)?;
        // The table never changes, so that an index is a cookie that stays right.
        let skip = usize::try_from(from.0).unwrap_or(usize::MAX);
        for (at, file) in (0..).zip(&self.files).skip(skip) {
            let (ino, next) = (Ino(at + FIRST), Cookie(at + 1));
            let entry = DirEntry { name: &file.name, ino, kind: Some(FileKind::Regular), next };
            if sink(Ok(entry)).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        self.file(ino).and(Err(Error::Invalid))
    }

    fn map(&self, _layout: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent> {
        let bytes = &self.file(ino)?.ok_or(Error::IsDirectory)?.bytes;
        if range.is_empty() {
            return Err(Error::Invalid);
        }
        let size = bytes.end - bytes.start;
        Ok(match range.start < size {
            true => Extent { len: range.end.min(size) - range.start, span: Span::Mapped(bytes.start + range.start) },
            false => Extent { len: range.end - range.start, span: Span::Hole },
        })
    }

    fn read(&self, _layout: &Layout<'_>, ino: Ino, _offset: u64, _buf: &mut [u8]) -> Result<usize> {
        // Everything is mapped.
        self.file(ino)?.ok_or(Error::IsDirectory).and(Err(Error::Invalid))
    }

    fn forget(&self, _ino: Ino) {}
}
