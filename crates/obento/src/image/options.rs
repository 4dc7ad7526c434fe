//! How to open an image.

use std::path::PathBuf;
use std::sync::Arc;

use obento_driver::{Access, Checksums, Journalling, OpenOptions, Replay, Shown};
use obento_env::{Clock, SystemClock};
use obento_host::compressed::{Progress as Unpacking, UnpackLimits};
use obento_host::io::IoBackend;
use obento_vfs::{Atime, Config};

/// Whether an image is locked while it is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Locking {
    /// Others may read while it is read, and do nothing while it is changed. An image that somebody changes is refused.
    #[default]
    Take,
    /// For reading only: it is read whatever others do meanwhile, and what is read may be a mixture of old and new.
    Skip,
}

/// When what is written reaches the file of the image. What was flushed is on stable storage in either case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Writing {
    /// At once.
    #[default]
    Through,
    /// A little later, by another thread: for who writes much and seldom looks back.
    Behind,
}

/// How to open an image and the volumes in it.
#[derive(Clone)]
pub struct Options {
    /// Reading, or changing: then a dirty journal is replayed onto the image when a volume of it is opened.
    pub access: Access,
    /// Whether the image is locked against others while it is open.
    pub locking: Locking,
    /// How the bytes of the image are read and written.
    pub io: IoBackend,
    /// When it is written.
    pub writing: Writing,
    /// How a journal is used for changes.
    pub journalling: Journalling,
    /// The type of the file system, which is otherwise found by its signature.
    pub fs_type: Option<String>,
    /// What to do with a dirty journal.
    pub replay: Replay,
    /// Use the super block at this block instead of the primary one.
    pub super_block: Option<u64>,
    /// Whether a volume that is opened for reading verifies the checksums of its metadata.
    pub checksums: Checksums,
    /// Whether the image may name other files that are then opened (qcow2 backing files). Only for images that are
    /// trusted: such a file can be any that the user can read.
    pub allow_backing: bool,
    /// Bytes of metadata to keep in memory.
    pub cache: usize,
    /// A file or device that holds the journal, if the file system keeps it outside.
    pub journal: Option<PathBuf>,
    /// What unpacking a compressed image may cost.
    pub unpack: UnpackLimits,
    /// Is told now and then how far unpacking a compressed image has come.
    pub on_unpacking: Option<Arc<dyn Fn(Unpacking) + Send + Sync>>,
    /// What a format does not say of its volumes: owners, permissions, code page, time zone.
    pub shown: Shown,
    /// When reading stamps access times, on a volume that is open for changes.
    pub atime: Atime,
    /// Where times come from.
    pub clock: Arc<dyn Clock>,
}

impl Default for Options {
    /// Whatever is found, read-only, with a cache of 32 MiB and the default limits of unpacking.
    fn default() -> Self {
        Self {
            access: Access::ReadOnly,
            locking: Locking::Take,
            io: IoBackend::default(),
            writing: Writing::Through,
            journalling: Journalling::default(),
            fs_type: None,
            replay: Replay::InMemory,
            super_block: None,
            checksums: Checksums::Verify,
            allow_backing: false,
            cache: 32 << 20,
            journal: None,
            unpack: UnpackLimits::default(),
            on_unpacking: None,
            shown: Shown::default(),
            atime: Atime::Never,
            clock: Arc::new(SystemClock),
        }
    }
}

impl Options {
    /// These options, to change the image.
    ///
    /// ```no_run
    /// use obento::{Image, Options, Registry};
    ///
    /// let image = Image::open("disk.img".as_ref(), &Registry::default(), &Options::default().for_change())?;
    /// let volume = image.volume(None)?;
    /// // ... changes ...
    /// volume.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn for_change(self) -> Self {
        Self { access: Access::ReadWrite, ..self }
    }

    /// How names, inodes and access times are handled above the driver.
    pub(super) fn for_vfs(&self) -> Config {
        Config { atime: self.atime, clock: self.clock.clone(), ..Config::default() }
    }

    /// What a driver is told, for reading.
    pub(super) fn for_driver(&self) -> OpenOptions {
        OpenOptions {
            replay: self.replay,
            super_block: self.super_block,
            checksums: self.checksums,
            cache: self.cache,
            journalling: self.journalling,
            shown: self.shown,
            ..OpenOptions::new(self.clock.clone())
        }
    }
}
