//! The part of the contract that changes volumes.

use core::ops::Range;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Attr, Error, Ino, Name, Result, Timestamp};
use obento_driver::{
    AskUsage, ExclusiveLayout, Layout, NewNode, RemovalKind, RenameFlags, SetAttr, Size, Span, TimeChange,
    WritableFileSystem, WritePlace, WriteTicket,
};

use crate::{Directories, LockedInode, Op, Volume};

impl<F: Directories> WritableFileSystem for Volume<F> {
    fn create(&self, dir: Ino, name: &Name, node: &NewNode<'_>) -> Result<Attr> {
        self.change(|op| op.create(dir, name, node))
    }

    fn link(&self, ino: Ino, dir: Ino, name: &Name) -> Result<Attr> {
        self.change(|op| op.link(ino, dir, name))
    }

    fn remove(&self, dir: Ino, name: &Name, victim: RemovalKind, ask: &mut AskUsage<'_>) -> Result<()> {
        self.change(|op| op.remove(dir, name, victim, ask))
    }

    fn rename(&self, from: Ino, name: &Name, to: Ino, new_name: &Name, flags: RenameFlags) -> Result<()> {
        self.change(|op| op.rename((from, name), (to, new_name), flags))
    }

    fn set_attr(&self, ino: Ino, change: &SetAttr) -> Result<Attr> {
        let now = self.now();
        self.change(|op| {
            change.expect_no_project()?;
            let mut inode = op.inode(ino)?;
            change.apply(&mut inode.attr, now);
            op.put(&inode)?;
            op.stored(ino)
        })
    }

    fn truncate(&self, _: &ExclusiveLayout<'_>, ino: Ino, size: u64) -> Result<()> {
        let (now, most) = (self.now(), self.format.limits().file_size_max);
        self.change_file(ino, |op, inode| {
            if size > most {
                return Err(Error::FileTooBig);
            }
            let geometry = op.geometry();
            op.format().cut(op, inode, geometry.blocks_of(size)..geometry.blocks_of(most))?;
            inode.attr.size = size;
            inode.attr.touch_data(now);
            Ok(())
        })
    }

    fn begin_write<'a>(&'a self, _: &'a Layout<'_>, ino: Ino, range: Range<u64>) -> Result<WriteTicket<'a>> {
        let place = self.change(|op| {
            let inode = op.inode(ino)?;
            inode.expect_file()?;
            if range.end > op.format().limits().file_size_max && !range.is_empty() {
                return Err(Error::FileTooBig);
            }
            let extent = op.extent(&inode, &range, Span::Driver)?;
            if extent.span == Span::Driver && op.room() == 0 {
                return Err(Error::NoSpace);
            }
            let Attr { size, mtime, .. } = inode.attr;
            Ok(WritePlace { extent, was: extent.span, size, mtime })
        })?;
        // Nothing is reserved: mapped blocks are already allocated.
        Ok(WriteTicket::new(ino, &range, place, None))
    }

    fn resume_write<'a>(&'a self, _: &'a Layout<'_>, ino: Ino, range: Range<u64>) -> WriteTicket<'a> {
        WriteTicket::resumed(ino, &range, None)
    }

    fn end_write(&self, ticket: WriteTicket<'_>, when: TimeChange) -> Result<()> {
        let now = self.now();
        ticket.publish(|ticket| {
            self.change_file(ticket.ino(), |_, inode| {
                inode.grow_to(ticket.range().end);
                when.touch_data(&mut inode.attr, now);
                Ok(())
            })
        })
    }

    fn write(&self, _: &Layout<'_>, ino: Ino, offset: u64, bytes: &[u8]) -> Result<usize> {
        let (now, most) = (self.now(), self.format.limits().file_size_max);
        self.change_file(ino, |op, inode| {
            let room = most.saturating_sub(offset);
            if room == 0 {
                return Err(Error::FileTooBig);
            }
            let bytes = bytes.get(..bytes.len().min(to_usize(room)).min(F::WRITE_MAX)).unwrap_or_default();
            let len = op.write_data(inode, offset, bytes)?;
            inode.grow_to(offset.saturating_add(to_u64(len)));
            inode.attr.touch_data(now);
            Ok(len)
        })
    }

    fn punch(&self, _: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()> {
        let now = self.now();
        self.change_file(ino, |op, inode| {
            let (geometry, reaches_end) = (op.geometry(), range.end >= inode.attr.size);
            let ((start, before), (end, after)) = (geometry.split(range.start), geometry.split(range.end));
            if before > 0 || after > 0 && !reaches_end {
                return Err(Error::Invalid);
            }
            let end = if reaches_end { geometry.blocks_of(range.end) } else { end };
            op.format().cut(op, inode, start..end)?;
            inode.attr.touch_data(now);
            Ok(())
        })
    }

    fn allocate(&self, _: &Layout<'_>, ino: Ino, _: Range<u64>, _: Size) -> Result<()> {
        self.refuse(ino)
    }

    fn zero_range(&self, _: &ExclusiveLayout<'_>, ino: Ino, _: Range<u64>, _: Size) -> Result<()> {
        self.refuse(ino)
    }

    fn collapse(&self, _: &ExclusiveLayout<'_>, ino: Ino, _: Range<u64>) -> Result<()> {
        self.refuse(ino)
    }

    fn insert(&self, _: &ExclusiveLayout<'_>, ino: Ino, _: Range<u64>) -> Result<()> {
        self.refuse(ino)
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn sync_file(&self, _: Ino) -> Result<()> {
        self.sync()
    }

    fn sync(&self) -> Result<()> {
        self.commit(&mut self.state.write())
    }

    fn close(&self) -> Result<()> {
        self.close_log()
    }
}

impl<F: Directories> Volume<F> {
    /// Changes a regular file and stores its inode. Fails with `Stale`, `IsDirectory`, `Invalid`, or with the errors
    /// of `act`.
    fn change_file<T>(
        &self,
        ino: Ino,
        mut act: impl FnMut(&mut Op<'_, F>, &mut LockedInode<'_, F::Map>) -> Result<T>,
    ) -> Result<T> {
        self.change(|op| {
            let mut inode = op.inode(ino)?;
            inode.expect_file()?;
            let answer = act(op, &mut inode)?;
            op.put(&inode)?;
            Ok(answer)
        })
    }

    /// Refuses an operation that the format does not support. Fails with `IsDirectory`, `NotSupported`, or with
    /// `Invalid` for other inodes that are not regular files.
    fn refuse(&self, ino: Ino) -> Result<()> {
        self.look(|op| op.inode(ino)?.expect_file())?;
        Err(Error::NotSupported)
    }
}
