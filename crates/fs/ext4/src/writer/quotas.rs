//! The quota files of a volume that is being changed.
//!
//! The usage of owners follows from the records of inodes: a commit compares each changed record with the one that it
//! replaces, and adds the differences to the quota files. An owner gets its entry before the first inode is charged to
//! it, since only a handle of its own can allocate space for it.
//! Invariant: the entries are in the same transaction as the inodes that they count. The exception is an owner whose
//! entry was missing although it had inodes: the next change adds it.
//! Invariant: the blocks of entries that a commit changes belong to the transaction already, so that it is not too large.
//! Locking: `growth` inside a transaction; the others are leaves.
//! Source: Linux `fs/quota/dquot.c`; `fs/ext4/super.c` `ext4_quota_write`, `ext4_enable_quotas`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::{FromBytes, to_u64, to_usize};
use obento_base::{Corrupt, Error, Ino, Result, Structure};
use obento_driver::QuotaLimits;
use obento_env::sync::Mutex;
use obento_env::sync::atomic::{AtomicBool, Ordering};
use obento_journal::{Credits, Tid, Txn};

use super::{InodeEdit, Writer, cost};
use crate::quota::{
    Accounts, BLOCK, Charge, Entries, EntryPlace, MAX_SIZE, QuotaBlock, QuotaKind, RawEntry, UsageChanges,
    copy_of, decode, find, header, insert,
};
use crate::unit::{FileBlock, VolBlock};
use crate::volume::Volume;

/// Blocks of a quota file that one entry changes: the header, the path, and neighbours in the list of blocks with room.
const INSERTION: Credits = Credits(8);
/// Most blocks of [`BLOCK`] bytes that a new entry adds: three levels of the tree, and a block of entries.
const NEW_BLOCKS: usize = 4;
/// Blocks with entries that one operation changes: a rename stores five inodes, and each has three owners.
const PER_OPERATION: Credits = Credits(18);

/// Whether a writer updates quota files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QuotaUpdates {
    /// With each commit. These limits are enforced.
    On(QuotaLimits),
    /// A repair computes them itself.
    Off,
}

/// The quota files of a volume.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    /// The inodes of the files, in the order of [`QuotaKind::ALL`].
    files: [Option<Ino>; 3],
    places: Mutex<Places>,
    waiting: Mutex<Waiting>,
    is_waiting: AtomicBool,
    /// Held while a file grows.
    growth: Mutex<()>,
    /// The limits that are enforced.
    accounts: Arc<Accounts>,
}

/// The place of an entry on the volume. Quota files never move.
#[derive(Clone, Copy, Debug)]
struct VolumePlace {
    block: VolBlock,
    /// Byte offset within the block.
    start: usize,
    /// The last transaction to which the block was added.
    noted: Option<Tid>,
}

impl VolumePlace {
    fn new(volume: &Volume, ino: Ino, place: EntryPlace) -> Result<Self> {
        let (block, start) = block_place(volume, ino, place.block)?;
        Ok(Self { block, start: start.saturating_add(place.offset), noted: None })
    }
}

/// Maximum number of places in memory.
const PLACES: usize = 512;

/// Places of entries that were used lately.
#[derive(Debug, Default)]
struct Places(Vec<Option<(QuotaKind, u32, VolumePlace)>>);

impl Places {
    fn get(&self, kind: QuotaKind, id: u32) -> Option<VolumePlace> {
        let slot = self.0.get(Self::slot(kind, id)).copied().flatten();
        slot.filter(|slot| (slot.0, slot.1) == (kind, id)).map(|slot| slot.2)
    }

    /// Replaces the place of another owner, if necessary. Without memory, no place is kept.
    fn put(&mut self, kind: QuotaKind, id: u32, place: VolumePlace) {
        if self.0.is_empty() && self.0.try_reserve_exact(PLACES).is_ok() {
            self.0.resize(PLACES, None);
        }
        if let Some(slot) = self.0.get_mut(Self::slot(kind, id)) {
            *slot = Some((kind, id, place));
        }
    }

    fn slot(kind: QuotaKind, id: u32) -> usize {
        let mixed = id.wrapping_add(kind.magic()).wrapping_mul(0x9e37_79b9) >> 23;
        to_usize(mixed.into())
    }
}

/// What a commit leaves to the next operation, which can begin a transaction.
#[derive(Debug, Default)]
struct Waiting {
    /// Changes of owners without an entry.
    changes: UsageChanges,
    /// Damage that prevented changes.
    damage: Option<Error>,
}

impl Quotas {
    /// Finds the quota files. Fails with `Corrupt` for a file that is not one.
    pub(super) fn open(volume: &Volume, updates: QuotaUpdates) -> Result<Self> {
        let mut this = Self::default();
        let QuotaUpdates::On(limits) = updates else { return Ok(this) };
        let mut accounts = Accounts::default();
        for ((kind, file), ino) in
            QuotaKind::ALL.into_iter().zip(&mut this.files).zip(volume.super_block().quota_inodes())
        {
            if let Some(ino) = ino {
                let header = header(kind, ino, &*read(volume, ino, 0)?)?;
                *file = Some(ino);
                if limits.contains(limits_of(kind)) {
                    let entries = entries(volume, kind, ino, header.len())?;
                    accounts.add(kind, entries.into_values(), header.grace());
                }
            }
        }
        this.accounts = Arc::new(accounts);
        Ok(this)
    }

    pub(super) fn accounts(&self) -> &Arc<Accounts> {
        &self.accounts
    }

    fn has_files(&self) -> bool {
        self.files.iter().any(Option::is_some)
    }

    /// Returns the number of blocks that an operation can change in quota files.
    pub(super) fn credits(&self) -> Credits {
        if self.has_files() { PER_OPERATION } else { Credits(0) }
    }

    fn file(&self, kind: QuotaKind) -> Option<Ino> {
        QuotaKind::ALL.into_iter().zip(self.files).find_map(|(other, file)| file.filter(|_| other == kind))
    }

    /// Returns a function that records the changed charge of an inode in `changes`.
    pub(super) fn recorder<'a>(
        &self,
        volume: &'a Volume,
        changes: &'a mut UsageChanges,
    ) -> impl FnMut(Ino, Option<Charge>, Option<Charge>) + use<'a> {
        let has_files = self.has_files();
        move |ino, before, after| {
            if has_files && !volume.is_reserved(ino) {
                changes.replace(before, after);
            }
        }
    }

    /// Adds `changes` to the entries of their owners. `txn` is of a commit. A damaged quota file does not prevent the
    /// other changes. Fails if the device fails.
    pub(super) fn write_back(
        &self,
        txn: &mut Txn<'_>,
        volume: &Volume,
        changes: &mut UsageChanges,
    ) -> Result<()> {
        let mut waiting = self.waiting.lock();
        waiting.changes.take().into_iter().for_each(|(kind, id, change)| changes.add(kind, id, change));
        let all = changes.take();
        // All gains of an owner precede the losses, so that the usage is never below its end value. Otherwise, it could fall
        // below a soft limit in between, which ends the grace period.
        let is_gain = |change: &(i64, i64)| change.0 > 0 || change.1 > 0;
        let gains = all.iter().filter(|(_, _, change)| is_gain(change));
        let losses = all.iter().filter(|(_, _, change)| !is_gain(change));
        for &(kind, id, change) in gains.chain(losses) {
            let Some(ino) = self.file(kind) else { continue };
            match self.change_entry(txn, volume, (kind, ino, id), change) {
                Ok(true) => {}
                Ok(false) => waiting.changes.add(kind, id, change),
                Err(error @ (Error::Device(_) | Error::NoMemory)) => return Err(error),
                Err(error) => waiting.damage = Some(error),
            }
        }
        let is_waiting = !waiting.changes.is_empty() || waiting.damage.is_some();
        self.is_waiting.store(is_waiting, Ordering::Release);
        Ok(())
    }

    /// Changes the usage of an owner. Returns whether it has an entry.
    fn change_entry(
        &self,
        txn: &mut Txn<'_>,
        volume: &Volume,
        (kind, ino, id): (QuotaKind, Ino, u32),
        (inodes, bytes): (i64, i64),
    ) -> Result<bool> {
        let Some(place) = self.place(volume, (kind, ino, id))? else { return Ok(false) };
        let taken = txn.take(place.block.0)?;
        let mut block = txn.edit(&taken);
        let target = block.get_mut(place.start..place.start.saturating_add(size_of::<RawEntry>()));
        if let Some((raw, _)) = target.and_then(|bytes| RawEntry::mut_from_prefix(bytes).ok()) {
            raw.change(inodes, bytes);
            if let Some((inodes, bytes)) = self.accounts.deadlines(kind, id) {
                raw.set_deadlines(inodes, bytes);
            }
        }
        Ok(true)
    }

    /// Adds the block with the entry of an owner to the transaction, if it has one.
    fn note(&self, txn: &mut Txn<'_>, volume: &Volume, (kind, id): (QuotaKind, u32)) -> Result<()> {
        let Some(ino) = self.file(kind) else { return Ok(()) };
        let Some(place) = self.place(volume, (kind, ino, id))? else { return Ok(()) };
        if place.noted != Some(txn.tid()) {
            let taken = txn.take(place.block.0)?;
            txn.note(&taken);
            let noted = Some(txn.tid());
            self.places.lock().put(kind, id, VolumePlace { noted, ..place });
        }
        Ok(())
    }

    /// Returns the place of the entry of an owner, if it has one.
    fn place(&self, volume: &Volume, (kind, ino, id): (QuotaKind, Ino, u32)) -> Result<Option<VolumePlace>> {
        if let Some(place) = self.places.lock().get(kind, id) {
            return Ok(Some(place));
        }
        let place = find_entry(volume, kind, (ino, id))?;
        if let Some(place) = place {
            self.places.lock().put(kind, id, place);
        }
        Ok(place)
    }
}

impl Writer {
    pub(super) fn quotas(&self) -> &Quotas {
        self.uncommitted.quotas()
    }

    /// Creates the entries of the owners of an inode that will be charged to them, unless they exist. The caller must
    /// have no open transaction. Fails with `NoSpace`, or with `Corrupt` for a damaged quota file.
    pub(crate) fn prepare_owners(&self, ids: [u32; 3]) -> Result<()> {
        QuotaKind::ALL.into_iter().zip(ids).try_for_each(|(kind, id)| self.prepare_owner(kind, id))
    }

    /// Adds the entries of owners that have inodes, but no entry, and records damage. The caller must have no open
    /// transaction.
    pub(super) fn add_missing_owners(&self) {
        if !self.quotas().is_waiting.swap(false, Ordering::AcqRel) {
            return;
        }
        let (owners, damage) = {
            let mut waiting = self.quotas().waiting.lock();
            (waiting.changes.owners().collect::<Vec<_>>(), waiting.damage.take())
        };
        // The usage of an owner that gets no entry stays wrong until a check computes it.
        let failed = owners.into_iter().filter_map(|(kind, id)| self.prepare_owner(kind, id).err());
        damage.into_iter().chain(failed).for_each(|error| self.note_damage(error));
    }

    /// Adds all changes to the quota files before the volume is closed.
    pub(super) fn settle_quotas(&self) {
        if self.quotas().has_files() && self.txns().sync().is_ok() {
            self.add_missing_owners();
        }
    }

    fn prepare_owner(&self, kind: QuotaKind, id: u32) -> Result<()> {
        let quotas = self.quotas();
        let Some(ino) = quotas.file(kind) else { return Ok(()) };
        if quotas.places.lock().get(kind, id).is_some()
            || quotas.place(self.volume(), (kind, ino, id))?.is_some()
        {
            return Ok(());
        }
        // No commit changes entries while this handle is open.
        let mut txn = self.txns().begin(self.insertion_credits())?;
        let added = self.add_owner(&mut txn, (kind, ino, id));
        txn.commit();
        added
    }

    /// Returns the number of blocks that a new entry changes, with new blocks of the file.
    fn insertion_credits(&self) -> Credits {
        let blocks = to_u64(NEW_BLOCKS.saturating_mul(BLOCK)).div_ceil(u64::from(self.volume().block_size()));
        let appended = cost::APPEND.0.saturating_mul(u32::try_from(blocks).unwrap_or(u32::MAX));
        INSERTION + cost::INODE + Credits(appended)
    }

    #[inline(never)]
    fn add_owner(&self, txn: &mut Txn<'_>, (kind, ino, id): (QuotaKind, Ino, u32)) -> Result<()> {
        let (quotas, volume) = (self.quotas(), self.volume());
        let growth = quotas.growth.lock();
        if quotas.place(volume, (kind, ino, id))?.is_some() {
            return Ok(());
        }
        let new = insert(kind, (ino, id), |number| read(volume, ino, number))?;
        let inode = volume.inode(ino)?;
        let mut edit = self.edit_shared_inode(txn, &growth, &inode)?;
        let needed = u64::from(new.len).saturating_mul(to_u64(BLOCK));
        let block_size = u64::from(volume.block_size());
        while edit.size().div_ceil(block_size).saturating_mul(block_size) < needed {
            let (_, taken) = self.append_dir_block(txn, &mut edit)?;
            txn.note(&taken);
            self.store_inode(txn, &edit);
        }
        write_blocks(txn, volume, ino, &new.blocks)?;
        edit.set_size(edit.size().max(needed));
        self.store_inode(txn, &edit);
        quotas.places.lock().put(kind, id, VolumePlace::new(volume, ino, new.place)?);
        Ok(())
    }

    /// Adds the blocks of the quota files that the commit will change because of `edit` to the transaction, so that its
    /// size is known.
    pub(super) fn note_quota_blocks(&self, txn: &mut Txn<'_>, edit: &InodeEdit) {
        let (quotas, volume) = (self.quotas(), self.volume());
        if !quotas.has_files() || volume.is_reserved(edit.ino()) {
            return;
        }
        let charges = [edit.charged(), edit.charge()].into_iter().flatten();
        for (kind, id) in charges.flat_map(|charge| QuotaKind::ALL.into_iter().zip(charge.ids)) {
            // The commit encounters the same error.
            let _ = quotas.note(txn, volume, (kind, id));
        }
    }
}

fn find_entry(volume: &Volume, kind: QuotaKind, (ino, id): (Ino, u32)) -> Result<Option<VolumePlace>> {
    let found = find(kind, (ino, id), |number| read(volume, ino, number))?;
    found.map(|found| VolumePlace::new(volume, ino, found)).transpose()
}

/// Returns the block with the entry of owner `id` in the quota file `ino`, and its byte offset there, if it has one.
pub(crate) fn entry_place(
    volume: &Volume,
    kind: QuotaKind,
    (ino, id): (Ino, u32),
) -> Result<Option<(VolBlock, usize)>> {
    Ok(find_entry(volume, kind, (ino, id))?.map(|place| (place.block, place.start)))
}

fn limits_of(kind: QuotaKind) -> QuotaLimits {
    match kind {
        QuotaKind::User => QuotaLimits::USERS,
        QuotaKind::Group => QuotaLimits::GROUPS,
        QuotaKind::Project => QuotaLimits::PROJECTS,
    }
}

/// Returns the entries of a quota file of `len` bytes. Fails with `Corrupt`, also for a file that is larger than the
/// volume, since a quota file has no holes.
fn entries(volume: &Volume, kind: QuotaKind, ino: Ino, len: usize) -> Result<Entries> {
    let inode = volume.inode(ino)?;
    let mut bytes = Vec::new();
    let sb = volume.super_block();
    if inode.size() > MAX_SIZE.min(sb.blocks_count.saturating_mul(sb.block_size.into())) {
        return Err(inode.bad_field("i_size", 0x4, inode.size()));
    }
    let len = len.min(to_usize(inode.size()));
    bytes.try_reserve_exact(len)?;
    bytes.resize(len, 0);
    let read = volume.read_inode_data(&inode, 0, &mut bytes)?;
    bytes.truncate(read);
    let structure = Structure::Quota(ino);
    let damage = Corrupt::Field { structure, field: "quota tree", block: 0, offset: 0, found: 0 };
    decode(kind, &bytes).map_err(|_| damage.into())
}

/// Writes blocks of a quota file. Fails before the first change.
#[inline(never)]
fn write_blocks(txn: &mut Txn<'_>, volume: &Volume, ino: Ino, blocks: &[(u32, QuotaBlock)]) -> Result<()> {
    let places = blocks.iter().map(|(number, bytes)| {
        let (block, start) = block_place(volume, ino, *number)?;
        Ok((txn.take(block.0)?, start, bytes))
    });
    for (taken, start, bytes) in places.collect::<Result<Vec<_>>>()? {
        let mut block = txn.edit(&taken);
        let target = block.get_mut(start..).and_then(|rest| rest.first_chunk_mut());
        target.into_iter().for_each(|target| *target = **bytes);
    }
    Ok(())
}

/// Reads a block of a quota file.
fn read(volume: &Volume, ino: Ino, number: u32) -> Result<QuotaBlock> {
    let (block, start) = block_place(volume, ino, number)?;
    let block = volume.cache().get(block.0)?;
    copy_of(block.get(start..).unwrap_or_default())
}

/// Returns the block of the volume that contains a block of a quota file, and the byte offset there. Fails with
/// `Corrupt` for a hole.
fn block_place(volume: &Volume, ino: Ino, number: u32) -> Result<(VolBlock, usize)> {
    let byte = u64::from(number).saturating_mul(to_u64(BLOCK));
    let size = u64::from(volume.block_size());
    let at = u32::try_from(byte.checked_div(size).unwrap_or(0)).map_err(|_| Error::FileTooBig)?;
    let block = volume.map_block(&volume.inode(ino)?, FileBlock(at))?;
    let hole = Corrupt::BlockRange { structure: Structure::Quota(ino), at: at.into(), start: 0, len: 1 };
    Ok((block.ok_or(hole)?, to_usize(byte.checked_rem(size).unwrap_or(0))))
}
