//! [`WritableFileSystem`] over a server: data. The changes of names and attributes are in `change`.
//!
//! A server may report the failure of a write when the file is closed. Such an error is the result of the next call of
//! `sync` or `close`.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use obento_base::{Attr, Error, FileKind, Ino, Name, Result, Timestamp};
use obento_driver::{
    AskUsage, ExclusiveLayout, Extent, FileSystem as _, Layout, NewNode, RemovalKind, RenameFlags, SetAttr,
    Size, Span, TimeChange, WritableFileSystem, WritePlace, WriteTicket,
};
use obento_fuse_abi::{FallocateIn, SetattrIn, SizeOut, WriteIn, fattr, opcode};
use zerocopy::IntoBytes as _;

use crate::contract::{Mounted, NOT_SUPPORTED, lock};
use crate::error::{NOT_IMPLEMENTED, of_errno};
use crate::open_files::{Intent, OpenFile};
use crate::wire::{falloc, open, take};

/// The greatest size of a file.
pub const SIZE_MAX: u64 = i64::MAX.unsigned_abs();

pub fn now() -> Timestamp {
    let time = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    Timestamp::new(time.as_secs().cast_signed(), time.subsec_nanos())
}

impl Mounted {
    /// Checks that an inode is a regular file, without a request.
    fn expect_regular(&self, ino: Ino) -> Result<()> {
        match lock(&self.nodes).get(ino)?.kind {
            FileKind::Regular => Ok(()),
            FileKind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// Records that the data of a file changes.
    fn data_changes(&self, ino: Ino) {
        self.changed(ino);
        lock(&self.unsynced).nodes.insert(ino.0);
    }

    /// Sends one write, and returns the number of bytes that the server wrote.
    fn write_part(&self, file: &OpenFile, offset: u64, bytes: &[u8]) -> Result<usize> {
        let OpenFile { node, fh, flags } = *file;
        let size = u32::try_from(bytes.len()).map_err(|_| Error::OutOfRange)?;
        let head = WriteIn { fh, offset, size, write_flags: 0, lock_owner: 0, flags, padding: 0 };
        self.connection.ask(opcode::WRITE, node, &[head.as_bytes(), bytes], |body| {
            let written = usize::try_from(take::<SizeOut>(body)?.0.size).ok()?;
            (1..=bytes.len()).contains(&written).then_some(written)
        })
    }

    fn allocate_in(&self, ino: Ino, range: &Range<u64>, mode: u32) -> Result<()> {
        self.expect_writable()?;
        self.expect_regular(ino)?;
        if range.is_empty() {
            return Err(Error::Invalid);
        }
        if range.end > SIZE_MAX {
            return Err(Error::FileTooBig);
        }
        self.data_changes(ino);
        let done = self.with_file(ino, Intent::Write, |file| {
            let (offset, length) = (range.start, range.end - range.start);
            let body = FallocateIn { fh: file.fh, offset, length, mode, padding: 0 };
            let deadline = self.connection.deadline();
            self.connection.exchange(opcode::FALLOCATE, ino.0, &[body.as_bytes()], deadline, |_| Some(()))
        })?;
        self.changed(ino);
        match done {
            Err(NOT_IMPLEMENTED | NOT_SUPPORTED) => Err(Error::NotSupported),
            done => done.map_err(of_errno),
        }
    }

    /// Returns once the server has stored an inode. An inode that no longer exists has nothing to store.
    fn sync_one(&self, ino: Ino) -> Result<()> {
        let Ok(node) = lock(&self.nodes).get(ino) else { return Ok(()) };
        match node.kind {
            FileKind::Regular => {
                // Writes went through a file that is open for writing, if one is open.
                let intent = if self.has_written_file(ino) { Intent::Write } else { Intent::Use };
                self.with_file(ino, intent, |file| {
                    self.flush(file)?;
                    self.fsync(opcode::FSYNC, file)
                })
            }
            FileKind::Directory if !node.is_removed() => {
                let file = self.open(opcode::OPENDIR, ino.0, open::READ)?;
                let done = self.fsync(opcode::FSYNCDIR, &file);
                self.release(opcode::RELEASEDIR, &file);
                done
            }
            _ => Ok(()),
        }
    }

    /// Syncs an inode. An error is the result of the next call of `sync` or `close`.
    pub(crate) fn sync_or_record(&self, ino: Ino) {
        if let Err(error) = self.sync_one(ino) {
            // The file may have been removed on the server.
            if !matches!(error, Error::NotFound | Error::Stale) {
                lock(&self.unsynced).failed.get_or_insert(error);
            }
        }
    }

    /// Syncs `inos`, and returns the first error of them or of an earlier write.
    fn sync_all(&self, inos: BTreeSet<u64>) -> Result<()> {
        inos.into_iter().for_each(|number| self.sync_or_record(Ino(number)));
        lock(&self.unsynced).failed.map_or(Ok(()), Err)
    }
}

impl WritableFileSystem for Mounted {
    fn create(&self, dir: Ino, name: &Name, node: &NewNode<'_>) -> Result<Attr> {
        self.create_name(dir, name, node)
    }

    fn link(&self, ino: Ino, dir: Ino, name: &Name) -> Result<Attr> {
        self.link_name(ino, dir, name)
    }

    fn remove(&self, dir: Ino, name: &Name, victim: RemovalKind, ask: &mut AskUsage<'_>) -> Result<()> {
        self.remove_name(dir, name, victim, ask)
    }

    fn rename(&self, from: Ino, name: &Name, to: Ino, new_name: &Name, flags: RenameFlags) -> Result<()> {
        self.rename_name((from, name), (to, new_name), flags)
    }

    fn set_attr(&self, ino: Ino, change: &SetAttr) -> Result<Attr> {
        self.change_attr(ino, change)
    }

    fn truncate(&self, _: &ExclusiveLayout<'_>, ino: Ino, size: u64) -> Result<()> {
        self.expect_writable()?;
        self.expect_regular(ino)?;
        if size > SIZE_MAX {
            return Err(Error::FileTooBig);
        }
        let before = self.getattr(ino)?;
        self.data_changes(ino);
        let after = self.set(ino, &SetattrIn { valid: fattr::SIZE, size, ..SetattrIn::default() })?;
        if after.mtime == before.mtime {
            // truncate(2), which some servers call, does not set the time if the size stays the same.
            self.set_times(ino, None, Some(TimeChange::Now))?;
        }
        Ok(())
    }

    fn begin_write<'a>(&'a self, _: &'a Layout<'_>, ino: Ino, range: Range<u64>) -> Result<WriteTicket<'a>> {
        self.expect_writable()?;
        self.expect_regular(ino)?;
        if range.is_empty() {
            return Err(Error::Invalid);
        }
        if range.end > SIZE_MAX {
            return Err(Error::FileTooBig);
        }
        let attr = self.getattr(ino)?;
        let extent = Extent { len: range.end.saturating_sub(range.start), span: Span::Driver };
        let place = WritePlace { extent, was: Span::Driver, size: attr.size, mtime: attr.mtime };
        Ok(WriteTicket::new(ino, &range, place, None))
    }

    fn resume_write<'a>(&'a self, _: &'a Layout<'_>, ino: Ino, range: Range<u64>) -> WriteTicket<'a> {
        WriteTicket::resumed(ino, &range, None)
    }

    /// Fails with `NotSupported`: `begin_write` returns no ticket for data that the caller writes.
    fn end_write(&self, _: WriteTicket<'_>, _: TimeChange) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn write(&self, _: &Layout<'_>, ino: Ino, offset: u64, bytes: &[u8]) -> Result<usize> {
        self.expect_writable()?;
        self.expect_regular(ino)?;
        let room = usize::try_from(SIZE_MAX.saturating_sub(offset)).unwrap_or(usize::MAX);
        let bytes = bytes.get(..bytes.len().min(room)).unwrap_or_default();
        if bytes.is_empty() {
            return if room == 0 { Err(Error::FileTooBig) } else { Ok(0) };
        }
        self.data_changes(ino);
        let written = self.with_file(ino, Intent::Write, |file| {
            let mut done = 0;
            while done < bytes.len() {
                let part = &bytes[done..][..self.write_len.min(bytes.len() - done)];
                let at = offset.checked_add(done as u64).ok_or(Error::FileTooBig)?;
                match self.write_part(file, at, part) {
                    Ok(len) => done += len,
                    // The caller writes the rest again, and gets the error then.
                    Err(_) if done > 0 => break,
                    Err(error) => return Err(error),
                }
            }
            Ok(done)
        });
        // Another thread may have asked for the attributes meanwhile.
        self.changed(ino);
        written
    }

    fn punch(&self, _: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()> {
        self.allocate_in(ino, &range, falloc::PUNCH_HOLE | falloc::KEEP_SIZE)
    }

    fn allocate(&self, _: &Layout<'_>, ino: Ino, range: Range<u64>, size: Size) -> Result<()> {
        self.allocate_in(ino, &range, if size == Size::Keep { falloc::KEEP_SIZE } else { 0 })
    }

    fn zero_range(&self, _: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>, size: Size) -> Result<()> {
        let keep = if size == Size::Keep { falloc::KEEP_SIZE } else { 0 };
        self.allocate_in(ino, &range, falloc::ZERO_RANGE | keep)
    }

    /// Fails with `NotSupported`: Linux does not send such a request either.
    fn collapse(&self, _: &ExclusiveLayout<'_>, _: Ino, _: Range<u64>) -> Result<()> {
        Err(Error::NotSupported)
    }

    /// Fails with `NotSupported`: Linux does not send such a request either.
    fn insert(&self, _: &ExclusiveLayout<'_>, _: Ino, _: Range<u64>) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn now(&self) -> Timestamp {
        now()
    }

    fn sync_file(&self, ino: Ino) -> Result<()> {
        self.expect_writable()?;
        let node = lock(&self.nodes).get(ino)?;
        let mut inos = BTreeSet::from([ino.0]);
        // A file that was removed has no name to store.
        inos.extend(Some(node.parent).filter(|_| !node.is_removed()));
        let _no_eviction = self.syncing.read().unwrap_or_else(PoisonError::into_inner);
        lock(&self.unsynced).nodes.remove(&ino.0);
        self.sync_all(inos)
    }

    fn sync(&self) -> Result<()> {
        self.expect_writable()?;
        let _no_eviction = self.syncing.read().unwrap_or_else(PoisonError::into_inner);
        let inos = std::mem::take(&mut lock(&self.unsynced).nodes);
        self.sync_all(inos)
    }

    fn close(&self) -> Result<()> {
        self.sync()?;
        self.is_writable.store(false, Ordering::Relaxed);
        Ok(())
    }
}
