//! The options of opening an image.

use std::path::PathBuf;
use std::sync::Arc;

use obento_block::RedoLog;
use obento_driver::{
    Access, Checksums, HandoverState, Journalling, OpenOptions, QuotaLimits, Replay, VolumeOptions,
};
use obento_env::{Clock, SystemClock};
#[cfg(feature = "host")]
use obento_host::compressed::{Progress as Unpacking, UnpackLimits};
#[cfg(feature = "host")]
use obento_host::io::IoBackend;
use obento_prov::{LogOptions, Who};
use obento_vfs::{Atime, Config};

/// Whether an image is locked while it is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Locking {
    /// Locks the image: shared for reading, exclusive for change. Opening fails if another process holds a
    /// conflicting lock.
    #[default]
    Take,
    /// Takes no lock on an image that is opened for reading. If another process changes the image, the bytes
    /// read may be a mixture of old and new bytes. An image that is opened for change is locked nevertheless.
    Skip,
}

/// The time at which written bytes are passed to the file of the image. After a flush, all written bytes are
/// on stable storage in either case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Writing {
    /// Each write is passed to the file before it returns.
    #[default]
    Through,
    /// Another thread passes the bytes to the file later. For callers that write much data and rarely read it
    /// again.
    Behind,
}

/// Whether opening an image verifies the checksums of the whole disk that its format stores, as an Android sparse image
/// can.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DiskChecksums {
    /// Does not read the disk for its checksums.
    #[default]
    Skip,
    /// Reads the disk completely if the image contains such a checksum. A wrong checksum is reported as a
    /// notice of damage.
    Verify,
}

/// The treatment of a volume that has no external journal, if [`Options::journal`] names one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum JournalUse {
    /// The volume is not opened, and the error is [`OpenError::JournalNotUsed`](super::OpenError::JournalNotUsed).
    #[default]
    Required,
    /// The volume is opened without the journal, which belongs to another volume.
    Optional,
}

/// The options of opening an image and its volumes.
#[derive(Clone)]
pub struct Options {
    /// Whether the image is opened for reading or for change. For change, opening a volume replays a dirty journal
    /// onto the image.
    pub access: Access,
    /// Whether the image is locked against other processes while it is open.
    pub locking: Locking,
    /// The method of reading and writing the bytes of the image.
    #[cfg(feature = "host")]
    pub io: IoBackend,
    /// The time at which written bytes are passed to the file.
    pub writing: Writing,
    /// The journal options of a volume that is open for change.
    pub journalling: Journalling,
    /// The quota limits that a volume enforces if it is open for change.
    pub limits: QuotaLimits,
    /// The type of the file system. `None` finds the type by its signature.
    pub fs_type: Option<String>,
    /// The treatment of a dirty journal when a volume is opened for reading.
    pub replay: Replay,
    /// The block number of the super block to use instead of the primary one, as in
    /// [`OpenOptions::super_block`](obento_driver::OpenOptions::super_block).
    pub super_block: Option<u64>,
    /// Whether a volume that is opened for reading verifies the checksums of its metadata.
    pub checksums: Checksums,
    /// Whether to verify the checksums of the whole disk.
    pub disk_checksums: DiskChecksums,
    /// Whether to open the files that the image refers to (backing files of qcow2). Enable this only for trusted
    /// images: an image can refer to any file that the user can read.
    pub allow_backing: bool,
    /// Maximum size of the metadata cache in bytes.
    pub cache: usize,
    /// The file or device with the journal, if the file system has an external journal.
    pub journal: Option<PathBuf>,
    /// The treatment of a volume that has no external journal, if `journal` names one.
    pub journal_use: JournalUse,
    /// The limits of unpacking a compressed image.
    #[cfg(feature = "host")]
    pub unpack: UnpackLimits,
    /// A callback that receives the progress of unpacking a compressed image at intervals.
    #[cfg(feature = "host")]
    pub on_unpacking: Option<Arc<dyn Fn(Unpacking) + Send + Sync>>,
    /// Options that only some formats support: owners, permissions, code page, time zone.
    pub shown: VolumeOptions,
    /// The policy for access times, on a volume that is open for change.
    pub atime: Atime,
    /// The source of times.
    pub clock: Arc<dyn Clock>,
    /// The state that another process passed on, if that process has the volume open.
    pub adopt: Option<Arc<HandoverState>>,
    /// The log of changes that are not durable. The log survives a failure of this process. With a log,
    /// [`Vfs`](obento_vfs::Vfs) gathers no data.
    pub redo: Option<Arc<dyn RedoLog>>,
    /// The recording of the history of a volume; `None` records nothing.
    pub recording: Option<Recording>,
}

/// The recording of the history of a volume that is open for change.
#[derive(Clone)]
pub struct Recording {
    /// Identifies the process on whose behalf a thread works.
    pub who: Arc<dyn Who>,
    /// The bounds of the log.
    pub log: LogOptions,
}

impl Default for Options {
    /// Returns the options to open any type for reading, with a cache of 32 MiB and the default limits of
    /// unpacking.
    fn default() -> Self {
        Self {
            access: Access::ReadOnly,
            locking: Locking::Take,
            #[cfg(feature = "host")]
            io: IoBackend::default(),
            writing: Writing::Through,
            journalling: Journalling::default(),
            limits: QuotaLimits::empty(),
            fs_type: None,
            replay: Replay::InMemory,
            super_block: None,
            checksums: Checksums::Verify,
            disk_checksums: DiskChecksums::Skip,
            allow_backing: false,
            cache: 32 << 20,
            journal: None,
            journal_use: JournalUse::default(),
            #[cfg(feature = "host")]
            unpack: UnpackLimits::default(),
            #[cfg(feature = "host")]
            on_unpacking: None,
            shown: VolumeOptions::default(),
            atime: Atime::Never,
            clock: Arc::new(SystemClock),
            adopt: None,
            redo: None,
            recording: None,
        }
    }
}

impl Options {
    /// Returns these options with access for change.
    ///
    /// ```no_run
    /// use obento::{Image, Options};
    ///
    /// let image = Image::builder().options(Options::default().for_change()).open("disk.img")?;
    /// let volume = image.volume(None)?;
    /// // ... changes ...
    /// volume.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn for_change(self) -> Self {
        Self { access: Access::ReadWrite, ..self }
    }

    /// Returns the configuration of the layer above the driver: names, inodes and access times.
    pub(super) fn for_vfs(&self) -> Config {
        let defaults = Config::default();
        let gather = if self.redo.is_some() { 0 } else { defaults.gather };
        Config { atime: self.atime, clock: self.clock.clone(), gather, ..defaults }
    }

    /// Returns the options of the driver, for reading.
    pub(super) fn for_driver(&self) -> OpenOptions {
        OpenOptions {
            replay: self.replay,
            super_block: self.super_block,
            checksums: self.checksums,
            cache: self.cache,
            journalling: self.journalling,
            limits: self.limits,
            shown: self.shown,
            adopt: self.adopt.clone(),
            redo: self.redo.clone(),
            ..OpenOptions::new(self.clock.clone())
        }
    }
}
