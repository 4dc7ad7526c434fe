//! The traits that a format implements so that [`Mounted`](crate::Mounted) can read and change its volumes.
//!
//! A driver implements [`Volume`] for reading, and [`Commit`], [`Entries`] and [`Data`] for changes, each beside the
//! code for the on-disk structures.
//! Locking: `Mounted` holds its lock shared while it reads names. A change has a [`Locked`] volume.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use obento_base::{Attr, Error, FileKind, Ino, Name, NameBuf, Result, Timestamp};
use obento_block::Cache;
use obento_driver::{Cookie, Extent, Inspect, Span, TimeChange, VolumeInfo};
use obento_env::Clock;
use obento_env::sync::RwLockReadGuard;

use crate::allocator::Allocator;
use crate::guard::{DirWrite, InodeWrite, Locked};
use crate::inode::{FileEntry, Inode};
use crate::mount_state::MountState;
use crate::numbers::Numbers;
use crate::ops;
use crate::owner::Owner;
use crate::pieces::Piece;
use crate::unit::{Cluster, Slot};
use crate::waiting::{MAX_DIRTY, Waiting};

/// A directory entry in a listing.
pub struct Listed {
    /// Its name.
    pub name: NameBuf,
    /// Inode number.
    pub ino: Ino,
    /// File or directory.
    pub kind: FileKind,
    /// Cookie with which the listing continues.
    pub next: Cookie,
}

/// The units of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grain {
    /// Size of a cluster in bytes.
    pub cluster_size: u32,
    /// Number of clusters.
    pub clusters: u32,
    /// Unit in which files are mapped, in bytes: a cluster, or a part of a cluster.
    pub block_size: u32,
}

/// The place of a name in its directory.
pub trait Location: Clone {
    /// Returns the slot from which the inode number of the file is derived.
    fn slot(&self) -> Slot;
}

/// A directory, and the place of a name in it.
pub type At<'a, V> = (&'a DirWrite<'a, V>, &'a <V as Volume>::Location);

/// The mounted state of a format.
pub trait Volume: Sized + Send + Sync + 'static {
    /// The attributes of a file in a directory entry.
    type Entry: FileEntry;
    /// A directory that has been read.
    type Directory;
    /// The place of a name in its directory.
    type Location: Location;
    /// The state of a volume that is open for changes.
    type Writer: Commit<Self> + Entries<Self> + Data<Self> + Send;

    /// Resolution of `mtime` in nanoseconds.
    const TIME_GRANULARITY: u32;

    /// Returns the maximum size of a file in bytes.
    fn file_size_max(&self) -> u64;
    /// Returns the units of the volume.
    fn grain(&self) -> Grain;
    /// Returns the byte offset of a cluster, or `None` if the volume has no such cluster.
    fn offset_of(&self, cluster: Cluster) -> Option<u64>;
    /// Returns the owner, permissions and time zone of files.
    fn owner(&self) -> &Owner;
    /// Returns the state that every mounted volume has.
    fn mount_state(&self) -> &MountState<Self::Entry>;
    /// Returns a description of the volume.
    fn describe(&self) -> VolumeInfo;
    /// Counts the free clusters. Fails if the device fails.
    fn count_free(&self) -> Result<u32>;

    /// Returns the inode `ino`, and the directory that contains it. For an inode without a name, returns the
    /// directory that last contained it. Fails with `Stale` if the volume contains no such inode.
    fn inode_and_parent(&self, ino: Ino) -> Result<(Inode<Self::Entry>, Ino)>;
    /// Returns the directory `ino`. Fails with `Stale`, with `NotDirectory`, or with `Corrupt` if its clusters belong
    /// to another directory.
    fn directory(&self, ino: Ino) -> Result<Arc<Self::Directory>>;
    /// Returns the directories that have been read, each with its parent.
    fn directories(&self) -> Vec<(Ino, Ino)>;
    /// Returns the place of `name` in `dir`. Skips unreadable parts. If the name is not found and a part was
    /// unreadable, fails with the error of that part.
    fn find(&self, dir: &Self::Directory, name: &Name) -> Result<Option<Self::Location>>;
    /// Returns at most `max` entries of `dir` at and after `from`, and whether these entries are the last
    /// ones. A damaged part is an error in the list.
    fn list(&self, dir: &Self::Directory, from: Cookie, max: usize) -> Result<(Vec<Result<Listed>>, bool)>;
    /// Returns the size of a file or directory in bytes.
    fn size_of(&self, inode: &Inode<Self::Entry>) -> u64;
    /// Returns the run of a file at `range.start`, as `map` of the contract requires. Fails with `Invalid` for an
    /// empty range, or with `Corrupt` for a chain that ends too early or is damaged there.
    fn map(&self, inode: &Inode<Self::Entry>, range: Range<u64>) -> Result<Extent>;

    /// Returns the view of the on-disk structures, if the format has one.
    fn inspect(&self) -> Option<&dyn Inspect> {
        None
    }

    /// Returns the metadata cache.
    fn cache(&self) -> &Cache {
        &self.mount_state().cache
    }

    /// Returns the inode numbers.
    fn numbers(&self) -> RwLockReadGuard<'_, Numbers<Self::Entry>> {
        self.mount_state().numbers()
    }

    /// Drops the stored state of `ino`.
    fn forget(&self, ino: Ino) {
        self.mount_state().forget(ino);
    }

    /// Returns the byte range of a piece on the device. Fails with `Invalid` if it is not on the volume.
    fn bytes_of(&self, (start, len): Piece) -> Result<Range<u64>> {
        let offset = self.offset_of(start).ok_or(Error::Invalid)?;
        let size = u64::from(self.grain().cluster_size);
        Ok(offset..offset.saturating_add(u64::from(len).saturating_mul(size)))
    }

    /// Returns the inode number of the file whose entry is at `slot`.
    fn ino_at(&self, slot: Slot) -> Ino {
        self.numbers().ino_at(slot)
    }

    /// Returns the inode `ino`. Fails with `Stale` if the volume contains no such inode.
    fn inode(&self, ino: Ino) -> Result<Inode<Self::Entry>> {
        self.inode_and_parent(ino).map(|(inode, _)| inode)
    }

    /// Returns a regular file. Fails with `Stale` or `IsDirectory`.
    fn file(&self, ino: Ino) -> Result<Inode<Self::Entry>> {
        let inode = self.inode(ino)?;
        if inode.is_dir() { Err(Error::IsDirectory) } else { Ok(inode) }
    }

    /// Returns the current attributes of `ino`. Fails with `Stale`.
    fn attr(&self, ino: Ino) -> Result<Attr> {
        Ok(self.attr_of(&self.inode(ino)?))
    }

    /// Returns the attributes of an inode.
    fn attr_of(&self, inode: &Inode<Self::Entry>) -> Attr {
        inode.attr(self.owner(), self.size_of(inode), self.grain().cluster_size)
    }
}

/// Writing changes to the device.
pub trait Commit<V: Volume<Writer = Self>>: Data<V> + Sized {
    /// Opens the volume for changes and reads which clusters are free. Fails with `ReadOnly` if the device is
    /// read-only, with `OutOfBounds` if the device is shorter than the volume, or if the device fails.
    fn open(volume: &V, clock: Arc<dyn Clock>) -> Result<Self>;
    /// Returns the pending changes.
    fn waiting(&self) -> &Waiting;
    /// Returns the pending changes, mutably.
    fn waiting_mut(&mut self) -> &mut Waiting;
    /// Writes the pending changes in an order that leaves a repairable volume after a power failure. Fails if
    /// the device fails.
    fn write_changes(&mut self, volume: &Locked<'_, V>) -> Result<()>;
    /// Marks the volume as in use, or as not in use. A volume that was marked as in use when it was opened
    /// keeps that mark.
    fn mark(&mut self, volume: &Locked<'_, V>, in_use: bool) -> Result<()>;
    /// Frees clusters that were allocated and to which nothing refers.
    fn give_back(&mut self, volume: &Locked<'_, V>, pieces: &[Piece]);

    /// Returns the number of changed sectors.
    fn sectors(&self) -> usize {
        self.waiting().sectors()
    }

    /// Returns the current time for timestamps.
    fn now(&self) -> Timestamp {
        self.waiting().clock.now()
    }

    /// Returns the allocator.
    fn allocator(&mut self) -> &mut Allocator {
        &mut self.waiting_mut().allocator
    }

    /// Fails with `ReadOnly` if a write has failed.
    fn check(&self) -> Result<()> {
        self.waiting().check()
    }

    /// Returns whether changes are pending.
    fn has_changes(&self) -> bool {
        self.waiting().data_written || self.sectors() > 0
    }

    /// Returns whether the pending changes should be written because of their number.
    fn is_full(&self) -> bool {
        self.sectors() > MAX_DIRTY
    }

    /// Writes all changes. Fails if the device fails, and then refuses all further changes. Every later call fails with
    /// the same error.
    fn commit(&mut self, volume: &Locked<'_, V>) -> Result<()> {
        self.waiting().check_written()?;
        let result = match self.sectors() {
            0 if core::mem::take(&mut self.waiting_mut().data_written) => volume.cache().device().flush(),
            0 => Ok(()),
            _ => self.write_changes(volume),
        };
        result.inspect_err(|&error| self.waiting_mut().fail(error))
    }

    /// Writes all changes and marks the volume as unmounted. Fails in the same cases as [`Commit::commit`].
    fn close(&mut self, volume: &Locked<'_, V>) -> Result<()> {
        let orphans = volume.numbers().orphans();
        for ino in orphans {
            ops::forget(self, volume, ino)?;
        }
        for ino in self.waiting().reservations.files() {
            // The clusters of a damaged inode are returned below.
            let _ = volume.file(ino).map(|file| self.abandon(&file, &(0..u64::MAX)));
        }
        let pieces = self.waiting_mut().reservations.take_back_all();
        self.give_back(volume, &pieces);
        self.commit(volume)?;
        self.mark(volume, false)?;
        volume.cache().device().flush()
    }

    /// Allocates with `take`. If that fails with `NoSpace`, commits and tries again, since freed clusters are
    /// available only after a commit. Fails with `NoSpace`, or with the errors of the commit.
    fn take_with<T>(
        &mut self,
        volume: &Locked<'_, V>,
        take: impl Fn(&mut Allocator) -> Result<T>,
    ) -> Result<T> {
        match take(self.allocator()) {
            Err(Error::NoSpace) if self.allocator().holds_any() => {
                self.commit(volume)?;
                take(self.allocator())
            }
            taken => taken,
        }
    }

    /// Allocates `want` clusters after `after`, in as few pieces as possible. Fails with `NoSpace`, and then
    /// allocates none.
    fn take(&mut self, volume: &Locked<'_, V>, after: Option<Cluster>, want: u32) -> Result<Vec<Piece>> {
        self.take_with(volume, |allocator| allocator.take_all(after, want))
    }
}

/// Changing directories.
pub trait Entries<V: Volume> {
    /// Adds `entry` to `dir` under `name`, which must not exist. Returns the place of the entry. Fails with
    /// `NoSpace`, or with `Invalid` or `NameTooLong` for a name that the format cannot store.
    fn add(&mut self, dir: &DirWrite<'_, V>, name: &Name, entry: V::Entry) -> Result<V::Location>;
    /// Removes a name from its directory.
    fn remove(&mut self, at: At<'_, V>) -> Result<()>;
    /// Replaces the attributes of an existing name with those of `entry`.
    fn put_over(&mut self, at: At<'_, V>, entry: &V::Entry) -> Result<()>;
    /// Changes the attributes of a file at its current place, except the name. The root has no attributes.
    fn put_inode(&mut self, inode: &InodeWrite<'_, V>) -> Result<()>;

    /// Returns whether one write changes both entries, so that a power failure leaves both changed or both
    /// unchanged.
    fn is_one_write(one: At<'_, V>, other: At<'_, V>) -> Result<bool>;
    /// Returns whether the two names can exchange their files without moving their entries.
    fn can_swap(one: &V::Location, other: &V::Location) -> bool;
    /// Records that the file of this entry moved here from another entry. A commit writes this entry after it
    /// has written the old one.
    fn arrive(&mut self, at: At<'_, V>) -> Result<()>;
    /// Records that this entry, which refers to `inode`, will refer to another file. Until a commit writes
    /// the new entry, the disk keeps the entry of `inode`. If the disk does not contain the entry of `inode`
    /// yet, the entry stays free on the disk until then.
    fn replace(&mut self, at: At<'_, V>, inode: &InodeWrite<'_, V>) -> Result<()>;

    /// Allocates the first cluster of a new directory in `parent`, with its initial contents. Fails with `NoSpace`.
    fn make_directory(&mut self, parent: &DirWrite<'_, V>, entry: &mut V::Entry) -> Result<Cluster>;
    /// Frees a cluster to which nothing in memory refers.
    fn free_one(&mut self, volume: &Locked<'_, V>, cluster: Cluster) -> Result<()>;
    /// Records the new parent of a directory.
    fn set_parent(&mut self, dir: &InodeWrite<'_, V>, parent: &DirWrite<'_, V>) -> Result<()>;
}

/// Changing the contents of files.
pub trait Data<V: Volume> {
    /// Sets the size, as `truncate` of the contract requires. Fails with `FileTooBig` or `NoSpace`.
    fn truncate(&mut self, file: InodeWrite<'_, V>, size: u64) -> Result<()>;
    /// Reserves clusters for `range`. Returns the location of the data at `range.start`, and its previous
    /// location, as `begin_write` of the contract requires.
    fn begin_write(&mut self, file: &InodeWrite<'_, V>, range: Range<u64>) -> Result<(Extent, Span)>;
    /// Makes written clusters part of the file, as `end_write` of the contract requires.
    fn end_write(&mut self, file: InodeWrite<'_, V>, written: Range<u64>, when: TimeChange) -> Result<()>;
    /// Cancels the writes to `range` that are open. Frees the reserved clusters that no other open write
    /// needs. If a later write has already made clusters of a cancelled write part of the file, zeroes these
    /// clusters.
    fn abandon(&mut self, file: &InodeWrite<'_, V>, range: &Range<u64>);
    /// Writes bytes as `write` of the contract requires, and zeroes a gap between the end of the file and
    /// `offset`. Returns the number of bytes written.
    fn write(&mut self, file: InodeWrite<'_, V>, offset: u64, bytes: &[u8]) -> Result<usize>;
    /// Frees the clusters of an inode without a name. The caller no longer uses the inode.
    fn free_inode(&mut self, inode: InodeWrite<'_, V>) -> Result<()>;
}
