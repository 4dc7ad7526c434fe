//! The part of the contract that reads volumes.

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::{Attr, Error, Ino, Name, Result};
use obento_block::{BlockDevice, CacheUse};
use obento_driver::{
    Cookie, DirEntry, EntrySink, Extent, FileSystem, Handover, Layout, Limits, Notice, Span, StatFs,
    VolumeInfo, WritableFileSystem, for_commands,
};

use crate::data::length;
use crate::{Directories, Volume};

impl<F: Directories> FileSystem for Volume<F> {
    fn root(&self) -> Ino {
        F::ROOT
    }

    fn limits(&self) -> Limits {
        self.format.limits()
    }

    fn info(&self) -> VolumeInfo {
        let replayed = self.notices.iter().any(|notice| matches!(notice, Notice::Replayed { .. }));
        VolumeInfo {
            state: for_commands(|| {
                if replayed && !self.is_writable { "needs recovery" } else { "clean" }.to_string()
            }),
            notices: self.notices.clone(),
            ..self.format.info()
        }
    }

    fn statfs(&self) -> Result<StatFs> {
        self.look(|op| {
            let (geometry, free) = (op.geometry(), op.counters.free_blocks.into());
            Ok(StatFs {
                block_size: u32::try_from(geometry.block_size()).unwrap_or(u32::MAX),
                blocks: geometry.size.saturating_sub(geometry.data_start).into(),
                free,
                available: free,
                inodes: geometry.inodes.saturating_sub(1).into(),
                free_inodes: op.counters.free_inodes.into(),
            })
        })
    }

    fn device(&self) -> Option<&Arc<dyn BlockDevice>> {
        Some(self.cache.device())
    }

    fn cache_use(&self) -> Option<CacheUse> {
        Some(self.cache.usage())
    }

    fn lookup(&self, dir: Ino, name: &Name) -> Result<Ino> {
        self.look(|op| op.named(&*op.inode(dir)?, name).map(|(_, inode)| inode.ino()))
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        self.look(|op| {
            let dir = op.inode(dir)?;
            dir.expect_dir()?;
            Ok(if dir.parent == Ino(0) { F::ROOT } else { dir.parent })
        })
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.look(|op| op.stored(ino))
    }

    fn read_dir(&self, dir: Ino, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        let mut from = from;
        loop {
            // One batch at a time, so that the sink runs without locks.
            let batch = self.look(|op| {
                let dir = op.inode(dir)?;
                dir.expect_dir()?;
                op.format().list(op, &dir, from)
            });
            let Some((entries, next)) = batch? else { return Ok(()) };
            for entry in entries {
                let given = match &entry {
                    Ok(entry) => {
                        Ok(DirEntry { name: &entry.name, ino: entry.ino, kind: entry.kind, next: entry.next })
                    }
                    Err(error) => Err(*error),
                };
                if sink(given).is_break() {
                    return Ok(());
                }
            }
            from = next;
        }
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        self.look(|op| op.target(ino))
    }

    fn map(&self, _: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent> {
        self.look(|op| {
            let inode = op.inode(ino)?;
            inode.expect_file()?;
            if range.start >= inode.attr.size && !range.is_empty() {
                return Ok(Extent { len: length(&range), span: Span::Hole });
            }
            // The last block can contain old bytes after the end of the file.
            let end = range.end.min(inode.attr.size).max(range.start);
            op.extent(&inode, &(range.start..end), Span::Hole)
        })
    }

    fn read(&self, _: &Layout<'_>, _: Ino, _: u64, _: &mut [u8]) -> Result<usize> {
        // Never called, since `map` never returns `Span::Driver`.
        Err(Error::Invalid)
    }

    fn forget(&self, ino: Ino) {
        let is_nameless = |attr: Attr| attr.nlink == 0;
        if self.can_change() && self.getattr(ino).is_ok_and(is_nameless) {
            // After an error, the next open frees the inode.
            let _ = self.change(|op| op.forget(ino));
        }
    }

    fn writable(&self) -> Option<&dyn WritableFileSystem> {
        self.can_change().then_some(self)
    }

    fn handover(&self) -> Option<&dyn Handover> {
        Some(self)
    }
}

impl<F: Directories> Handover for Volume<F> {
    fn prepare(&self) -> Result<Vec<u8>> {
        if self.can_change() {
            self.empty_log()?;
        }
        Ok(Vec::new())
    }
}
