//! The wrapper: the parts of the contract that change nothing, and the reports of a host.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::{Attr, Error, FileFlags, Ino, Name, Result};
use obento_block::{BlockDevice, CacheUse};
use obento_driver::history::{Actor, OpenFile, OpenMode, OpenRecorder, Transferred, Who};
use obento_driver::{
    Cookie, DirEntry, EntrySink, Extent, FileSystem, Handover, Inspect, Layout, Limits, Nameless, Relabel,
    StatFs, StoredProperties, Trim, VolumeInfo, WritableFileSystem, Xattrs,
};
use obento_env::Clock;
use obento_env::sync::Mutex;

use crate::log::{Log, LogOptions, LogParts, LogStatus, WriteSource, micros};
use crate::log_files::LogFiles;
use crate::owned::OwnedInodes;
use crate::record::{FileId, Record};
use crate::syncs::Syncs;

/// The directory of the log in the root of a volume.
pub const DIRECTORY: &str = ".obento-prov";

/// An open volume whose changes are recorded.
///
/// The volume has the same behaviour as without, with these exceptions. The name [`DIRECTORY`] in the root is taken,
/// [`bulk`](FileSystem::bulk) is missing, and the log uses space.
pub struct Recorded {
    pub(crate) inner: Arc<dyn FileSystem>,
    pub(crate) who: Arc<dyn Who>,
    clock: Arc<dyn Clock>,
    log: Option<Mutex<Log>>,
    /// The inodes of the log, if changes are recorded.
    owned: OwnedInodes,
    pub(crate) syncs: Syncs,
    root: Ino,
    /// The directory of the log, if it exists.
    dir: Option<Ino>,
    folds_names: bool,
    is_shown: bool,
    pub(crate) writes: WriteSource,
}

impl core::fmt::Debug for Recorded {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Recorded").field("root", &self.root).field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Recorded {
    /// Wraps `inner`. If it is open for changes, creates the log or continues it. A volume that is open
    /// read-only is wrapped without recording; the log stays hidden.
    ///
    /// # Errors
    ///
    /// 1. `NotDirectory`: a file has the name of the directory of the log.
    /// 2. The errors of the volume.
    pub fn open(
        inner: Arc<dyn FileSystem>,
        who: Arc<dyn Who>,
        clock: Arc<dyn Clock>,
        options: LogOptions,
    ) -> Result<Arc<Self>> {
        let parts = match inner.writable() {
            Some(_) => Some(LogParts::of(&inner, DIRECTORY, options)?),
            None => None,
        };
        let root = inner.root();
        let dir = match &parts {
            Some(parts) => Some(parts.dir()),
            None => Name::new(DIRECTORY.as_bytes()).ok().and_then(|name| inner.lookup(root, name).ok()),
        };
        let folds_names = inner.getattr(root)?.flags.contains(FileFlags::CASEFOLD);
        let recorded = Self::assemble(inner, who, clock, options, parts, dir, folds_names);
        recorded.begin(options)?;
        Ok(recorded)
    }

    /// Returns the wrapper of `inner` before its log begins.
    #[inline(never)]
    fn assemble(
        inner: Arc<dyn FileSystem>,
        who: Arc<dyn Who>,
        clock: Arc<dyn Clock>,
        options: LogOptions,
        parts: Option<LogParts>,
        dir: Option<Ino>,
        folds_names: bool,
    ) -> Arc<Self> {
        let root = inner.root();
        let owned = parts.as_ref().map(|parts| parts.inos.clone()).unwrap_or_default();
        let log = parts.map(|parts| Mutex::new(Log::new(parts)));
        let LogOptions { shown: is_shown, writes, .. } = options;
        let syncs = Syncs::default();
        Arc::new(Self { inner, who, clock, log, owned, syncs, root, dir, folds_names, is_shown, writes })
    }

    /// Begins the log.
    fn begin(&self, options: LogOptions) -> Result<()> {
        self.with_log(Log::begin).transpose()?;
        if options.adopts {
            return Ok(());
        }
        // Without a durable mark, a change that survives a crash before the first sync would follow the end of the
        // previous recording, and no reader would notice that its record is missing.
        let flushed = self.with_log(Log::flush).filter(|flushed| !flushed.segments.is_empty());
        if let Some(flushed) = flushed
            && self.inner.writable().is_some_and(|changes| changes.sync_files(&flushed.segments).is_ok())
        {
            self.with_log(|log, _| log.synced(&flushed));
        }
        Ok(())
    }

    /// Returns the state of the log, if changes are recorded.
    pub fn status(&self) -> Option<LogStatus> {
        self.log.as_ref().map(|log| log.lock().status())
    }

    /// Returns the files of the log, which contain the records of all changes so far. The log continues meanwhile.
    ///
    /// # Errors
    ///
    /// 1. `NotSupported`: changes are not recorded.
    /// 2. The errors of the volume.
    pub fn log_files(&self) -> Result<LogFiles> {
        self.with_log(Log::files).unwrap_or(Err(Error::NotSupported))
    }

    /// Adds what a host has counted to the bytes that `actor` read through its open file.
    pub fn add_reads(&self, actor: Actor, ino: Ino, read: &Transferred) {
        self.with_log(|log, _| log.opens.add_reads(actor, ino, read));
    }

    pub(crate) fn with_log<T>(&self, act: impl FnOnce(&mut Log, i64) -> T) -> Option<T> {
        let log = self.log.as_ref()?;
        let time = micros(self.clock.now());
        Some(act(&mut log.lock(), time))
    }

    pub(crate) fn identify(&self, ino: Ino) -> Result<FileId> {
        self.inner.getattr(ino).map(|attr| FileId { ino, generation: attr.generation })
    }

    /// Returns whether a listing of `dir` shows all entries.
    fn shows_all(&self, dir: Ino) -> bool {
        dir != self.root || self.is_shown || self.dir.is_none()
    }

    /// Returns whether `ino` belongs to the log.
    pub(crate) fn is_of_log(&self, ino: Ino) -> bool {
        self.dir == Some(ino) || self.owned.contains(ino)
    }

    /// Fails with `NotPermitted` if `ino` belongs to the log.
    pub(crate) fn expect_of_user(&self, ino: Ino) -> Result<()> {
        if self.is_of_log(ino) { Err(Error::NotPermitted) } else { Ok(()) }
    }

    /// Returns whether `name` in `dir` is the directory of the log.
    pub(crate) fn is_log_name(&self, dir: Ino, name: &Name) -> bool {
        if dir != self.root {
            return false;
        }
        match self.folds_names {
            // A format without case may also have short names.
            true => self.dir.is_some() && self.inner.lookup(dir, name).ok() == self.dir,
            false => name.as_bytes() == DIRECTORY.as_bytes(),
        }
    }
}

impl OpenRecorder for Recorded {
    fn opened(&self, actor: Actor, ino: Ino, mode: OpenMode) {
        let Ok(file) = self.identify(ino) else { return };
        self.with_log(|log, time| {
            // The version that the process opens includes the writes of others so far.
            log.settle(time, ino);
            log.opens.opened(actor, file, mode);
            log.record(time, actor, |actor| Record::Open { actor, file, mode });
        });
    }

    fn was_read(&self, actor: Actor, ino: Ino, range: &Range<u64>) {
        self.add_reads(actor, ino, &Transferred::of(range));
    }

    fn wrote(&self, current: Option<Actor>, ino: Ino, range: &Range<u64>) {
        self.note_write_of(current, ino, range);
    }

    fn closed(&self, actor: Actor, ino: Ino) {
        let Ok(file) = self.identify(ino) else { return };
        self.with_log(|log, time| {
            if let Some((read, written)) = log.opens.closed(actor, ino) {
                log.settle(time, ino);
                log.record(time, actor, |actor| Record::Close { actor, file, read, written });
            }
        });
    }

    fn open_files(&self) -> Vec<OpenFile> {
        self.log.as_ref().map(|log| log.lock().opens.all()).unwrap_or_default()
    }

    fn adopt_open_files(&self, files: Vec<OpenFile>) {
        self.with_log(|log, _| files.into_iter().for_each(|file| log.opens.adopt(file)));
    }
}

impl FileSystem for Recorded {
    fn root(&self) -> Ino {
        self.root
    }

    obento_base::forward! { self.inner;
        fn limits(&self) -> Limits;
        fn info(&self) -> VolumeInfo;
        fn statfs(&self) -> Result<StatFs>;
        fn statfs_at(&self, ino: Ino) -> Result<StatFs>;
        fn device(&self) -> Option<&Arc<dyn BlockDevice>>;
        fn cache_use(&self) -> Option<CacheUse>;
        fn acquire(&self, ino: Ino) -> bool;
        fn parent(&self, dir: Ino) -> Result<Ino>;
        fn read_link(&self, ino: Ino) -> Result<Vec<u8>>;
        fn map(&self, layout: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent>;
        fn map_to_read(&self, layout: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent>;
        fn read(&self, layout: &Layout<'_>, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize>;
        fn relabel(&self) -> Option<&dyn Relabel>;
        fn trim(&self) -> Option<&dyn Trim>;
        fn inspect(&self) -> Option<&dyn Inspect>;
    }

    fn lookup(&self, dir: Ino, name: &Name) -> Result<Ino> {
        let found = self.inner.lookup(dir, name)?;
        if dir == self.root && Some(found) == self.dir && !self.is_shown {
            return Err(Error::NotFound);
        }
        Ok(found)
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        let mut attr = self.inner.getattr(ino)?;
        if ino == self.root && self.dir.is_some() && !self.is_shown {
            // 1 means that the format does not count subdirectories, or no longer does.
            let counts =
                self.inner.limits().keeps.contains(StoredProperties::SUBDIRECTORIES) && attr.nlink > 2;
            attr.nlink = attr.nlink.saturating_sub(counts.into());
        }
        Ok(attr)
    }

    fn read_dir(&self, dir: Ino, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        if self.shows_all(dir) {
            return self.inner.read_dir(dir, from, sink);
        }
        self.inner.read_dir(dir, from, &mut |entry: Result<DirEntry<'_>>| match entry {
            Ok(entry) if Some(entry.ino) == self.dir => core::ops::ControlFlow::Continue(()),
            entry => sink(entry),
        })
    }

    fn read_dir_locked(&self, dir: Ino, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        match self.shows_all(dir) {
            true => self.inner.read_dir_locked(dir, from, sink),
            false => self.read_dir(dir, from, sink),
        }
    }

    fn forget(&self, ino: Ino) {
        // The log itself uses its files.
        if self.is_of_log(ino) {
            return;
        }
        if let Some(log) = &self.log {
            log.lock().opens.forget(ino);
        }
        self.inner.forget(ino);
    }

    fn writable(&self) -> Option<&dyn WritableFileSystem> {
        self.inner.writable().is_some().then_some(self)
    }

    fn xattrs(&self) -> Option<&dyn Xattrs> {
        self.inner.xattrs().is_some().then_some(self)
    }

    fn nameless(&self) -> Option<&dyn Nameless> {
        self.inner.nameless().is_some().then_some(self)
    }

    fn handover(&self) -> Option<&dyn Handover> {
        self.inner.handover().is_some().then_some(self)
    }
}

impl Handover for Recorded {
    fn prepare(&self) -> Result<Vec<u8>> {
        let flushed = self.with_log(|log, time| log.flush(time));
        let state = self.inner.handover().ok_or(Error::NotSupported)?.prepare()?;
        if let Some(flushed) = flushed {
            self.with_log(|log, _| log.synced(&flushed));
        }
        Ok(state)
    }
}
