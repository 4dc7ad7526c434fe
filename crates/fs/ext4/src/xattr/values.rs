//! Inodes that contain values, and their reference counts.
//!
//! On disk: `i_atime` is the value's hash; the seconds of `i_ctime` and the low half of `i_version` are the reference
//! count.
//! Invariant: an inode with references has link count 1. One without references has link count 0 and is on the orphan
//! list.
//! Locking: under [`super::share::Shares`], in place of the inode's own lock.
//! Source: Linux fs/ext4/xattr.c `ext4_xattr_inode_create`, `ext4_xattr_inode_update_ref`,
//! `ext4_xattr_inode_cache_find`.

use alloc::vec::Vec;

use obento_base::wire::{join, split, to_u64, to_usize};
use obento_base::{DeviceNumber, Error, FileKind, Ino, Mode, Result, Timestamp};
use obento_driver::NewNode;
use obento_env::sync::MutexGuard;
use obento_journal::Txn;

use super::share::SharedNumbers;
use crate::inode::{Inode, InodeFlags};
use crate::volume::Volume;
use crate::writer::{InodeEdit, Time, Writer};

/// Value inodes without references: on the orphan list, to be freed after the transaction.
#[must_use]
#[derive(Debug, Default)]
pub(crate) struct UnreferencedValues(pub(crate) Vec<Ino>);

/// A value's inode and the change of its reference count.
struct Counted {
    edit: InodeEdit,
    count: u64,
    delta: i64,
    is_new: bool,
}

/// Changes of reference counts, combined so that opposite changes in one operation cancel out.
#[derive(Default)]
pub(super) struct Counts(Vec<Counted>);

/// Returns whether `holder` is a value of Lustre, which belongs to one owner and is not counted:
/// `ext4_xattr_inode_iget`.
fn is_lustre(holder: &InodeEdit, owner: &InodeEdit, entry_hash: u32) -> bool {
    entry_hash != holder.raw().i_atime.get()
        && u64::from(holder.raw().i_mtime.get()) == owner.ino().0
        && holder.generation() == owner.generation()
}

impl Counts {
    /// Adds `delta` references to inode `ino`, to which an entry with `entry_hash` refers. Returns whether it is a
    /// value of Lustre. Fails with `Corrupt` for an inode that does not contain a value.
    pub(super) fn add(
        &mut self,
        (writer, known): (&Writer, &MutexGuard<'_, SharedNumbers>),
        txn: &mut Txn<'_>,
        owner: &InodeEdit,
        (ino, entry_hash): (u32, u32),
        delta: i64,
    ) -> Result<bool> {
        let ino = Ino(ino.into());
        if let Some(counted) = self.0.iter_mut().find(|counted| counted.edit.ino() == ino) {
            counted.delta = counted.delta.saturating_add(delta);
            return Ok(is_lustre(&counted.edit, owner, entry_hash));
        }
        let inode = writer.volume().inode(ino)?;
        let edit = writer.edit_shared_inode(txn, known, &inode)?;
        if !edit.has(InodeFlags::EA_INODE) || ino == owner.ino() {
            return Err(edit.inode()?.bad_field("i_flags", 0x20, edit.flags().bits()));
        }
        let lustre = is_lustre(&edit, owner, entry_hash);
        let count = if lustre { 1 } else { join(edit.raw().l_i_version.get(), edit.raw().i_ctime.get()) };
        self.0.try_reserve(1)?;
        self.0.push(Counted { edit, count, delta, is_new: false });
        Ok(lustre)
    }

    /// Adds a new inode without references.
    fn push_new(&mut self, edit: InodeEdit) {
        self.0.push(Counted { edit, count: 0, delta: 0, is_new: true });
    }

    /// Adds one reference to the new inode `ino`.
    pub(super) fn count_new(&mut self, ino: u32) {
        if let Some(new) = self.0.iter_mut().find(|counted| counted.edit.ino() == Ino(ino.into())) {
            new.delta = new.delta.saturating_add(1);
        }
    }

    /// Stores only the created inodes, without references.
    pub(super) fn undo(
        mut self,
        writer: &Writer,
        txn: &mut Txn<'_>,
        known: &mut SharedNumbers,
        dead: &mut UnreferencedValues,
    ) {
        self.0.retain(|counted| counted.is_new);
        self.0.iter_mut().for_each(|counted| counted.delta = 0);
        self.store(writer, txn, known, dead);
    }

    /// Writes the counts. Inodes without references are added to `dead`. If a resource is missing, an inode stays
    /// without references, for a check to find.
    pub(super) fn store(
        self,
        writer: &Writer,
        txn: &mut Txn<'_>,
        known: &mut SharedNumbers,
        dead: &mut UnreferencedValues,
    ) {
        for mut counted in self.0 {
            if counted.delta == 0 && !counted.is_new {
                continue;
            }
            let count = counted.count.saturating_add_signed(counted.delta);
            let edit = &mut counted.edit;
            set_count(edit, count);
            let hash = edit.raw().i_atime.get();
            if count == 0 {
                known.values.remove(hash, edit.ino().0);
                edit.set_links(0);
                match writer.add_orphan(edit.ino()) {
                    Ok(()) => dead.0.push(edit.ino()),
                    Err(error) => writer.note_error(error),
                }
            } else if counted.is_new {
                known.values.insert(hash, edit.ino().0);
            }
            writer.store_inode(txn, edit);
        }
    }
}

fn set_count(edit: &mut InodeEdit, count: u64) {
    let (low, high) = split(count);
    edit.set_version(low.into());
    edit.stamp(Time::Change, Timestamp::new(high.into(), 0));
}

impl Volume {
    /// Returns an inode of `known` that contains `value`.
    pub(super) fn find_value(&self, known: &SharedNumbers, value: &[u8], hash: u32) -> Option<u32> {
        let holds = |number: &&u64| {
            let Ok(holder) = self.inode(Ino(**number)) else { return false };
            let mut held = Vec::new();
            if !holder.has(InodeFlags::EA_INODE)
                || holder.size() != to_u64(value.len())
                || held.try_reserve_exact(value.len()).is_err()
            {
                return false;
            }
            held.resize(value.len(), 0);
            self.read_inode_data(&holder, 0, &mut held).is_ok() && held == value
        };
        known.values.find(hash).iter().find(holds).and_then(|&number| u32::try_from(number).ok())
    }
}

impl Writer {
    /// Creates an inode with `value` and the owner of `owner`, and adds it to `counts`, which stores it even after an
    /// error. Fails with `NoSpace`.
    pub(super) fn new_value_inode(
        &self,
        txn: &mut Txn<'_>,
        owner: &InodeEdit,
        value: &[u8],
        hash: u32,
        counts: &mut Counts,
    ) -> Result<u32> {
        counts.0.try_reserve(1)?;
        let (uid, gid) = owner.owner();
        let node = NewNode {
            kind: FileKind::Regular,
            mode: Mode::new(0o600),
            uid,
            gid,
            rdev: DeviceNumber::default(),
            target: b"",
        };
        let root: Inode = self.volume().inode(crate::super_block::ROOT_INO)?;
        let mut edit = self.new_inode(txn, &root, &node)?;
        edit.insert_flags(InodeFlags::EA_INODE);
        edit.set_value_hash(hash);
        let written = self.write_value(txn, &mut edit, value);
        let ino = u32::try_from(edit.ino().0).map_err(|_| Error::OutOfRange);
        counts.push_new(edit);
        written.and(ino)
    }

    fn write_value(&self, txn: &mut Txn<'_>, edit: &mut InodeEdit, value: &[u8]) -> Result<()> {
        for part in value.chunks(to_usize(self.volume().block_size().into()).max(1)) {
            let (_, taken) = self.append_dir_block(txn, edit)?;
            let mut block = txn.edit(&taken);
            block.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            block.set_verified();
        }
        edit.set_size(to_u64(value.len()));
        Ok(())
    }
}
