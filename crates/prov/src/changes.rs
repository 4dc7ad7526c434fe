//! The operations that change a volume: each is passed on, and recorded if it succeeded.
//!
//! Records of concurrent operations on one name may be in either order. The inode number and generation in
//! each record show which file an operation concerned.

use core::ops::Range;

use alloc::vec::Vec;

use obento_base::{Attr, Error, Ino, Name, Result, Timestamp};
use obento_driver::history::{Actor, Transferred};
use obento_driver::{
    AskUsage, ExclusiveLayout, Layout, Nameless, NewNode, RemovalKind, RenameFlags, SetAttr, Size,
    TimeChange, WritableFileSystem, WriteTicket, XattrMode, Xattrs,
};

use crate::actor::ActorId;
use crate::log::{Log, WriteSource};
use crate::opens::PendingWrite;
use crate::record::{AttrMask, FileId, Record};
use crate::recorded::Recorded;

fn id(attr: &Attr) -> FileId {
    FileId { ino: attr.ino, generation: attr.generation }
}

impl Recorded {
    fn changes(&self) -> Result<&dyn WritableFileSystem> {
        self.inner.writable().ok_or(Error::ReadOnly)
    }

    fn actor(&self) -> Actor {
        self.who.now().unwrap_or_default()
    }

    /// Records a change of `file`, after the writes to it that are not recorded yet.
    fn note<'a>(&self, file: FileId, record: impl Fn(ActorId) -> Record<'a>) {
        let actor = self.actor();
        self.with_log(|log, time| {
            log.settle(time, file.ino);
            log.record(time, actor, &record);
        });
    }

    /// Adds a write that reached the driver to those that are recorded later, unless the host reports it.
    fn note_write(&self, ino: Ino, range: &Range<u64>) {
        if self.writes == WriteSource::Driver {
            self.note_write_of(self.who.now(), ino, range);
        }
    }

    /// Adds a write to those that are recorded later.
    pub(crate) fn note_write_of(&self, current: Option<Actor>, ino: Ino, range: &Range<u64>) {
        let known = self.with_log(|log, time| match log.opens.generation(ino) {
            Some(generation) => {
                add_write(log, time, FileId { ino, generation }, current, range);
                true
            }
            None => false,
        });
        if known == Some(false)
            && let Ok(file) = self.identify(ino)
        {
            self.with_log(|log, time| add_write(log, time, file, current, range));
        }
    }

    /// Runs a change of the data of `ino`, and records that `range` was written.
    fn write_range(
        &self,
        ino: Ino,
        range: Range<u64>,
        act: impl FnOnce(&dyn WritableFileSystem) -> Result<()>,
    ) -> Result<()> {
        self.expect_of_user(ino)?;
        act(self.changes()?)?;
        self.note_write_of(self.who.now(), ino, &range);
        Ok(())
    }

    /// Returns the file with this name without counting a use: the caller of `rename` uses it already.
    fn named(&self, dir: Ino, name: &Name) -> Option<Attr> {
        self.inner.lookup(dir, name).and_then(|ino| self.inner.getattr(ino)).ok()
    }

    /// Syncs the segments together with `inos`.
    fn sync_with(&self, inos: &[Ino]) -> Result<()> {
        let changes = self.changes()?;
        let Some(flushed) = self.with_log(|log, time| log.flush(time)) else {
            return changes.sync_files(inos);
        };
        let mut all = Vec::with_capacity(inos.len().saturating_add(flushed.segments.len()));
        all.extend_from_slice(inos);
        all.extend_from_slice(&flushed.segments);
        changes.sync_files(&all)?;
        self.with_log(|log, _| log.synced(&flushed));
        Ok(())
    }
}

/// Returns the number of names that a file has after the removal of one.
fn links_after_removal(attr: &Attr) -> u32 {
    if attr.is_dir() { 0 } else { attr.nlink.saturating_sub(1) }
}

fn add_write(log: &mut Log, time: i64, file: FileId, current: Option<Actor>, range: &Range<u64>) {
    let actor = log.opens.writer(file.ino, current);
    log.wrote(time, PendingWrite { actor, file, written: Transferred::of(range) });
}

impl WritableFileSystem for Recorded {
    fn create(&self, dir: Ino, name: &Name, node: &NewNode<'_>) -> Result<Attr> {
        self.expect_of_user(dir)?;
        let attr = self.changes()?.create(dir, name, node)?;
        let (file, actor) = (id(&attr), self.actor());
        self.with_log(|log, time| {
            log.opens.note_writer(actor, file.ino, Some(file.generation));
            log.record(time, actor, |actor| Record::Create {
                actor,
                parent: dir,
                name: name.as_bytes(),
                file,
                kind: node.kind,
                mode: node.mode.bits(),
                target: node.target,
            });
        });
        Ok(attr)
    }

    fn link(&self, ino: Ino, dir: Ino, name: &Name) -> Result<Attr> {
        self.expect_of_user(ino).and_then(|()| self.expect_of_user(dir))?;
        let attr = self.changes()?.link(ino, dir, name)?;
        let (file, name) = (id(&attr), name.as_bytes());
        self.note(file, |actor| Record::Link { actor, parent: dir, name, file });
        Ok(attr)
    }

    fn remove(&self, dir: Ino, name: &Name, victim: RemovalKind, ask: &mut AskUsage<'_>) -> Result<()> {
        self.expect_of_user(dir)?;
        if self.is_log_name(dir, name) {
            return Err(Error::NotPermitted);
        }
        let mut removed = None;
        self.changes()?.remove(dir, name, victim, &mut |attr| {
            removed = Some(*attr);
            ask(attr)
        })?;
        if let Some(attr) = removed {
            let (file, name, links) = (id(&attr), name.as_bytes(), links_after_removal(&attr));
            self.note(file, |actor| Record::Remove { actor, parent: dir, name, file, links });
        }
        Ok(())
    }

    fn rename(&self, from: Ino, name: &Name, to: Ino, new_name: &Name, flags: RenameFlags) -> Result<()> {
        self.expect_of_user(from).and_then(|()| self.expect_of_user(to))?;
        if self.is_log_name(from, name) || self.is_log_name(to, new_name) {
            return Err(Error::NotPermitted);
        }
        let moved = self.named(from, name).as_ref().map(id);
        let may_replace = !flags.contains(RenameFlags::NO_REPLACE);
        let replaced = may_replace.then(|| self.named(to, new_name)).flatten();
        let links = replaced.as_ref().map_or(0, links_after_removal);
        let replaced = replaced.as_ref().map(id);
        self.changes()?.rename(from, name, to, new_name, flags)?;
        // Two names of one inode both stay.
        if let Some(moved) = moved.filter(|&moved| replaced != Some(moved)) {
            let (name, new_name) = (name.as_bytes(), new_name.as_bytes());
            let exchange = flags.contains(RenameFlags::EXCHANGE);
            self.note(moved, |actor| Record::Rename {
                actor,
                from,
                name,
                to,
                new_name,
                moved,
                replaced,
                links,
                exchange,
            });
        }
        Ok(())
    }

    fn set_attr(&self, ino: Ino, change: &SetAttr) -> Result<Attr> {
        self.expect_of_user(ino)?;
        let attr = self.changes()?.set_attr(ino, change)?;
        let (file, mask) = (id(&attr), AttrMask::of(change));
        if mask != AttrMask::ACCESS_TIME && mask != AttrMask::default() {
            self.note(file, |actor| Record::SetAttr { actor, file, mask });
        }
        Ok(attr)
    }

    fn truncate(&self, layout: &ExclusiveLayout<'_>, ino: Ino, size: u64) -> Result<()> {
        self.expect_of_user(ino)?;
        self.changes()?.truncate(layout, ino, size)?;
        if let Ok(file) = self.identify(ino) {
            self.note(file, |actor| Record::Truncate { actor, file, size });
        }
        Ok(())
    }

    fn begin_write<'a>(
        &'a self,
        layout: &'a Layout<'_>,
        ino: Ino,
        range: Range<u64>,
    ) -> Result<WriteTicket<'a>> {
        self.expect_of_user(ino)?;
        self.changes()?.begin_write(layout, ino, range)
    }

    fn resume_write<'a>(&'a self, layout: &'a Layout<'_>, ino: Ino, range: Range<u64>) -> WriteTicket<'a> {
        match self.inner.writable() {
            Some(changes) => changes.resume_write(layout, ino, range),
            None => WriteTicket::resumed(ino, &range, None),
        }
    }

    fn end_write(&self, ticket: WriteTicket<'_>, when: TimeChange) -> Result<()> {
        let (ino, written) = (ticket.ino(), ticket.range());
        self.expect_of_user(ino)?;
        self.changes()?.end_write(ticket, when)?;
        self.note_write(ino, &written);
        Ok(())
    }

    fn write(&self, layout: &Layout<'_>, ino: Ino, offset: u64, bytes: &[u8]) -> Result<usize> {
        self.expect_of_user(ino)?;
        let len = self.changes()?.write(layout, ino, offset, bytes)?;
        self.note_write(ino, &(offset..offset.saturating_add(obento_base::wire::to_u64(len))));
        Ok(len)
    }

    fn punch(&self, layout: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()> {
        self.write_range(ino, range.clone(), |fs| fs.punch(layout, ino, range))
    }

    fn allocate(&self, layout: &Layout<'_>, ino: Ino, range: Range<u64>, size: Size) -> Result<()> {
        self.write_range(ino, range.clone(), |fs| fs.allocate(layout, ino, range, size))
    }

    fn zero_range(
        &self,
        layout: &ExclusiveLayout<'_>,
        ino: Ino,
        range: Range<u64>,
        size: Size,
    ) -> Result<()> {
        self.write_range(ino, range.clone(), |fs| fs.zero_range(layout, ino, range, size))
    }

    fn collapse(&self, layout: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()> {
        self.write_range(ino, range.clone(), |fs| fs.collapse(layout, ino, range))
    }

    fn insert(&self, layout: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()> {
        self.write_range(ino, range.clone(), |fs| fs.insert(layout, ino, range))
    }

    fn now(&self) -> Timestamp {
        self.inner.writable().map_or(Timestamp::EPOCH, |changes| changes.now())
    }

    fn sync_file(&self, ino: Ino) -> Result<()> {
        self.syncs.run(&[ino], |inos| self.sync_with(inos))
    }

    fn sync_files(&self, inos: &[Ino]) -> Result<()> {
        self.syncs.run(inos, |inos| self.sync_with(inos))
    }

    fn sync(&self) -> Result<()> {
        let flushed = self.with_log(|log, time| log.flush(time));
        self.changes()?.sync()?;
        if let Some(flushed) = flushed {
            self.with_log(|log, _| log.synced(&flushed));
        }
        Ok(())
    }

    fn close(&self) -> Result<()> {
        self.with_log(|log, time| log.end(time));
        self.changes()?.close()
    }
}

impl Xattrs for Recorded {
    fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.inner.xattrs().ok_or(Error::NotSupported)?.get_xattr(ino, name)
    }

    fn list_xattrs(&self, ino: Ino, sink: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.inner.xattrs().ok_or(Error::NotSupported)?.list_xattrs(ino, sink)
    }

    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.expect_of_user(ino)?;
        self.inner.xattrs().ok_or(Error::NotSupported)?.set_xattr(ino, name, value, mode)?;
        if let Ok(file) = self.identify(ino) {
            self.note(file, |actor| Record::Xattr { actor, file, name, removed: false });
        }
        Ok(())
    }

    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.expect_of_user(ino)?;
        self.inner.xattrs().ok_or(Error::NotSupported)?.remove_xattr(ino, name)?;
        if let Ok(file) = self.identify(ino) {
            self.note(file, |actor| Record::Xattr { actor, file, name, removed: true });
        }
        Ok(())
    }
}

impl Nameless for Recorded {
    fn create_nameless(&self, dir: Ino, node: &NewNode<'_>) -> Result<Attr> {
        self.expect_of_user(dir)?;
        let attr = self.inner.nameless().ok_or(Error::NotSupported)?.create_nameless(dir, node)?;
        let (file, kind, mode) = (id(&attr), node.kind, node.mode.bits());
        let (name, target): (&[u8], &[u8]) = (b"", b"");
        self.note(file, |actor| Record::Create { actor, parent: dir, name, file, kind, mode, target });
        Ok(attr)
    }

    fn name(&self, ino: Ino, dir: Ino, name: &Name) -> Result<Attr> {
        self.expect_of_user(dir)?;
        let attr = self.inner.nameless().ok_or(Error::NotSupported)?.name(ino, dir, name)?;
        let (file, name) = (id(&attr), name.as_bytes());
        self.note(file, |actor| Record::Link { actor, parent: dir, name, file });
        Ok(attr)
    }
}
