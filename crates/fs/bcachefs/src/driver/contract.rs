//! [`FileSystem`] for a volume.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::wire::to_usize;
use obento_base::{Attr, Corrupt, Error, FileKind, Ino, Name, Result, Structure};
use obento_block::BlockDevice;
use obento_driver::{
    Cookie, Crash, EntrySink, Extent, FileSystem, Handover, Layout, Limits, StatFs, StoredProperties,
    VolumeInfo,
};

use super::volume::Volume;
use crate::file::data::Source;

/// Longest name (`BCH_NAME_MAX`).
const NAME_MAX: u32 = 512;
/// Longest target of a link: a page.
const SYMLINK_MAX: u32 = 4095;

impl Volume {
    /// Returns the data of a regular file.
    fn regular(&self, ino: Ino) -> Result<Source> {
        let inode = self.inode(ino)?;
        match inode.kind {
            FileKind::Regular => self.source(ino, &inode),
            FileKind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
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
        self.root.ino().unwrap_or(Ino(self.root.number))
    }

    fn limits(&self) -> Limits {
        Limits {
            name_max: NAME_MAX,
            symlink_max: SYMLINK_MAX,
            link_max: u32::MAX,
            file_size_max: i64::MAX.unsigned_abs(),
            time_granularity: self.super_block.time_precision,
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
        let unit = u64::from(self.super_block.block_size());
        let blocks = |buckets: u64| buckets.saturating_mul(self.bucket_size()).checked_div(unit).unwrap_or(0);
        let total = self.super_block.member.buckets;
        let free = blocks(total.saturating_sub(self.used_buckets()?));
        Ok(StatFs {
            block_size: self.super_block.block_size(),
            blocks: blocks(total),
            free,
            available: free,
            inodes: 0,
            free_inodes: 0,
        })
    }

    fn device(&self) -> Option<&Arc<dyn BlockDevice>> {
        Some(self.shared_device())
    }

    fn lookup(&self, dir: Ino, name: &Name) -> Result<Ino> {
        self.find(dir, name.as_bytes())
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        let inode = self.directory(dir)?;
        self.parent_of(dir, &inode)
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        let inode = self.inode(ino)?;
        let [atime, ctime, mtime, btime] = inode.times(&self.super_block);
        Ok(Attr {
            ino,
            generation: inode.generation,
            kind: inode.kind,
            mode: inode.mode,
            nlink: inode.links(),
            uid: inode.uid,
            gid: inode.gid,
            rdev: if inode.kind.is_device() { inode.device } else { Default::default() },
            size: inode.size,
            blocks: inode.sectors,
            block_size: self.super_block.block_size(),
            atime,
            mtime,
            ctime,
            btime: Some(btime),
            flags: inode.file_flags(),
            change: ctime
                .secs()
                .unsigned_abs()
                .wrapping_mul(1_000_000_000)
                .wrapping_add(ctime.nanos().into()),
            project: inode.project,
        })
    }

    fn read_dir(&self, dir: Ino, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        self.list(dir, from, sink)
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        let inode = self.inode(ino)?;
        if inode.kind != FileKind::Symlink {
            return Err(Error::Invalid);
        }
        let damaged = |found| Corrupt::Field {
            structure: Structure::Symlink(ino),
            field: "bi_size",
            block: 0,
            offset: 0,
            found,
        };
        if inode.size > u64::from(SYMLINK_MAX).saturating_add(1) {
            return Err(damaged(inode.size).into());
        }
        let source = self.source(ino, &inode)?;
        let mut target = vec![0; to_usize(inode.size)];
        let mut at = 0_usize;
        while let Some(rest) = target.get_mut(at..).filter(|rest| !rest.is_empty()) {
            let len = source.read(self, obento_base::wire::to_u64(at), rest)?;
            if len == 0 {
                break;
            }
            at = at.saturating_add(len);
        }
        let end = target.iter().position(|&byte| byte == 0).unwrap_or(target.len());
        target.truncate(end);
        if target.is_empty() { Err(damaged(0).into()) } else { Ok(target) }
    }

    fn map(&self, _layout: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent> {
        let source = self.regular(ino)?;
        if range.is_empty() {
            return Err(Error::Invalid);
        }
        source.map(self, range)
    }

    fn read(&self, _layout: &Layout<'_>, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.regular(ino)?.read(self, offset, buf)
    }

    fn forget(&self, _ino: Ino) {}

    obento_driver::capabilities!(handover: Handover, xattrs: Xattrs);
}
