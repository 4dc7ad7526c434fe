//! Reading files: the driver says where the bytes are, and they go from the device straight into the caller's buffer.

use alloc::sync::Arc;
use core::ops::Range;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, FileKind, Ino, Result};
use obento_block::BlockDevice;
use obento_driver::{Extent, Layout, Span};

use crate::node::Node;
use crate::vfs::Shared;

/// A run of a file whose bytes are all of one kind. The mapping stays true while it lives; nothing may read, write or
/// map the same file through its [`Node`] in the same thread meanwhile, use [`Run::read`].
pub struct Run<'a> {
    node: &'a Node,
    layout: Layout<'a>,
    offset: u64,
    extent: Extent,
}

impl Run<'_> {
    /// Where it starts in the file.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Length, at least 1, within the size of the file.
    #[expect(clippy::len_without_is_empty, reason = "a run is never empty")]
    pub fn len(&self) -> u64 {
        self.extent.len
    }

    /// Where the bytes are.
    pub fn span(&self) -> Span {
        self.extent.span
    }

    /// What [`Span::Mapped`] counts on: ask its `backing` to copy without reading.
    pub fn device(&self) -> Option<&Arc<dyn BlockDevice>> {
        self.node.file_system().device()
    }

    /// Reads from byte `skip` of the run on; answers how many bytes, which is less than `buf.len()` only at its end.
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
    // A driver that maps onto no device contradicts itself.
    node.file_system().device().ok_or(Error::NotSupported)?.read_at(at, buf)
}

impl Node {
    /// Reads from byte `offset` on; answers how many bytes, which is less than `buf.len()` only at the end of the file
    /// or before bytes that cannot be read, whose error the next read tells. Errors, the first that holds:
    /// IsDirectory; Invalid for what is no regular file; those of the volume.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.settle();
        let layout = self.inode.layout.shared();
        let end = self.data_size()?.min(offset.saturating_add(to_u64(buf.len())));
        let want = to_usize(end.saturating_sub(offset));
        let mut done = 0;
        while let Some(buf) = buf.get_mut(done..want).filter(|buf| !buf.is_empty()) {
            let at = offset.saturating_add(to_u64(done));
            match self.read_run(&layout, at..end, buf) {
                Ok(0) => break,
                Ok(len) => done = done.saturating_add(len),
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Reads the run at `range.start` into `buf`, as much of it as fits.
    fn read_run(&self, layout: &Layout<'_>, range: Range<u64>, buf: &mut [u8]) -> Result<usize> {
        let start = range.start;
        let extent = self.map(layout, range)?;
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

    /// The size of a regular file, settled. Errors: IsDirectory; Invalid.
    pub(crate) fn data_size(&self) -> Result<u64> {
        self.vfs.0.data_size(self.ino())
    }

    /// The run of at most `max_len` bytes that starts at `offset`; `None` at the end of the file and for an empty
    /// range. Errors: as [`read_at`](Self::read_at).
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

    /// The first byte at or after `offset` that is not in a hole, as `lseek(2)` with `SEEK_DATA`. Errors: as
    /// [`read_at`](Self::read_at); NoSuchOffset if there is none.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        self.seek(offset, |span| !span.is_zeros()).and_then(|found| found.ok_or(Error::NoSuchOffset))
    }

    /// The first byte at or after `offset` that is in a hole, as `lseek(2)` with `SEEK_HOLE`: the end of the file
    /// counts as one. Errors: as [`seek_data`](Self::seek_data), if `offset` is not within the file.
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
            // Each run has a byte at least: a driver that says otherwise must not keep us here.
            at = at.saturating_add(extent.len.max(1));
        }
        Ok(None)
    }
}

impl Shared {
    /// `map`, and no driver can make a run longer than what was asked for.
    pub(crate) fn map(&self, layout: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent> {
        let asked = range.end.saturating_sub(range.start);
        let extent = self.fs.map(layout, ino, range)?;
        Ok(Extent { len: extent.len.min(asked), ..extent })
    }

    /// The size of a regular file as the driver knows it. Errors: IsDirectory; Invalid.
    pub(crate) fn data_size(&self, ino: Ino) -> Result<u64> {
        let attr = self.fs.getattr(ino)?;
        match attr.kind {
            FileKind::Regular => Ok(attr.size),
            FileKind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }
}
