//! Setting and removing attributes within a transaction.
//!
//! Invariant: a shared block of attributes never changes, except its user count. An inode that needs other attributes
//! gets a copy. A reader therefore needs only its own inode's lock.
//! Invariant: the reference count of a value's inode counts the inodes that refer to it after their fields, plus the
//! blocks that refer to it. A block counts once, however many users it has.
//! Locking: the caller holds the inode's lock exclusively. Blocks and inodes of values belong to several inodes and
//! change under [`Shares`](super::share::Shares), a leaf above those of the orphan list and the allocator.
//! Source: Linux fs/ext4/xattr.c `ext4_xattr_set_handle`, `ext4_xattr_block_set`, `ext4_xattr_release_block`,
//! `ext4_xattr_delete_inode`.

use alloc::vec::Vec;

use obento_base::wire::{to_u64, to_usize};
use obento_base::{Error, Result};
use obento_block::Block;
use obento_driver::XattrMode;
use obento_env::sync::MutexGuard;
use obento_journal::{Credits, Taken, Txn};

use super::area::AttributeArea;
use super::block::{USERS_MAX, encode, header, set_checksum, set_users};
use super::name::StoredName;
use super::plan::{AttributePlan, Tables, ValueInodes};
use super::share::SharedNumbers;
use super::table::{Form, Table, Value};
use super::values::{Counts, UnreferencedValues};
use crate::allocator::Freed;
use crate::checksum::Crc;
use crate::feature::{Incompat, RoCompat};
use crate::inode::{Inode, InodeFlags};
use crate::unit::VolBlock;
use crate::volume::Volume;
use crate::writer::{InodeEdit, Writer, cost};

/// The change of an attribute.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change<'a> {
    Set(&'a [u8], XattrMode),
    Remove,
}

/// The change of the block of attributes.
enum Step {
    Keep,
    /// The inode has no block any more.
    Leave,
    /// The block belongs only to this inode and gets new contents.
    Rewrite(Taken),
    /// The inode becomes a user of an equal block.
    Join(Taken),
    /// The inode gets a new block.
    New,
}

/// A [`Step`] with all resources that it needs.
enum Ready {
    Keep,
    Leave,
    Rewrite(Taken, Vec<u8>),
    Join(Taken),
    New(Taken, Vec<u8>),
}

/// The block of attributes that the inode refers to.
struct Old {
    taken: Taken,
    users: u32,
    hash: u32,
}

impl Old {
    fn take(txn: &mut Txn<'_>, block: &Block) -> Result<Self> {
        let (users, hash) = header(block).map_or((1, 0), |raw| (raw.h_refcount.get(), raw.h_hash.get()));
        Ok(Self { taken: txn.take(block.number())?, users, hash })
    }
}

impl Writer {
    /// Sets or removes an attribute of `edit`, which the caller stores afterwards. Returns whether this changes anything:
    /// the attribute may have the value already. After an error nothing is changed, but the transaction may contain
    /// changes that were undone, and must be committed. Fails with the first error: `Exists`; `NoData`; `NoSpace`.
    pub(super) fn change_xattr(
        &self,
        txn: &mut Txn<'_>,
        edit: &mut InodeEdit,
        name: StoredName<'_>,
        change: Change<'_>,
        dead: &mut UnreferencedValues,
    ) -> Result<bool> {
        let mut known = self.shares().0.lock();
        let inode = edit.inode()?;
        let block = self.volume().xattr_block(&inode)?;
        let tables = self.volume().xattr_tables(&inode, block.as_ref())?;
        let (value, own) = match change {
            Change::Remove => (&[][..], ValueInodes::Never),
            Change::Set(value, _) => (value, self.volume().value_inodes(value)),
        };
        let plan = match change {
            Change::Remove => Some(tables.plan_remove(name)?),
            Change::Set(value, mode) => tables.plan_set(name, value, mode, own, self.block_len())?,
        };
        let Some(mut plan) = plan else { return Ok(false) };
        if plan.wants_inode {
            self.keep_value_room(edit, self.volume().clusters_of(to_u64(value.len())))?;
        }
        let old = block.as_ref().map(|block| Old::take(txn, block)).transpose()?;
        let mut counts = Counts::default();
        let mut make = None;
        if let ValueInodes::Allowed { hash } = own
            && plan.wants_inode
        {
            match self.volume().find_value(&known, value, hash) {
                Some(ino) => plan.name_value_inode(ino),
                None => {
                    self.expect_room_to_create(edit)?;
                    make = Some(hash);
                }
            }
        }
        let step = self.choose(txn, &mut known, &inode, old.as_ref(), (&tables.block, &plan.tables.block))?;
        let freed = self.count(txn, (edit, &known), &tables, &plan, (&step, old.as_ref()), &mut counts)?;
        let made = match make {
            Some(hash) => self.new_value_inode(txn, edit, value, hash, &mut counts).map(Some),
            None => Ok(None),
        };
        let ready = made.and_then(|made| {
            if let Some(ino) = made {
                plan.name_value_inode(ino);
            }
            if old.is_none() && matches!(step, Step::Join(_) | Step::New) {
                self.keep_room(edit, self.volume().super_block().cluster_blocks().into())?;
            }
            let ready = self.prepare(txn, edit, &plan, step)?;
            made.into_iter().for_each(|ino| counts.count_new(ino));
            Ok(ready)
        });
        let ready = match ready {
            Ok(ready) => ready,
            Err(error) => {
                counts.undo(self, txn, &mut known, dead);
                return Err(error);
            }
        };
        counts.store(self, txn, &mut known, dead);
        if plan.wants_inode {
            // The space was counted for the previous value.
            let _ = edit.add_blocks(self.volume().clusters_of(to_u64(value.len())));
        }
        edit.remove_blocks(freed);
        edit.set_values(plan.tables.values());
        self.finish(txn, &mut known, edit, ready, old);
        Ok(true)
    }

    fn block_len(&self) -> usize {
        to_usize(self.volume().block_size().into())
    }

    /// Chooses the step for the block. `tables` are its contents before and after. Takes the blocks that the step
    /// needs.
    fn choose(
        &self,
        txn: &mut Txn<'_>,
        known: &mut SharedNumbers,
        inode: &Inode,
        old: Option<&Old>,
        (before, after): (&Table<'_>, &Table<'_>),
    ) -> Result<Step> {
        let number = old.map(|old| old.taken.number());
        if before == after {
            return Ok(Step::Keep);
        }
        if after.is_empty() {
            return Ok(Step::Leave);
        }
        // No block refers to an inode that does not exist yet.
        let candidates =
            if after.value_inodes().any(|(ino, _)| ino == 0) { &[] } else { known.blocks.find(after.hash()) };
        for &candidate in candidates.iter().filter(|&&candidate| Some(candidate) != number) {
            if self.is_equal(inode, candidate, after) {
                return Ok(Step::Join(txn.take(candidate)?));
            }
        }
        match old {
            Some(old) if old.users == 1 => Ok(Step::Rewrite(old.taken.clone())),
            _ => Ok(Step::New),
        }
    }

    /// Returns whether block `number` contains `table` and can have another user.
    fn is_equal(&self, inode: &Inode, number: u64, table: &Table<'_>) -> bool {
        let Ok(block) = self.volume().xattr_block_at(inode, VolBlock(number)) else { return false };
        let has_room = header(&block).is_some_and(|raw| raw.h_refcount.get() < USERS_MAX);
        let area = AttributeArea::in_block(inode.ino(), &block);
        has_room && Table::decode(Form::Block, block.len(), &area).is_ok_and(|held| held == *table)
    }

    /// Collects the changes of the reference counts of value inodes, except one that does not exist yet. Returns the
    /// number of blocks by which the space of the inode decreases for the lost value.
    fn count(
        &self,
        txn: &mut Txn<'_>,
        (edit, known): (&InodeEdit, &MutexGuard<'_, SharedNumbers>),
        before: &Tables<'_>,
        plan: &AttributePlan<'_>,
        (step, old): (&Step, Option<&Old>),
        counts: &mut Counts,
    ) -> Result<u64> {
        let mut add = |txn: &mut Txn<'_>, table: &Table<'_>, delta| {
            let named = table.value_inodes().filter(|(ino, _)| *ino != 0);
            named
                .into_iter()
                .try_for_each(|named| counts.add((self, known), txn, edit, named, delta).map(drop))
        };
        for (table, delta) in [(&plan.tables.inode, 1), (&before.inode, -1)] {
            table.as_ref().map_or(Ok(()), |table| add(txn, table, delta))?;
        }
        if matches!(step, Step::Rewrite(_) | Step::New) {
            add(txn, &plan.tables.block, 1)?;
        }
        let gives_up = old.is_some_and(|old| old.users == 1) && !matches!(step, Step::Keep);
        if gives_up {
            add(txn, &before.block, -1)?;
        }
        let Some(Value::Inode { ino, size, hash }) = plan.old else { return Ok(0) };
        // Values of Lustre are not counted in the owner's space.
        let lustre = counts.add((self, known), txn, edit, (ino, hash), 0)?;
        Ok(if lustre { 0 } else { self.volume().clusters_of(size.into()) })
    }

    /// Allocates the resources of `step`, and writes the new table into `edit`. After an error nothing is changed.
    fn prepare(
        &self,
        txn: &mut Txn<'_>,
        edit: &mut InodeEdit,
        plan: &AttributePlan<'_>,
        step: Step,
    ) -> Result<Ready> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(edit.xattr_bytes().len())?;
        bytes.resize(edit.xattr_bytes().len(), 0);
        if let Some(table) = &plan.tables.inode {
            // A planned table fits.
            table.encode(&mut bytes).ok_or(Error::NoSpace)?;
        }
        let encoded = || encode(&plan.tables.block, self.block_len());
        let ready = match step {
            Step::Keep => Ready::Keep,
            Step::Leave => Ready::Leave,
            Step::Join(taken) => Ready::Join(taken),
            Step::Rewrite(taken) => Ready::Rewrite(taken, encoded()?),
            Step::New => {
                let encoded = encoded()?;
                Ready::New(self.new_xattr_block(txn, edit)?, encoded)
            }
        };
        edit.xattr_bytes_mut().copy_from_slice(&bytes);
        Ok(ready)
    }

    fn new_xattr_block(&self, txn: &mut Txn<'_>, edit: &InodeEdit) -> Result<Taken> {
        let run = self.allocator().allocate_blocks(txn, self.allocator().goal_of(edit.ino()), 1)?;
        txn.take_new(run.start.0).inspect_err(|_| self.free_xattr_block(txn, run.start))
    }

    fn free_xattr_block(&self, txn: &mut Txn<'_>, block: VolBlock) {
        let cluster = self.volume().super_block().cluster_blocks();
        let start = VolBlock(block.0.checked_div(cluster.into()).unwrap_or(0).saturating_mul(cluster.into()));
        if let Err(error) = self.allocator().free_blocks(txn, start, cluster, Freed::Metadata) {
            // The block is lost until a check finds it. The attribute is changed nevertheless.
            self.note_error(error);
        }
    }

    /// Executes the prepared step, and releases the block that the inode referred to before.
    fn finish(
        &self,
        txn: &mut Txn<'_>,
        known: &mut SharedNumbers,
        edit: &mut InodeEdit,
        ready: Ready,
        old: Option<Old>,
    ) {
        let number = match ready {
            Ready::Keep => return,
            Ready::Leave => 0,
            Ready::Join(taken) => {
                self.change_block(txn, known, &taken, |block| {
                    let users = header(block).map_or(1, |raw| raw.h_refcount.get());
                    set_users(block, users.saturating_add(1));
                });
                taken.number()
            }
            Ready::Rewrite(taken, bytes) => {
                self.change_block(txn, known, &taken, |block| block.copy_from_slice(&bytes));
                return;
            }
            Ready::New(taken, bytes) => {
                self.change_block(txn, known, &taken, |block| block.copy_from_slice(&bytes));
                taken.number()
            }
        };
        let cluster = u64::from(self.volume().super_block().cluster_blocks());
        match (old.is_some(), number != 0) {
            (false, true) => {
                // Every user of the block before this one has counted the same.
                let _ = edit.add_blocks(cluster);
            }
            (true, false) => edit.remove_blocks(cluster),
            _ => {}
        }
        // The number of an existing block always fits.
        let _ = edit.set_file_acl(VolBlock(number));
        if let Some(old) = old {
            self.give_up(txn, known, &old);
        }
    }

    /// Removes a user of the block.
    fn give_up(&self, txn: &mut Txn<'_>, known: &mut SharedNumbers, old: &Old) {
        if old.users > 1 {
            let users = old.users.saturating_sub(1);
            return self.change_block(txn, known, &old.taken, |block| set_users(block, users));
        }
        known.blocks.remove(old.hash, old.taken.number());
        self.free_xattr_block(txn, VolBlock(old.taken.number()));
    }

    /// Changes a block of attributes, with its checksum and its entry among the shared objects.
    fn change_block(
        &self,
        txn: &mut Txn<'_>,
        known: &mut SharedNumbers,
        taken: &Taken,
        change: impl FnOnce(&mut [u8]),
    ) {
        let (number, sb) = (taken.number(), self.volume().super_block());
        let mut block = txn.edit(taken);
        if let Some(raw) = header(&block) {
            known.blocks.remove(raw.h_hash.get(), number);
        }
        change(&mut block);
        if sb.has_metadata_csum() {
            set_checksum(&mut block, VolBlock(number), sb.checksum_seed);
        }
        block.set_verified();
        if let Some(raw) = header(&block).filter(|raw| raw.h_refcount.get() < USERS_MAX) {
            known.blocks.insert(raw.h_hash.get(), number);
        }
    }

    /// Releases all attributes of an inode that will be freed; the caller stores it. Uses
    /// [`Self::xattr_release_cost`]. Fails with `Corrupt`, or if the device fails, before anything is changed.
    pub(crate) fn release_xattrs(
        &self,
        txn: &mut Txn<'_>,
        edit: &mut InodeEdit,
        dead: &mut UnreferencedValues,
    ) -> Result<()> {
        let inode = edit.inode()?;
        if has_none(&inode) {
            return Ok(());
        }
        let mut known = self.shares().0.lock();
        let block = self.volume().xattr_block(&inode)?;
        let tables = self.volume().xattr_tables(&inode, block.as_ref())?;
        let none = Tables {
            inode: tables.inode.as_ref().map(|_| Table::empty(Form::Inode, inode.xattr_bytes().len())),
            block: Table::empty(Form::Block, self.block_len()),
        };
        let plan = AttributePlan { tables: none, wants_inode: false, old: None };
        let old = block.as_ref().map(|block| Old::take(txn, block)).transpose()?;
        let mut counts = Counts::default();
        self.count(txn, (edit, &known), &tables, &plan, (&Step::Leave, old.as_ref()), &mut counts)?;
        counts.store(self, txn, &mut known, dead);
        edit.xattr_bytes_mut().fill(0);
        edit.set_values(0);
        if old.is_some() {
            self.finish(txn, &mut known, edit, Ready::Leave, old);
        }
        Ok(())
    }

    /// Returns the credits of [`Self::release_xattrs`].
    pub(crate) fn xattr_release_cost(&self, inode: &Inode) -> Result<Credits> {
        if has_none(inode) {
            return Ok(Credits(0));
        }
        let block = self.volume().xattr_block(inode)?;
        let tables = self.volume().xattr_tables(inode, block.as_ref())?;
        Ok(Credits(1) + cost::RUN + value_cost(&tables))
    }

    /// Returns the credits of [`Self::change_xattr`] for a value of `len` bytes.
    pub(super) fn xattr_change_cost(&self, inode: &Inode, len: usize) -> Result<Credits> {
        let block = self.volume().xattr_block(inode)?;
        let tables = self.volume().xattr_tables(inode, block.as_ref())?;
        let places = Credits(2) + cost::RUN * 2;
        if !self.volume().super_block().incompat.contains(Incompat::EA_INODE) {
            return Ok(places);
        }
        let blocks = u32::try_from(len.div_ceil(self.block_len().max(1))).unwrap_or(u32::MAX);
        let data = (Credits(1) + cost::RUN) * blocks + cost::APPEND * 2;
        Ok(places + cost::NEW_INODE + cost::ORPHAN + data + value_cost(&tables))
    }
}

/// Returns whether `inode` has no attributes, like most inodes.
fn has_none(inode: &Inode) -> bool {
    inode.xattr_block().is_none() && AttributeArea::in_inode(inode).is_none()
}

/// Returns the credits for changing the counts of all value inodes of `tables`.
fn value_cost(tables: &Tables<'_>) -> Credits {
    (cost::INODE + cost::ORPHAN) * tables.values()
}

impl Volume {
    /// Returns whether `inode` has the attribute.
    pub(super) fn has_xattr(&self, inode: &Inode, name: &StoredName<'_>) -> Result<bool> {
        let block = self.xattr_block(inode)?;
        Ok(self.xattr_tables(inode, block.as_ref())?.get(name).is_some())
    }

    /// Returns the number of attributes of `inode` whose values are in inodes, which quota files count as further inodes
    /// of its owners (`ext4_get_inode_usage`). Returns 0 on a volume whose quota files cannot count them. Damaged attributes
    /// are not counted. Fails if the device fails, or memory is exhausted.
    pub(crate) fn charged_values(&self, inode: &Inode) -> Result<u32> {
        let sb = self.super_block();
        let is_counted = sb.ro_compat.contains(RoCompat::QUOTA) && sb.incompat.contains(Incompat::EA_INODE);
        if !is_counted || has_none(inode) || inode.has(InodeFlags::EA_INODE) {
            return Ok(0);
        }
        let block = self.xattr_block(inode);
        let tables = block.and_then(|block| Ok(self.xattr_tables(inode, block.as_ref())?.values()));
        match tables {
            Err(Error::Corrupt(_)) => Ok(0),
            counted => counted,
        }
    }

    /// Returns the attributes of `inode`, whose block is `block`.
    fn xattr_tables<'a>(&self, inode: &'a Inode, block: Option<&'a Block>) -> Result<Tables<'a>> {
        let len = inode.xattr_bytes().len();
        let inside = match AttributeArea::in_inode(inode) {
            Some(area) => Table::decode(Form::Inode, len, &area)?,
            None => Table::empty(Form::Inode, len),
        };
        let block = match block {
            Some(block) => {
                Table::decode(Form::Block, block.len(), &AttributeArea::in_block(inode.ino(), block))?
            }
            None => Table::empty(Form::Block, to_usize(self.block_size().into())),
        };
        Ok(Tables { inode: (len != 0).then_some(inside), block })
    }

    fn value_inodes(&self, value: &[u8]) -> ValueInodes {
        let sb = self.super_block();
        if !sb.incompat.contains(Incompat::EA_INODE) {
            return ValueInodes::Never;
        }
        ValueInodes::Allowed { hash: Crc::new(sb.checksum_seed).add(value).get() }
    }

    /// Returns the number of blocks that Linux counts for a value in its own inode: whole clusters
    /// (`round_up_cluster`).
    fn clusters_of(&self, len: u64) -> u64 {
        let cluster = u64::from(self.super_block().cluster_blocks());
        len.div_ceil(u64::from(self.block_size())).next_multiple_of(cluster)
    }
}
