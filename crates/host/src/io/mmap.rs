//! Reads from a mapping of the file.
//!
//! The mapping shares the page cache, so bytes written by `pwrite` are visible in it at once. If another process
//! shortens a file, or a medium fails, the result is a signal instead of an error. `fault` turns the signal into zeros
//! and a mark. From then on all reads use system calls, which return the error.
//!
//! `Auto` uses the mapping only for pages that were transferred before (`seen`). Bytes that are read once are read by a
//! system call, which costs less than a page fault and lets the kernel read ahead.

use std::ops::Range;
use std::ptr::NonNull;

use obento_base::Result;
use obento_base::wire::to_u64;
use obento_block::{Backing, BlockDevice};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::fault::{Substitute, Watch};
use super::seen::Seen;
use crate::FileDevice;

/// The length of transfers that are not noted. Noting examines all bytes, and a caller that transfers so much at once
/// rarely reads it again.
const LONG: usize = 256 << 10;

/// A mapped file.
pub(super) struct MmapDevice {
    file: FileDevice,
    map: Map,
    watch: Watch,
    /// With `None`, all reads use the mapping.
    seen: Option<Seen>,
}

/// A mapping for reading.
struct Map {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is only read, stays at its address until it is dropped, and belongs to no thread.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    fn new(file: &FileDevice) -> std::result::Result<Self, Errno> {
        let len = usize::try_from(file.len()).map_err(|_| Errno::NOMEM)?;
        // SAFETY: a new mapping at an address that the kernel chooses overlaps no memory in use.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ,
                MapFlags::SHARED,
                file.host_file(),
                0,
            )?
        };
        Ok(Self { start: NonNull::new(start.cast()).ok_or(Errno::NOMEM)?, len })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: start and length are those of `mmap`, and no references into the mapping exist.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

impl MmapDevice {
    /// Maps `file`. All reads use the mapping.
    pub(super) fn new(file: FileDevice) -> std::result::Result<Self, Errno> {
        match Self::map(file, |_| None) {
            Ok(device) => Ok(device),
            Err((_, errno)) => Err(errno),
        }
    }

    /// Maps `file`, for reads of bytes that were transferred before. Returns the file if it cannot be mapped.
    pub(super) fn after_first_read(file: FileDevice) -> std::result::Result<Self, FileDevice> {
        Self::map(file, |len| Some(Seen::new(len))).map_err(|(file, _)| file)
    }

    fn map(
        file: FileDevice,
        seen: impl FnOnce(u64) -> Option<Seen>,
    ) -> std::result::Result<Self, (FileDevice, Errno)> {
        let map = match Map::new(&file) {
            Ok(map) => map,
            Err(errno) => return Err((file, errno)),
        };
        match Watch::new(map.start.as_ptr() as usize, map.len, Substitute::ReadOnly) {
            Some(watch) => Ok(Self { seen: seen(file.len()), file, map, watch }),
            None => Err((file, Errno::NOMEM)),
        }
    }

    fn has_seen(&self, offset: u64, len: usize) -> bool {
        self.seen.as_ref().is_none_or(|seen| seen.has(offset, len))
    }

    /// Notes that the bytes were transferred by a system call.
    fn note(&self, offset: u64, bytes: &[u8]) {
        if bytes.len() < LONG {
            self.seen.iter().for_each(|seen| seen.add(offset, bytes));
        }
    }
}

impl Drop for MmapDevice {
    fn drop(&mut self) {
        // Ends before unmapping: other mappings may reuse the addresses.
        self.watch.end();
    }
}

impl BlockDevice for MmapDevice {
    obento_base::forward! { self.file;
        fn len(&self) -> u64;
        fn sector_size(&self) -> u32;
        fn is_read_only(&self) -> bool;
        fn flush(&self) -> Result<()>;
        fn known_zeros(&self, range: Range<u64>) -> u64;
        fn backing(&self, range: Range<u64>) -> Option<Backing>;
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.file.check(offset, buf.len())?;
        if !self.watch.has_faulted() && self.has_seen(offset, buf.len()) {
            debug_assert!(offset + to_u64(buf.len()) <= to_u64(self.map.len));
            // SAFETY: both ranges are checked, and do not overlap, because no references into the mapping
            // exist. Its bytes may change meanwhile, as in any read, so they are copied and never referred
            // to.
            unsafe {
                let from = self.map.start.as_ptr().add(offset as usize);
                std::ptr::copy_nonoverlapping(from, buf.as_mut_ptr(), buf.len());
            }
            if !self.watch.has_faulted() {
                return Ok(());
            }
        }
        self.file.read_at(offset, buf)?;
        self.note(offset, buf);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.file.write_at(offset, buf)?;
        self.note(offset, buf);
        Ok(())
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.seen.iter().for_each(|seen| seen.remove(range.clone()));
        self.file.discard(range)
    }

    fn punch(&self, range: Range<u64>) -> Result<bool> {
        self.seen.iter().for_each(|seen| seen.remove(range.clone()));
        self.file.punch(range)
    }
}
