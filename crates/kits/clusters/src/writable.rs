//! The part of the contract that changes volumes.

use core::ops::Range;
use core::sync::atomic::Ordering;

use obento_base::{Attr, Error, FileKind, Ino, Name, Result, Timestamp};
use obento_driver::{
    AskUsage, ExclusiveLayout, Layout, NewNode, RemovalKind, RenameFlags, Reserves, SetAttr, Size,
    TimeChange, WritableFileSystem, WritePlace, WriteTicket,
};

use crate::contract::Mounted;
use crate::inode::FileEntry as _;
use crate::ops;
use crate::volume::{Commit as _, Data as _, Volume};

impl<V: Volume> Mounted<V> {
    /// Checks that `ino` is a regular file. Fails with `Stale` or `IsDirectory`.
    fn check_file(&self, ino: Ino) -> Result<()> {
        self.volume().file(ino).map(drop)
    }

    /// Checks the arguments of an operation that needs holes, which the format lacks. Fails with `IsDirectory`,
    /// `Invalid` or `NotSupported`.
    fn refuse_holes(&self, ino: Ino, range: &Range<u64>) -> Result<()> {
        self.check_file(ino)?;
        let size = u64::from(self.volume().grain().block_size);
        let is_whole = range.start.is_multiple_of(size) && range.start < range.end;
        Err(if is_whole { Error::NotSupported } else { Error::Invalid })
    }
}

impl<V: Volume> Reserves for Mounted<V> {
    fn release(&self, ino: Ino, range: &Range<u64>) {
        // Nothing is reserved on a volume that refuses changes.
        let _ = self.change(|writer, volume| {
            writer.abandon(&volume.file(ino)?, range);
            Ok(())
        });
    }

    /// Does nothing: chains of clusters have no blocks of their own.
    fn reserve_mapping(&self, _: Ino, _: &Range<u64>) -> Result<()> {
        Ok(())
    }
}

impl<V: Volume> WritableFileSystem for Mounted<V> {
    fn create(&self, dir: Ino, name: &Name, node: &NewNode<'_>) -> Result<Attr> {
        self.change(|writer, volume| {
            let ino = ops::create(writer, &volume.live_dir(dir)?, name, node)?;
            volume.attr(ino)
        })
    }

    /// Fails with `TooManyLinks`, since the format has one name per file.
    fn link(&self, ino: Ino, dir: Ino, name: &Name) -> Result<Attr> {
        self.change(|_, volume| {
            let inode = volume.inode(ino)?;
            if volume.inode(dir)?.entry.file_kind() != FileKind::Directory {
                return Err(Error::NotDirectory);
            }
            if inode.is_dir() {
                return Err(Error::NotPermitted);
            }
            let dir = volume.live_dir(dir)?.current()?;
            match volume.find(&dir, name)? {
                _ if !inode.is_named => Err(Error::NotFound),
                Some(_) => Err(Error::Exists),
                None => Err(Error::TooManyLinks),
            }
        })
    }

    fn remove(&self, dir: Ino, name: &Name, victim: RemovalKind, ask: &mut AskUsage<'_>) -> Result<()> {
        self.change(|writer, volume| ops::remove_name(writer, &volume.dir(dir)?, name, victim, ask))
    }

    fn rename(&self, from: Ino, name: &Name, to: Ino, new_name: &Name, flags: RenameFlags) -> Result<()> {
        self.change(|writer, volume| {
            if flags.contains(RenameFlags::NO_REPLACE | RenameFlags::EXCHANGE) {
                return Err(Error::Invalid);
            }
            let (from, to) = (volume.dir(from)?, volume.live_dir(to)?);
            ops::rename(writer, (&from, name), (&to, new_name), flags)
        })
    }

    fn set_attr(&self, ino: Ino, change: &SetAttr) -> Result<Attr> {
        self.change(|writer, volume| {
            ops::set_attr(writer, volume.inode(ino)?, change)?;
            volume.attr(ino)
        })
    }

    fn truncate(&self, _: &ExclusiveLayout<'_>, ino: Ino, size: u64) -> Result<()> {
        self.change(|writer, volume| writer.truncate(volume.file(ino)?, size))
    }

    fn begin_write<'a>(&'a self, _: &'a Layout<'_>, ino: Ino, range: Range<u64>) -> Result<WriteTicket<'a>> {
        let place = self.change(|writer, volume| {
            let file = volume.file(ino)?;
            let (extent, was) = writer.begin_write(&file, range.clone())?;
            let mtime = file.entry.times(volume.owner().zone).mtime;
            Ok(WritePlace { extent, was, size: volume.size_of(&file), mtime })
        })?;
        Ok(WriteTicket::new(ino, &range, place, Some(self)))
    }

    fn resume_write<'a>(&'a self, _: &'a Layout<'_>, ino: Ino, range: Range<u64>) -> WriteTicket<'a> {
        WriteTicket::resumed(ino, &range, Some(self))
    }

    fn end_write(&self, ticket: WriteTicket<'_>, when: TimeChange) -> Result<()> {
        let publish = |ticket: &WriteTicket<'_>| {
            self.change(|writer, volume| writer.end_write(volume.file(ticket.ino())?, ticket.range(), when))
        };
        ticket.publish(publish)
    }

    fn write(&self, _: &Layout<'_>, ino: Ino, offset: u64, bytes: &[u8]) -> Result<usize> {
        self.change(|writer, volume| writer.write(volume.file(ino)?, offset, bytes))
    }

    fn punch(&self, _: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()> {
        self.refuse_holes(ino, &range)
    }

    /// Supports only [`Size::Grow`], since the format has no space past the end of a file.
    fn allocate(&self, _: &Layout<'_>, ino: Ino, range: Range<u64>, size: Size) -> Result<()> {
        self.change(|writer, volume| {
            let file = volume.file(ino)?;
            match (range.is_empty(), size) {
                (true, _) => Err(Error::Invalid),
                _ if range.end <= volume.size_of(&file) => Ok(()),
                (false, Size::Keep) => Err(Error::NotSupported),
                _ if range.end > volume.file_size_max() => Err(Error::FileTooBig),
                (false, Size::Grow) => writer.truncate(file, range.end),
            }
        })
    }

    fn zero_range(&self, _: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>, _: Size) -> Result<()> {
        self.refuse_holes(ino, &range)
    }

    fn collapse(&self, _: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()> {
        self.refuse_holes(ino, &range)
    }

    fn insert(&self, _: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()> {
        self.refuse_holes(ino, &range)
    }

    fn now(&self) -> Timestamp {
        self.writer.as_ref().map_or(Timestamp::EPOCH, |writer| writer.lock().now())
    }

    fn sync_file(&self, ino: Ino) -> Result<()> {
        self.volume().inode(ino)?;
        self.sync()
    }

    fn sync(&self) -> Result<()> {
        self.commit()
    }

    fn close(&self) -> Result<()> {
        self.with_writer(|writer, volume| match writer.check() {
            Ok(()) => writer.close(volume),
            // A commit fails with the error of the first write that failed.
            Err(error) => writer.commit(volume).and(Err(error)),
        })?;
        self.closed.store(true, Ordering::Relaxed);
        self.ager.stop();
        Ok(())
    }
}
