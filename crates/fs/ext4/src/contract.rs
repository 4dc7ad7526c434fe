//! The driver contract for ext4 volumes.
//!
//! A method that gets an inode of the format itself (the journal, the resize inode, quota files) fails as if the inode
//! did not exist. Linux does the same.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::{Attr, Corrupt, Error, FileKind, Ino, Name, Result};
use obento_block::{BlockDevice, CacheUse};
use obento_driver::{
    Cookie, Crash, EntrySink, Extent, Failover, FileSystem, Handover, Inspect, Layout, Limits, Nameless,
    Relabel, Span, StatFs, Trim, VolumeInfo, Whiteouts, WritableFileSystem, XattrMode, Xattrs, inspectable,
};
use obento_env::sync::RwLockReadGuard;
use obento_env::sync::atomic::{AtomicBool, Ordering};

use crate::batch::Batch;
use crate::feature::{Compat, Incompat};
use crate::inode::{Inode, InodeFlags};
use crate::map::Blocks;
use crate::super_block::ROOT_INO;
use crate::unit::FileBlock;
use crate::volume::Volume;
use crate::writer::Writer;

/// `EXT4_NAME_LEN`.
const NAME_MAX: u32 = 255;

/// An open volume that implements the contract.
pub struct Ext4 {
    volume: Arc<Volume>,
    writer: Option<Writer>,
    closed: AtomicBool,
}

impl Ext4 {
    /// Opens `volume` for reading.
    pub fn new(volume: Volume) -> Self {
        Self { volume: Arc::new(volume), writer: None, closed: AtomicBool::new(false) }
    }

    /// Opens the volume of `writer` for changes.
    pub(crate) fn writing(writer: Writer) -> Self {
        let volume = Arc::clone(writer.volume());
        Self { volume, writer: Some(writer), closed: AtomicBool::new(false) }
    }

    /// Returns the mounted state.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Returns the writer, until the volume is closed.
    pub(crate) fn writer(&self) -> Option<&Writer> {
        self.writer.as_ref().filter(|_| !self.closed.load(Ordering::Relaxed))
    }

    pub(crate) fn end_writing(&self) -> Result<()> {
        let Some(writer) = self.writer() else { return Ok(()) };
        writer.close()?;
        self.closed.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns whether changes reach the device in an order in which the journal can recover them.
    fn is_ordered(&self) -> bool {
        let has_journal = self.volume.super_block().compat.contains(Compat::HAS_JOURNAL);
        has_journal && self.writer.as_ref().is_none_or(Writer::has_barrier)
    }

    /// Locks `ino` against changes for one step over blocks that belong together. The lock must not be taken twice.
    pub(crate) fn shared(&self, ino: Ino) -> Option<RwLockReadGuard<'_, u64>> {
        self.writer().map(|writer| writer.locks().read(ino))
    }

    /// Lists a directory that may change meanwhile, some entries at a time.
    fn list_in_batches(&self, dir: Ino, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        let (mut batch, mut from) = (Batch::new()?, from);
        loop {
            batch.clear();
            let start = from;
            {
                let _shared = self.shared(dir);
                self.volume.current_list(&self.directory(dir)?, from, &mut |entry| batch.add(entry))?;
            }
            let flow = batch.pass_on(&mut from, sink);
            // The range is empty only if the directory is damaged.
            if flow.is_break() || !batch.is_full() || from == start {
                return Ok(());
            }
        }
    }

    /// Returns a regular file with readable contents.
    fn file(&self, ino: Ino) -> Result<Inode> {
        let inode = self.volume.user_inode(ino)?;
        match inode.kind() {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Error::IsDirectory),
            _ => return Err(Error::Invalid),
        }
        self.volume.refuse_encrypted(&inode, "encrypted file")?;
        Ok(inode)
    }

    /// Returns a directory with readable names.
    fn directory(&self, ino: Ino) -> Result<Inode> {
        let inode = self.volume.user_inode(ino)?;
        if !inode.is_dir() {
            return Err(Error::NotDirectory);
        }
        Ok(inode)
    }

    /// Returns the place of the first data of `range`. `journalled` changes an extent of journalled data; its first
    /// argument is the place of the extent.
    fn map_data(
        &self,
        ino: Ino,
        range: &Range<u64>,
        journalled: impl FnOnce(u64, Extent) -> Extent,
    ) -> Result<Extent> {
        let _shared = self.shared(ino);
        let inode = self.file(ino)?;
        if range.is_empty() {
            return Err(Error::Invalid);
        }
        if inode.has(InodeFlags::INLINE_DATA) {
            return self.map_inline(&inode, range);
        }
        let extent = self.map_blocks(&inode, range)?;
        Ok(match extent.span {
            Span::Mapped(at) if self.writer().is_some_and(|writer| writer.is_journalled(&inode)) => {
                journalled(at, extent)
            }
            _ => extent,
        })
    }

    /// Returns the first part of an extent of journalled data, all of which is on the device, or all of which must be
    /// read from the cache. A commit writes changed blocks to their places later.
    fn part_on_device(&self, at: u64, extent: Extent) -> Extent {
        let size = self.volume.block_size();
        let blocks = size.needed(at.saturating_add(extent.len)).saturating_sub(size.whole(at));
        let (is_changed, same) = self.volume.cache().is_pinned(size.whole(at), blocks);
        let end = size.whole(at).saturating_add(same).saturating_mul(size.into());
        let span = if is_changed { Span::Driver } else { extent.span };
        Extent { span, len: extent.len.min(end.saturating_sub(at)) }
    }

    fn map_inline(&self, inode: &Inode, range: &Range<u64>) -> Result<Extent> {
        let inline = self.volume.inline_data(inode)?.len(inode);
        let asked = range.end.saturating_sub(range.start);
        Ok(match inline.checked_sub(range.start) {
            Some(left) if left > 0 => Extent { len: left.min(asked), span: Span::Driver },
            _ => Extent { len: asked, span: Span::Hole },
        })
    }

    fn map_blocks(&self, inode: &Inode, range: &Range<u64>) -> Result<Extent> {
        let block_size = u64::from(self.volume.block_size());
        let within = range.start.checked_rem(block_size).unwrap_or(0);
        let at = range.start.checked_div(block_size).and_then(|at| u32::try_from(at).ok());
        let asked = range.end.min(inode.size()).saturating_sub(range.start);
        // The range is past the end of the file, or past the limit of the format.
        let (Some(at), Some(_)) = (at, asked.checked_sub(1)) else {
            let len = range.end.saturating_sub(range.start);
            return Ok(Extent { len, span: Span::Hole });
        };
        let run = self.volume.map_run(inode, FileBlock(at))?;
        let covered = u64::from(run.len).saturating_mul(block_size).saturating_sub(within);
        let span = match run.place {
            Blocks::Mapped(block) => Span::Mapped(block.0.saturating_mul(block_size).saturating_add(within)),
            Blocks::Unwritten(_) => Span::Unwritten,
            Blocks::Hole => Span::Hole,
        };
        Ok(Extent { len: covered.min(asked), span })
    }
}

impl FileSystem for Ext4 {
    fn root(&self) -> Ino {
        ROOT_INO
    }

    fn limits(&self) -> Limits {
        let sb = self.volume.super_block();
        let extents = sb.incompat.contains(Incompat::EXTENT);
        Limits {
            name_max: NAME_MAX,
            symlink_max: sb.symlink_max(),
            link_max: sb.link_max(),
            file_size_max: self.volume.file_size_max(extents),
            time_granularity: if sb.inode_size > 128 { 1 } else { 1_000_000_000 },
            uid_max: u32::MAX,
            gid_max: u32::MAX,
            keeps: obento_driver::StoredProperties::all(),
            crash: if self.is_ordered() { Crash::Whole } else { Crash::Unordered },
        }
    }

    fn info(&self) -> VolumeInfo {
        let mut info = self.volume.describe();
        if let Some(writer) = self.writer() {
            info.probe.label = writer.label();
        }
        info
    }

    fn statfs(&self) -> Result<StatFs> {
        let totals = self.writer.as_ref().map(Writer::totals);
        Ok(self.volume.usage(totals.unwrap_or_else(|| self.volume.totals())))
    }

    fn statfs_at(&self, ino: Ino) -> Result<StatFs> {
        let stat = self.statfs()?;
        let Some(writer) = self.writer().filter(|writer| writer.has_limits()) else { return Ok(stat) };
        let _shared = self.shared(ino);
        // The volume has a size also for a directory that is damaged.
        Ok(self.volume.user_inode(ino).map_or(stat, |inode| writer.within_project(&inode, stat)))
    }

    fn device(&self) -> Option<&Arc<dyn BlockDevice>> {
        Some(self.volume.device())
    }

    fn cache_use(&self) -> Option<CacheUse> {
        Some(self.volume().cache().usage())
    }

    fn lookup(&self, dir: Ino, name: &Name) -> Result<Ino> {
        let _shared = self.shared(dir);
        let ino = self.volume.current_lookup(&self.directory(dir)?, name)?;
        match self.volume.user_inode(ino) {
            Err(Error::Stale) => Err(Corrupt::UnusedInode { ino }.into()),
            // Other errors of the inode are reported when it is used.
            _ => Ok(ino),
        }
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        let _shared = self.shared(dir);
        let inode = self.directory(dir)?;
        if dir == ROOT_INO { Ok(dir) } else { self.volume.current_parent(&inode) }
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        match self.volume.attr(ino) {
            // The root of an open volume is in use, unless the volume is damaged.
            Err(Error::Refused(_)) if ino == ROOT_INO => Err(Corrupt::RootKind { ino }.into()),
            found => found,
        }
    }

    fn read_dir(&self, dir: Ino, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        match self.writer() {
            Some(_) => self.list_in_batches(dir, from, sink),
            None => self.volume.current_list(&self.directory(dir)?, from, sink),
        }
    }

    fn read_dir_locked(&self, dir: Ino, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        let _shared = self.shared(dir);
        self.volume.current_list(&self.directory(dir)?, from, sink)
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        let _shared = self.shared(ino);
        self.volume.read_target(&self.volume.user_inode(ino)?)
    }

    fn map(&self, _layout: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent> {
        self.map_data(ino, &range, |_, extent| Extent { span: Span::Driver, ..extent })
    }

    fn map_to_read(&self, _layout: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent> {
        self.map_data(ino, &range, |at, extent| self.part_on_device(at, extent))
    }

    fn read(&self, _layout: &Layout<'_>, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let _shared = self.shared(ino);
        let inode = self.file(ino)?;
        if !inode.has(InodeFlags::INLINE_DATA)
            && self.writer().is_some_and(|writer| writer.is_journalled(&inode))
        {
            return self.volume.read_inode_data(&inode, offset, buf);
        }
        Ok(self.volume.inline_data(&inode)?.copy(&inode, offset, buf))
    }

    fn forget(&self, ino: Ino) {
        if let Some(writer) = self.writer() {
            writer.forget(ino);
        }
    }

    fn writable(&self) -> Option<&dyn WritableFileSystem> {
        self.writer().map(|_| -> &dyn WritableFileSystem { self })
    }

    fn nameless(&self) -> Option<&dyn Nameless> {
        self.writer().map(|_| -> &dyn Nameless { self })
    }

    fn whiteouts(&self) -> Option<&dyn Whiteouts> {
        self.writer().map(|_| -> &dyn Whiteouts { self })
    }

    fn relabel(&self) -> Option<&dyn Relabel> {
        self.writer().map(|_| -> &dyn Relabel { self })
    }

    fn trim(&self) -> Option<&dyn Trim> {
        self.writer().map(|_| -> &dyn Trim { self })
    }

    obento_driver::capabilities!(handover: Handover, xattrs: Xattrs);

    fn failover(&self) -> Option<&dyn Failover> {
        self.writer().filter(|writer| writer.has_redo()).map(|_| -> &dyn Failover { self })
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        inspectable(self)
    }
}

impl Handover for Ext4 {
    fn prepare(&self) -> Result<Vec<u8>> {
        self.writer().map_or(Ok(Vec::new()), |writer| writer.prepare_handover().map(Vec::from))
    }
}

impl Failover for Ext4 {
    fn hold(&self) -> Result<()> {
        self.writer().ok_or(Error::ReadOnly)?.txns().hold()
    }

    fn publish(&self) -> Result<()> {
        self.writer().ok_or(Error::ReadOnly)?.txns().publish()
    }
}

impl Xattrs for Ext4 {
    fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let _shared = self.shared(ino);
        self.volume.get_xattr(&self.volume.user_inode(ino)?, name)
    }

    fn list_xattrs(&self, ino: Ino, sink: &mut dyn FnMut(&[u8])) -> Result<()> {
        let mut names = Vec::new();
        let listed = {
            let _shared = self.shared(ino);
            let inode = self.volume.user_inode(ino)?;
            self.volume.list_xattrs(&inode, &mut |name| names.push(name.to_vec()))
        };
        // The names that precede damage are listed, too.
        names.iter().for_each(|name| sink(name));
        listed
    }

    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.write_with(|writer| writer.set_xattr(ino, name, value, mode))
    }

    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.write_with(|writer| writer.remove_xattr(ino, name))
    }
}
