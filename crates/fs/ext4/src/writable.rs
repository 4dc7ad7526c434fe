//! The part of the contract that changes volumes. Each method calls one of [`Writer`], and damage that it encounters
//! is recorded in the super block.

use core::ops::Range;

use obento_base::{Attr, Error, Ino, Name, Result, Timestamp};
use obento_driver::{
    AskUsage, ExclusiveLayout, Layout, Nameless, NewNode, Relabel, RemovalKind, RenameFlags, Reserves,
    SetAttr, Size, TimeChange, Trim, Whiteouts, WritableFileSystem, WriteTicket,
};

use crate::contract::Ext4;
use crate::ops::{OldName, RenameEnd};
use crate::writer::Writer;

impl Ext4 {
    /// Changes the volume, and records damage that `act` finds. Fails with `ReadOnly`, or with the errors of `act`. If
    /// the volume accepts no further changes, `ReadOnly` replaces each other reason to refuse the change.
    pub(crate) fn write_with<'a, T>(&'a self, act: impl FnOnce(&'a Writer) -> Result<T>) -> Result<T> {
        let writer = self.writer().ok_or(Error::ReadOnly)?;
        act(writer).map_err(|error| match error {
            Error::Refused(_) if writer.txns().error().is_some() => Error::ReadOnly,
            error => {
                writer.note_error(error);
                error
            }
        })
    }

    /// Changes the volume. If `act` fails with `NoSpace`, commits and tries again, since that may free space.
    fn with_space<'a, T>(&'a self, act: impl Fn(&'a Writer) -> Result<T>) -> Result<T> {
        self.write_with(|writer| writer.with_space(|| act(writer)))
    }
}

impl WritableFileSystem for Ext4 {
    fn create(&self, dir: Ino, name: &Name, node: &NewNode<'_>) -> Result<Attr> {
        self.write_with(|writer| writer.create(dir, name, node))
    }

    fn link(&self, ino: Ino, dir: Ino, name: &Name) -> Result<Attr> {
        self.write_with(|writer| writer.link(ino, dir, name))
    }

    fn remove(&self, dir: Ino, name: &Name, victim: RemovalKind, ask: &mut AskUsage<'_>) -> Result<()> {
        self.write_with(|writer| writer.remove(dir, name, victim, ask))
    }

    fn rename(&self, from: Ino, name: &Name, to: Ino, new_name: &Name, flags: RenameFlags) -> Result<()> {
        let (from, to) = (RenameEnd { dir: from, name }, RenameEnd { dir: to, name: new_name });
        self.write_with(|writer| writer.rename(from, to, flags))
    }

    fn set_attr(&self, ino: Ino, change: &SetAttr) -> Result<Attr> {
        self.write_with(|writer| writer.set_attr(ino, change))
    }

    fn truncate(&self, _: &ExclusiveLayout<'_>, ino: Ino, size: u64) -> Result<()> {
        self.with_space(|writer| writer.truncate(ino, size))
    }

    fn begin_write<'a>(&'a self, _: &'a Layout<'_>, ino: Ino, range: Range<u64>) -> Result<WriteTicket<'a>> {
        self.with_space(|writer| writer.begin_write(ino, &range))
    }

    fn resume_write<'a>(&'a self, _: &'a Layout<'_>, ino: Ino, range: Range<u64>) -> WriteTicket<'a> {
        WriteTicket::resumed(ino, &range, self.writer().map(|writer| -> &dyn Reserves { writer }))
    }

    fn end_write(&self, ticket: WriteTicket<'_>, when: TimeChange) -> Result<()> {
        ticket.publish(|ticket| self.with_space(|writer| writer.end_write(ticket, when)))
    }

    fn write(&self, _: &Layout<'_>, ino: Ino, offset: u64, bytes: &[u8]) -> Result<usize> {
        self.with_space(|writer| writer.write(ino, offset, bytes))
    }

    fn write_delayed(
        &self,
        _: &Layout<'_>,
        ino: Ino,
        offset: u64,
        bytes: &[u8],
        when: TimeChange,
    ) -> Result<Option<usize>> {
        self.with_space(|writer| writer.write_delayed(ino, offset, bytes, when))
    }

    fn punch(&self, _: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()> {
        self.with_space(|writer| writer.punch(ino, range.clone()))
    }

    fn allocate(&self, _: &Layout<'_>, ino: Ino, range: Range<u64>, size: Size) -> Result<()> {
        self.with_space(|writer| writer.allocate(ino, range.clone(), size))
    }

    fn zero_range(&self, _: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>, size: Size) -> Result<()> {
        self.with_space(|writer| writer.zero_range(ino, range.clone(), size))
    }

    fn collapse(&self, _: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()> {
        self.write_with(|writer| writer.collapse(ino, range))
    }

    fn insert(&self, _: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()> {
        self.write_with(|writer| writer.insert(ino, range))
    }

    fn now(&self) -> Timestamp {
        self.writer().map_or(Timestamp::EPOCH, Writer::now)
    }

    fn sync_file(&self, ino: Ino) -> Result<()> {
        self.sync_files(&[ino])
    }

    fn sync_files(&self, inos: &[Ino]) -> Result<()> {
        self.write_with(|writer| writer.sync_files(inos))
    }

    fn sync(&self) -> Result<()> {
        self.write_with(|writer| writer.txns().sync())
    }

    fn close(&self) -> Result<()> {
        self.end_writing()
    }
}

impl Nameless for Ext4 {
    fn create_nameless(&self, dir: Ino, node: &NewNode<'_>) -> Result<Attr> {
        self.write_with(|writer| writer.create_nameless(dir, node))
    }

    fn name(&self, ino: Ino, dir: Ino, name: &Name) -> Result<Attr> {
        self.write_with(|writer| writer.name(ino, dir, name))
    }
}

impl Whiteouts for Ext4 {
    fn rename_leaving(
        &self,
        from: Ino,
        name: &Name,
        to: Ino,
        new_name: &Name,
        flags: RenameFlags,
        whiteout: &NewNode<'_>,
    ) -> Result<()> {
        let (from, to) = (RenameEnd { dir: from, name }, RenameEnd { dir: to, name: new_name });
        self.write_with(|writer| writer.rename_with(from, to, flags, OldName::Whiteout(whiteout)))
    }
}

impl Relabel for Ext4 {
    fn set_label(&self, label: &[u8]) -> Result<()> {
        self.write_with(|writer| writer.set_label(label))
    }
}

impl Trim for Ext4 {
    fn trim_within(&self, range: Range<u64>, min_len: u64) -> Result<u64> {
        self.write_with(|writer| {
            // Freed blocks are held until the transaction that freed them is durable.
            writer.txns().sync()?;
            writer.allocator().trim(&range, min_len)
        })
    }
}
