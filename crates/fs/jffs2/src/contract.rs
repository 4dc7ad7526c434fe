//! [`FileSystem`] for a volume.

use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{
    Attr, DeviceNumber, Error, FileFlags, FileKind, Generation, Ino, Mode, Name, Quantity, Result, Timestamp,
};
use obento_block::BlockDevice;
use obento_driver::{
    Cookie, Crash, DirEntry, EntrySink, Extent, Fact, FileSystem, Handover, Layout, Limits, Probe, Span,
    StatFs, StoredProperties, VolumeInfo,
};

use crate::catalogue::{File, ROOT};
use crate::codec;
use crate::content::{self, PAGE};
use crate::raw::{self, field::inode};
use crate::volume::{TARGET_MAX, Volume};

/// Most bytes of a mapping, so that its end is found quickly.
const MAPPED: u64 = 1 << 20;

/// The attributes of an inode node.
struct Stored {
    uid: u16,
    gid: u16,
    times: [u32; 3],
}

impl Volume {
    /// Reads the attributes of the newest node. A directory without nodes has those that Linux gives it.
    fn attributes(&self, file: &File) -> Result<Stored> {
        let Some(node) = self.catalogue.latest(file) else {
            return Ok(Stored { uid: 0, gid: 0, times: [0; 3] });
        };
        let mut bytes = [0; raw::INODE];
        self.device_ref().read_at(node.at.into(), &mut bytes)?;
        let word = |at| self.order().u32(&bytes, at).unwrap_or(0);
        let half = |at| self.order().u16(&bytes, at).unwrap_or(0);
        let mut times = [word(inode::ATIME), word(inode::MTIME), word(inode::CTIME)];
        let (version, time) = file.changed;
        if self.kind(file)? == FileKind::Directory && version > node.version {
            // A change of a name writes no node of the directory.
            times = [word(inode::ATIME), time, time];
        }
        Ok(Stored { uid: half(inode::UID), gid: half(inode::GID), times })
    }

    fn device_number(&self, file: &File) -> Result<DeviceNumber> {
        let value = self.value(file, 4)?;
        // `old_decode_dev` and `new_decode_dev` of Linux `include/linux/kdev_t.h`.
        match value.len() {
            2 => {
                let old = u32::from(self.order().u16(&value, 0).unwrap_or(0));
                Ok(DeviceNumber { major: old >> 8, minor: old & 0xff })
            }
            4 => {
                let new = self.order().u32(&value, 0).unwrap_or(0);
                Ok(DeviceNumber { major: (new >> 8) & 0xfff, minor: (new & 0xff) | ((new >> 12) & 0xf_ff00) })
            }
            other => Err(self.field(file, "dsize", to_u64(other))),
        }
    }

    fn target(&self, file: &File) -> Result<Arc<[u8]>> {
        let target = self.value(file, TARGET_MAX)?;
        if target.contains(&0) { Err(self.field(file, "target", 0)) } else { Ok(target) }
    }

    fn size(&self, file: &File, kind: FileKind) -> Result<u64> {
        Ok(match kind {
            FileKind::Regular => content::size(self.catalogue.nodes(file)),
            FileKind::Symlink => to_u64(self.target(file)?.len()),
            _ => 0,
        })
    }

    fn describe(&self) -> VolumeInfo {
        let fact = |name: &'static str, value: String| Fact { name, value };
        let counts = &self.counts;
        let numbers = 0..u8::try_from(u16::BITS).unwrap_or(0);
        let used = numbers.filter(|&codec| counts.codecs.checked_shr(codec.into()).unwrap_or(0) & 1 == 1);
        let codecs: Vec<String> =
            used.map(|number| codec::name(number).map_or_else(|| number.to_string(), Into::into)).collect();
        let erase_block = self.erase_block.map_or_else(|| "unknown".to_string(), |size| size.to_string());
        let facts = Vec::from([
            fact("byte order", self.order().name().to_string()),
            fact("erase block size", erase_block),
            fact("nodes", counts.nodes.to_string()),
            fact("obsolete nodes", counts.obsolete.to_string()),
            fact("damaged nodes", counts.damaged.to_string()),
            fact("summaries", counts.summaries.to_string()),
            fact("inodes", self.catalogue.files().count().to_string()),
            fact("compression", if codecs.is_empty() { "none".to_string() } else { codecs.join(", ") }),
            fact("erased", Quantity::new(counts.erased, "byte").to_string()),
        ]);
        let state = if counts.damaged > 0 { "has damaged nodes" } else { "clean" };
        VolumeInfo {
            probe: Probe { fs_type: "jffs2", len: self.len(), ..Probe::default() },
            features: Vec::new(),
            state: state.to_string(),
            notices: self.notices.clone(),
            facts,
        }
    }
}

/// The volume is only read, and inode numbers are those on disk.
impl Handover for Volume {
    fn prepare(&self) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }
}

impl FileSystem for Volume {
    fn root(&self) -> Ino {
        Ino(ROOT.into())
    }

    fn limits(&self) -> Limits {
        Limits {
            name_max: raw::NAME_MAX.into(),
            symlink_max: TARGET_MAX,
            link_max: u32::MAX,
            file_size_max: u32::MAX.into(),
            time_granularity: 1_000_000_000,
            uid_max: u16::MAX.into(),
            gid_max: u16::MAX.into(),
            keeps: StoredProperties::all(),
            crash: Crash::Repairable,
        }
    }

    fn info(&self) -> VolumeInfo {
        self.describe()
    }

    fn statfs(&self) -> Result<StatFs> {
        let free = self.len().saturating_sub(self.counts.bytes) / PAGE;
        Ok(StatFs {
            block_size: u32::try_from(PAGE).unwrap_or(0),
            blocks: self.len() / PAGE,
            free,
            available: free,
            inodes: 0,
            free_inodes: 0,
        })
    }

    fn device(&self) -> Option<&Arc<dyn BlockDevice>> {
        None
    }

    fn lookup(&self, dir: Ino, name: &Name) -> Result<Ino> {
        let found = self.catalogue.find(self.directory(dir)?, name.as_bytes());
        found.map(|ino| Ino(ino.into())).ok_or(Error::NotFound)
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        Ok(Ino(self.directory(dir)?.parent.into()))
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        let file = self.file(ino)?;
        let kind = self.kind(file)?;
        let Stored { uid, gid, times } = self.attributes(file)?;
        let [atime, mtime, ctime] = times.map(|time| Timestamp::new(time.into(), 0));
        let size = self.size(file, kind)?;
        let latest = self.catalogue.latest(file);
        let is_directory = kind == FileKind::Directory;
        Ok(Attr {
            ino,
            generation: Generation::default(),
            kind,
            mode: Mode::new(latest.map_or(0o755, |node| node.mode)),
            nlink: if is_directory { file.links.saturating_add(2) } else { file.links },
            uid: uid.into(),
            gid: gid.into(),
            rdev: if kind.is_device() { self.device_number(file)? } else { DeviceNumber::default() },
            size,
            blocks: size.div_ceil(512),
            block_size: u32::try_from(PAGE).unwrap_or(0),
            atime,
            mtime,
            ctime,
            btime: None,
            flags: FileFlags::empty(),
            change: latest.map_or(0, |node| node.version.into()),
            project: 0,
        })
    }

    fn read_dir(&self, dir: Ino, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        let file = self.directory(dir)?;
        // The volume never changes, so that a position in the sorted list stays valid.
        let start = to_usize(from.0);
        let rest = self.catalogue.children(file).get(start..).unwrap_or_default();
        for (at, child) in (from.0..).zip(rest) {
            // Names are checked when the catalogue is made.
            let Ok(name) = Name::new(self.catalogue.name(child)) else { continue };
            let kind = self.catalogue.file(child.ino).and_then(|file| self.catalogue.kind(file).ok());
            let next = Cookie(at.saturating_add(1));
            if sink(Ok(DirEntry { name, ino: Ino(child.ino.into()), kind, next })).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        let file = self.file(ino)?;
        match self.kind(file)? {
            FileKind::Symlink => Ok(self.target(file)?.to_vec()),
            _ => Err(Error::Invalid),
        }
    }

    fn map(&self, _layout: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent> {
        let content = self.content(ino)?;
        let asked = range.end.checked_sub(range.start).filter(|&len| len > 0).ok_or(Error::Invalid)?;
        let at = range.start;
        if let Some(end) = content.hole(at) {
            return Ok(Extent { len: end.saturating_sub(at).min(asked), span: Span::Hole });
        }
        let last = at.saturating_add(asked.min(MAPPED));
        let mut end = (at / PAGE).saturating_add(1).saturating_mul(PAGE);
        while end < last && content.hole(end).is_none() {
            end = end.saturating_add(PAGE);
        }
        Ok(Extent { len: end.min(last).saturating_sub(at), span: Span::Driver })
    }

    fn read(&self, _layout: &Layout<'_>, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let content = self.content(ino)?;
        let end = content.size().min(offset.saturating_add(to_u64(buf.len())));
        let len = to_usize(end.saturating_sub(offset));
        let mut buf = buf.get_mut(..len).unwrap_or_default();
        let mut at = offset;
        while !buf.is_empty() {
            let piece = content.from(at);
            let until = piece.map_or(end, |piece| if piece.start > at { piece.start } else { piece.end });
            let part = to_usize(until.min(end).saturating_sub(at)).min(buf.len());
            let Some((now, rest)) = buf.split_at_mut_checked(part) else { break };
            match piece.filter(|piece| piece.start <= at) {
                Some(piece) => {
                    self.read_node(&piece.node, at.saturating_sub(piece.node.offset.into()), now)?
                }
                None => now.fill(0),
            }
            at = at.saturating_add(to_u64(part));
            buf = rest;
        }
        Ok(len)
    }

    fn forget(&self, _ino: Ino) {}

    obento_driver::capabilities!(handover: Handover, xattrs: Xattrs);
}
