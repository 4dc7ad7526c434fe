//! Writing files: the driver reserves and publishes, the bytes go straight to the device.
//!
//! Invariant: a block that was a hole, unwritten, or past the end of the file is zero wherever the write leaves it
//! out, before `end_write` lets anybody read it; and the rest of the last block is zero before the file grows over it.
//! Invariant: zeros and data of one sector go to the device as one write, and the rest of the last block is zeroed as
//! soon as a file shrinks, so that a power cut leaves no sector that is half of one time and half of another.
//! Small writes at the end of a file wait in memory: [`crate::gather`].
//! Locking: the inode's guard, exclusive, so that writers, appends and truncations do not mix; below it the layout,
//! shared while bytes move and exclusive to take blocks away.

use core::ops::Range;
use core::slice;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, Result};
use obento_block::BlockDevice;
use obento_driver::{Extent, Layout, SetAttr, Span, TimeChange, WritableFileSystem};

use crate::node::Node;
use crate::table::Inode;
use crate::vfs::Shared;

/// Zeros to write from: bounds what one step of zeroing needs.
static ZEROS: [u8; 4096] = [0; 4096];

/// One file being written to: its guard is held, or the lock of what it gathers.
pub(crate) struct Writer<'a> {
    shared: &'a Shared,
    inode: &'a Inode,
    pub(crate) fs: &'a dyn WritableFileSystem,
    pub(crate) layout: Layout<'a>,
    pub(crate) size: u64,
    /// When the bytes were taken.
    pub(crate) when: TimeChange,
    block: u64,
}

/// Where a step of a write may go.
struct Target {
    /// What to ask the driver for.
    range: Range<u64>,
    /// How far data goes in this step.
    end: u64,
    there: There,
}

/// What is where a step of a write goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum There {
    /// Nothing: what the data leaves out of the range has to be zeroed.
    Nothing,
    /// Bytes.
    Bytes,
    /// Bytes that only the driver moves.
    Driver,
}

impl Node {
    /// Writes from byte `offset` on; answers how many bytes, which is less than `bytes.len()` only if space, the
    /// largest size or the device gave out. Errors, the first that holds: ReadOnly; IsDirectory; Invalid for what is
    /// no regular file; FileTooBig; NoSpace; those of the volume.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize> {
        self.vfs.writable()?;
        let _writers = self.inode.guard.write();
        self.write_guarded(offset, bytes, TimeChange::Now)
    }

    /// Writes as [`write_at`](Self::write_at) what a cache above has gathered, which keeps the times of the file itself
    /// and sets them when they change: they stay as they are.
    pub fn write_back(&self, offset: u64, bytes: &[u8]) -> Result<usize> {
        self.vfs.writable()?;
        let _writers = self.inode.guard.write();
        let when = TimeChange::At(self.stored()?.mtime);
        self.write_guarded(offset, bytes, when)
    }

    /// Writes at the end of the file, whatever others append meanwhile; answers where that was and how many bytes.
    /// Errors: as [`write_at`](Self::write_at).
    pub fn append(&self, bytes: &[u8]) -> Result<(u64, usize)> {
        self.vfs.writable()?;
        let _writers = self.inode.guard.write();
        let end = self.inode.gather.end().map_or_else(|| self.data_size(), Ok)?;
        self.write_guarded(end, bytes, TimeChange::Now).map(|len| (end, len))
    }

    /// Sets the size; what is added reads as zeros. Errors, the first that holds: ReadOnly; IsDirectory; Invalid for
    /// what is no regular file; FileTooBig.
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

    /// Returns once the file and the names that lead to it are on stable storage. Errors, the first that holds:
    /// ReadOnly on a volume that is open for reading; the one by which bytes of any file were lost that a write had
    /// taken; those of the volume.
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

    /// Hands a write on to the driver.
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
    /// A settled file.
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
        // A driver that maps onto no device contradicts itself.
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

    /// Writes from `offset` on, at most the end of the file; answers how many bytes, and why not all.
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

    /// Writes the first run of `bytes`, at least one byte.
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
            // The driver stamped the present. The bytes are there all the same should this fail.
            let (mtime, ctime) = (Some(self.when), Some(TimeChange::At(before.ctime.max(moment))));
            let _ = self.fs.set_attr(self.inode.ino, &SetAttr { mtime, ctime, ..SetAttr::default() });
        }
        written
    }

    fn wrote(&mut self, at: u64, len: usize) -> usize {
        self.size = self.size.max(at.saturating_add(to_u64(len)));
        len
    }

    /// What of `at..end` can go in one step. A block that starts at or past the end of the file is fresh whatever
    /// the driver has there, because nobody was ever to read it.
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
        // Where all of it is the driver's, there is no more to ask.
        let there = if extent.span == Span::Driver && end <= known { There::Driver } else { There::Bytes };
        let end = if known >= self.size { self.ceil(self.size) } else { known }.min(end);
        Ok(Target { range: at..end, end, there })
    }

    /// Puts `bytes` at `at` and zeros to the rest of `frame`, which lies at `to` on the device, and publishes it.
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

    /// Zeroes what of the last block lies past the end of the file.
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

    /// Writes zeros to what of `range`, which is within the file, is not zeros already.
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

/// Writes `frame`, which starts at `to` on the device with a block: `bytes` at `at`, zeros before and behind them. No
/// sector is written twice.
fn write_framed(device: &dyn BlockDevice, to: u64, frame: Range<u64>, at: u64, bytes: &[u8]) -> Result<()> {
    let (end, piece_len) = (at.saturating_add(to_u64(bytes.len())), to_u64(ZEROS.len()));
    let mut from = frame.start;
    while from < frame.end {
        let place = to.saturating_add(from.saturating_sub(frame.start));
        let piece = from..from.saturating_add(piece_len).min(frame.end);
        let skip = to_usize(from.saturating_sub(at));
        if at <= piece.start && piece.end <= end {
            // Data alone: as many whole pieces of it as there are.
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

/// Zeros for one step of writing `len` bytes of them at `at`: what does not end all of it ends with a sector.
fn zeros(at: u64, len: u64) -> &'static [u8] {
    let most = to_u64(ZEROS.len());
    let rest = most.saturating_sub(at.checked_rem(most).unwrap_or(0));
    ZEROS.get(..to_usize(rest.min(len))).unwrap_or_default()
}
