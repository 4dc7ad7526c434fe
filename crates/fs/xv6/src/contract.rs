//! The contract's methods over the volume.
//!
//! Blocks that a file has are mapped: their bytes move without this driver, both ways. A write to a hole comes as
//! [`WritableFileSystem::write`], which puts the bytes on the device before it names the block.

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Attr, Corrupt, Error, FileKind, Ino, Name, Result, Structure, Timestamp};
use obento_block::BlockDevice;
use obento_driver::{
    AskUsage, Cookie, DirEntry, EntrySink, ExclusiveLayout, Extent, Fact, FileSystem, Layout, Limits,
    NewNode, RenameFlags, SetAttr, Size, Span, StatFs, TimeChange, Victim, VolumeInfo, WritableFileSystem,
};

use crate::dir::{NAME_MAX, place};
use crate::inode::Inode;
use crate::log::offset_of;
use crate::map::FILE_BLOCKS;
use crate::op::Op;
use crate::open::probe;
use crate::ops::{LINK_MAX, SYMLINK_MAX};
use crate::raw::BLOCK;
use crate::volume::{ROOT, Volume};

const BLOCK_LEN: u64 = 4096;
const _: () = assert!(to_u64(BLOCK) == BLOCK_LEN);
/// The largest file.
const FILE_MAX: u64 = FILE_BLOCKS * BLOCK_LEN;
/// Bytes that one change takes: what `CHANGE_MAX` counts on.
const WRITE_MAX: usize = 16 << 20;

impl FileSystem for Volume {
    fn root(&self) -> Ino {
        ROOT
    }

    fn limits(&self) -> Limits {
        let most = |len| u32::try_from(len).unwrap_or(u32::MAX);
        Limits {
            name_max: most(NAME_MAX),
            symlink_max: most(SYMLINK_MAX),
            link_max: LINK_MAX,
            file_size_max: FILE_MAX,
            time_granularity: 1,
            uid_max: u32::MAX,
            gid_max: u32::MAX,
            keeps: obento_driver::Keeps::all(),
            crash: obento_driver::Crash::Whole,
        }
    }

    fn info(&self) -> VolumeInfo {
        let fact = |name, value: u32| Fact { name, value: value.to_string() };
        let replayed =
            self.notices.iter().any(|notice| matches!(notice, obento_driver::Notice::Replayed { .. }));
        VolumeInfo {
            probe: probe(&self.sb.raw),
            state: if replayed && !self.is_writable { "needs recovery" } else { "clean" }.to_string(),
            notices: self.notices.clone(),
            facts: Vec::from([fact("log blocks", self.sb.log_len)]),
            ..VolumeInfo::default()
        }
    }

    fn statfs(&self) -> Result<StatFs> {
        self.look(|op| {
            let free = u64::from(op.counters.free_blocks);
            Ok(StatFs {
                block_size: 4096,
                blocks: self.sb.raw.nblocks.get().into(),
                free,
                available: free,
                inodes: self.sb.inodes.saturating_sub(1).into(),
                free_inodes: op.counters.free_inodes.into(),
            })
        })
    }

    fn device(&self) -> Option<&Arc<dyn BlockDevice>> {
        Some(self.cache.device())
    }

    fn lookup(&self, dir: Ino, name: &Name) -> Result<Ino> {
        self.look(|op| op.named(&op.inode(dir)?, name).map(|(_, inode)| inode.ino))
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        self.look(|op| {
            let dir = op.inode(dir)?;
            dir.expect_dir()?;
            Ok(Ino(dir.raw.parent.get().max(1).into()))
        })
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.look(|op| op.inode(ino).map(|inode| inode.attr()))
    }

    fn read_dir(&self, dir: Ino, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        let (mut at, mut skip) = place(from);
        loop {
            // A bucket at a time, so that the sink runs unlocked.
            let bucket = self.look(|op| {
                let dir = op.inode(dir)?;
                dir.expect_dir()?;
                let Some(found) = op.next_bucket(&dir, at)? else { return Ok(None) };
                Ok(Some((found, op.entries(&dir, found)?)))
            });
            let Some((found, entries)) = bucket? else { return Ok(()) };
            let skipped = if found == at { skip } else { 0 };
            for entry in entries {
                let given = match &entry {
                    Ok(entry) if entry.start() < skipped => continue,
                    Ok(entry) => Ok(DirEntry {
                        name: &entry.name,
                        ino: entry.ino,
                        kind: Some(entry.kind),
                        next: entry.next(),
                    }),
                    Err(error) => Err(*error),
                };
                if sink(given).is_break() {
                    return Ok(());
                }
            }
            (at, skip) = (found.saturating_add(1), 0);
        }
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        self.look(|op| {
            let inode = op.inode(ino)?;
            if inode.kind != FileKind::Symlink {
                return Err(Error::Invalid);
            }
            let (len, (block, _)) = (to_usize(inode.raw.size.get()), op.walk(&inode, 0)?);
            let bytes = block.filter(|_| len > 0).map(|block| op.get(block)).transpose()?;
            let target = bytes.as_ref().and_then(|bytes| bytes.get(..len)).map(<[u8]>::to_vec);
            let damage = Corrupt::Truncated {
                structure: Structure::Symlink(ino),
                block: block.unwrap_or(0).into(),
                offset: 0,
                len: to_u64(len),
            };
            target.filter(|target| !target.contains(&0)).ok_or(damage.into())
        })
    }

    fn map(&self, _: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent> {
        self.look(|op| {
            let inode = op.inode(ino)?;
            inode.expect_file()?;
            if range.start >= inode.raw.size.get() && !range.is_empty() {
                return Ok(Extent { len: length(&range), span: Span::Hole });
            }
            op.extent(&inode, &range, Span::Hole)
        })
    }

    fn read(&self, _: &Layout<'_>, _: Ino, _: u64, _: &mut [u8]) -> Result<usize> {
        // `map` calls nothing `Driver`.
        Err(Error::Invalid)
    }

    fn forget(&self, ino: Ino) {
        let is_nameless = |op: &Op<'_>| op.inode(ino).map(|inode| inode.raw.nlink.get() == 0);
        if self.can_change() && self.look(is_nameless) == Ok(true) {
            // What goes wrong leaves it to the next open.
            let _ = self.change(|op| match op.inode(ino)? {
                inode if inode.raw.nlink.get() == 0 => op.free_inode(inode),
                _ => Ok(()),
            });
        }
    }

    fn writable(&self) -> Option<&dyn WritableFileSystem> {
        self.can_change().then_some(self)
    }
}

impl WritableFileSystem for Volume {
    fn create(&self, dir: Ino, name: &Name, node: &NewNode<'_>) -> Result<Attr> {
        self.change(|op| op.create(dir, name, node))
    }

    fn link(&self, ino: Ino, dir: Ino, name: &Name) -> Result<Attr> {
        self.change(|op| op.link(ino, dir, name))
    }

    fn remove(&self, dir: Ino, name: &Name, victim: Victim, ask: &mut AskUsage<'_>) -> Result<()> {
        self.change(|op| op.remove(dir, name, victim, ask))
    }

    fn rename(&self, from: Ino, name: &Name, to: Ino, new_name: &Name, flags: RenameFlags) -> Result<()> {
        self.change(|op| op.rename((from, name), (to, new_name), flags))
    }

    fn set_attr(&self, ino: Ino, change: &SetAttr) -> Result<Attr> {
        let now = self.now();
        self.change(|op| {
            let mut inode = op.inode(ino)?;
            inode.apply(change, now);
            op.put(&inode)?;
            Ok(inode.attr())
        })
    }

    fn truncate(&self, _: &ExclusiveLayout<'_>, ino: Ino, size: u64) -> Result<()> {
        let now = self.now();
        self.change(|op| {
            let mut inode = op.inode(ino)?;
            inode.expect_file()?;
            if size > FILE_MAX {
                return Err(Error::FileTooBig);
            }
            op.cut(&mut inode, size.div_ceil(BLOCK_LEN)..FILE_BLOCKS)?;
            inode.raw.size.set(size);
            inode.touch_data(now);
            op.put(&inode)
        })
    }

    fn map_for_write(&self, _: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent> {
        self.change(|op| {
            let inode = op.inode(ino)?;
            inode.expect_file()?;
            if range.end > FILE_MAX && !range.is_empty() {
                return Err(Error::FileTooBig);
            }
            match op.extent(&inode, &range, Span::Driver)? {
                extent if extent.span == Span::Driver && op.room() == 0 => Err(Error::NoSpace),
                extent => Ok(extent),
            }
        })
    }

    fn end_write(&self, _: &Layout<'_>, ino: Ino, written: Range<u64>, when: TimeChange) -> Result<()> {
        let now = self.now();
        self.change(|op| {
            let mut inode = op.inode(ino)?;
            inode.expect_file()?;
            inode.raw.size.set(inode.raw.size.get().max(written.end));
            inode.touch_data_at(when, now);
            op.put(&inode)
        })
    }

    fn abandon(&self, _: &Layout<'_>, _: Ino, _: Range<u64>) {
        // Nothing is reserved: what is mapped is there already.
    }

    fn write(&self, _: &Layout<'_>, ino: Ino, offset: u64, bytes: &[u8]) -> Result<usize> {
        let now = self.now();
        self.change(|op| {
            let mut inode = op.inode(ino)?;
            inode.expect_file()?;
            let room = FILE_MAX.saturating_sub(offset);
            if room == 0 {
                return Err(Error::FileTooBig);
            }
            let bytes = bytes.get(..bytes.len().min(to_usize(room)).min(WRITE_MAX)).unwrap_or_default();
            let len = op.write_data(&mut inode, offset, bytes)?;
            inode.raw.size.set(inode.raw.size.get().max(offset.saturating_add(to_u64(len))));
            inode.touch_data(now);
            op.put(&inode)?;
            Ok(len)
        })
    }

    fn punch(&self, _: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()> {
        let now = self.now();
        self.change(|op| {
            let mut inode = op.inode(ino)?;
            inode.expect_file()?;
            let end = if range.end >= inode.raw.size.get() {
                range.end.div_ceil(BLOCK_LEN)
            } else {
                range.end >> 12
            };
            let parts = range.end < inode.raw.size.get() && !range.end.is_multiple_of(BLOCK_LEN);
            if parts || !range.start.is_multiple_of(BLOCK_LEN) {
                return Err(Error::Invalid);
            }
            op.cut(&mut inode, range.start / BLOCK_LEN..end)?;
            inode.touch_data(now);
            op.put(&inode)
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

impl Volume {
    /// Says that the format cannot do that to a file. Errors: IsDirectory; Invalid for what is no regular file;
    /// NotSupported.
    fn refuse(&self, ino: Ino) -> Result<()> {
        self.look(|op| op.inode(ino)?.expect_file())?;
        Err(Error::NotSupported)
    }
}

impl Op<'_> {
    /// The run of a file that `range` starts in; a hole is called `hole`. Errors: Invalid for an empty range; Corrupt;
    /// those of the device.
    fn extent(&self, inode: &Inode, range: &Range<u64>, hole: Span) -> Result<Extent> {
        if range.is_empty() {
            return Err(Error::Invalid);
        }
        let (at, within) = (range.start / BLOCK_LEN, range.start % BLOCK_LEN);
        let (block, blocks) = self.run(inode, at, range.end.div_ceil(BLOCK_LEN).saturating_sub(at))?;
        let len = blocks.saturating_mul(BLOCK_LEN).saturating_sub(within).min(length(range));
        let span = block.map_or(hole, |block| Span::Mapped(offset_of(block).saturating_add(within)));
        Ok(Extent { len, span })
    }

    /// Writes bytes of a file to its blocks, taking those that are missing; answers how many. Errors: NoSpace, if not
    /// even the first can be had; Corrupt; those of the device.
    fn write_data(&mut self, inode: &mut Inode, offset: u64, bytes: &[u8]) -> Result<usize> {
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(to_u64(done));
            let within = to_usize(at % BLOCK_LEN);
            let part = rest.get(..rest.len().min(BLOCK.saturating_sub(within))).unwrap_or_default();
            let (block, is_new) = match self.fill(inode, at / BLOCK_LEN) {
                Err(Error::NoSpace) if done > 0 => break,
                filled => filled?,
            };
            let device = self.volume.device();
            if is_new {
                let mut whole = [0; BLOCK];
                whole.iter_mut().skip(within).zip(part).for_each(|(to, from)| *to = *from);
                device.write_at(offset_of(block), &whole)?;
            } else {
                device.write_at(offset_of(block).saturating_add(to_u64(within)), part)?;
            }
            done = done.saturating_add(part.len());
        }
        Ok(done)
    }
}

fn length(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}
