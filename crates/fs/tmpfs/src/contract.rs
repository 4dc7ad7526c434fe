//! The methods of the contract.

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::wire::to_u64;
use obento_base::{Attr, Error, Ino, Name, Result, Timestamp};
use obento_block::BlockDevice;
use obento_driver::{
    AskUsage, Cookie, DirEntry, EntrySink, ExclusiveLayout, Extent, FileSystem, Layout, Limits, Nameless,
    NewNode, Probe, RemovalKind, RenameFlags, Reserves, SetAttr, Size, Span, StatFs, TimeChange, VolumeInfo,
    Whiteouts, WritableFileSystem, WritePlace, WriteTicket, Xattrs,
};
use obento_env::sync::atomic::Ordering;

use crate::inode::{Body, State};
use crate::map::Data;
use crate::names::Names;
use crate::space::PAGE;
use crate::volume::{ROOT, Tmpfs};

/// The limit of ext4 and of the Linux VFS (`NAME_MAX`).
const NAME_MAX: u32 = 255;
/// `PATH_MAX` of Linux without the terminating NUL.
pub(crate) const SYMLINK_MAX: u32 = 4095;
/// The limit of ext4 without `dir_nlink`.
pub(crate) const LINK_MAX: u32 = 65000;
/// `off_t` of POSIX is signed.
const FILE_SIZE_MAX: u64 = i64::MAX.unsigned_abs();
/// Number of entries to copy at a time, so that the sink runs without a lock.
const BATCH: usize = 64;

impl FileSystem for Tmpfs {
    fn root(&self) -> Ino {
        ROOT
    }

    fn limits(&self) -> Limits {
        Limits {
            name_max: NAME_MAX,
            symlink_max: SYMLINK_MAX,
            link_max: LINK_MAX,
            file_size_max: FILE_SIZE_MAX,
            time_granularity: 1,
            uid_max: u32::MAX,
            gid_max: u32::MAX,
            keeps: obento_driver::StoredProperties::all(),
            crash: obento_driver::Crash::Whole,
        }
    }

    fn info(&self) -> VolumeInfo {
        VolumeInfo {
            probe: Probe {
                fs_type: "tmpfs",
                len: self.space.pages().saturating_mul(PAGE),
                ..Probe::default()
            },
            state: "clean".to_string(),
            ..VolumeInfo::default()
        }
    }

    fn statfs(&self) -> Result<StatFs> {
        let free = self.space.free_pages();
        let (inodes, free_inodes) = self.inode_counts();
        Ok(StatFs {
            block_size: 4096,
            blocks: self.space.pages(),
            free,
            available: free,
            inodes,
            free_inodes,
        })
    }

    fn device(&self) -> Option<&Arc<dyn BlockDevice>> {
        self.space.device()
    }

    fn lookup(&self, dir: Ino, name: &Name) -> Result<Ino> {
        self.look(dir, |_, state| Ok(state.entry(name)?.ino))
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        self.look(dir, |_, state| Ok(state.directory()?.parent))
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.look(ino, |inode, state| Ok(inode.attr(state)))
    }

    fn read_dir(&self, dir: Ino, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        let mut from = from;
        loop {
            let batch = self.look(dir, |_, state| Ok(state.directory()?.after(from, BATCH)))?;
            for (next, entry) in &batch {
                let entry =
                    DirEntry { name: &entry.name, ino: entry.ino, kind: Some(entry.kind), next: *next };
                if sink(Ok(entry)).is_break() {
                    return Ok(());
                }
            }
            match batch.last() {
                Some((next, _)) => from = *next,
                None => return Ok(()),
            }
        }
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        self.look(ino, |_, state| match &state.body {
            Body::Symlink(target) => Ok(target.to_vec()),
            _ => Err(Error::Invalid),
        })
    }

    fn map(&self, _: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent> {
        self.look(ino, |_, state| {
            let data = state.data()?;
            if range.is_empty() {
                return Err(Error::Invalid);
            }
            if range.start >= state.attr.size {
                return Ok(Extent { len: range.end.saturating_sub(range.start), span: Span::Hole });
            }
            Ok(data.map(range.start..range.end.min(state.attr.size)))
        })
    }

    fn read(&self, _: &Layout<'_>, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.look(ino, |_, state| {
            let data = state.data()?;
            let left = usize::try_from(state.attr.size.saturating_sub(offset)).unwrap_or(usize::MAX);
            let len = buf.len().min(left);
            Ok(data.read(offset, buf.get_mut(..len).unwrap_or_default()))
        })
    }

    fn forget(&self, ino: Ino) {
        self.free_if_nameless(ino);
    }

    fn writable(&self) -> Option<&dyn WritableFileSystem> {
        self.expect_open().is_ok().then_some(self)
    }

    fn xattrs(&self) -> Option<&dyn Xattrs> {
        Some(self)
    }

    fn nameless(&self) -> Option<&dyn Nameless> {
        self.expect_open().is_ok().then_some(self)
    }

    fn whiteouts(&self) -> Option<&dyn Whiteouts> {
        self.expect_open().is_ok().then_some(self)
    }
}

impl Nameless for Tmpfs {
    fn create_nameless(&self, dir: Ino, node: &NewNode<'_>) -> Result<Attr> {
        self.expect_open()?;
        self.make_nameless(dir, node)
    }

    fn name(&self, ino: Ino, dir: Ino, name: &Name) -> Result<Attr> {
        self.expect_open()?;
        self.add_link(ino, dir, name, Names::None)
    }
}

impl Whiteouts for Tmpfs {
    fn rename_leaving(
        &self,
        from: Ino,
        name: &Name,
        to: Ino,
        new_name: &Name,
        flags: RenameFlags,
        whiteout: &NewNode<'_>,
    ) -> Result<()> {
        self.expect_open()?;
        self.move_name(from, name, to, new_name, flags, Some(whiteout))
    }
}

impl Reserves for Tmpfs {
    fn release(&self, ino: Ino, range: &Range<u64>) {
        // An inode that is not a file, or no longer exists, has nothing reserved.
        let _ = self.act(ino, |_, state| {
            state.data_mut()?.abandon(&self.space, range);
            Ok(())
        });
    }

    /// Does nothing: the mapping is in memory, and publishing allocates none.
    fn reserve_mapping(&self, _: Ino, _: &Range<u64>) -> Result<()> {
        Ok(())
    }
}

impl WritableFileSystem for Tmpfs {
    fn create(&self, dir: Ino, name: &Name, node: &NewNode<'_>) -> Result<Attr> {
        self.expect_open()?;
        self.make(dir, name, node)
    }

    fn link(&self, ino: Ino, dir: Ino, name: &Name) -> Result<Attr> {
        self.expect_open()?;
        self.add_link(ino, dir, name, Names::Some)
    }

    fn remove(&self, dir: Ino, name: &Name, victim: RemovalKind, ask: &mut AskUsage<'_>) -> Result<()> {
        self.expect_open()?;
        self.remove_name(dir, name, victim, ask)
    }

    fn rename(&self, from: Ino, name: &Name, to: Ino, new_name: &Name, flags: RenameFlags) -> Result<()> {
        self.expect_open()?;
        self.move_name(from, name, to, new_name, flags, None)
    }

    fn set_attr(&self, ino: Ino, change: &SetAttr) -> Result<Attr> {
        let now = self.now();
        self.act(ino, |inode, state| {
            change.apply(&mut state.attr, now);
            Ok(inode.attr(state))
        })
    }

    fn truncate(&self, _: &ExclusiveLayout<'_>, ino: Ino, size: u64) -> Result<()> {
        let now = self.now();
        self.act(ino, |_, state| {
            let data = state.data_mut()?;
            check_size(size)?;
            data.truncate(&self.space, size);
            state.attr.size = size;
            state.attr.touch_data(now);
            Ok(())
        })
    }

    fn begin_write<'a>(&'a self, _: &'a Layout<'_>, ino: Ino, range: Range<u64>) -> Result<WriteTicket<'a>> {
        let place = self.act(ino, |_, state| {
            let Attr { size, mtime, .. } = state.attr;
            let data = state.data_mut()?;
            if range.is_empty() {
                return Err(Error::Invalid);
            }
            if range.end > FILE_SIZE_MAX.next_multiple_of(PAGE) {
                return Err(Error::FileTooBig);
            }
            // Past the end of the file no page has contents.
            let was = data.map(range.clone());
            let extent = data.reserve(&self.space, range.start..range.start.saturating_add(was.len))?;
            Ok(WritePlace { extent, was: was.span, size, mtime })
        })?;
        Ok(WriteTicket::new(ino, &range, place, Some(self)))
    }

    fn resume_write<'a>(&'a self, _: &'a Layout<'_>, ino: Ino, range: Range<u64>) -> WriteTicket<'a> {
        WriteTicket::resumed(ino, &range, Some(self))
    }

    fn end_write(&self, ticket: WriteTicket<'_>, when: TimeChange) -> Result<()> {
        let now = self.now();
        ticket.publish(|ticket| {
            self.act(ticket.ino(), |_, state| {
                let written = ticket.range();
                state.data_mut()?.publish(&written);
                grow(state, written.end);
                when.touch_data(&mut state.attr, now);
                Ok(())
            })
        })
    }

    fn write(&self, _: &Layout<'_>, ino: Ino, offset: u64, bytes: &[u8]) -> Result<usize> {
        let now = self.now();
        self.act(ino, |_, state| {
            let data = state.data_mut()?;
            let left = usize::try_from(FILE_SIZE_MAX.saturating_sub(offset)).unwrap_or(usize::MAX);
            if left == 0 {
                return Err(Error::FileTooBig);
            }
            let bytes = bytes.get(..bytes.len().min(left)).unwrap_or_default();
            let len = data.write(&self.space, offset, bytes)?;
            grow(state, offset.saturating_add(to_u64(len)));
            state.attr.touch_data(now);
            Ok(len)
        })
    }

    fn punch(&self, _: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()> {
        self.change_data(ino, |data, size| {
            data.punch(&self.space, &to_end_of_page(&range, *size)?);
            Ok(())
        })
    }

    fn allocate(&self, _: &Layout<'_>, ino: Ino, range: Range<u64>, size: Size) -> Result<()> {
        self.change_data(ino, |data, end| {
            check_range(&range)?;
            check_size(range.end)?;
            data.fill(&self.space, &range)?;
            *end = size.after(*end, &range);
            Ok(())
        })
    }

    fn zero_range(&self, _: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>, size: Size) -> Result<()> {
        self.change_data(ino, |data, end| {
            check_range(&range)?;
            let whole = to_end_of_page(&range, *end)?;
            check_size(range.end)?;
            data.punch(&self.space, &whole);
            data.fill(&self.space, &whole)?;
            *end = size.after(*end, &range);
            Ok(())
        })
    }

    fn collapse(&self, _: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()> {
        self.change_data(ino, |data, size| {
            check_pages(&range)?;
            if range.end >= *size {
                return Err(Error::Invalid);
            }
            data.punch(&self.space, &range);
            data.shift(range.end, range.start);
            *size = size.saturating_sub(range.end.saturating_sub(range.start));
            Ok(())
        })
    }

    fn insert(&self, _: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()> {
        self.change_data(ino, |data, size| {
            check_pages(&range)?;
            if range.start >= *size {
                return Err(Error::Invalid);
            }
            let longer = size.saturating_add(range.end.saturating_sub(range.start));
            check_size(longer)?;
            data.shift(range.start, range.end);
            *size = longer;
            Ok(())
        })
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn sync_file(&self, ino: Ino) -> Result<()> {
        self.inode(ino).map(drop)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn close(&self) -> Result<()> {
        self.closed.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl Tmpfs {
    /// Changes the pages and the size of a regular file and updates its times.
    ///
    /// # Errors
    ///
    /// 1. `IsDirectory`: the inode is a directory.
    /// 2. `Invalid`: the inode is not a regular file.
    /// 3. The errors of `change`.
    fn change_data(&self, ino: Ino, change: impl FnOnce(&mut Data, &mut u64) -> Result<()>) -> Result<()> {
        let now = self.now();
        self.act(ino, |_, state| {
            let mut size = state.attr.size;
            let changed = change(state.data_mut()?, &mut size);
            state.attr.size = size;
            changed?;
            state.attr.touch_data(now);
            Ok(())
        })
    }
}

/// Extends `range` to the end of the last page if it reaches the end of the file. Fails with `Invalid` for
/// partial pages.
fn to_end_of_page(range: &Range<u64>, size: u64) -> Result<Range<u64>> {
    let end = if range.end >= size { range.end.checked_next_multiple_of(PAGE) } else { Some(range.end) };
    let end = end.filter(|end| range.start.is_multiple_of(PAGE) && end.is_multiple_of(PAGE));
    Ok(range.start..end.ok_or(Error::Invalid)?)
}

/// Fails with `Invalid` for an empty range.
fn check_range(range: &Range<u64>) -> Result<()> {
    if range.is_empty() { Err(Error::Invalid) } else { Ok(()) }
}

/// Fails with `Invalid` for an empty range and for partial pages.
fn check_pages(range: &Range<u64>) -> Result<()> {
    check_range(range)?;
    let whole = range.start.is_multiple_of(PAGE) && range.end.is_multiple_of(PAGE);
    if whole { Ok(()) } else { Err(Error::Invalid) }
}

/// Fails with `FileTooBig` if `size` exceeds the limit.
fn check_size(size: u64) -> Result<()> {
    if size > FILE_SIZE_MAX { Err(Error::FileTooBig) } else { Ok(()) }
}

fn grow(state: &mut State, end: u64) {
    state.attr.size = state.attr.size.max(end);
}
