//! The files of the log inside the volume.
//!
//! They are accessed through a `Vfs` of their own. Invariant: no user changes these files, since the wrapper protects
//! them. A `Vfs` may therefore assume that it is their only user.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use obento_base::{DeviceNumber, Error, FileKind, Ino, Mode, Name, Result};
use obento_driver::{Cookie, DirEntry, FileSystem, NewNode, StoredProperties};
use obento_vfs::{Caller, Config, Node, Vfs};

/// The part of a volume that segments may use.
pub(crate) const VOLUME_PART: u64 = 16;
/// Longest segment that is read. The segments of a new volume may be longer than those of the log.
pub(crate) const SEGMENT_MAX: usize = 1 << 26;
/// Free bytes that the log leaves to users.
const RESERVE: u64 = 256 << 10;

/// The directory of the log and the segments in it.
#[derive(Debug)]
pub(crate) struct Files {
    vfs: Vfs,
    dir: Node,
}

fn name(text: &str) -> Result<&Name> {
    Name::new(text.as_bytes()).map_err(|_| Error::Invalid)
}

fn owned_by_root(kind: FileKind, mode: u16) -> NewNode<'static> {
    NewNode { kind, mode: Mode::new(mode), uid: 0, gid: 0, rdev: DeviceNumber::default(), target: b"" }
}

impl Files {
    /// Opens the directory `directory` in the root of `fs`, and creates it if it does not exist.
    pub(crate) fn open(fs: Arc<dyn FileSystem>, directory: &str) -> Result<Self> {
        let vfs = Vfs::with(fs, Config { names: 0, gather: 0, gather_age: None, ..Config::default() });
        let (root, name) = (vfs.root(), name(directory)?);
        let dir = match root.lookup(name) {
            Err(Error::NotFound) => {
                vfs.create(&Caller::Owner, &root, name, &owned_by_root(FileKind::Directory, 0o700))?
            }
            found => found?,
        };
        if dir.kind()? != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        Ok(Self { vfs, dir })
    }

    pub(crate) fn dir(&self) -> Ino {
        self.dir.ino()
    }

    /// Returns the numbers of all files whose names `number` accepts, in ascending order.
    pub(crate) fn numbers(&self, number: fn(&[u8]) -> Option<u32>) -> Result<Vec<u32>> {
        let mut numbers = Vec::new();
        self.dir.read_dir(Cookie::START, &mut |entry: Result<DirEntry<'_>>| {
            numbers.extend(entry.ok().and_then(|entry| number(entry.name.as_bytes())));
            ControlFlow::Continue(())
        })?;
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers)
    }

    pub(crate) fn find(&self, file: &str) -> Result<Node> {
        self.dir.lookup(name(file)?)
    }

    pub(crate) fn create(&self, file: &str) -> Result<Node> {
        self.vfs.create(&Caller::Owner, &self.dir, name(file)?, &owned_by_root(FileKind::Regular, 0o600))
    }

    pub(crate) fn remove(&self, file: &str) -> Result<()> {
        self.vfs.unlink(&Caller::Owner, &self.dir, name(file)?)
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<()> {
        let flags = obento_driver::RenameFlags::empty();
        self.vfs.rename(&Caller::Owner, (&self.dir, name(from)?), (&self.dir, name(to)?), flags)
    }

    /// Returns the first `max` bytes of a file.
    pub(crate) fn read(file: &Node, max: usize) -> Result<Vec<u8>> {
        let size = obento_base::wire::to_usize(file.attr()?.size).min(max);
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(size).map_err(|_| Error::NoMemory)?;
        bytes.resize(size, 0);
        let len = file.read_at(0, &mut bytes)?;
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Writes all bytes. Fails with `NoSpace` if not all fit.
    pub(crate) fn write(file: &Node, offset: u64, bytes: &[u8]) -> Result<()> {
        match file.write_at(offset, bytes)? {
            len if len == bytes.len() => Ok(()),
            _ => Err(Error::NoSpace),
        }
    }

    /// Returns whether all bytes of a file have space.
    pub(crate) fn has_no_holes(&self) -> bool {
        !self.vfs.limits().keeps.contains(StoredProperties::HOLES)
    }

    /// Returns whether `len` bytes have space besides the bytes that the log leaves to users.
    pub(crate) fn has_room_for(&self, len: u64) -> bool {
        self.room().is_ok_and(|(free, size)| {
            free >= RESERVE.min(size.checked_div(VOLUME_PART).unwrap_or(0)).saturating_add(len)
        })
    }

    /// Returns the number of free bytes and the size of the volume.
    pub(crate) fn room(&self) -> Result<(u64, u64)> {
        let stat = self.vfs.flushed_file_system().statfs()?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.block_size.into());
        Ok((bytes(stat.available), bytes(stat.blocks)))
    }
}
