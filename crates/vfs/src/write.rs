//! Writing files: the driver reserves and publishes blocks, and the data is written directly to the device.
//!
//! A write needs two calls of the driver: [`begin_write`] returns the place of the data and the state of the file, and
//! [`end_write`] publishes the data. A write that leaves a gap after the end of the file needs further calls.
//! Invariant: the parts of a new block that a write does not cover are zeroed before `end_write` makes the
//! block readable ([`WriteTicket::frame`]). The rest of the last block is zeroed before the file grows beyond it.
//! Invariant: zeros and data of one sector are written together, and the rest of the last block is zeroed when a file
//! shrinks. A power failure therefore never leaves a sector with old and new data.
//!
//! Small appends are gathered in memory: [`crate::gather`].
//!
//! Locking: a write, an append and a truncation hold the guard of the inode exclusively. They then acquire the layout
//! lock of the inode: shared for transferring data, exclusively for setting the size.
//!
//! [`begin_write`]: WritableFileSystem::begin_write
//! [`end_write`]: WritableFileSystem::end_write

use alloc::vec;
use core::ops::Range;
use core::slice;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, Result};
use obento_block::BlockDevice;
use obento_driver::{Extent, Layout, SetAttr, Span, TimeChange, WritableFileSystem, WriteTicket};

use crate::gathered::Times;
use crate::node::Node;
use crate::table::Inode;
use crate::vfs::Shared;

/// The zeros that one step of zeroing writes.
static ZEROS: [u8; 4096] = [0; 4096];

/// A file that is being written. The caller holds the guard of the inode, or the lock of its gathered data.
pub(crate) struct Writer<'a> {
    shared: &'a Shared,
    inode: &'a Inode,
    pub(crate) fs: &'a dyn WritableFileSystem,
    pub(crate) layout: Layout<'a>,
    block: u64,
}

impl Node {
    /// Writes `bytes` at byte `offset` of the file. Returns the number of bytes written. The number is less
    /// than `bytes.len()` only if an error occurs after some bytes were written, or at the maximum size of a
    /// file. If the call fails, the size of the file is unchanged, except after `Corrupt`, `Device` or `NoMemory`.
    /// After these errors, a part of the existing data in the range may have been overwritten.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `IsDirectory`: the inode is a directory.
    /// 3. `Invalid`: the inode is not a regular file.
    /// 4. `FileTooBig`: the offset is at or past the maximum size of a file. Or: the format stores this file with
    ///    another kind of mapping, and the end of `bytes` is past the limit of this mapping (ext4 without extents).
    /// 5. `NoSpace`: no space is free.
    /// 6. The other errors of the driver, such as `Device`, `QuotaExceeded` or `NotPermitted` (fs-verity).
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize> {
        self.vfs.writable()?;
        let _writers = self.inode.guard.write();
        self.write_guarded(offset, bytes, Times::Now)
    }

    /// Writes data from a write-back cache above this layer, as [`write_at`](Self::write_at) does, with the
    /// same errors. The modification time does not change, since the cache sets the times explicitly. If the
    /// change time is earlier than the modification time, the change time becomes the modification time.
    /// Otherwise, the change time does not change.
    pub fn write_back(&self, offset: u64, bytes: &[u8]) -> Result<usize> {
        self.vfs.writable()?;
        let _writers = self.inode.guard.write();
        self.write_guarded(offset, bytes, Times::Unchanged)
    }

    /// Writes `bytes` at the end of the file. Concurrent appends by other threads do not overlap this write.
    /// Returns the offset of the write and the number of bytes written. Fails as [`write_at`](Self::write_at)
    /// does.
    pub fn append(&self, bytes: &[u8]) -> Result<(u64, usize)> {
        self.vfs.writable()?;
        let _writers = self.inode.guard.write();
        let end = self.inode.gather.end().map_or_else(|| self.data_size(), Ok)?;
        self.write_guarded(end, bytes, Times::Now).map(|len| (end, len))
    }

    /// Sets the size to `size` bytes. Added data reads as zeros. If the file shrinks, the call then zeroes
    /// the rest of the last block. If zeroing fails, the call fails although the file has its new size.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `IsDirectory`: the inode is a directory.
    /// 3. `Invalid`: the inode is not a regular file.
    /// 4. `FileTooBig`: the size exceeds the limit of the format or of the file.
    /// 5. `NoSpace`: the change must allocate a block, and no block is free. This can occur if the format has no holes,
    ///    or if the data of the file no longer fits into its inode.
    pub fn truncate(&self, size: u64) -> Result<()> {
        let fs = self.vfs.writable()?;
        let _writers = self.inode.guard.write();
        self.settle_to_change()?;
        let old = self.data_size()?;
        if size > self.vfs.limits().file_size_max {
            return Err(Error::FileTooBig);
        }
        if size > old {
            Writer::of(self, fs).zero_last_block(old)?;
        }
        fs.truncate(&self.inode.exclusive(), self.ino(), size)?;
        if size < old { Writer::of(self, fs).zero_last_block(size) } else { Ok(()) }
    }

    /// Returns once the file and its names are on stable storage, including the gathered data of the file.
    ///
    /// # Errors
    ///
    /// 1. The error that caused a loss of gathered data, of this or another file.
    /// 2. `ReadOnly`: the volume is open read-only, or was closed.
    /// 3. The other errors of the driver, such as `Device`.
    pub fn sync(&self) -> Result<()> {
        self.vfs.sync_nodes(slice::from_ref(self))
    }

    fn write_guarded(&self, offset: u64, bytes: &[u8], times: Times) -> Result<usize> {
        let gathered = self.gather(offset, bytes, times)?;
        match bytes.get(gathered..) {
            Some([]) if gathered > 0 => Ok(gathered),
            rest => {
                let offset = offset.saturating_add(to_u64(gathered));
                match self.write_through(offset, rest.unwrap_or_default(), times) {
                    Err(_) if gathered > 0 => Ok(gathered),
                    written => written.map(|len| gathered.saturating_add(len)),
                }
            }
        }
    }

    /// Passes a write to the driver.
    fn write_through(&self, offset: u64, bytes: &[u8], times: Times) -> Result<usize> {
        self.settle_to_change()?;
        let writer = Writer::of(self, self.vfs.writable()?);
        let room = self.vfs.limits().file_size_max.saturating_sub(offset);
        let bytes = bytes.get(..bytes.len().min(to_usize(room))).unwrap_or_default();
        if bytes.is_empty() {
            // The driver is not asked for a place, which would check the type of the inode.
            self.data_size()?;
            return if room == 0 { Err(Error::FileTooBig) } else { Ok(0) };
        }
        let written = writer.write_all(offset, bytes, times);
        let end = offset.saturating_add(to_u64(written.len));
        self.inode.gather.set_end(Some(end).filter(|&end| written.len > 0 && end == written.size));
        written.into_len()
    }
}

/// The outcome of a write.
pub(crate) struct Written {
    /// The number of bytes that were written.
    pub(crate) len: usize,
    /// The size of the file afterwards, if a byte was written.
    size: u64,
    /// The reason why not all bytes were written.
    pub(crate) rest: Result<()>,
}

impl Written {
    /// Returns the number of bytes, or the error if no byte was written.
    fn into_len(self) -> Result<usize> {
        if self.len == 0 { self.rest.map(|()| 0) } else { Ok(self.len) }
    }
}

impl<'a> Writer<'a> {
    /// Creates a writer for a settled file.
    pub(crate) fn of(node: &'a Node, fs: &'a dyn WritableFileSystem) -> Self {
        Self::new(&node.vfs.0, &node.inode, fs)
    }

    pub(crate) fn new(shared: &'a Shared, inode: &'a Inode, fs: &'a dyn WritableFileSystem) -> Self {
        let (layout, block) = (inode.layout.shared(), u64::from(shared.block_size));
        Self { shared, inode, fs, layout, block }
    }

    fn device(&self) -> Result<&dyn BlockDevice> {
        // A driver that returns a mapping without a device violates its contract.
        self.shared.fs.device().map(|device| &**device).ok_or(Error::NotSupported)
    }

    fn map(&self, range: Range<u64>) -> Result<Extent> {
        self.shared.map(&self.layout, self.inode.ino, range)
    }

    pub(crate) fn floor(&self, offset: u64) -> u64 {
        offset.saturating_sub(offset.checked_rem(self.block).unwrap_or(0))
    }

    pub(crate) fn ceil(&self, offset: u64) -> u64 {
        offset.checked_next_multiple_of(self.block).unwrap_or(u64::MAX)
    }

    /// Writes at `offset`.
    pub(crate) fn write_all(&self, offset: u64, bytes: &[u8], times: Times) -> Written {
        let mut written = Written { len: 0, size: 0, rest: Ok(()) };
        while let Some(rest) = bytes.get(written.len..).filter(|rest| !rest.is_empty()) {
            match self.write_run(offset.saturating_add(to_u64(written.len)), rest, times) {
                Ok((len, size)) => {
                    written = Written { len: written.len.saturating_add(len), size, rest: Ok(()) };
                }
                Err(error) => return Written { rest: Err(error), ..written },
            }
        }
        written
    }

    /// Writes the first extent of `bytes`, at least one byte. Returns the number of bytes, and the size of the file.
    fn write_run(&self, at: u64, bytes: &[u8], times: Times) -> Result<(usize, u64)> {
        let end = at.saturating_add(to_u64(bytes.len()));
        let ticket = self.fs.begin_write(&self.layout, self.inode.ino, at..end)?;
        let (extent, size) = (ticket.extent(), ticket.size());
        if self.floor(size) < self.floor(at) {
            self.zero_last_block(size)?;
        }
        let bytes = bytes.get(..to_usize(extent.len)).unwrap_or(bytes);
        let len = match extent.span {
            _ if bytes.is_empty() => return Err(Error::Invalid),
            Span::Mapped(to) => {
                self.transfer(&ticket, to, bytes)?;
                let when = match times {
                    Times::Now => TimeChange::Now,
                    Times::Accepted(moment) => TimeChange::At(moment),
                    Times::Unchanged => TimeChange::At(ticket.mtime()),
                };
                self.fs.end_write(ticket, when)?;
                bytes.len()
            }
            Span::Driver => {
                drop(ticket);
                self.write_driver(at, bytes, times)?
            }
            Span::Hole | Span::Unwritten => return Err(Error::NotSupported),
        };
        Ok((len, size.max(at.saturating_add(to_u64(len)))))
    }

    /// Writes `bytes` to the extent of a ticket, which is at `to` on the device, and zeros to the rest of its frame.
    fn transfer(&self, ticket: &WriteTicket<'_>, to: u64, bytes: &[u8]) -> Result<()> {
        let (range, frame, device) = (ticket.range(), ticket.frame(self.block), self.device()?);
        match frame == range {
            true => device.write_at(to, bytes),
            false => {
                let to = to.saturating_sub(range.start.saturating_sub(frame.start));
                write_framed(device, to, frame, range.start, bytes)
            }
        }
    }

    fn write_driver(&self, at: u64, bytes: &[u8], times: Times) -> Result<usize> {
        let before = match times {
            Times::Now => None,
            Times::Accepted(_) | Times::Unchanged => Some(self.shared.fs.getattr(self.inode.ino)?),
        };
        let written = match self.fs.write(&self.layout, self.inode.ino, at, bytes)?.min(bytes.len()) {
            0 => Err(Error::NoSpace),
            len => Ok(len),
        };
        if let Some(before) = before {
            // The driver has used the current time. If this fails, the data is written nevertheless.
            let moment = if let Times::Accepted(moment) = times { moment } else { before.mtime };
            let (mtime, ctime) = (TimeChange::At(moment), TimeChange::At(before.ctime.max(moment)));
            let change = SetAttr { mtime: Some(mtime), ctime: Some(ctime), ..SetAttr::default() };
            let _ = self.fs.set_attr(self.inode.ino, &change);
        }
        written
    }

    /// Zeroes the rest of the last block of a file of `size` bytes.
    pub(crate) fn zero_last_block(&self, size: u64) -> Result<()> {
        let block = self.floor(size);
        if block == size || !matches!(self.map(block..size)?.span, Span::Mapped(_)) {
            return Ok(());
        }
        let rest = size..block.saturating_add(self.block);
        let ticket = self.fs.begin_write(&self.layout, self.inode.ino, rest.clone())?;
        match ticket.extent().span {
            Span::Mapped(at) => write_zeros(self.device()?, at, rest.end.saturating_sub(rest.start)),
            _ => Ok(()),
        }
    }

    /// Writes zeros to the parts of `range` that are not zeros already. The range is within the file.
    pub(crate) fn zero(&self, range: Range<u64>) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let extent = self.map(at..range.end)?;
            let len = if extent.span.is_zeros() {
                extent.len.max(1)
            } else {
                let (len, _) = self.write_run(at, zeros(at, extent.len), Times::Now)?;
                to_u64(len)
            };
            at = at.saturating_add(len);
        }
        Ok(())
    }
}

/// Writes `frame`, which is at `to` on the device: `bytes` at `at`, and zeros before and after them. No sector is
/// written twice.
fn write_framed(device: &dyn BlockDevice, to: u64, frame: Range<u64>, at: u64, bytes: &[u8]) -> Result<()> {
    let (end, piece_len) = (at.saturating_add(to_u64(bytes.len())), to_u64(ZEROS.len()));
    let mut from = frame.start;
    while from < frame.end {
        let place = to.saturating_add(from.saturating_sub(frame.start));
        let piece = from..from.saturating_add(1).next_multiple_of(piece_len).min(frame.end);
        let skip = to_usize(from.saturating_sub(at));
        if at <= piece.start && piece.end <= end {
            // Only data: as many whole pieces as possible.
            let last = end.saturating_sub(end.checked_rem(piece_len).unwrap_or(0)).max(piece.end);
            let whole = last.saturating_sub(from);
            let data = bytes.get(skip..skip.saturating_add(to_usize(whole))).unwrap_or_default();
            device.write_at(place, data)?;
            from = from.saturating_add(whole);
            continue;
        }
        // Not on the stack, which a kernel has little of.
        let mut mixed = vec![0; to_usize(piece.end.saturating_sub(from))];
        let target = mixed.get_mut(to_usize(at.saturating_sub(from))..).unwrap_or_default();
        target.iter_mut().zip(bytes.get(skip..).unwrap_or_default()).for_each(|(to, from)| *to = *from);
        device.write_at(place, &mixed)?;
        from = piece.end;
    }
    Ok(())
}

fn write_zeros(device: &dyn BlockDevice, at: u64, len: u64) -> Result<()> {
    let (mut at, mut left) = (at, len);
    while left > 0 {
        let zeros = zeros(at, left);
        device.write_at(at, zeros)?;
        at = at.saturating_add(to_u64(zeros.len()));
        left = left.saturating_sub(to_u64(zeros.len()));
    }
    Ok(())
}

/// Returns zeros for one step of zeroing `len` bytes at `at`. A step that does not reach the end stops at a
/// sector boundary.
fn zeros(at: u64, len: u64) -> &'static [u8] {
    let most = to_u64(ZEROS.len());
    let rest = most.saturating_sub(at.checked_rem(most).unwrap_or(0));
    ZEROS.get(..to_usize(rest.min(len))).unwrap_or_default()
}
