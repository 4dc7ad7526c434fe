//! The driver as the layers above change it: each method of the contract is one of [`Writer`], and damage that it meets
//! is noted in the super block.

use core::ops::Range;

use obento_base::{Attr, Error, Ino, Name, Result};
use obento_driver::{
    ExclusiveLayout, Extent, Layout, NewNode, RenameFlags, SetAttr, Size, WritableFileSystem,
};

use crate::contract::Ext4;
use crate::writer::Writer;

impl Ext4 {
    /// Errors: ReadOnly; those of `act`.
    pub(crate) fn write_with<T>(&self, act: impl FnOnce(&Writer) -> Result<T>) -> Result<T> {
        let writer = self.writer().ok_or(Error::ReadOnly)?;
        act(writer).inspect_err(|&error| writer.note_error(error))
    }
}

impl WritableFileSystem for Ext4 {
    fn create(&self, _dir: Ino, _name: &Name, _node: &NewNode<'_>) -> Result<Attr> {
        Err(Error::NotSupported)
    }

    fn link(&self, _ino: Ino, _dir: Ino, _name: &Name) -> Result<Attr> {
        Err(Error::NotSupported)
    }

    fn unlink(&self, _dir: Ino, _name: &Name) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn rmdir(&self, _dir: Ino, _name: &Name) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn rename(&self, _: Ino, _: &Name, _: Ino, _: &Name, _: RenameFlags) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn set_attr(&self, ino: Ino, change: &SetAttr) -> Result<Attr> {
        self.write_with(|writer| writer.set_attr(ino, change))
    }

    fn truncate(&self, _: &ExclusiveLayout<'_>, _ino: Ino, _size: u64) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn map_for_write(&self, _: &Layout<'_>, _ino: Ino, _range: Range<u64>) -> Result<Extent> {
        Err(Error::NotSupported)
    }

    fn end_write(&self, _: &Layout<'_>, _ino: Ino, _written: Range<u64>) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn abandon(&self, _: &Layout<'_>, _ino: Ino, _range: Range<u64>) {}

    fn write(&self, _: &Layout<'_>, _ino: Ino, _offset: u64, _bytes: &[u8]) -> Result<usize> {
        Err(Error::NotSupported)
    }

    fn punch(&self, _: &ExclusiveLayout<'_>, _ino: Ino, _range: Range<u64>) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn allocate(&self, _: &Layout<'_>, _ino: Ino, _range: Range<u64>, _size: Size) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn zero_range(&self, _: &ExclusiveLayout<'_>, _: Ino, _: Range<u64>, _: Size) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn collapse(&self, _: &ExclusiveLayout<'_>, _ino: Ino, _range: Range<u64>) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn insert(&self, _: &ExclusiveLayout<'_>, _ino: Ino, _range: Range<u64>) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn sync_file(&self, ino: Ino) -> Result<()> {
        self.write_with(|writer| writer.sync_file(ino))
    }

    fn sync(&self) -> Result<()> {
        self.write_with(|writer| writer.txns().sync())
    }

    fn close(&self) -> Result<()> {
        self.end_writing()
    }
}
