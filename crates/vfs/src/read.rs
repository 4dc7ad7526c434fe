//! Reading files: the driver returns the location of the data, and the device reads the data directly into
//! the buffer of the caller.

use alloc::sync::Arc;
use core::ops::Range;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, FileKind, Ino, Result};
use obento_block::BlockDevice;
use obento_driver::{Extent, Layout, Span};

use crate::node::Node;
use crate::vfs::Shared;

/// An extent of a file, as [`Node::run`] returns it. A run holds the layout lock of the inode shared, so the
/// mapping stays valid while the run exists.
///
/// While a thread holds a run, the thread must not read, write or map the same file through its [`Node`].
/// Otherwise, the thread could wait for its own lock. [`Run::read`] is permitted.
pub struct Run<'a> {
    node: &'a Node,
    layout: Layout<'a>,
    offset: u64,
    extent: Extent,
}

impl Run<'_> {
    /// Returns the start of the run in bytes of the file.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the length in bytes: at least 1. The run ends at or before the end of the file.
    #[expect(clippy::len_without_is_empty, reason = "a run is never empty")]
    pub fn len(&self) -> u64 {
        self.extent.len
    }

    /// Returns the location of the data.
    pub fn span(&self) -> Span {
        self.extent.span
    }

    /// Returns the device to which the offset of a [`Span::Mapped`] run refers, or `None` if the driver never
    /// maps data. If [`BlockDevice::backing`] returns a location, a host can copy the data without reading
    /// the data into memory.
    pub fn device(&self) -> Option<&Arc<dyn BlockDevice>> {
        self.node.file_system().device()
    }

    /// Reads from byte `skip` of the run into `buf`. Returns the number of bytes read, which is less than `buf.len()`
    /// only at the end of the run.
    ///
    /// # Errors
    ///
    /// The errors of the device, or those of [`FileSystem::read`](obento_driver::FileSystem::read) for a
    /// [`Span::Driver`] run.
    pub fn read(&self, skip: u64, buf: &mut [u8]) -> Result<usize> {
        let left = to_usize(self.extent.len.saturating_sub(skip)).min(buf.len());
        let Some(buf) = buf.get_mut(..left).filter(|buf| !buf.is_empty()) else { return Ok(0) };
        match self.extent.span {
            Span::Hole | Span::Unwritten => buf.fill(0),
            Span::Mapped(at) => read_mapped(self.node, at.saturating_add(skip), buf)?,
            Span::Driver => {
                return self.node.read_driver(&self.layout, self.offset.saturating_add(skip), buf);
            }
        }
        Ok(left)
    }
}

fn read_mapped(node: &Node, at: u64, buf: &mut [u8]) -> Result<()> {
    // A driver that returns a mapping without a device violates its contract.
    node.file_system().device().ok_or(Error::NotSupported)?.read_at(at, buf)
}

impl Node {
    /// Reads from byte `offset` of the file into `buf`. Returns the number of bytes read. The number is less than
    /// `buf.len()` only at the end of the file, or before data that cannot be read. A read that starts at such data
    /// fails with the error.
    ///
    /// # Errors
    ///
    /// 1. `IsDirectory`: the inode is a directory.
    /// 2. `Invalid`: the inode is not a regular file.
    /// 3. The other errors of the driver, such as `Device`.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.settle();
        let layout = self.inode.layout.shared();
        let asked = offset.saturating_add(to_u64(buf.len()));
        if let Some(at) = self.inode.places.find(&(offset..asked)).filter(|_| !buf.is_empty()) {
            read_mapped(self, at, buf)?;
            return Ok(buf.len());
        }
        let size = self.data_size()?;
        let end = size.min(asked);
        let want = to_usize(end.saturating_sub(offset));
        let mut done = 0;
        while let Some(buf) = buf.get_mut(done..want).filter(|buf| !buf.is_empty()) {
            let at = offset.saturating_add(to_u64(done));
            match self.read_run(&layout, at..size, buf) {
                Ok(0) => break,
                Ok(len) => done = done.saturating_add(len),
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Reads the run at `rest.start` into `buf`. Returns the number of bytes: the length of the run, or of `buf` if
    /// that is shorter. `rest` ends at the end of the file and is at least as long as `buf`.
    fn read_run(&self, layout: &Layout<'_>, rest: Range<u64>, buf: &mut [u8]) -> Result<usize> {
        let start = rest.start;
        let ahead = start.saturating_add(self.inode.places.ahead().max(to_u64(buf.len()))).min(rest.end);
        let extent = self.map(layout, start..ahead)?;
        if let Span::Mapped(at) = extent.span {
            self.inode.places.note(start..start.saturating_add(extent.len), at);
        }
        let len = to_usize(extent.len).min(buf.len());
        let buf = buf.get_mut(..len).unwrap_or_default();
        match extent.span {
            Span::Hole | Span::Unwritten => buf.fill(0),
            Span::Mapped(at) => read_mapped(self, at, buf)?,
            Span::Driver => return self.read_driver(layout, start, buf),
        }
        Ok(len)
    }

    fn read_driver(&self, layout: &Layout<'_>, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let len = self.file_system().read(layout, self.ino(), offset, buf)?;
        Ok(len.min(buf.len()))
    }

    fn map(&self, layout: &Layout<'_>, range: Range<u64>) -> Result<Extent> {
        self.vfs.0.map(layout, self.ino(), range)
    }

    /// Returns the size of a regular file, without gathered data. Fails with `IsDirectory` or `Invalid`.
    pub(crate) fn data_size(&self) -> Result<u64> {
        self.vfs.0.data_size(self.ino())
    }

    /// Returns the run that starts at byte `offset` of the file and has at most `max_len` bytes. All bytes of the run
    /// have the same kind of location. The next run may have this kind, too. Returns `None` at or past the end of the
    /// file, or if `max_len` is 0. Fails as [`read_at`](Self::read_at) does.
    pub fn run(&self, offset: u64, max_len: u64) -> Result<Option<Run<'_>>> {
        self.settle();
        let layout = self.inode.layout.shared();
        let end = self.data_size()?.min(offset.saturating_add(max_len));
        if offset >= end {
            return Ok(None);
        }
        let extent = self.map(&layout, offset..end)?;
        Ok(Some(Run { node: self, layout, offset, extent }))
    }

    /// Returns the offset of the first byte of data at or after `offset`, as `lseek(2)` with `SEEK_DATA`
    /// does. Bytes in holes and unwritten extents are not data.
    ///
    /// # Errors
    ///
    /// 1. The errors of [`read_at`](Self::read_at).
    /// 2. `NoSuchOffset`: no data follows.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        self.seek(offset, |span| !span.is_zeros()).and_then(|found| found.ok_or(Error::NoSuchOffset))
    }

    /// Returns the offset of the first byte at or after `offset` that is in a hole or an unwritten extent, as
    /// `lseek(2)` with `SEEK_HOLE` does. The end of the file counts as a hole.
    ///
    /// # Errors
    ///
    /// 1. `IsDirectory`: the inode is a directory.
    /// 2. `Invalid`: the inode is not a regular file.
    /// 3. `NoSuchOffset`: `offset` is at or past the end of the file.
    /// 4. The other errors of the driver, such as `Device`.
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        self.settle();
        let size = self.data_size()?;
        if offset >= size {
            return Err(Error::NoSuchOffset);
        }
        Ok(self.seek(offset, Span::is_zeros)?.unwrap_or(size))
    }

    fn seek(&self, offset: u64, wanted: impl Fn(Span) -> bool) -> Result<Option<u64>> {
        self.settle();
        let layout = self.inode.layout.shared();
        let size = self.data_size()?;
        let mut at = offset;
        while at < size {
            let extent = self.map(&layout, at..size)?;
            if wanted(extent.span) {
                return Ok(Some(at));
            }
            // A driver that returns an empty extent must not cause an endless loop.
            at = at.saturating_add(extent.len.max(1));
        }
        Ok(None)
    }
}

impl Shared {
    /// Calls `map`, and limits the extent to the requested range.
    pub(crate) fn map(&self, layout: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent> {
        let asked = range.end.saturating_sub(range.start);
        let extent = self.fs.map(layout, ino, range)?;
        Ok(Extent { len: extent.len.min(asked), ..extent })
    }

    /// Returns the size of a regular file, without gathered data. Fails with `IsDirectory` or `Invalid`.
    pub(crate) fn data_size(&self, ino: Ino) -> Result<u64> {
        let attr = self.fs.getattr(ino)?;
        match attr.kind {
            FileKind::Regular => Ok(attr.size),
            FileKind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }
}
