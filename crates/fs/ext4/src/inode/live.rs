//! Changed inodes of the running transaction, decoded. A commit writes all of a block's inodes at once.
//!
//! Invariant: inodes are searched here before the inode table, which is older, is read.
//! Invariant: while an inode is dirty, nothing else changes its block of the table, so that the version that was
//! taken first stays the newest.
//! Invariant: an inode is here if its last change is not durable, or if it is in use without a name.
//! Invariant: the charge of an inode is what quota files contain for it once the changes of a commit are added.
//! Locking: leaves, one shard at a time. A caller that stores an inode holds its lock, or has just allocated or freed
//! it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hashbrown::{HashMap, hash_map};
use obento_base::wire::{FromBytes, to_usize};
use obento_base::{Error, Ino, Result};
use obento_env::sync::atomic::{AtomicBool, Ordering};
use obento_env::sync::{Mutex, MutexGuard};
use obento_journal::{Taken, Tid, Txn};

use super::{Inode, InodePlace, seal_record};
use crate::checksum::inode_seed;
use crate::quota::Charge;
use crate::raw::RawInode;
use crate::super_block::SuperBlock;
use crate::writer::InodeEdit;

/// Enough that threads rarely use the same shard.
const SHARDS: u64 = 16;
/// Number of adjacent inodes in one shard, so that most of a table block is in it: 16 inodes with blocks of 4 KiB.
const TOGETHER: u32 = 4;
/// Maximum number of inodes per shard that equal those in the table.
const MOST_CLEAN: usize = 1024;

/// The changed inodes of a volume.
#[derive(Debug)]
pub(crate) struct Live {
    /// The first shard, and the others: each number selects one.
    shards: (Box<Apart>, Vec<Apart>),
    /// Whether any inode was ever stored, so that nothing is looked up on a volume that is only read.
    is_used: AtomicBool,
}

/// A shard on cache lines of its own, so that threads in different shards do not wait for each other.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart(Mutex<Shard>);

#[derive(Debug, Default)]
struct Shard {
    inodes: HashMap<Ino, Entry>,
    dirty: Vec<Ino>,
    /// The last transactions that changed data but not the record.
    data: HashMap<Ino, Tid>,
    /// The blocks of dirty inodes.
    tables: HashMap<u64, Taken>,
    /// The record that was replaced last. The next one is stored in its memory once no inode refers to it.
    spare: Option<Arc<[u8]>>,
}

#[derive(Debug)]
struct Entry {
    record: Arc<[u8]>,
    place: InodePlace,
    /// The seed of checksums.
    seed: u32,
    view: Result<Inode>,
    /// Whether it is in use without a name.
    is_unlinked: bool,
    is_dirty: bool,
    changed: Tid,
    /// What the record in the table adds to the usage of its owners.
    charged: Option<Charge>,
    /// Number of attributes whose values are in inodes.
    values: u32,
}

impl Default for Live {
    fn default() -> Self {
        let shards = (Box::default(), (1..SHARDS).map(|_| Apart::default()).collect());
        Self { shards, is_used: AtomicBool::new(false) }
    }
}

impl Live {
    fn shard(&self, ino: Ino) -> MutexGuard<'_, Shard> {
        let group = ino.0.saturating_sub(1).checked_shr(TOGETHER).unwrap_or(0);
        let mixed = group.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let (first, others) = &self.shards;
        let shard = to_usize(mixed % SHARDS).checked_sub(1).and_then(|at| others.get(at)).unwrap_or(first);
        shard.0.lock()
    }

    fn shards(&self) -> impl Iterator<Item = &Apart> {
        let (first, others) = &self.shards;
        core::iter::once(&**first).chain(others)
    }

    fn look<T>(&self, ino: Ino, at: impl FnOnce(&Entry) -> T) -> Option<T> {
        if !self.is_used.load(Ordering::Acquire) {
            return None;
        }
        self.shard(ino).inodes.get(&ino).map(at)
    }

    fn note_use(&self) {
        // Written once, since all threads read it.
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Release);
        }
    }

    /// Returns inode `ino`, if it is here. Fails with `Corrupt`, or with `Stale` if it is not in use.
    pub(crate) fn get(&self, ino: Ino) -> Option<Result<Inode>> {
        self.read(ino, Inode::clone)
    }

    /// Calls `read` with inode `ino`, if it is here. Fails in the same cases as [`Self::get`].
    pub(crate) fn read<T>(&self, ino: Ino, read: impl FnOnce(&Inode) -> T) -> Option<Result<T>> {
        self.look(ino, |entry| match &entry.view {
            Ok(inode) if inode.links() == 0 && !entry.is_unlinked => Err(Error::Stale),
            Ok(inode) => Ok(read(inode)),
            Err(error) => Err(*error),
        })
    }

    /// Returns whether `ino` is in use without a name.
    pub(crate) fn is_unlinked(&self, ino: Ino) -> bool {
        self.look(ino, |entry| entry.is_unlinked).unwrap_or(false)
    }

    /// Returns the record of `ino`, if it is here, whether it is in use or not.
    pub(crate) fn record(&self, ino: Ino) -> Option<Arc<[u8]>> {
        self.look(ino, |entry| Arc::clone(&entry.record))
    }

    /// Returns the last transaction that changed `ino`, unless that has been durable for some time.
    pub(crate) fn last_change(&self, ino: Ino) -> Option<Tid> {
        if !self.is_used.load(Ordering::Acquire) {
            return None;
        }
        let shard = self.shard(ino);
        let record = shard.inodes.get(&ino).map(|entry| entry.changed);
        let data = shard.data.get(&ino).copied();
        // Return the later one.
        data.filter(|data| record.is_none_or(|record| data.is_after(record))).or(record)
    }

    /// Records that `tid` changed data of `ino` but not its record.
    pub(crate) fn note_data(&self, ino: Ino, tid: Tid) {
        self.shard(ino).data.insert(ino, tid);
        self.is_used.store(true, Ordering::Release);
    }

    /// Stores a changed inode, which the commit of `txn` writes. Returns what it added to the usage of its owners before
    /// and adds now, and the result of `read` for the inode.
    pub(crate) fn store<T>(
        &self,
        txn: &mut Txn<'_>,
        sb: &SuperBlock,
        (edit, is_unlinked): (&InodeEdit, bool),
        read: impl FnOnce(&Inode) -> T,
    ) -> ((Option<Charge>, Option<Charge>), Result<T>) {
        let (ino, place, seed) = (edit.ino(), edit.place(), edit.checksum_seed());
        let mut shard = self.shard(ino);
        let record = edit.record_in(shard.spare.take());
        let is_free = edit.links() == 0 && !is_unlinked;
        let view = match is_free {
            true => Err(Error::Stale),
            false => Inode::from_edit(sb.into(), ino, Arc::clone(&record), place, seed),
        };
        let changed = txn.tid();
        let (charged, values) = (edit.charged(), edit.values());
        let mut fresh =
            Entry { record, place, seed, view, is_unlinked, is_dirty: true, changed, charged, values };
        let after = fresh.charge(sb);
        let seen = fresh.view.as_ref().map(read).map_err(|error| *error);
        let old = match shard.inodes.entry(ino) {
            hash_map::Entry::Occupied(mut old) => {
                fresh.charged = old.get().charged;
                Some(old.insert(fresh))
            }
            hash_map::Entry::Vacant(new) => {
                new.insert(fresh);
                None
            }
        };
        if !old.as_ref().is_some_and(|old| old.is_dirty) {
            shard.note_dirty(txn, ino, edit.table());
        }
        shard.spare = old.as_ref().map(|old| Arc::clone(&old.record));
        drop(shard);
        let before = old.as_ref().map_or(charged, |old| old.charge(sb));
        drop(old);
        self.note_use();
        ((before, after), seen)
    }

    /// Adds an inode that has no name and is in use, as it is in the table. `values` of its attributes have values in
    /// inodes. `changed` is durable.
    pub(crate) fn take_up(&self, sb: &SuperBlock, inode: Inode, values: u32, changed: Tid) {
        let (ino, place, record) = (inode.ino(), inode.place(), inode.record().into());
        let seed = inode.checksum_seed();
        let charged = Charge::new(sb.into(), inode.record(), values);
        let (view, is_unlinked, is_dirty) = (Ok(inode), true, false);
        let entry = Entry { record, place, seed, view, is_unlinked, is_dirty, changed, charged, values };
        self.shard(ino).inodes.insert(ino, entry);
        self.note_use();
    }

    /// Makes the commit of `txn` write an orphan again, since its link in the orphan list changes. The lock of the
    /// inode is not needed, since nothing else changes. `values` counts the attributes with values in inodes of an inode
    /// that is not here. It may read the device, and is called without a lock. Fails with its error, before anything is
    /// changed.
    pub(crate) fn touch(
        &self,
        txn: &mut Txn<'_>,
        (sb, values): (&SuperBlock, impl FnOnce(&Inode) -> Result<u32>),
        ino: Ino,
        place: InodePlace,
        table: &Taken,
    ) -> Result<()> {
        if !self.mark_dirty(txn, ino, table, None) {
            let fresh = Entry::from_table(sb, ino, (&txn.view(table), place), txn.tid(), values)?;
            self.mark_dirty(txn, ino, table, Some(fresh));
        }
        self.note_use();
        Ok(())
    }

    /// Makes the commit of `txn` write inode `ino`. Adds `fresh` if the inode is not here. Returns whether it is here.
    fn mark_dirty(&self, txn: &mut Txn<'_>, ino: Ino, table: &Taken, fresh: Option<Entry>) -> bool {
        let mut shard = self.shard(ino);
        let entry = match (shard.inodes.entry(ino), fresh) {
            (hash_map::Entry::Occupied(old), _) => old.into_mut(),
            (hash_map::Entry::Vacant(new), Some(fresh)) => new.insert(fresh),
            (hash_map::Entry::Vacant(_), None) => return false,
        };
        entry.changed = txn.tid();
        if !core::mem::replace(&mut entry.is_dirty, true) {
            shard.note_dirty(txn, ino, table);
        }
        true
    }

    /// Writes all dirty inodes to their blocks, with the `i_dtime` that the orphan list defines, if any. Calls `charge`
    /// with each of them and with the old and the new charge. No other thread is in the transaction.
    pub(crate) fn flush(
        &self,
        txn: &mut Txn<'_>,
        sb: &SuperBlock,
        dtime: impl Fn(Ino) -> Option<u32>,
        mut charge: impl FnMut(Ino, Option<Charge>, Option<Charge>),
    ) {
        for shard in self.shards() {
            shard.0.lock().flush(txn, sb, &dtime, &mut charge);
        }
    }

    /// Drops most inodes that equal those in the table. All transactions up to `tid` are durable.
    pub(crate) fn durable(&self, tid: Tid) {
        for shard in self.shards() {
            let mut shard = shard.0.lock();
            shard.data.retain(|_, last| last.is_after(tid));
            if shard.inodes.len() > MOST_CLEAN {
                let is_needed =
                    |entry: &Entry| entry.is_dirty || entry.is_unlinked || entry.changed.is_after(tid);
                shard.inodes.retain(|_, entry| is_needed(entry));
            }
        }
    }
}

impl Shard {
    fn note_dirty(&mut self, txn: &mut Txn<'_>, ino: Ino, table: &Taken) {
        self.dirty.push(ino);
        self.tables.entry(table.number()).or_insert_with(|| {
            txn.note(table);
            table.clone()
        });
    }

    fn flush(
        &mut self,
        txn: &mut Txn<'_>,
        sb: &SuperBlock,
        dtime: &impl Fn(Ino) -> Option<u32>,
        charge: &mut impl FnMut(Ino, Option<Charge>, Option<Charge>),
    ) {
        let mut dirty = core::mem::take(&mut self.dirty);
        // By block, and within it by place, which is the order of inode numbers.
        dirty.sort_unstable();
        let tables = core::mem::take(&mut self.tables);
        let mut rest = dirty.iter().copied().peekable();
        while let Some(&first) = rest.peek() {
            let number = self.inodes.get(&first).map(|entry| entry.place.block.0);
            let Some((number, table)) = number.and_then(|number| Some((number, tables.get(&number)?))) else {
                rest.next();
                continue;
            };
            let mut block = txn.edit(table);
            while let Some(ino) = rest.peek().copied() {
                let Some(entry) = self.inodes.get_mut(&ino).filter(|entry| entry.place.block.0 == number)
                else {
                    break;
                };
                entry.is_dirty = false;
                entry.write(sb, &mut block, dtime(ino));
                let charged = entry.charge(sb);
                charge(ino, entry.charged, charged);
                entry.charged = charged;
                rest.next();
            }
        }
    }
}

impl Entry {
    /// Decodes an inode at its place in a block of the inode table. Fails with the error of `values`.
    fn from_table(
        sb: &SuperBlock,
        ino: Ino,
        (block, place): (&[u8], InodePlace),
        changed: Tid,
        values: impl FnOnce(&Inode) -> Result<u32>,
    ) -> Result<Self> {
        let start = to_usize(place.offset.into());
        let end = start.saturating_add(sb.inode_size.into());
        let record: Arc<[u8]> = block.get(start..end).unwrap_or_default().into();
        let seed = seed_of(sb, ino, &record);
        let view = Inode::from_edit(sb.into(), ino, Arc::clone(&record), place, seed);
        let is_unlinked = view.as_ref().is_ok_and(|inode| inode.links() == 0);
        let values = view.as_ref().map_or(Ok(0), values)?;
        let charged = Charge::new(sb.into(), &record, values);
        Ok(Self { record, place, seed, view, is_unlinked, is_dirty: false, changed, charged, values })
    }

    /// Returns what the record adds to the usage of its owners.
    fn charge(&self, sb: &SuperBlock) -> Option<Charge> {
        let is_named =
            RawInode::ref_from_prefix(&self.record).is_ok_and(|(raw, _)| raw.i_links_count.get() != 0);
        Charge::new(sb.into(), &self.record, self.values).filter(|_| is_named || self.is_unlinked)
    }

    /// Writes the record with its checksum to its place, with `dtime` in place of its own if given.
    fn write(&self, sb: &SuperBlock, block: &mut [u8], dtime: Option<u32>) {
        let start = to_usize(self.place.offset.into());
        let target = block.get_mut(start..start.saturating_add(self.record.len()));
        let Some(target) = target.filter(|target| target.len() == self.record.len()) else { return };
        target.copy_from_slice(&self.record);
        let Ok((raw, _)) = RawInode::mut_from_prefix(target) else { return };
        dtime.into_iter().for_each(|dtime| raw.i_dtime.set(dtime));
        if sb.has_metadata_csum() {
            seal_record(target, self.seed);
        }
    }
}

/// Returns the seed of the checksums of inode `ino`, from its record.
fn seed_of(sb: &SuperBlock, ino: Ino, record: &[u8]) -> u32 {
    let generation = RawInode::ref_from_prefix(record).map_or(0, |(raw, _)| raw.i_generation.get());
    inode_seed(sb.checksum_seed, u32::try_from(ino.0).unwrap_or(0), generation)
}
