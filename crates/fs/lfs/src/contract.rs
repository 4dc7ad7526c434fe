//! [`FileSystem`] for a volume.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::{ControlFlow, Range};

use obento_base::wire::{to_u64, to_usize};
use obento_base::{
    Attr, Corrupt, DeviceNumber, Error, FileKind, Generation, Ino, Mode, Name, Result, Structure,
};
use obento_block::BlockDevice;
use obento_driver::{
    Cookie, Crash, DirEntry, EntrySink, Extent, Fact, FileSystem, Handover, Layout, Limits, Probe, Span,
    StatFs, StoredProperties, VolumeInfo,
};

use crate::inode::Inode;
use crate::map::Place;
use crate::raw::Order;
use crate::volume::{ROOT, Volume};

/// Longest name (`LFS_MAXNAMLEN`).
const NAME_MAX: u32 = 255;
/// Longest target of a link.
const TARGET_MAX: u32 = 4095;
/// Most bytes of a mapping, so that its end is found quickly.
const MAPPED: u64 = 4 << 20;
/// Most holes that a mapping joins.
const HOLES: u32 = 256;

impl Volume {
    fn describe(&self) -> VolumeInfo {
        let found = &self.super_block;
        let fact = |name: &'static str, value: String| Fact { name, value };
        let order = if found.encoding.order == Order::Little { "little-endian" } else { "big-endian" };
        let facts = Vec::from([
            fact("version", found.encoding.version.to_string()),
            fact("address size", format!("{} bits", found.encoding.word_len().saturating_mul(8))),
            fact("byte order", order.to_string()),
            fact("block size", found.block.to_string()),
            fact("fragment size", found.fragment.to_string()),
            fact("segment size", found.segment.to_string()),
            fact("segments", found.segments.to_string()),
            fact("inodes", found.files.to_string()),
            fact("checkpoint", found.serial.to_string()),
            fact("partial segments after the checkpoint", self.rolled.segments.to_string()),
        ]);
        let state = if found.is_clean || found.encoding.version == 1 { "clean" } else { "needs recovery" };
        VolumeInfo {
            probe: Probe { fs_type: "lfs", len: found.len, ..Probe::default() },
            features: Vec::new(),
            state: state.to_string(),
            notices: self.notices.clone(),
            facts,
        }
    }

    /// Returns the target of a link.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: it is empty, too long, or contains a NUL.
    pub fn target(&self, ino: Ino, inode: &Inode) -> Result<Vec<u8>> {
        let damaged = |found| -> Error {
            let structure = Structure::Symlink(ino);
            Corrupt::Field { structure, field: "di_size", block: 0, offset: 0, found }.into()
        };
        if inode.size == 0 || inode.size > TARGET_MAX.into() {
            return Err(damaged(inode.size));
        }
        let mut target = vec![0; to_usize(inode.size)];
        if inode.size < self.super_block.inline_max {
            let len = self.super_block.encoding.word_len().saturating_mul(inode.addresses.len());
            let stored = inode.area.get(..len).and_then(|area| area.get(..target.len()));
            target.copy_from_slice(stored.ok_or_else(|| damaged(inode.size))?);
        } else {
            self.read_bytes(ino, inode, 0, &mut target)?;
        }
        if target.contains(&0) { Err(damaged(0)) } else { Ok(target) }
    }

    fn regular(&self, ino: Ino) -> Result<Inode> {
        match self.typed(ino)? {
            (inode, FileKind::Regular) => Ok(inode),
            (_, FileKind::Directory) => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// Returns the extent at byte `at`, of at most `asked` bytes.
    fn extent(&self, ino: Ino, inode: &Inode, at: u64, asked: u64) -> Result<Extent> {
        let block = u64::from(self.super_block.block);
        let end = self.end_of(inode);
        let number_at = |at: u64| at.checked_div(block).unwrap_or(0);
        if at >= inode.size {
            return Ok(Extent { len: asked, span: Span::Hole });
        }
        let last = at.saturating_add(asked).min(end);
        let mut number = number_at(at);
        match self.place(ino, inode, number)? {
            Place::Hole(len) => {
                let mut len = len;
                for _ in 0..HOLES {
                    number = number.saturating_add(len);
                    if number.saturating_mul(block) >= last {
                        break;
                    }
                    // A damaged address concerns its own block.
                    let Ok(Place::Hole(more)) = self.place(ino, inode, number) else { break };
                    len = more;
                }
                // The hole continues past the blocks of the file.
                let until = number.saturating_mul(block);
                let until = if until >= end { at.saturating_add(asked) } else { until };
                Ok(Extent { len: until.saturating_sub(at).min(asked), span: Span::Hole })
            }
            Place::At(address) => {
                let first = number;
                let step = self.units(block);
                let most = last.min(at.saturating_add(MAPPED));
                let mut until = number.saturating_add(1).saturating_mul(block);
                while until < most {
                    number = number.saturating_add(1);
                    let expected = number.saturating_sub(first).saturating_mul(step).saturating_add(address);
                    if self.place(ino, inode, number) != Ok(Place::At(expected)) {
                        break;
                    }
                    until = until.saturating_add(block);
                }
                let within = at.saturating_sub(first.saturating_mul(block));
                let from = self.super_block.bytes(address).saturating_add(within);
                Ok(Extent { len: until.min(last).saturating_sub(at), span: Span::Mapped(from) })
            }
        }
    }
}

impl FileSystem for Volume {
    fn root(&self) -> Ino {
        ROOT
    }

    fn limits(&self) -> Limits {
        Limits {
            name_max: NAME_MAX,
            symlink_max: TARGET_MAX,
            link_max: 32767,
            file_size_max: i64::MAX.unsigned_abs(),
            time_granularity: 1,
            uid_max: u32::MAX,
            gid_max: u32::MAX,
            keeps: StoredProperties::all(),
            crash: Crash::Whole,
        }
    }

    fn info(&self) -> VolumeInfo {
        self.describe()
    }

    fn statfs(&self) -> Result<StatFs> {
        let found = &self.super_block;
        let unit = u64::from(found.fragment);
        let blocks = found.len.checked_div(unit).unwrap_or(0);
        let free = found.bytes(found.free).checked_div(unit).unwrap_or(0).min(blocks);
        Ok(StatFs { block_size: found.fragment, blocks, free, available: free, inodes: 0, free_inodes: 0 })
    }

    fn device(&self) -> Option<&Arc<dyn BlockDevice>> {
        Some(self.shared_device())
    }

    fn lookup(&self, dir: Ino, name: &Name) -> Result<Ino> {
        let inode = self.directory(dir)?;
        let found = self.find(dir, &inode, name.as_bytes())?;
        match self.typed(found) {
            Err(Error::Refused(_)) => Err(Corrupt::UnusedInode { ino: found }.into()),
            Ok((child, FileKind::Directory)) if found == ROOT || self.parent_of(found, &child)? != dir => {
                let structure = Structure::Directory(dir);
                Err(Corrupt::InodeNumber { structure, block: 0, offset: 0, found: found.0 }.into())
            }
            // The error of the inode itself is that of each later call.
            _ => Ok(found),
        }
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        let inode = self.directory(dir)?;
        self.parent_of(dir, &inode)
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        let (inode, kind) = self.typed(ino)?;
        let encoding = self.super_block.encoding;
        let [secs, nanos] = [inode.ctime.secs().unsigned_abs(), inode.ctime.nanos().into()];
        Ok(Attr {
            ino,
            generation: Generation(inode.generation),
            kind,
            mode: Mode::new(inode.mode),
            nlink: inode.links.into(),
            uid: inode.uid,
            gid: inode.gid,
            rdev: if kind.is_device() { inode.device(encoding) } else { DeviceNumber::default() },
            size: if kind.is_device() { 0 } else { inode.size },
            blocks: self.super_block.bytes(inode.blocks) / 512,
            block_size: self.super_block.block,
            atime: inode.atime,
            mtime: inode.mtime,
            ctime: inode.ctime,
            btime: inode.btime,
            flags: inode.file_flags(),
            change: secs.wrapping_mul(1_000_000_000).wrapping_add(nanos),
            project: 0,
        })
    }

    fn read_dir(&self, dir: Ino, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        let inode = self.directory(dir)?;
        self.entries(dir, &inode, from.0, &mut |entry| {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return sink(Err(error)),
            };
            if matches!(entry.name, b"." | b"..") {
                return ControlFlow::Continue(());
            }
            let Ok(name) = Name::new(entry.name) else {
                let damage = Corrupt::EntryName { dir, block: entry.block, offset: entry.offset };
                return sink(Err(damage.into()));
            };
            sink(Ok(DirEntry { name, ino: Ino(entry.ino), kind: entry.kind, next: Cookie(entry.next) }))
        });
        Ok(())
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        match self.typed(ino)? {
            (inode, FileKind::Symlink) => self.target(ino, &inode),
            _ => Err(Error::Invalid),
        }
    }

    fn map(&self, _layout: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent> {
        let inode = self.regular(ino)?;
        let asked = range.end.checked_sub(range.start).filter(|&len| len > 0).ok_or(Error::Invalid)?;
        self.extent(ino, &inode, range.start, asked)
    }

    fn read(&self, _layout: &Layout<'_>, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let inode = self.regular(ino)?;
        let len = to_usize(inode.size.saturating_sub(offset)).min(buf.len());
        let buf = buf.get_mut(..len).unwrap_or_default();
        self.read_bytes(ino, &inode, offset, buf)?;
        debug_assert!(to_u64(len) <= inode.size);
        Ok(len)
    }

    fn forget(&self, _ino: Ino) {}

    obento_driver::capabilities!(inspect: Inspect, handover: Handover);
}

impl Handover for Volume {
    // Nothing is changed, and the volume contains the inode numbers.
    fn prepare(&self) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }
}
