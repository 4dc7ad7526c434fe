//! The methods of the contract. Each change applies to memory, and a sync writes the whole volume.

use std::ops::Range;
use std::sync::{Arc, RwLock};

use obento::{Error, Result};
use obento::base::{Attr, Ino, Name, Timestamp};
use obento::block::BlockDevice;
use obento::driver::{AskUsage, Crash, EntrySink, ExclusiveLayout, Layout, RemovalKind, WritableFileSystem, WritePlace, WriteTicket, Access, Cookie, DirEntry, Extent, FileSystem, Limits, NewNode, RenameFlags, SetAttr, Size, Span, StatFs, StoredProperties, TimeChange, VolumeInfo};
use obento::env::Clock;

use crate::file::SIZE_MAX;
use crate::raw::{PAGE, RawRoot};
use crate::store;
use crate::tree::{Body, LINK_MAX, ROOT, TARGET_MAX, Tree};

const LEN: u64 = PAGE as u64;
/// The number of entries that are copied at a time, so that the sink runs without a lock.
const BATCH: usize = 64;

/// An open volume.
pub struct Volume {
    device: Arc<dyn BlockDevice>,
    clock: Arc<dyn Clock>,
    state: RwLock<State>,
}

struct State {
    tree: Tree,
    /// The root on the device.
    root: RawRoot,
    is_dirty: bool,
    is_open_for_changes: bool,
    /// The error of a failed write. After it, nothing is written, and every sync fails with it.
    failed: Option<Error>,
}

impl State {
    fn commit(&mut self, device: &dyn BlockDevice) -> Result<()> {
        match self.failed {
            Some(error) => return Err(error),
            None if !self.is_dirty => return Ok(()),
            None => {}
        }
        self.root =
            store::write(device, &self.root, &self.tree).inspect_err(|&error| self.failed = Some(error))?;
        self.is_dirty = false;
        Ok(())
    }
}

impl Volume {
    pub(crate) fn open(device: Arc<dyn BlockDevice>, access: Access, clock: Arc<dyn Clock>) -> Result<Self> {
        let root = store::read_root(&*device)?;
        let tree = store::read_tree(&*device, &root)?;
        let is_open_for_changes = access == Access::ReadWrite;
        if is_open_for_changes && device.is_read_only() {
            return Err(Error::ReadOnly);
        }
        let state = State { tree, root, is_dirty: false, is_open_for_changes, failed: None };
        Ok(Self { device, clock, state: RwLock::new(state) })
    }

    fn look<T>(&self, look: impl FnOnce(&Tree) -> Result<T>) -> Result<T> {
        look(&self.state.read().unwrap().tree)
    }

    /// Makes one change. Fails with the errors of the change, or with `ReadOnly`.
    fn change<T>(&self, change: impl FnOnce(&mut Tree, Timestamp) -> Result<T>) -> Result<T> {
        let now = self.clock.now();
        let mut state = self.state.write().unwrap();
        if !state.is_open_for_changes || state.failed.is_some() {
            return Err(Error::ReadOnly);
        }
        let done = change(&mut state.tree, now)?;
        state.is_dirty = true;
        Ok(done)
    }

    /// Returns the error for an operation that the format does not support.
    fn refuse(&self, ino: Ino) -> Result<()> {
        self.look(|tree| tree.get(ino)?.file().map(drop)).and(Err(Error::NotSupported))
    }
}

impl FileSystem for Volume {
    fn root(&self) -> Ino {
        ROOT
    }

    fn limits(&self) -> Limits {
        Limits {
            name_max: 255,
            symlink_max: TARGET_MAX as u32,
            link_max: LINK_MAX,
            file_size_max: SIZE_MAX,
            time_granularity: 1,
            uid_max: u32::MAX,
            gid_max: u32::MAX,
            keeps: StoredProperties::all(),
            crash: Crash::Whole,
        }
    }

    fn info(&self) -> VolumeInfo {
        let root = self.state.read().unwrap().root;
        let probe = crate::probe(&root);
        VolumeInfo { probe, state: "clean".into(), ..VolumeInfo::default() }
    }

    fn statfs(&self) -> Result<StatFs> {
        self.look(|tree| {
            let (blocks, free) = (tree.room / LEN, (tree.room - tree.used) / LEN);
            Ok(StatFs { block_size: PAGE as u32, blocks, free, available: free, ..StatFs::default() })
        })
    }

    fn device(&self) -> Option<&Arc<dyn BlockDevice>> {
        Some(&self.device)
    }

    fn lookup(&self, dir: Ino, name: &Name) -> Result<Ino> {
        self.look(|tree| tree.named(dir, name))
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        self.look(|tree| tree.get(dir)?.directory().map(|_| tree.inodes[&dir].parent))
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.look(|tree| tree.get(ino).map(|inode| inode.attr()))
    }

    fn read_dir(&self, dir: Ino, mut from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        loop {
            let batch = self.look(|tree| {
                let entries = tree.get(dir)?.directory()?.after(from, BATCH).into_iter();
                Ok(entries
                    .map(|entry| (tree.get(entry.2).map(|inode| inode.attr.kind).ok(), entry))
                    .collect::<Vec<_>>())
            })?;
            let Some((_, (last, ..))) = batch.last() else { return Ok(()) };
            from = *last;
            for (kind, (next, name, ino)) in &batch {
                if sink(Ok(DirEntry { name, ino: *ino, kind: *kind, next: *next })).is_break() {
                    return Ok(());
                }
            }
        }
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        self.look(|tree| match &tree.get(ino)?.body {
            Body::Symlink(target) => Ok(target.clone()),
            _ => Err(Error::Invalid),
        })
    }

    fn map(&self, _: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent> {
        self.look(|tree| tree.get(ino)?.run(&range))
    }

    fn read(&self, _: &Layout<'_>, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.look(|tree| tree.get(ino)?.read(offset, buf))
    }

    fn forget(&self, ino: Ino) {
        if self.look(|tree| Ok(tree.get(ino)?.attr.nlink == 0)) == Ok(true) {
            // The change fails only if the volume no longer accepts writes.
            let _ = self.change(|tree, _| {
                tree.free_if_nameless(ino);
                Ok(())
            });
        }
    }

    fn writable(&self) -> Option<&dyn WritableFileSystem> {
        self.state.read().unwrap().is_open_for_changes.then_some(self)
    }
}

impl WritableFileSystem for Volume {
    fn create(&self, dir: Ino, name: &Name, node: &NewNode<'_>) -> Result<Attr> {
        self.change(|tree, now| tree.create(dir, name, node, now))
    }

    fn link(&self, ino: Ino, dir: Ino, name: &Name) -> Result<Attr> {
        self.change(|tree, now| tree.link(ino, dir, name, now))
    }

    fn remove(&self, dir: Ino, name: &Name, victim: RemovalKind, ask: &mut AskUsage<'_>) -> Result<()> {
        self.change(|tree, now| tree.remove(dir, name, victim, ask, now))
    }

    fn rename(&self, from: Ino, name: &Name, to: Ino, new_name: &Name, flags: RenameFlags) -> Result<()> {
        self.change(|tree, now| tree.rename((from, name), (to, new_name), flags, now))
    }

    fn set_attr(&self, ino: Ino, change: &SetAttr) -> Result<Attr> {
        change.expect_no_project()?;
        self.change(|tree, now| {
            let inode = tree.get_mut(ino)?;
            inode.apply(change, now);
            Ok(inode.attr())
        })
    }

    fn truncate(&self, _: &ExclusiveLayout<'_>, ino: Ino, size: u64) -> Result<()> {
        self.change(|tree, now| tree.truncate(ino, size, now))
    }

    fn begin_write<'a>(&'a self, _: &'a Layout<'_>, ino: Ino, range: Range<u64>) -> Result<WriteTicket<'a>> {
        let place = self.look(|tree| {
            let inode = tree.get(ino)?;
            inode.file()?;
            match () {
                () if range.is_empty() => Err(Error::Invalid),
                () if range.end > SIZE_MAX => Err(Error::FileTooBig),
                () => {
                    tree.room_at(ino, range.start)?;
                    let extent = Extent { len: range.end - range.start, span: Span::Driver };
                    let Attr { size, mtime, .. } = inode.attr();
                    Ok(WritePlace { extent, was: Span::Driver, size, mtime })
                }
            }
        })?;
        // The format reserves nothing.
        Ok(WriteTicket::new(ino, &range, place, None))
    }

    fn resume_write<'a>(&'a self, _: &'a Layout<'_>, ino: Ino, range: Range<u64>) -> WriteTicket<'a> {
        WriteTicket::resumed(ino, &range, None)
    }

    fn end_write(&self, ticket: WriteTicket<'_>, when: TimeChange) -> Result<()> {
        ticket.publish(|ticket| {
            self.change(|tree, now| {
                let inode = tree.get_mut(ticket.ino())?;
                inode.file()?;
                inode.attr.size = inode.attr.size.max(ticket.range().end);
                inode.touch_data(now, when);
                Ok(())
            })
        })
    }

    fn write(&self, _: &Layout<'_>, ino: Ino, offset: u64, bytes: &[u8]) -> Result<usize> {
        self.change(|tree, now| {
            tree.get(ino)?.file()?;
            let room = usize::try_from(SIZE_MAX.saturating_sub(offset)).unwrap_or(usize::MAX);
            match bytes.len().min(room) {
                0 if !bytes.is_empty() => Err(Error::FileTooBig),
                len => tree.write(ino, offset, &bytes[..len], now),
            }
        })
    }

    fn punch(&self, _: &ExclusiveLayout<'_>, ino: Ino, range: Range<u64>) -> Result<()> {
        self.change(|tree, now| tree.punch(ino, range, now))
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
        self.state.write().unwrap().commit(&*self.device)
    }

    fn close(&self) -> Result<()> {
        let mut state = self.state.write().unwrap();
        let committed = state.commit(&*self.device);
        state.is_open_for_changes = false;
        committed
    }
}
