//! Allocating, freeing and moving the space of files: `fallocate(2)`.
//!
//! Invariant: the driver receives only whole blocks. For the partial blocks at the edges of a range, `vfs`
//! writes zeros.
//! Locking: as in `write.rs`.

use core::ops::Range;

use obento_base::{Error, Result};
use obento_driver::{Size, WritableFileSystem};

use crate::node::Node;
use crate::write::Writer;

impl Node {
    /// Makes `range` read as zeros, and frees the whole blocks inside it. `range` is in bytes of the file.
    /// The last block of the file counts as a whole block if `range` reaches the end of the file. The size
    /// does not change, and a part of `range` past the end of the file has no effect.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `IsDirectory`: the inode is a directory.
    /// 3. `Invalid`: the inode is not a regular file.
    /// 4. `NotSupported`: the format has no holes, and `range` contains a whole block. The bytes of `range` outside of
    ///    whole blocks have become zeros.
    /// 5. `NoSpace`: the mapping of the file needs another block, and no block is free. A part of `range` may
    ///    read as zeros.
    pub fn punch(&self, range: Range<u64>) -> Result<()> {
        let fs = self.vfs.writable()?;
        let _writers = self.inode.guard.write();
        self.settle_to_change()?;
        let size = self.data_size()?;
        let writer = Writer::of(self, fs);
        let range = range.start..range.end.min(size);
        if range.is_empty() {
            return Ok(());
        }
        let start = writer.ceil(range.start);
        let end = if range.end == size { range.end } else { writer.floor(range.end) };
        if start >= end {
            return writer.zero(range);
        }
        writer.zero(range.start..start)?;
        writer.zero(end..range.end)?;
        drop(writer);
        fs.punch(&self.inode.exclusive(), self.ino(), start..end)
    }

    /// Allocates space, so that writing to `range` needs no further space. `range` is in bytes of the file.
    /// Existing data does not change, and holes in the range still read as zeros. With [`Size::Grow`], a
    /// shorter file grows to `range.end`.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `IsDirectory`: the inode is a directory.
    /// 3. `Invalid`: the inode is not a regular file, or `range` is empty.
    /// 4. `FileTooBig`: `range.end` exceeds the limit of the format.
    /// 5. `NotSupported`: the driver cannot allocate space in advance.
    /// 6. `NoSpace`: not enough blocks are free. A part of the range may be allocated.
    pub fn allocate(&self, range: Range<u64>, size: Size) -> Result<()> {
        let fs = self.vfs.writable()?;
        let _writers = self.inode.guard.write();
        self.settle_to_change()?;
        let old = self.data_size()?;
        self.check_range(&range)?;
        let writer = Writer::of(self, fs);
        if size.after(old, &range) > old {
            writer.zero_last_block(old)?;
        }
        fs.allocate(&writer.layout, self.ino(), range, size)
    }

    /// Makes `range` read as zeros, and allocates every block that `range` touches. `range` is in bytes of the file.
    /// With [`Size::Grow`], a shorter file grows to `range.end`.
    ///
    /// # Errors
    ///
    /// The errors of [`allocate`](Self::allocate), in the same order. After an error, a part of `range` may
    /// read as zeros.
    pub fn zero_range(&self, range: Range<u64>, size: Size) -> Result<()> {
        let fs = self.vfs.writable()?;
        let _writers = self.inode.guard.write();
        self.settle_to_change()?;
        let old = self.data_size()?;
        self.check_range(&range)?;
        let writer = Writer::of(self, fs);
        if size.after(old, &range) > old {
            writer.zero_last_block(old)?;
        }
        let start = writer.ceil(range.start);
        let end = if range.end >= old { range.end } else { writer.floor(range.end) };
        let inside = |range: Range<u64>, size: u64| range.start..range.end.min(size);
        if start >= end {
            writer.zero(inside(range.clone(), old))?;
            return fs.allocate(&writer.layout, self.ino(), range, size);
        }
        writer.zero(inside(range.start..start, old))?;
        writer.zero(inside(end..range.end, old))?;
        drop(writer);
        fs.zero_range(&self.inode.exclusive(), self.ino(), start..end, size)?;
        // The parts of blocks at both ends get space, too.
        for part in [range.start..start, end..range.end].into_iter().filter(|part| !part.is_empty()) {
            let writer = Writer::of(self, fs);
            fs.allocate(&writer.layout, self.ino(), part, Size::Keep)?;
        }
        Ok(())
    }

    /// Removes `range` from the file. The data after `range` moves to `range.start`, and the size shrinks by
    /// the length of `range`. `range` is in bytes of the file. It must consist of whole blocks (of whole
    /// clusters, with the feature `bigalloc` of ext4), and must end before the end of the file.
    /// [`collapse`](WritableFileSystem::collapse) of the driver documents the state after a failure or a
    /// crash.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `IsDirectory`: the inode is a directory.
    /// 3. `Invalid`: the inode is not a regular file. Or: `range` is empty, covers a part of a block, or reaches the
    ///    end of the file.
    /// 4. `NotSupported`: the driver cannot move data within a file.
    /// 5. `NoSpace`: the mapping of the file needs another block, and no block is free.
    pub fn collapse(&self, range: Range<u64>) -> Result<()> {
        self.rearrange(|fs| fs.collapse(&self.inode.exclusive(), self.ino(), range))
    }

    /// Inserts a hole at `range.start` that is as long as `range`. The data at and after `range.start` moves
    /// to `range.end`, and the size grows by the length of `range`. `range` is in bytes of the file. It must
    /// consist of whole blocks (of whole clusters, with the feature `bigalloc` of ext4), and must start
    /// before the end of the file. [`insert`](WritableFileSystem::insert) of the driver documents the state
    /// after a failure or a crash.
    ///
    /// # Errors
    ///
    /// 1. `ReadOnly`: the volume cannot be changed.
    /// 2. `IsDirectory`: the inode is a directory.
    /// 3. `Invalid`: the inode is not a regular file. Or: `range` is empty, covers a part of a block, or starts at or
    ///    past the end of the file.
    /// 4. `NotSupported`: the driver cannot move data within a file.
    /// 5. `FileTooBig`: the new size exceeds the limit of the format. Or: blocks past the end of the file would move
    ///    past the limit of the mapping.
    /// 6. `NoSpace`: the mapping of the file needs another block, and no block is free.
    pub fn insert(&self, range: Range<u64>) -> Result<()> {
        self.rearrange(|fs| fs.insert(&self.inode.exclusive(), self.ino(), range))
    }

    fn rearrange(&self, act: impl FnOnce(&dyn WritableFileSystem) -> Result<()>) -> Result<()> {
        let fs = self.vfs.writable()?;
        let _writers = self.inode.guard.write();
        self.settle_to_change()?;
        self.data_size()?;
        act(fs)
    }

    /// Fails with `Invalid` for an empty range and with `FileTooBig` for a range past the limit of the
    /// format.
    fn check_range(&self, range: &Range<u64>) -> Result<()> {
        match range.is_empty() {
            true => Err(Error::Invalid),
            false if range.end > self.vfs.limits().file_size_max => Err(Error::FileTooBig),
            false => Ok(()),
        }
    }
}
