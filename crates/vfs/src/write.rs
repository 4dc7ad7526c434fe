//! Writing files: the driver reserves and publishes blocks, and the data goes directly to the device.
//!
//! Invariant: the parts of a new block that a write does not cover are zeroed before `end_write` makes the
//! block readable. The rest of the last block is zeroed before the file grows beyond it. A block is new if
//! it was a hole, unwritten, or past the end of the file.
//! Invariant: zeros and data of one sector are written together, and the rest of the last block is zeroed
//! when a file shrinks, so that a power cut never leaves a sector with old and new data.
//! Small appends are gathered in memory: [`crate::gather`].
//! Locking: the exclusive guard of the inode, so that writes, appends and truncations are serialised; below
//! it the layout lock, shared while data is transferred and exclusive for removing blocks.

use core::ops::Range;
use core::slice;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, Result};
use obento_block::BlockDevice;
use obento_driver::{Extent, Layout, SetAttr, Span, TimeChange, WritableFileSystem};

use crate::node::Node;
use crate::table::Inode;
use crate::vfs::Shared;

/// A source of zeros, which bounds the memory that zeroing needs.
static ZEROS: [u8; 4096] = [0; 4096];

/// A file being written. Its guard is held, or the lock of its gathered data.
pub(crate) struct Writer<'a> {
    shared: &'a Shared,
    inode: &'a Inode,
    pub(crate) fs: &'a dyn WritableFileSystem,
    pub(crate) layout: Layout<'a>,
    pub(crate) size: u64,
    /// The time at which the data was accepted.
    pub(crate) when: TimeChange,
    block: u64,
}

/// The target of one step of a write.
struct Target {
    /// Range to request from the driver.
    range: Range<u64>,
    /// End of the data in this step.
    end: u64,
    there: There,
}

/// The previous contents of the target.
#[derive(Clone, Copy, PartialEq, Eq)]
enum There {
    /// Nothing: the parts of the range without data must be zeroed.
    Nothing,
    /// Data.
    Bytes,
    /// Data that only the driver can access.
    Driver,
}

impl Node {
    /// Writes at byte `offset`. Returns the number of bytes written, which is less than `bytes.len()` only
    /// if the space, the maximum size or the device is exhausted.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `IsDirectory`: the inode is a directory.
    /// 3. `Invalid`: the inode is not a regular file.
    /// 4. `FileTooBig`: the offset exceeds the limit of the format.
    /// 5. `NoSpace`: no space is free.
    /// 6. The errors of the volume.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize> {
        self.vfs.writable()?;
        let _writers = self.inode.guard.write();
        self.write_guarded(offset, bytes, TimeChange::Now)
    }

    /// Writes data from a write-back cache above, as [`write_at`](Self::write_at) does. The times of the
    /// file do not change: the cache maintains them and sets them explicitly.
    pub fn write_back(&self, offset: u64, bytes: &[u8]) -> Result<usize> {
        self.vfs.writable()?;
        let _writers = self.inode.guard.write();
        let when = TimeChange::At(self.stored()?.mtime);
        self.write_guarded(offset, bytes, when)
    }

    /// Writes at the end of the file, whatever other threads append meanwhile. Returns the offset and the
    /// number of bytes. Fails as [`write_at`](Self::write_at) does.
    pub fn append(&self, bytes: &[u8]) -> Result<(u64, usize)> {
        self.vfs.writable()?;
        let _writers = self.inode.guard.write();
        let end = self.inode.gather.end().map_or_else(|| self.data_size(), Ok)?;
        self.write_guarded(end, bytes, TimeChange::Now).map(|len| (end, len))
    }

    /// Sets the size. Added data reads as zeros.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `IsDirectory`: the inode is a directory.
    /// 3. `Invalid`: the inode is not a regular file.
    /// 4. `FileTooBig`: the size exceeds the limit of the format.
    pub fn truncate(&self, size: u64) -> Result<()> {
        let fs = self.vfs.writable()?;
        let _writers = self.inode.guard.write();
        self.settle_to_change()?;
        let writer = Writer::of(self, fs)?;
        if size > self.vfs.limits().file_size_max {
            return Err(Error::FileTooBig);
        }
        let shrinks = size < writer.size;
        if size > writer.size {
            writer.zero_last_block()?;
        }
        drop(writer);
        fs.truncate(&self.inode.layout.exclusive(), self.ino(), size)?;
        if shrinks { Writer::of(self, fs)?.zero_last_block() } else { Ok(()) }
    }

    /// Returns once the file and its names are on stable storage.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume is open read-only.
    /// 2. The error by which acknowledged data of any file was lost.
    /// 3. The errors of the volume.
    pub fn sync(&self) -> Result<()> {
        self.vfs.sync_nodes(slice::from_ref(self))
    }

    fn write_guarded(&self, offset: u64, bytes: &[u8], when: TimeChange) -> Result<usize> {
        let gathered = self.gather(offset, bytes, when)?;
        match bytes.get(gathered..) {
            Some([]) if gathered > 0 => Ok(gathered),
            rest => {
                let offset = offset.saturating_add(to_u64(gathered));
                match self.write_through(offset, rest.unwrap_or_default(), when) {
                    Err(_) if gathered > 0 => Ok(gathered),
                    written => written.map(|len| gathered.saturating_add(len)),
                }
            }
        }
    }

    /// Passes a write to the driver.
    fn write_through(&self, offset: u64, bytes: &[u8], when: TimeChange) -> Result<usize> {
        self.settle_to_change()?;
        let mut writer = Writer::of(self, self.vfs.writable()?)?;
        writer.when = when;
        let room = self.vfs.limits().file_size_max.saturating_sub(offset);
        let bytes = bytes.get(..bytes.len().min(to_usize(room))).unwrap_or_default();
        match bytes {
            [] if room == 0 => Err(Error::FileTooBig),
            [] => Ok(0),
            _ => {
                let len = writer.write(offset, bytes)?;
                let end = offset.saturating_add(to_u64(len));
                self.inode.gather.set_end(Some(end).filter(|&end| end == writer.size));
                Ok(len)
            }
        }
    }
}

impl<'a> Writer<'a> {
    /// Creates a writer for a settled file.
    pub(crate) fn of(node: &'a Node, fs: &'a dyn WritableFileSystem) -> Result<Self> {
        Self::new(&node.vfs.0, &node.inode, fs)
    }

    pub(crate) fn new(shared: &'a Shared, inode: &'a Inode, fs: &'a dyn WritableFileSystem) -> Result<Self> {
        let layout = inode.layout.shared();
        let block = u64::from(shared.block_size);
        Ok(Self {
            size: shared.data_size(inode.ino)?,
            shared,
            inode,
            fs,
            layout,
            when: TimeChange::Now,
            block,
        })
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

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<usize> {
        if offset > self.size {
            self.zero_last_block()?;
        }
        match self.write_all(offset, bytes) {
            (0, Err(error)) => Err(error),
            (done, _) => Ok(done),
        }
    }

    /// Writes at `offset`, which is at most the end of the file. Returns the number of bytes and the reason
    /// why it is not all of them.
    pub(crate) fn write_all(&mut self, offset: u64, bytes: &[u8]) -> (usize, Result<()>) {
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            match self.write_run(offset.saturating_add(to_u64(done)), rest) {
                Ok(len) => done = done.saturating_add(len),
                Err(error) => return (done, Err(error)),
            }
        }
        (done, Ok(()))
    }

    /// Writes the first extent of `bytes`, at least one byte.
    fn write_run(&mut self, at: u64, bytes: &[u8]) -> Result<usize> {
        let target = self.target(at, at.saturating_add(to_u64(bytes.len())))?;
        if target.there == There::Driver {
            return self.write_driver(at, bytes);
        }
        let start = target.range.start;
        let extent = self.fs.map_for_write(&self.layout, self.inode.ino, target.range)?;
        let end = start.saturating_add(extent.len);
        let len = to_usize(end.min(target.end).saturating_sub(at)).min(bytes.len());
        let bytes = bytes.get(..len).filter(|bytes| !bytes.is_empty()).ok_or(Error::Invalid)?;
        match extent.span {
            Span::Driver => return self.write_driver(at, bytes),
            Span::Mapped(to) => {
                let data = at..at.saturating_add(to_u64(len));
                let frame = if target.there == There::Nothing { start..end } else { data };
                self.write_mapped(to.saturating_add(frame.start.saturating_sub(start)), frame, at, bytes)?;
            }
            Span::Hole | Span::Unwritten => return Err(Error::NotSupported),
        }
        Ok(self.wrote(at, len))
    }

    fn write_driver(&mut self, at: u64, bytes: &[u8]) -> Result<usize> {
        let before = match self.when {
            TimeChange::Now => None,
            TimeChange::At(_) => Some(self.shared.fs.getattr(self.inode.ino)?),
        };
        let written = match self.fs.write(&self.layout, self.inode.ino, at, bytes)?.min(bytes.len()) {
            0 => Err(Error::NoSpace),
            len => Ok(self.wrote(at, len)),
        };
        if let (TimeChange::At(moment), Some(before)) = (self.when, before) {
            // The driver has used the current time. If this fails, the data is written nevertheless.
            let (mtime, ctime) = (Some(self.when), Some(TimeChange::At(before.ctime.max(moment))));
            let _ = self.fs.set_attr(self.inode.ino, &SetAttr { mtime, ctime, ..SetAttr::default() });
        }
        written
    }

    fn wrote(&mut self, at: u64, len: usize) -> usize {
        self.size = self.size.max(at.saturating_add(to_u64(len)));
        len
    }

    /// Returns the part of `at..end` that one step can write. A block at or past the end of the file is
    /// new, whatever the driver has allocated there, since it was never readable.
    fn target(&self, at: u64, end: u64) -> Result<Target> {
        let block = self.floor(at);
        let fresh = |end: u64| Target { range: block..self.ceil(end), end, there: There::Nothing };
        if block >= self.size {
            return Ok(fresh(end));
        }
        let inside = at.min(self.size.saturating_sub(1));
        let extent = self.map(inside..end.min(self.size).max(inside.saturating_add(1)))?;
        let known = inside.saturating_add(extent.len.max(1));
        if extent.span.is_zeros() {
            return Ok(fresh(if known >= self.size { end } else { end.min(known) }));
        }
        // If the driver holds the whole range, nothing else needs to be checked.
        let there = if extent.span == Span::Driver && end <= known { There::Driver } else { There::Bytes };
        let end = if known >= self.size { self.ceil(self.size) } else { known }.min(end);
        Ok(Target { range: at..end, end, there })
    }

    /// Writes `bytes` at `at` and zeros to the rest of `frame`, which is at `to` on the device, and
    /// publishes the blocks.
    fn write_mapped(&self, to: u64, frame: Range<u64>, at: u64, bytes: &[u8]) -> Result<()> {
        let end = at.saturating_add(to_u64(bytes.len()));
        let device = self.device()?;
        let write = || match frame == (at..end) {
            true => device.write_at(to, bytes),
            false => write_framed(device, to, frame.clone(), at, bytes),
        };
        if let Err(error) = write() {
            self.fs.abandon(&self.layout, self.inode.ino, frame);
            return Err(error);
        }
        self.fs.end_write(&self.layout, self.inode.ino, at..end, self.when)
    }

    /// Zeroes the part of the last block past the end of the file.
    pub(crate) fn zero_last_block(&self) -> Result<()> {
        let block = self.floor(self.size);
        if block == self.size {
            return Ok(());
        }
        if !matches!(self.map(block..self.size)?.span, Span::Mapped(_)) {
            return Ok(());
        }
        let rest = self.size..block.saturating_add(self.block);
        let extent = self.fs.map_for_write(&self.layout, self.inode.ino, rest.clone())?;
        let zeroed = match extent.span {
            Span::Mapped(at) => write_zeros(self.device()?, at, rest.end.saturating_sub(rest.start)),
            _ => Ok(()),
        };
        self.fs.abandon(&self.layout, self.inode.ino, rest);
        zeroed
    }

    /// Writes zeros to the parts of `range` that are not zeros already. The range is within the file.
    pub(crate) fn zero(&mut self, range: Range<u64>) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let extent = self.map(at..range.end)?;
            let len = if extent.span.is_zeros() {
                extent.len.max(1)
            } else {
                to_u64(self.write_run(at, zeros(at, extent.len))?)
            };
            at = at.saturating_add(len);
        }
        Ok(())
    }
}

/// Writes `frame`, which starts at a block boundary at `to` on the device: `bytes` at `at`, and zeros
/// before and after them. No sector is written twice.
fn write_framed(device: &dyn BlockDevice, to: u64, frame: Range<u64>, at: u64, bytes: &[u8]) -> Result<()> {
    let (end, piece_len) = (at.saturating_add(to_u64(bytes.len())), to_u64(ZEROS.len()));
    let mut from = frame.start;
    while from < frame.end {
        let place = to.saturating_add(from.saturating_sub(frame.start));
        let piece = from..from.saturating_add(piece_len).min(frame.end);
        let skip = to_usize(from.saturating_sub(at));
        if at <= piece.start && piece.end <= end {
            // Only data: as many whole pieces as possible.
            let rest = end.saturating_sub(from);
            let whole = rest
                .saturating_sub(rest.checked_rem(piece_len).unwrap_or(0))
                .max(piece.end.saturating_sub(from));
            let data = bytes.get(skip..skip.saturating_add(to_usize(whole))).unwrap_or_default();
            device.write_at(place, data)?;
            from = from.saturating_add(whole);
            continue;
        }
        let mut mixed = ZEROS;
        let mixed = mixed.get_mut(..to_usize(piece.end.saturating_sub(from))).unwrap_or_default();
        let target = mixed.get_mut(to_usize(at.saturating_sub(from))..).unwrap_or_default();
        target.iter_mut().zip(bytes.get(skip..).unwrap_or_default()).for_each(|(to, from)| *to = *from);
        device.write_at(place, mixed)?;
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
