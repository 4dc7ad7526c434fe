//! The files of the log inside the volume.
//!
//! They are accessed through a `Vfs` of their own. Invariant: no user changes these files, since the wrapper protects
//! them. A `Vfs` may therefore assume that it is their only user.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{DeviceNumber, Error, FileKind, Ino, Mode, Name, Result};
use obento_driver::{Cookie, DirEntry, FileSystem, NewNode, StoredProperties};
use obento_vfs::{Caller, Config, Node, Vfs};

use crate::block::BLOCK;

/// The part of a volume that segments may use.
pub(crate) const VOLUME_PART: u64 = 16;
/// Longest segment that is read. The segments of a new volume may be longer than those of the log.
pub(crate) const SEGMENT_MAX: usize = 1 << 26;
/// Bytes of a segment that are read at once: whole blocks.
const PART: usize = 256 << 10;
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
        let size = to_usize(file.attr()?.size).min(max);
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(size).map_err(|_| Error::NoMemory)?;
        bytes.resize(size, 0);
        let len = file.read_at(0, &mut bytes)?;
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Passes the blocks of the first `max` bytes of a segment to `add`, in parts. Each part is read into the same buffer.
    pub(crate) fn each_part(file: &Node, max: usize, add: &mut dyn FnMut(&[u8])) -> Result<()> {
        let end = file.attr()?.size.min(to_u64(max));
        let mut at = to_u64(BLOCK);
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(PART).map_err(|_| Error::NoMemory)?;
        while at < end {
            let size = to_usize(end.saturating_sub(at)).min(PART);
            bytes.resize(size, 0);
            let len = file.read_at(at, &mut bytes)?;
            add(bytes.get(..len).unwrap_or_default());
            if len < size {
                break;
            }
            at = at.saturating_add(to_u64(len));
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use alloc::vec;

    use obento_base::Timestamp;
    use obento_env::FixedClock;
    use obento_tmpfs::{Options, Tmpfs};

    use super::*;

    #[test]
    fn the_parts_of_a_segment_are_its_blocks_after_the_header() {
        let clock = Arc::new(FixedClock(Timestamp::new(1_700_000_000, 1)));
        let fs = Tmpfs::new(Options { size: 8 << 20, inodes: 100, ..Options::new(clock) });
        let files = Files::open(Arc::new(fs), "log").unwrap();
        let file = files.create("segment").unwrap();
        for len in [0, BLOCK, BLOCK + 1, BLOCK + PART, BLOCK * 2 + PART, PART * 3 + 5] {
            let bytes: Vec<u8> = (0..len).map(|at| (at / 7 % 251) as u8).collect();
            Files::write(&file, 0, &bytes).unwrap();
            for max in [0, len / 2, len, len + 1] {
                let (mut read, mut parts) = (vec![0; BLOCK], 0);
                Files::each_part(&file, max, &mut |part| {
                    assert!(part.len() <= PART);
                    parts += 1;
                    read.extend_from_slice(part);
                })
                .unwrap();
                let expected = bytes.get(BLOCK..max.min(len)).unwrap_or_default();
                assert!(read[BLOCK..] == *expected, "{len} {max}");
                assert_eq!(parts, expected.len().div_ceil(PART));
            }
        }
    }
}
