//! The data of files: where it is, and the path through the driver.
//!
//! Linux keeps the layout of a file. Folio locks and the writeback bit protect it from users of a mapping; `i_rwsem`
//! and `invalidate_lock` protect it from operations that move blocks. So each call creates a lock of the contract that
//! only this call uses.
//!
//! Most files use the mapped path: `ob_map` finds and reserves blocks, the page cache reads and writes them, and
//! `ob_end_write` publishes them. If the mapping of the file then needs a block and none is free, fsync reports this, as
//! with delayed allocation in Linux. Files whose data only the driver can access, volumes whose blocks are larger than a
//! page, exFAT and xv6 use `ob_read` and `ob_write`. C calls `ob_write` for runs of adjacent pages, under a lock of
//! the file.

use core::ops::Range;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, Ino, Result};
use obento_block::BlockDevice;
use obento_driver::{Extent, Layout, LayoutLock, SetAttr, Size, Span, TimeChange, WritableFileSystem};

use crate::abi::{Buffer, Bytes, Moment, Place, Status};
use crate::volume::Volume;

/// A source of zeros.
static ZEROS: [u8; 4096] = [0; 4096];

/// Why C asks where bytes of a file are.
const LOOK: u32 = 0;
const RESERVE: u32 = 1;
const READ: u32 = 2;

/// Returns where the bytes at `start` are, or reserves blocks for them.
///
/// # Safety
///
/// `out` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ob_map(
    volume: &Volume,
    ino: u64,
    start: u64,
    end: u64,
    purpose: u32,
    out: *mut Place,
) -> Status {
    let lock = LayoutLock::new();
    let layout = lock.shared();
    let (ino, range) = (Ino(ino), start..end);
    let extent = match purpose {
        LOOK => volume.fs.map(&layout, ino, range),
        // The page cache stores where it writes, but not the ticket.
        RESERVE => volume
            .writable()
            .and_then(|fs| fs.begin_write(&layout, ino, range))
            .map(|ticket| ticket.detach().extent),
        READ => volume.fs.map_to_read(&layout, ino, range),
        _ => Err(Error::NotSupported),
    };
    // SAFETY: the promise of the caller.
    unsafe { volume.put(out, extent) }
}

/// Publishes written blocks.
#[unsafe(no_mangle)]
pub extern "C" fn ob_end_write(volume: &Volume, ino: u64, start: u64, end: u64, when: &Moment) -> Status {
    let lock = LayoutLock::new();
    let layout = lock.shared();
    volume.status(
        volume
            .writable()
            .and_then(|fs| fs.end_write(fs.resume_write(&layout, Ino(ino), start..end), when.change())),
    )
}

/// Releases reserved blocks.
#[unsafe(no_mangle)]
pub extern "C" fn ob_abandon(volume: &Volume, ino: u64, start: u64, end: u64) {
    let lock = LayoutLock::new();
    if let Some(fs) = volume.fs.writable() {
        drop(fs.resume_write(&lock.shared(), Ino(ino), start..end));
    }
}

/// Fills a buffer from the file; past its end with zeros.
///
/// # Safety
///
/// `out` is a buffer of this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ob_read(volume: &Volume, ino: u64, offset: u64, out: Buffer) -> Status {
    // SAFETY: the promise of the caller.
    let buf = unsafe { out.get() };
    volume.status(volume.read(Ino(ino), offset, buf))
}

/// Writes to the file. The caller allows one call per file at a time.
///
/// # Safety
///
/// `bytes` are bytes of this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ob_write(
    volume: &Volume,
    ino: u64,
    offset: u64,
    bytes: Bytes,
    when: &Moment,
) -> Status {
    let lock = LayoutLock::new();
    let layout = lock.shared();
    let write = || {
        let write = Write { volume, fs: volume.writable()?, layout, ino: Ino(ino), when: when.change() };
        // SAFETY: the promise of the caller.
        write.all(offset, unsafe { bytes.get() })
    };
    volume.status(write())
}

/// Sets the size of a file. With `through`, zeroes the rest of the last block first if the file grows.
#[unsafe(no_mangle)]
pub extern "C" fn ob_truncate(volume: &Volume, ino: u64, size: u64, through: bool) -> Status {
    let lock = LayoutLock::new();
    let truncate = || {
        let fs = volume.writable()?;
        if through {
            let old = volume.fs.getattr(Ino(ino))?.size;
            if size > old {
                let layout = lock.shared();
                Write { volume, fs, layout, ino: Ino(ino), when: TimeChange::Now }.zero_last_block(old)?;
            }
        }
        fs.truncate(&lock.exclusive(), Ino(ino), size)
    };
    volume.status(truncate())
}

/// The operations of fallocate(2).
const ALLOCATE: u32 = 0;
const PUNCH: u32 = 1;
const ZERO: u32 = 2;
const COLLAPSE: u32 = 3;
const INSERT: u32 = 4;

/// Allocates, frees or moves blocks.
#[unsafe(no_mangle)]
pub extern "C" fn ob_space(volume: &Volume, ino: u64, what: u32, start: u64, end: u64, keep: bool) -> Status {
    let (lock, ino, range) = (LayoutLock::new(), Ino(ino), start..end);
    let size = if keep { Size::Keep } else { Size::Grow };
    volume.status(volume.writable().and_then(|fs| match what {
        ALLOCATE => fs.allocate(&lock.shared(), ino, range, size),
        PUNCH => fs.punch(&lock.exclusive(), ino, range),
        ZERO => fs.zero_range(&lock.exclusive(), ino, range, size),
        // The page cache overwrites mapped blocks without a call, so the moves must be durable before. A failed change
        // may have moved a part of the blocks.
        COLLAPSE => {
            let moved = fs.collapse(&lock.exclusive(), ino, range);
            moved.and(fs.sync_file(ino))
        }
        INSERT => {
            let moved = fs.insert(&lock.exclusive(), ino, range);
            moved.and(fs.sync_file(ino))
        }
        _ => Err(Error::NotSupported),
    }))
}

impl Volume {
    fn device(&self) -> Result<&dyn BlockDevice> {
        self.fs.device().map(|device| &**device).ok_or(Error::NotSupported)
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<()> {
        let lock = LayoutLock::new();
        let layout = lock.shared();
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(to_u64(done));
            // Linux locks the pages of the range. Past the end of the file is a hole.
            let extent = self.fs.map_to_read(&layout, ino, at..at.saturating_add(to_u64(rest.len())))?;
            let len = to_usize(extent.len).clamp(1, rest.len());
            let part = rest.get_mut(..len).unwrap_or_default();
            let read = match extent.span {
                Span::Mapped(from) => self.device()?.read_at(from, part).map(|()| len)?,
                Span::Driver => self.fs.read(&layout, ino, at, part)?,
                Span::Hole | Span::Unwritten => {
                    part.fill(0);
                    len
                }
            };
            if read == 0 {
                rest.fill(0);
                break;
            }
            done = done.saturating_add(read);
        }
        Ok(())
    }
}

/// A write through the driver.
struct Write<'a> {
    volume: &'a Volume,
    fs: &'a dyn WritableFileSystem,
    layout: Layout<'a>,
    ino: Ino,
    when: TimeChange,
}

impl Write<'_> {
    fn floor(&self, offset: u64) -> u64 {
        offset.saturating_sub(offset.checked_rem(self.volume.block).unwrap_or(0))
    }

    fn map(&self, range: Range<u64>) -> Result<Extent> {
        self.volume.fs.map(&self.layout, self.ino, range)
    }

    fn all(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            let len = self.run(offset.saturating_add(to_u64(done)), rest)?;
            done = done.saturating_add(len);
        }
        Ok(())
    }

    /// Writes the first extent of `bytes`. Returns the number of bytes.
    fn run(&self, at: u64, bytes: &[u8]) -> Result<usize> {
        if let Some(len) = self.fs.write_delayed(&self.layout, self.ino, at, bytes, self.when)? {
            return if len == 0 { Err(Error::NoSpace) } else { Ok(len.min(bytes.len())) };
        }
        let end = at.saturating_add(to_u64(bytes.len()));
        let ticket = self.fs.begin_write(&self.layout, self.ino, at..end)?;
        let extent = ticket.extent();
        let bytes = bytes.get(..to_usize(extent.len)).unwrap_or(bytes);
        let Span::Mapped(to) = extent.span else {
            drop(ticket);
            return self.driver(at, bytes);
        };
        let frame = ticket.frame(self.volume.block);
        self.frame(to.saturating_sub(at.saturating_sub(frame.start)), &frame, at, bytes)?;
        self.fs.end_write(ticket, self.when)?;
        Ok(bytes.len())
    }

    fn driver(&self, at: u64, bytes: &[u8]) -> Result<usize> {
        let before = self.volume.fs.getattr(self.ino)?;
        let len = self.fs.write(&self.layout, self.ino, at, bytes)?.min(bytes.len());
        if len == 0 {
            return Err(Error::NoSpace);
        }
        if let TimeChange::At(moment) = self.when {
            // The driver has used the current time. If this fails, the data is written nevertheless.
            let (mtime, ctime) = (Some(self.when), Some(TimeChange::At(before.ctime.max(moment))));
            let _ = self.fs.set_attr(self.ino, &SetAttr { mtime, ctime, ..SetAttr::default() });
        }
        Ok(len)
    }

    /// Writes `bytes` at `at` and zeros to the rest of `frame`, which is at `to` on the device.
    fn frame(&self, to: u64, frame: &Range<u64>, at: u64, bytes: &[u8]) -> Result<()> {
        let device = self.volume.device()?;
        let place = |offset: u64| to.saturating_add(offset.saturating_sub(frame.start));
        let end = at.saturating_add(to_u64(bytes.len()));
        zero(device, place(frame.start), at.saturating_sub(frame.start))?;
        device.write_at(place(at), bytes)?;
        zero(device, place(end), frame.end.saturating_sub(end))
    }

    /// Zeroes the rest of the last block of a file of `size` bytes.
    fn zero_last_block(&self, size: u64) -> Result<()> {
        let block = self.floor(size);
        if block == size || !matches!(self.map(block..size)?.span, Span::Mapped(_)) {
            return Ok(());
        }
        let rest = size..block.saturating_add(self.volume.block);
        let ticket = self.fs.begin_write(&self.layout, self.ino, rest.clone())?;
        match ticket.extent().span {
            Span::Mapped(at) => zero(self.volume.device()?, at, rest.end.saturating_sub(rest.start)),
            _ => Ok(()),
        }
    }
}

fn zero(device: &dyn BlockDevice, at: u64, len: u64) -> Result<()> {
    let (mut at, mut left) = (at, len);
    while left > 0 {
        let zeros = ZEROS.get(..to_usize(left).min(ZEROS.len())).unwrap_or_default();
        device.write_at(at, zeros)?;
        at = at.saturating_add(to_u64(zeros.len()));
        left = left.saturating_sub(to_u64(zeros.len()));
    }
    Ok(())
}
