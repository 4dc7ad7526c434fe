//! A device that records whether it was changed.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use obento_base::Result;
use obento_block::{Backing, BlockDevice, ReadRequest};

/// Passes all calls to another device, and records whether any of them was a change, even one that failed.
pub(super) struct WatchedDevice {
    below: Arc<dyn BlockDevice>,
    is_changed: AtomicBool,
}

impl WatchedDevice {
    pub fn new(below: Arc<dyn BlockDevice>) -> Self {
        Self { below, is_changed: AtomicBool::new(false) }
    }

    /// Returns whether a change was requested.
    pub fn is_changed(&self) -> bool {
        self.is_changed.load(Ordering::SeqCst)
    }

    fn note(&self) {
        self.is_changed.store(true, Ordering::SeqCst);
    }
}

impl BlockDevice for WatchedDevice {
    obento_base::forward! { self.below;
        fn len(&self) -> u64;
        fn sector_size(&self) -> u32;
        fn is_read_only(&self) -> bool;
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
        fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<()>;
        fn flush(&self) -> Result<()>;
        fn known_zeros(&self, range: Range<u64>) -> u64;
        fn backing(&self, range: Range<u64>) -> Option<Backing>;
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.note();
        self.below.write_at(offset, buf)
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.note();
        self.below.discard(range)
    }

    fn punch(&self, range: Range<u64>) -> Result<bool> {
        self.note();
        self.below.punch(range)
    }
}
