//! Reads and writes without the page cache.
//!
//! The kernel requires an aligned offset, length and memory. Other transfers use an aligned buffer of this
//! module, and a write of a part of a grain reads the grain first.
//! Invariant: the length of the file does not change: bytes of the last grain past the end are truncated
//! again.
//! Locking: `edges` is shared for writes of whole grains, and exclusive for writes of parts, which read
//! before they write.
//! Source: open(2), "O_DIRECT".

use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError, RwLock};

use obento_base::wire::to_u64;
use obento_base::{DeviceError, Result};
use obento_block::{Backing, BlockDevice};

use crate::FileDevice;

/// The grain for files and the alignment of memory: the strictest requirement of current disks and file
/// systems.
const GRAIN: usize = 4096;
/// Bytes that pass through a buffer at once.
const BOUNCE: usize = 1 << 20;

/// A file that was opened with `O_DIRECT`.
pub(super) struct DirectDevice {
    file: FileDevice,
    grain: u64,
    edges: RwLock<()>,
    buffers: Mutex<Vec<Buffer>>,
}

/// Aligned memory.
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

impl Buffer {
    fn new() -> Self {
        let bytes = vec![0; BOUNCE + GRAIN];
        let start = bytes.as_ptr().align_offset(GRAIN);
        Self { bytes, start }
    }

    fn get(&mut self, len: usize) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + len]
    }
}

impl DirectDevice {
    pub(super) fn new(file: FileDevice) -> Self {
        // The length of a block device is a multiple of its sector size, which may be smaller than the grain.
        let grain = if file.file_id().ino == 0 { u64::from(file.sector_size()) } else { to_u64(GRAIN) };
        Self { file, grain, edges: RwLock::new(()), buffers: Mutex::new(Vec::new()) }
    }

    fn floor(&self, offset: u64) -> u64 {
        offset - offset % self.grain
    }

    fn ceil(&self, offset: u64) -> u64 {
        offset.next_multiple_of(self.grain)
    }

    /// Returns whether the kernel accepts the transfer without a buffer.
    fn is_aligned(&self, offset: u64, buf: &[u8]) -> bool {
        offset.is_multiple_of(self.grain)
            && to_u64(buf.len()).is_multiple_of(self.grain)
            && buf.as_ptr().align_offset(GRAIN) == 0
    }

    fn with_buffer<T>(&self, work: impl FnOnce(&mut Buffer) -> T) -> T {
        let kept = self.buffers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut buffer = kept.unwrap_or_else(Buffer::new);
        let result = work(&mut buffer);
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
        result
    }

    /// Fills aligned `buf` from aligned `offset` on. At least `needed` bytes must exist; the rest may be past
    /// the end.
    fn read_aligned(&self, offset: u64, buf: &mut [u8], needed: usize) -> Result<()> {
        let mut done = 0;
        while done < needed {
            let failed = |error: &io::Error| DeviceError::Read {
                offset,
                len: to_u64(needed),
                errno: error.raw_os_error().unwrap_or(0),
            };
            match self.file.file().read_at(&mut buf[done..], offset + to_u64(done)) {
                Ok(0) => {
                    let device_len = self.file.len_now().unwrap_or(offset);
                    return Err(DeviceError::OutOfBounds { offset, len: to_u64(needed), device_len }.into());
                }
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(&error).into()),
            }
        }
        Ok(())
    }

    fn write_aligned(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.file.file().write_all_at(buf, offset).map_err(|error| {
            let errno = error.raw_os_error().unwrap_or(0);
            DeviceError::Write { offset, len: to_u64(buf.len()), errno }.into()
        })
    }

    /// Writes at most one buffer. Reads the parts of the first and last grain that `buf` does not cover
    /// first.
    fn write_piece(&self, buffer: &mut Buffer, offset: u64, buf: &[u8]) -> Result<()> {
        let (start, end) = (self.floor(offset), offset + to_u64(buf.len()));
        let aligned_end = self.ceil(end);
        let (len, head) = ((aligned_end - start) as usize, (offset - start) as usize);
        let bytes = buffer.get(len);
        let grain = self.grain as usize;
        let edge = |at: u64, bytes: &mut [u8]| {
            bytes.fill(0);
            let there = self.file.len().saturating_sub(at).min(self.grain) as usize;
            self.read_aligned(at, bytes, there)
        };
        if head > 0 || end < start + self.grain {
            edge(start, &mut bytes[..grain])?;
        }
        let last = aligned_end - self.grain;
        if end < aligned_end && last > start {
            edge(last, &mut bytes[len - grain..])?;
        }
        bytes[head..head + buf.len()].copy_from_slice(buf);
        self.write_aligned(start, bytes)?;
        if aligned_end > self.file.len() {
            let cut = self.file.file().set_len(self.file.len());
            cut.map_err(|error| DeviceError::Write {
                offset: end,
                len: aligned_end - end,
                errno: error.raw_os_error().unwrap_or(0),
            })?;
        }
        Ok(())
    }
}

impl BlockDevice for DirectDevice {
    obento_base::forward! { self.file;
        fn len(&self) -> u64;
        fn sector_size(&self) -> u32;
        fn is_read_only(&self) -> bool;
        fn flush(&self) -> Result<()>;
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.file.check(offset, buf.len())?;
        if self.is_aligned(offset, buf) {
            let needed = buf.len();
            return self.read_aligned(offset, buf, needed);
        }
        self.with_buffer(|buffer| {
            let mut done = 0;
            while done < buf.len() {
                let at = offset + to_u64(done);
                let head = (at - self.floor(at)) as usize;
                let count = (buf.len() - done).min(BOUNCE - head);
                let len = (self.ceil(at + to_u64(count)) - self.floor(at)) as usize;
                let bytes = buffer.get(len);
                self.read_aligned(self.floor(at), bytes, head + count)?;
                buf[done..done + count].copy_from_slice(&bytes[head..head + count]);
                done += count;
            }
            Ok(())
        })
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.file.check_writable()?;
        self.file.check(offset, buf.len())?;
        let end = offset + to_u64(buf.len());
        if offset.is_multiple_of(self.grain) && end.is_multiple_of(self.grain) {
            let _edges = self.edges.read().unwrap_or_else(PoisonError::into_inner);
            return self.write_pieces(offset, buf);
        }
        let _edges = self.edges.write().unwrap_or_else(PoisonError::into_inner);
        self.write_pieces(offset, buf)
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        let _edges = self.edges.write().unwrap_or_else(PoisonError::into_inner);
        self.file.discard(range)
    }

    fn known_zeros(&self, range: Range<u64>) -> u64 {
        let _edges = self.edges.write().unwrap_or_else(PoisonError::into_inner);
        self.file.known_zeros(range)
    }

    /// Copying in the kernel would use the page cache.
    fn backing(&self, _: Range<u64>) -> Option<Backing> {
        None
    }
}

impl DirectDevice {
    fn write_pieces(&self, offset: u64, buf: &[u8]) -> Result<()> {
        if self.is_aligned(offset, buf) {
            return self.write_aligned(offset, buf);
        }
        self.with_buffer(|buffer| {
            let mut done = 0;
            while done < buf.len() {
                let at = offset + to_u64(done);
                let count = (buf.len() - done).min(BOUNCE - (at - self.floor(at)) as usize);
                self.write_piece(buffer, at, &buf[done..done + count])?;
                done += count;
            }
            Ok(())
        })
    }
}
