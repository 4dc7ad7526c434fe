//! What a format says, so that [`Mounted`](crate::Mounted) can show and change a volume of it.
//!
//! A driver implements [`Volume`] for what it reads, and for what it changes [`Commit`], [`Entries`] and [`Data`], each beside the
//! code that knows the bytes.
//! Locking: `Mounted` holds its lock shared around what reads names, and exclusively around all that changes.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::{Attr, Error, FileKind, Ino, Name, NameBuf, Result, Timestamp};
use obento_block::Cache;
use obento_driver::{Cookie, Extent, Inspect, TimeChange, VolumeInfo};
use obento_env::Clock;
use obento_env::sync::RwLock;

use crate::allocator::Allocator;
use crate::inode::{FileEntry, Inode};
use crate::kept::Kept;
use crate::numbers::Numbers;
use crate::owner::Owner;
use crate::pieces::Piece;
use crate::unit::{Cluster, Slot};
use crate::waiting::{MAX_DIRTY, Waiting};

/// An entry as a listing copies it.
pub struct Listed {
    /// Its name.
    pub name: NameBuf,
    /// Its number.
    pub ino: Ino,
    /// File or directory.
    pub kind: FileKind,
    /// Where the listing goes on.
    pub next: Cookie,
}

/// How a volume is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grain {
    /// Bytes a cluster.
    pub cluster_size: u32,
    /// How many clusters there are.
    pub clusters: u32,
    /// The grain in which files are mapped: a cluster, or a part of one.
    pub block_size: u32,
}

/// Where a name was found.
pub trait Location: Clone {
    /// Returns the place that gives its file a number.
    fn slot(&self) -> Slot;
}

/// A name's directory, and where in it.
pub type At<'a, V> = (&'a <V as Volume>::Directory, &'a <V as Volume>::Location);

/// The mounted state of a format.
pub trait Volume: Sized + Send + Sync + 'static {
    /// What a directory says of a file.
    type Entry: FileEntry;
    /// A directory that is known.
    type Directory;
    /// Where a name lies in its directory.
    type Location: Location;
    /// What changes the volume.
    type Writer: Commit<Self> + Entries<Self> + Data<Self> + Send;

    /// Nanoseconds between two moments that `mtime` can tell apart.
    const TIME_GRANULARITY: u32;

    /// Returns the most bytes of a file.
    fn file_size_max(&self) -> u64;
    /// How it is divided.
    fn grain(&self) -> Grain;
    /// The byte offset of a cluster; `None` if the volume has no such.
    fn offset_of(&self, cluster: Cluster) -> Option<u64>;
    /// How it is shown.
    fn owner(&self) -> &Owner;
    /// What every mounted volume keeps.
    fn kept(&self) -> &Kept<Self::Entry>;
    /// What it says of itself.
    fn describe(&self) -> VolumeInfo;
    /// Counts the clusters that are free. Fails if the device fails.
    fn count_free(&self) -> Result<u32>;

    /// The inode of this number, and what it lies in or lay in. Fails with `Stale` if it is not in use.
    fn inode_and_parent(&self, ino: Ino) -> Result<(Inode<Self::Entry>, Ino)>;
    /// Returns the directory of this number. Fails with `Stale`, `NotDirectory`, or with `Corrupt` for one whose
    /// clusters belong to another.
    fn directory(&self, ino: Ino) -> Result<Arc<Self::Directory>>;
    /// Returns where `name` is in `dir`. A part that cannot be read is as if it held nothing, unless the name is
    /// nowhere else: then the error is told.
    fn find(&self, dir: &Self::Directory, name: &Name) -> Result<Option<Self::Location>>;
    /// At most `max` entries of `dir` after `from`, and whether these are the last. Errors among them are those of damaged
    /// parts.
    fn list(&self, dir: &Self::Directory, from: Cookie, max: usize) -> Result<(Vec<Result<Listed>>, bool)>;
    /// Bytes of a file or directory.
    fn size_of(&self, inode: &Inode<Self::Entry>) -> u64;
    /// Returns the run of a file at `range.start`, as the contract's `map` has it. Fails with `Invalid` for an empty
    /// range, or with `Corrupt` for a chain that ends too early or is damaged there.
    fn map(&self, inode: &Inode<Self::Entry>, range: Range<u64>) -> Result<Extent>;

    /// Its structures, field by field, if they are shown.
    fn inspect(&self) -> Option<&dyn Inspect> {
        None
    }

    /// Returns the metadata.
    fn cache(&self) -> &Cache {
        &self.kept().cache
    }

    /// Returns the numbers of inodes.
    fn numbers(&self) -> &RwLock<Numbers<Self::Entry>> {
        &self.kept().numbers
    }

    /// Drops what is kept for `ino` alone.
    fn forget(&self, ino: Ino) {
        self.kept().forget(ino);
    }

    /// Returns the bytes of a piece on the device. Fails with `Invalid` if it is not on the volume.
    fn bytes_of(&self, (start, len): Piece) -> Result<Range<u64>> {
        let offset = self.offset_of(start).ok_or(Error::Invalid)?;
        let size = u64::from(self.grain().cluster_size);
        Ok(offset..offset.saturating_add(u64::from(len).saturating_mul(size)))
    }

    /// The number of what has its entry at `slot`.
    fn ino_at(&self, slot: Slot) -> Ino {
        self.numbers().read().ino_at(slot)
    }

    /// Returns the inode of this number. Fails with `Stale` if it is not in use.
    fn inode(&self, ino: Ino) -> Result<Inode<Self::Entry>> {
        self.inode_and_parent(ino).map(|(inode, _)| inode)
    }

    /// Returns a regular file. Fails with `Stale` or `IsDirectory`.
    fn file(&self, ino: Ino) -> Result<Inode<Self::Entry>> {
        let inode = self.inode(ino)?;
        if inode.is_dir() { Err(Error::IsDirectory) } else { Ok(inode) }
    }

    /// The attributes of `ino`, as they are now. Fails with `Stale`.
    fn attr(&self, ino: Ino) -> Result<Attr> {
        let inode = self.inode(ino)?;
        Ok(inode.attr(self.owner(), self.size_of(&inode), self.grain().cluster_size))
    }
}

/// Changes on their way to the device.
pub trait Commit<V: Volume<Writer = Self>>: Data<V> + Sized {
    /// Reads what is free. Fails with `ReadOnly` if the device cannot be written, with `OutOfBounds` if it is shorter
    /// than the volume, or if the device fails.
    fn open(volume: &V, clock: Arc<dyn Clock>) -> Result<Self>;
    /// What waits.
    fn waiting(&self) -> &Waiting;
    /// What waits, to be changed.
    fn waiting_mut(&mut self) -> &mut Waiting;
    /// Writes what waits, in an order that a cut survives. Fails if the device fails.
    fn write_changes(&mut self, volume: &V) -> Result<()>;
    /// Marks the volume as in use, or as not in use, if it was not before it was opened.
    fn mark(&mut self, volume: &V, in_use: bool) -> Result<()>;
    /// Gives back what was taken and not named.
    fn give_back(&mut self, volume: &V, pieces: &[Piece]);

    /// Returns how many sectors changed.
    fn sectors(&self) -> usize {
        self.waiting().sectors()
    }

    /// The time by the clock that changes are stamped by.
    fn now(&self) -> Timestamp {
        self.waiting().clock.now()
    }

    /// Returns which clusters are free.
    fn allocator(&mut self) -> &mut Allocator {
        &mut self.waiting_mut().allocator
    }

    /// Fails with `ReadOnly` after a write failed.
    fn check(&self) -> Result<()> {
        self.waiting().check()
    }

    /// Returns whether anything waits.
    fn has_changes(&self) -> bool {
        self.waiting().data_written || self.sectors() > 0
    }

    /// Returns whether so much waits that it should be written.
    fn is_full(&self) -> bool {
        self.sectors() > MAX_DIRTY
    }

    /// Writes all changes. Fails with the errors of the device, after which nothing is changed any more.
    fn commit(&mut self, volume: &V) -> Result<()> {
        self.check()?;
        let result = match self.sectors() {
            0 if core::mem::take(&mut self.waiting_mut().data_written) => volume.cache().device().flush(),
            0 => Ok(()),
            _ => self.write_changes(volume),
        };
        if result.is_err() {
            self.waiting_mut().fail();
        }
        result
    }

    /// Writes all changes and marks the volume as unmounted. Fails in the same cases as [`Commit::commit`].
    fn close(&mut self, volume: &V) -> Result<()> {
        let orphans = volume.numbers().read().orphans();
        for ino in orphans {
            self.forget(volume, ino)?;
        }
        let pieces = self.waiting_mut().promises.take_back_all();
        self.give_back(volume, &pieces);
        self.commit(volume)?;
        self.mark(volume, false)?;
        volume.cache().device().flush()
    }

    /// What `take` gets of free clusters; where there are none, after a commit, since what is freed rests until then.
    /// Fails with `NoSpace`, or with the errors of the commit.
    fn take_with<T>(&mut self, volume: &V, take: impl Fn(&mut Allocator) -> Result<T>) -> Result<T> {
        match take(self.allocator()) {
            Err(Error::NoSpace) if self.allocator().holds_any() => {
                self.commit(volume)?;
                take(self.allocator())
            }
            taken => taken,
        }
    }

    /// Clusters for `want` more behind `after`, in as few pieces as can be had. Fails with `NoSpace`, and then none.
    fn take(&mut self, volume: &V, after: Option<Cluster>, want: u32) -> Result<Vec<Piece>> {
        self.take_with(volume, |allocator| allocator.take_all(after, want))
    }
}

/// Changing what directories hold.
pub trait Entries<V: Volume> {
    /// Names what `entry` says in `dir`, where the name is free; answers where. Fails with `NoSpace`, or with
    /// `Invalid` or NameTooLong for a name that the format lacks.
    fn add(&mut self, volume: &V, dir: Ino, name: &Name, entry: V::Entry) -> Result<V::Location>;
    /// Takes a name out of its directory.
    fn remove(&mut self, volume: &V, at: At<'_, V>) -> Result<()>;
    /// Writes what `entry` says under the name that is there.
    fn put_over(&mut self, volume: &V, at: At<'_, V>, entry: &V::Entry) -> Result<()>;
    /// Changes what is said of a file, wherever it is; its name stays. Of the root nothing is said.
    fn put_inode(&mut self, volume: &V, inode: &Inode<V::Entry>) -> Result<()>;

    /// Returns whether one write changes both, so that a cut leaves neither between.
    fn is_one_write(volume: &V, one: At<'_, V>, other: At<'_, V>) -> bool;
    /// Returns whether each of two names may go on to say what the other says.
    fn can_swap(one: &V::Location, other: &V::Location) -> bool;
    /// What is there came from elsewhere: it is shown when the place that it left is written.
    fn arrive(&mut self, volume: &V, at: At<'_, V>) -> Result<()>;
    /// What is there, `inode` until now, names something else from now on: what is on disk is shown until then, if it is that.
    fn replace(&mut self, volume: &V, at: At<'_, V>, inode: &Inode<V::Entry>) -> Result<()>;

    /// Gives a new directory in `parent` its first cluster, and what it holds from the start. Fails with `NoSpace`.
    fn make_directory(&mut self, volume: &V, parent: Ino, entry: &mut V::Entry) -> Result<Cluster>;
    /// Frees a cluster that was named and is not any more.
    fn free_one(&mut self, volume: &V, cluster: Cluster) -> Result<()>;
    /// A directory lies in another one now.
    fn set_parent(&mut self, volume: &V, dir: Ino, parent: Ino) -> Result<()>;
}

/// Changing what files hold.
pub trait Data<V: Volume> {
    /// Sets the size, as the contract's `truncate` has it. Fails with `FileTooBig` or `NoSpace`.
    fn truncate(&mut self, volume: &V, ino: Ino, size: u64) -> Result<()>;
    /// Returns where to write from `range.start` on, as the contract's `map_for_write` has it.
    fn map_for_write(&mut self, volume: &V, ino: Ino, range: Range<u64>) -> Result<Extent>;
    /// Names what was written, as the contract's `end_write` has it.
    fn end_write(&mut self, volume: &V, ino: Ino, written: Range<u64>, when: TimeChange) -> Result<()>;
    /// Gives back what was promised from `range` on.
    fn abandon(&mut self, volume: &V, ino: Ino, range: &Range<u64>);
    /// Writes bytes that lie past a gap, which becomes zeros; answers how many.
    fn write(&mut self, volume: &V, ino: Ino, offset: u64, bytes: &[u8]) -> Result<usize>;
    /// What has no name and no user is freed.
    fn forget(&mut self, volume: &V, ino: Ino) -> Result<()>;
}
