//! Taking space for files, giving it back, and moving it: `fallocate(2)`.
//!
//! Invariant: the driver is asked for whole blocks; what lies in parts of blocks at the edges of a range is written.
//! Locking: as in `write.rs`.

use core::ops::Range;

use obento_base::{Error, Result};
use obento_driver::{Size, WritableFileSystem};

use crate::node::Node;
use crate::write::Writer;

impl Node {
    /// Makes `range` read as zeros and gives back its blocks; the size stays. Errors, the first that holds: ReadOnly;
    /// IsDirectory; Invalid for what is no regular file; NotSupported.
    pub fn punch(&self, range: Range<u64>) -> Result<()> {
        let fs = self.vfs.writable()?;
        let _writers = self.inode.guard.write();
        self.settle_to_change()?;
        let mut writer = Writer::of(self, fs)?;
        let range = range.start..range.end.min(writer.size);
        if range.is_empty() {
            return Ok(());
        }
        let start = writer.ceil(range.start);
        let end = if range.end == writer.size { range.end } else { writer.floor(range.end) };
        if start >= end {
            return writer.zero(range);
        }
        writer.zero(range.start..start)?;
        writer.zero(end..range.end)?;
        drop(writer);
        fs.punch(&self.inode.layout.exclusive(), self.ino(), start..end)
    }

    /// Sees to it that writing to `range` needs no more space; what was a hole reads as zeros. Errors, the first that
    /// holds: ReadOnly; IsDirectory; Invalid for what is no regular file, and for an empty range; FileTooBig;
    /// NotSupported; NoSpace, after which a part may be there.
    pub fn allocate(&self, range: Range<u64>, size: Size) -> Result<()> {
        let fs = self.vfs.writable()?;
        let _writers = self.inode.guard.write();
        self.settle_to_change()?;
        let writer = Writer::of(self, fs)?;
        self.check_range(&range)?;
        if size.after(writer.size, &range) > writer.size {
            writer.zero_last_block()?;
        }
        fs.allocate(&writer.layout, self.ino(), range, size)
    }

    /// Makes `range` read as zeros without giving space back: blocks that are missing are taken. Errors: as
    /// [`allocate`](Self::allocate).
    pub fn zero_range(&self, range: Range<u64>, size: Size) -> Result<()> {
        let fs = self.vfs.writable()?;
        let _writers = self.inode.guard.write();
        self.settle_to_change()?;
        let mut writer = Writer::of(self, fs)?;
        self.check_range(&range)?;
        if size.after(writer.size, &range) > writer.size {
            writer.zero_last_block()?;
        }
        let start = writer.ceil(range.start);
        let end = if range.end >= writer.size { range.end } else { writer.floor(range.end) };
        let (old, inside) = (writer.size, |range: Range<u64>, size: u64| range.start..range.end.min(size));
        if start >= end {
            writer.zero(inside(range.clone(), old))?;
            return fs.allocate(&writer.layout, self.ino(), range, size);
        }
        writer.zero(inside(range.start..start, old))?;
        writer.zero(inside(end..range.end, old))?;
        drop(writer);
        fs.zero_range(&self.inode.layout.exclusive(), self.ino(), start..end, size)?;
        if start > range.start {
            let writer = Writer::of(self, fs)?;
            fs.allocate(&writer.layout, self.ino(), range.start..start, Size::Keep)?;
        }
        Ok(())
    }

    /// Cuts `range`, whole blocks before the end of the file, out of it. Errors, the first that holds: ReadOnly;
    /// IsDirectory; Invalid for what is no regular file, and for any other range; NotSupported.
    pub fn collapse(&self, range: Range<u64>) -> Result<()> {
        self.rearrange(|fs| fs.collapse(&self.inode.layout.exclusive(), self.ino(), range))
    }

    /// Puts a hole of whole blocks at the start of `range`, within the file, and moves up what was there. Errors, the
    /// first that holds: ReadOnly; IsDirectory; Invalid for what is no regular file, and for any other range;
    /// NotSupported; FileTooBig; NoSpace.
    pub fn insert(&self, range: Range<u64>) -> Result<()> {
        self.rearrange(|fs| fs.insert(&self.inode.layout.exclusive(), self.ino(), range))
    }

    fn rearrange(&self, act: impl FnOnce(&dyn WritableFileSystem) -> Result<()>) -> Result<()> {
        let fs = self.vfs.writable()?;
        let _writers = self.inode.guard.write();
        self.settle_to_change()?;
        self.data_size()?;
        act(fs)
    }

    /// Errors: Invalid for an empty range; FileTooBig.
    fn check_range(&self, range: &Range<u64>) -> Result<()> {
        match range.is_empty() {
            true => Err(Error::Invalid),
            false if range.end > self.vfs.limits().file_size_max => Err(Error::FileTooBig),
            false => Ok(()),
        }
    }
}
