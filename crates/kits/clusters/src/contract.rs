//! The driver contract for volumes of clusters.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Attr, Error, Ino, Name, Result};
use obento_block::{BlockDevice, CacheUse};
use obento_driver::{
    Access, Cookie, DirEntry, EntrySink, Extent, FileSystem, Handover, Inspect, Layout, Limits, OpenOptions,
    Span, StatFs, Trim, VolumeInfo, WritableFileSystem,
};
use obento_env::sync::{Mutex, RwLock};

use crate::age::CommitTimer;
use crate::guard::Locked;
use crate::handover;
use crate::inode::ROOT;
use crate::mount_state::FirstMark;
use crate::ops;
use crate::utf16::MAX_BYTES;
use crate::volume::{Commit as _, Location as _, Volume};

/// Maximum number of entries that are copied at a time, so that the sink runs without locks.
const BATCH: usize = 128;

/// An open volume that implements the contract.
pub struct Mounted<V: Volume> {
    volume: V,
    /// Held shared while several sectors are read, and exclusively while they are changed.
    lock: RwLock<()>,
    pub(crate) writer: Option<Mutex<V::Writer>>,
    pub(crate) ager: CommitTimer,
    pub(crate) closed: AtomicBool,
    /// Whether a write is open. Changes while `lock` is held exclusively.
    has_open_writes: AtomicBool,
}

impl<V: Volume> Mounted<V> {
    /// Opens `volume` as `options` require. Each change is written when it reaches the age of
    /// [`Journalling::commit_interval`](obento_driver::Journalling). If the age is zero, or the environment has no
    /// threads, changes are written only by a sync, by `close`, or when too many changes are pending. With
    /// [`OpenOptions::adopt`], continues the use of another process. Fails with `Invalid` for the state of another
    /// driver, with `ReadOnly`, or if the device fails.
    pub fn open(volume: V, options: &OpenOptions) -> Result<Arc<Self>> {
        let adopted = options.adopt.as_deref();
        let first = adopted.map(|adopted| handover::import(&volume, &adopted.state)).transpose()?;
        match options.access {
            Access::ReadOnly => Ok(Arc::new(Self::new(volume))),
            Access::ReadWrite => Self::writing(volume, options, first),
        }
    }

    fn new(volume: V) -> Self {
        let (writer, ager, closed) = (None, CommitTimer::new(), AtomicBool::new(false));
        let has_open_writes = AtomicBool::new(false);
        Self { volume, lock: RwLock::new(()), writer, ager, closed, has_open_writes }
    }

    fn writing(volume: V, options: &OpenOptions, first: Option<FirstMark>) -> Result<Arc<Self>> {
        let mut writer = V::Writer::open(&volume, options.clock.clone())?;
        if let Some(first) = first {
            writer.waiting_mut().continue_use(first);
        }
        let this = Arc::new(Self { writer: Some(Mutex::new(writer)), ..Self::new(volume) });
        this.ager.start(Arc::downgrade(&this), options.journalling.commit_interval);
        Ok(this)
    }

    /// Changes the volume. Fails with `ReadOnly`, or with the errors of `change`.
    pub(crate) fn change<R>(
        &self,
        change: impl FnOnce(&mut V::Writer, &Locked<'_, V>) -> Result<R>,
    ) -> Result<R> {
        self.with_writer(|writer, volume| {
            writer.check()?;
            change(writer, volume)
        })
    }

    /// Writes all changes. Fails with `ReadOnly` after [`close`](WritableFileSystem::close), or with the error of the
    /// first write that failed.
    pub(crate) fn commit(&self) -> Result<()> {
        self.with_writer(|writer, volume| writer.commit(volume))
    }

    pub(crate) fn with_writer<R>(
        &self,
        change: impl FnOnce(&mut V::Writer, &Locked<'_, V>) -> Result<R>,
    ) -> Result<R> {
        let volume = Locked::new(&self.volume, self.lock.write());
        let writer = self.writer.as_ref().filter(|_| !self.closed.load(Ordering::Relaxed));
        let mut writer = writer.ok_or(Error::ReadOnly)?.lock();
        let result = change(&mut writer, &volume);
        self.has_open_writes.store(!writer.waiting().reservations.is_empty(), Ordering::Relaxed);
        let result = result?;
        if writer.is_full() {
            writer.commit(&volume)?;
        }
        if writer.has_changes() {
            self.ager.changed();
        }
        Ok(result)
    }

    /// Returns whether the volume is open for changes.
    fn is_open(&self) -> bool {
        self.writer.is_some() && !self.closed.load(Ordering::Relaxed)
    }

    /// Returns the mounted state.
    pub fn volume(&self) -> &V {
        &self.volume
    }
}

impl<V: Volume> FileSystem for Mounted<V> {
    fn root(&self) -> Ino {
        ROOT
    }

    fn limits(&self) -> Limits {
        Limits {
            name_max: MAX_BYTES,
            symlink_max: 0,
            link_max: 1,
            file_size_max: self.volume.file_size_max(),
            time_granularity: V::TIME_GRANULARITY,
            uid_max: u32::MAX,
            gid_max: u32::MAX,
            keeps: obento_driver::StoredProperties::DIRECTORIES,
            crash: obento_driver::Crash::Repairable,
        }
    }

    fn info(&self) -> VolumeInfo {
        self.volume.describe()
    }

    fn statfs(&self) -> Result<StatFs> {
        let grain = self.volume.grain();
        let free = match &self.writer {
            Some(writer) => writer.lock().allocator().free(),
            None => self.volume.mount_state().free(|| self.volume.count_free())?,
        };
        let per_cluster = u64::from(grain.cluster_size.checked_div(grain.block_size).unwrap_or(1));
        let blocks = |clusters: u32| u64::from(clusters).saturating_mul(per_cluster);
        Ok(StatFs {
            block_size: grain.block_size,
            blocks: blocks(grain.clusters),
            free: blocks(free),
            available: blocks(free),
            inodes: 0,
            free_inodes: 0,
        })
    }

    fn device(&self) -> Option<&Arc<dyn BlockDevice>> {
        Some(self.volume.cache().device())
    }

    fn cache_use(&self) -> Option<CacheUse> {
        Some(self.volume.cache().usage())
    }

    fn lookup(&self, dir: Ino, name: &Name) -> Result<Ino> {
        let _shared = self.lock.read();
        let dir = self.volume.directory(dir)?;
        let found = self.volume.find(&dir, name)?.ok_or(Error::NotFound)?;
        Ok(self.volume.ino_at(found.slot()))
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        let _shared = self.lock.read();
        let (inode, parent) = self.volume.inode_and_parent(dir)?;
        if inode.is_dir() { Ok(parent) } else { Err(Error::NotDirectory) }
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        let _shared = self.lock.read();
        self.volume.attr(ino)
    }

    fn read_dir(&self, dir: Ino, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        let mut from = from;
        loop {
            let (batch, is_last) = {
                let _shared = self.lock.read();
                self.volume.list(&*self.volume.directory(dir)?, from, BATCH)?
            };
            let start = from;
            for listed in &batch {
                let flow = match listed {
                    Ok(listed) => {
                        from = listed.next;
                        let (name, ino, next) = (&*listed.name, listed.ino, listed.next);
                        sink(Ok(DirEntry { name, ino, kind: Some(listed.kind), next }))
                    }
                    Err(error) => sink(Err(*error)),
                };
                if flow.is_break() {
                    return Ok(());
                }
            }
            // The range is empty only if the chain is damaged.
            if is_last || from == start {
                return Ok(());
            }
        }
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        self.volume.inode(ino)?;
        Err(Error::Invalid)
    }

    fn map(&self, _: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent> {
        let _shared = self.lock.read();
        let extent = self.volume.map(&self.volume.file(ino)?, range.clone())?;
        match &self.writer {
            Some(writer) if self.has_open_writes.load(Ordering::Relaxed) => {
                let end = range.start.saturating_add(extent.len);
                let block = u64::from(self.volume.grain().block_size);
                let writer = writer.lock();
                let reservations = &writer.waiting().reservations;
                let (len, is_promised) = reservations.clip(ino, &(range.start..end), end, block);
                let is_unwritten = is_promised && matches!(extent.span, Span::Mapped(_));
                Ok(Extent { len, span: if is_unwritten { Span::Unwritten } else { extent.span } })
            }
            _ => Ok(extent),
        }
    }

    fn read(&self, layout: &Layout<'_>, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let end = offset.checked_add(to_u64(buf.len())).ok_or(Error::Invalid)?;
        let extent = self.map(layout, ino, offset..end)?;
        let buf = buf.get_mut(..to_usize(extent.len)).unwrap_or_default();
        match extent.span {
            Span::Mapped(at) => self.volume.cache().device().read_at(at, buf)?,
            // This part was never written.
            _ => buf.fill(0),
        }
        Ok(buf.len())
    }

    fn forget(&self, ino: Ino) {
        if self.writer.is_none() || self.closed.load(Ordering::Relaxed) {
            return self.volume.forget(ino);
        }
        // A chain that cannot be followed stays in use: these are lost clusters, which a check finds.
        let _ = self.change(|writer, volume| ops::forget(writer, volume, ino));
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        self.volume.inspect()
    }

    fn writable(&self) -> Option<&dyn WritableFileSystem> {
        self.is_open().then_some(self)
    }

    fn trim(&self) -> Option<&dyn Trim> {
        self.is_open().then_some(self)
    }

    fn handover(&self) -> Option<&dyn Handover> {
        Some(self)
    }
}

impl<V: Volume> Handover for Mounted<V> {
    fn prepare(&self) -> Result<Vec<u8>> {
        if self.writer.is_some() {
            self.commit()?;
        }
        let _shared = self.lock.read();
        let writer = self.writer.as_ref().map(Mutex::lock);
        let first = writer.map_or(FirstMark::Unused, |writer| writer.waiting().first_mark());
        handover::export(&self.volume, first)
    }
}
