//! How to open an image.

use std::path::PathBuf;
use std::sync::Arc;

use obento_driver::{OpenOptions, Replay};
use obento_env::{Clock, SystemClock};
use obento_host::compressed::Progress as Unpacking;

/// How to open an image and the volumes in it.
#[derive(Clone)]
pub struct Options {
    /// The type of the file system, which is otherwise found by its signature.
    pub fs_type: Option<String>,
    /// What to do with a dirty journal.
    pub replay: Replay,
    /// Use the super block at this block instead of the primary one.
    pub super_block: Option<u64>,
    /// Whether the image may name other files that are then opened (qcow2 backing files). Only for images that are
    /// trusted: such a file can be any that the user can read.
    pub allow_backing: bool,
    /// Bytes of metadata to keep in memory.
    pub cache: usize,
    /// A file or device that holds the journal, if the file system keeps it outside.
    pub journal: Option<PathBuf>,
    /// The most bytes that a compressed image may unfold to.
    pub max_unpacked: u64,
    /// Is told now and then how far unpacking a compressed image has come.
    pub on_unpacking: Option<Arc<dyn Fn(Unpacking) + Send + Sync>>,
    /// Where times come from.
    pub clock: Arc<dyn Clock>,
}

impl Default for Options {
    /// Whatever is found, read-only, with a cache of 32 MiB; a compressed image may unfold to 1 TiB.
    fn default() -> Self {
        Self {
            fs_type: None,
            replay: Replay::InMemory,
            super_block: None,
            allow_backing: false,
            cache: 32 << 20,
            journal: None,
            max_unpacked: 1 << 40,
            on_unpacking: None,
            clock: Arc::new(SystemClock),
        }
    }
}

impl Options {
    /// What a driver is told.
    pub(super) fn for_driver(&self) -> OpenOptions {
        OpenOptions {
            replay: self.replay,
            super_block: self.super_block,
            cache: self.cache,
            ..OpenOptions::new(self.clock.clone())
        }
    }
}
