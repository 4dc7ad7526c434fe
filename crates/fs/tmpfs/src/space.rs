//! The space for file data: counted pages in memory or on a device.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_base::{Error, Result};
use obento_block::BlockDevice;
use obento_env::sync::Mutex;
use obento_env::sync::atomic::{AtomicU64, Ordering};

/// Allocation unit in bytes.
pub(crate) const PAGE: u64 = 4096;

/// [`PAGE`] bytes of a file.
#[derive(Debug)]
pub(crate) enum Page {
    Memory(Box<[u8]>),
    /// At this byte offset of the device. An unpublished page reads as zeros, since it was never written.
    Device {
        at: u64,
        published: bool,
    },
}

/// Free pages of the device: released pages, and all from `fresh` on.
#[derive(Debug, Default)]
struct Free {
    fresh: u64,
    returned: Vec<u64>,
}

pub(crate) struct Space {
    pages: u64,
    used: AtomicU64,
    device: Option<Arc<dyn BlockDevice>>,
    free: Mutex<Free>,
}

impl Space {
    /// Creates space for `pages` pages, limited by the length of `device`.
    pub(crate) fn new(pages: u64, device: Option<Arc<dyn BlockDevice>>) -> Self {
        let on_device = device.as_ref().map_or(u64::MAX, |device| device.len() / PAGE);
        Self { pages: pages.min(on_device), used: AtomicU64::new(0), device, free: Mutex::default() }
    }

    pub(crate) fn device(&self) -> Option<&Arc<dyn BlockDevice>> {
        self.device.as_ref()
    }

    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    pub(crate) fn free_pages(&self) -> u64 {
        self.pages.saturating_sub(self.used.load(Ordering::Relaxed))
    }

    /// Allocates a page of zeros. Fails with `NoSpace` or `NoMemory`.
    pub(crate) fn take(&self) -> Result<Page> {
        let more = |used: u64| used.checked_add(1).filter(|&used| used <= self.pages);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map_err(|_| Error::NoSpace)?;
        if self.device.is_some() {
            return Ok(Page::Device { at: self.free.lock().take(), published: false });
        }
        zeros().map(Page::Memory).inspect_err(|_| self.uncount())
    }

    pub(crate) fn give_back(&self, page: Page) {
        if let Page::Device { at, .. } = page {
            self.free.lock().returned.push(at);
        }
        self.uncount();
    }

    fn uncount(&self) {
        self.used.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Free {
    /// The counter of used pages guarantees a free one.
    fn take(&mut self) -> u64 {
        self.returned.pop().unwrap_or_else(|| {
            let at = self.fresh;
            self.fresh = self.fresh.saturating_add(PAGE);
            at
        })
    }
}

fn zeros() -> Result<Box<[u8]>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(to_usize(PAGE))?;
    bytes.resize(to_usize(PAGE), 0);
    Ok(bytes.into_boxed_slice())
}
