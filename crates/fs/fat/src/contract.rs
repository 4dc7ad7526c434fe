//! The driver as the layers above see it.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};

use obento_base::{Attr, Error, Ino, Name, Result};
use obento_block::BlockDevice;
use obento_driver::{
    Cookie, DirEntry, EntrySink, Extent, FileSystem, Layout, Limits, StatFs, VolumeInfo, WritableFileSystem,
};
use obento_env::Clock;
use obento_env::sync::{Mutex, RwLock};

use crate::inode::ROOT;
use crate::name::MAX_BYTES;
use crate::volume::Volume;
use crate::writer::Writer;

/// Entries that are copied at a time, so that the sink runs unlocked.
const BATCH: usize = 128;
/// A size has 32 bits.
pub(crate) const FILE_SIZE_MAX: u64 = 0xffff_ffff;

/// An open volume behind the contract.
pub struct Fat {
    volume: Volume,
    /// Shared while several sectors are looked at, exclusive while they are changed.
    lock: RwLock<()>,
    pub(crate) writer: Option<Mutex<Writer>>,
    pub(crate) closed: AtomicBool,
}

impl Fat {
    /// Shows `volume`.
    pub fn new(volume: Volume) -> Self {
        Self { volume, lock: RwLock::new(()), writer: None, closed: AtomicBool::new(false) }
    }

    /// Shows and changes `volume`. Errors: ReadOnly; those of the device.
    pub fn writing(volume: Volume, clock: Arc<dyn Clock>) -> Result<Self> {
        let writer = Writer::open(&volume, clock)?;
        Ok(Self { writer: Some(Mutex::new(writer)), ..Self::new(volume) })
    }

    /// Changes the volume. Errors: ReadOnly; those of `change`.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Writer, &Volume) -> Result<R>) -> Result<R> {
        let _exclusive = self.lock.write();
        let writer = self.writer.as_ref().filter(|_| !self.closed.load(Ordering::Relaxed));
        let mut writer = writer.ok_or(Error::ReadOnly)?.lock();
        writer.check()?;
        let result = change(&mut writer, &self.volume)?;
        if writer.is_full() {
            writer.commit(&self.volume)?;
        }
        Ok(result)
    }

    /// The mounted state.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }
}

impl FileSystem for Fat {
    fn root(&self) -> Ino {
        ROOT
    }

    fn limits(&self) -> Limits {
        Limits {
            name_max: MAX_BYTES,
            symlink_max: 0,
            link_max: 1,
            file_size_max: FILE_SIZE_MAX,
            time_granularity: 2_000_000_000,
            keeps: obento_driver::Keeps::empty(),
            crash: obento_driver::Crash::Repairable,
        }
    }

    fn info(&self) -> VolumeInfo {
        self.volume.describe()
    }

    fn statfs(&self) -> Result<StatFs> {
        let sb = self.volume.super_block();
        let free = match &self.writer {
            Some(writer) => writer.lock().allocator.free(),
            None => self.volume.count_free()?,
        };
        let free = u64::from(free);
        Ok(StatFs {
            block_size: sb.cluster_size,
            blocks: sb.clusters.into(),
            free,
            available: free,
            inodes: 0,
            free_inodes: 0,
        })
    }

    fn device(&self) -> Option<&Arc<dyn BlockDevice>> {
        Some(self.volume.cache().device())
    }

    fn lookup(&self, dir: Ino, name: &Name) -> Result<Ino> {
        let _shared = self.lock.read();
        let dir = self.volume.directory(dir)?;
        let found = self.volume.find(&dir, name)?.ok_or(Error::NotFound)?;
        Ok(self.volume.ino_at(found.slot))
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        let _shared = self.lock.read();
        let (inode, parent) = self.volume.inode_and_parent(dir)?;
        if inode.is_dir() { Ok(parent) } else { Err(Error::NotDirectory) }
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        let _shared = self.lock.read();
        let inode = self.volume.inode(ino)?;
        let size = if inode.is_dir() { self.volume.directory_len(ino) } else { inode.size() };
        Ok(inode.attr(self.volume.super_block(), self.volume.options(), size))
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
            // Nothing but damage leads nowhere.
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
        self.volume.map(&self.volume.file(ino)?, range)
    }

    fn read(&self, _: &Layout<'_>, ino: Ino, _: u64, _: &mut [u8]) -> Result<usize> {
        // Everything is mapped.
        self.volume.file(ino)?;
        Err(Error::Invalid)
    }

    fn forget(&self, ino: Ino) {
        if self.writer.is_none() || self.closed.load(Ordering::Relaxed) {
            return self.volume.forget(ino);
        }
        // A chain that cannot be followed stays in use: lost clusters, which a check finds.
        let _ = self.change(|writer, volume| writer.forget(volume, ino));
    }

    fn writable(&self) -> Option<&dyn WritableFileSystem> {
        let is_open = self.writer.is_some() && !self.closed.load(Ordering::Relaxed);
        is_open.then_some(self)
    }
}
