//! Allocating and freeing inodes.
//!
//! Files get inodes in the group of their directory, so that related files are close together. Directories are
//! spread, since each will need space around it. As in Orlov's allocator, a top-level directory is placed in the group
//! with the most free space. A lower directory stays near its parent unless the parent's group is worse than most.
//! Invariant: within a group the first free inode is allocated, so that all inodes below `bg_itable_unused` have been
//! in use. A block of the inode table without any of them was never written and starts as zeros.
//! Source: Linux `fs/ext4/ialloc.c` `__ext4_new_inode`, `find_group_orlov`, `find_group_other`.
#![allow(clippy::arithmetic_side_effects, reason = "`SuperBlock::decode` limits groups and inodes")]

use obento_base::{Corrupt, Error, Ino, Result, Structure};
use obento_env::sync::atomic::Ordering;
use obento_journal::{Taken, Txn};

use super::group::{BitmapState, Group};
use super::{Allocator, bits, count};
use crate::group::GroupFlags;
use crate::inode::InodePlace;
use crate::super_block::{Checksums, ROOT_INO, SuperBlock};
use crate::unit::VolBlock;

/// Number of groups that are compared for a top-level directory.
const COMPARED: u64 = 16;

/// An inode that was just allocated.
#[derive(Clone, Debug)]
pub struct AllocatedInode {
    /// Inode number.
    pub ino: Ino,
    /// The place of its record.
    pub place: InodePlace,
    /// Its block of the inode table, taken for a change.
    pub table: Taken,
}

/// The kinds of inodes that have different rules for their place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InodeClass {
    /// A directory in the root, or in another directory at the top of a hierarchy.
    TopDirectory,
    /// A directory.
    Directory,
    /// Anything else.
    Other,
}

impl Allocator {
    /// Allocates an inode for an entry of directory `parent`. Changes at most three blocks of `txn`.
    /// [`Self::free_inode`] undoes it. Fails with `NoSpace`.
    pub fn allocate_inode(
        &self,
        txn: &mut Txn<'_>,
        parent: Ino,
        wanted: InodeClass,
    ) -> Result<AllocatedInode> {
        if wanted == InodeClass::Other {
            // The most frequent case, which needs no lock on shared state.
            let home = self.group_of_inode(parent);
            let mut group = self.group(home)?.lock();
            if group.descriptor.free_inodes > 0
                && let Ok(Some(new)) = self.take_first(txn, home, &mut group, wanted)
            {
                return Ok(new);
            }
        }
        let mut from = self.first_choice(parent, wanted);
        loop {
            let index = self.inodes.lock().next_with(from, 1).ok_or(Error::NoSpace)?;
            let mut group = self.group(index)?.lock();
            match self.take_first(txn, index, &mut group, wanted) {
                Ok(Some(new)) => return Ok(new),
                Ok(None) => {}
                Err(error @ Error::Corrupt(_)) => {
                    self.volume.notice(obento_driver::Notice::Damaged(error));
                }
                Err(error) => return Err(error),
            }
            self.inodes.lock().set(index, 0);
            from = index;
        }
    }

    fn take_first(
        &self,
        txn: &mut Txn<'_>,
        index: u32,
        group: &mut Group,
        wanted: InodeClass,
    ) -> Result<Option<AllocatedInode>> {
        let sb = self.super_block();
        let from = group.first_inode;
        let bitmap = group.change_inodes(txn, &self.volume, index)?;
        let bit = bits::next_clear(&bitmap.bytes, from..sb.inodes_per_group);
        if bit >= sb.inodes_per_group {
            return Ok(None);
        }
        let first = u64::from(index) * u64::from(sb.inodes_per_group);
        let ino = Ino(first + u64::from(bit) + 1);
        if ino.0 < sb.first_ino.into() {
            let (structure, block) = (Structure::InodeBitmap(index.into()), group.descriptor.inode_bitmap.0);
            return Err(Corrupt::InodeNumber { structure, block, offset: bit / 8, found: ino.0 }.into());
        }
        let (table, place) = self.take_bit(txn, (index, group), bit, wanted)?;
        group.first_inode = bit + 1;
        Ok(Some(AllocatedInode { ino, place, table }))
    }

    /// Allocates inode `ino`, whose number is given. Changes the same blocks as [`Self::allocate_inode`], and
    /// [`Self::unwritten_before`] more. Fails with `Stale` if the volume has no such inode, or with `Corrupt` if it
    /// is in use.
    pub fn take_inode(&self, txn: &mut Txn<'_>, ino: Ino, wanted: InodeClass) -> Result<AllocatedInode> {
        let (index, bit) = self.bit_of(ino)?;
        let mut group = self.group(index).map_err(|_| Error::Stale)?.lock();
        let bitmap = group.change_inodes(txn, &self.volume, index)?;
        if bits::next_clear(&bitmap.bytes, bit..bit + 1) != bit {
            let (structure, block) = (Structure::InodeBitmap(index.into()), group.descriptor.inode_bitmap.0);
            return Err(Corrupt::InodeNumber { structure, block, offset: bit / 8, found: ino.0 }.into());
        }
        for block in self.unwritten(&group, bit) {
            txn.take_new(block.0).map(|taken| txn.edit(&taken).fill(0))?;
        }
        let (table, place) = self.take_bit(txn, (index, &mut group), bit, wanted)?;
        Ok(AllocatedInode { ino, place, table })
    }

    /// Returns the number of inode table blocks between the blocks that have been written and the block of `ino`.
    pub fn unwritten_before(&self, ino: Ino) -> Result<u32> {
        let (index, bit) = self.bit_of(ino)?;
        let group = self.group(index).map_err(|_| Error::Stale)?.lock();
        Ok(u32::try_from(self.unwritten(&group, bit).count()).unwrap_or(u32::MAX))
    }

    fn unwritten(&self, group: &Group, bit: u32) -> impl Iterator<Item = VolBlock> + use<> {
        let sb = self.super_block();
        let table = group.descriptor.inode_table.0;
        let first = used_inodes(sb, group).div_ceil(sb.inodes_per_block());
        let (end, _) = sb.inode_place(bit);
        (first..end).map(move |at| VolBlock(table + u64::from(at)))
    }

    /// Sets a bit that is clear.
    fn take_bit(
        &self,
        txn: &mut Txn<'_>,
        (index, group): (u32, &mut Group),
        bit: u32,
        wanted: InodeClass,
    ) -> Result<(Taken, InodePlace)> {
        let (table, place, is_blank) = self.take_table(txn, group, bit)?;
        // All that can fail precedes the first change.
        if group.has_fresh_blocks(self.super_block()) {
            self.take_block_bitmap(txn, index, group)?;
        }
        if is_blank {
            // The block counts as changed from now on, so that its zeros stay. The commit adds its inodes.
            drop(txn.edit(&table));
        }
        let bitmap = group.change_inodes(txn, &self.volume, index)?;
        bits::set(&mut bitmap.bytes, bit..bit + 1);
        if bitmap.note(txn) {
            self.note_dirty(index);
        }
        // The bitmap is now initialised.
        group.inodes = BitmapState::Sound;
        self.note_taken(index, group, bit, wanted);
        Ok((table, place))
    }

    /// Returns the group of inode `ino` and its bit there. Fails with `Stale`.
    fn bit_of(&self, ino: Ino) -> Result<(u32, u32)> {
        self.super_block().inode_index(ino.0).ok_or(Error::Stale)
    }

    /// Returns the inode table block of this bit, taken for a change, and whether the block contains no inode that was
    /// ever in use. Such a block is zeroed.
    fn take_table(&self, txn: &mut Txn<'_>, group: &Group, bit: u32) -> Result<(Taken, InodePlace, bool)> {
        let sb = self.super_block();
        let (at, offset) = sb.inode_place(bit);
        let block = VolBlock(group.descriptor.inode_table.0 + u64::from(at));
        let was_used = at < used_inodes(sb, group).div_ceil(sb.inodes_per_block());
        let taken = if was_used { txn.take(block.0)? } else { txn.take_new(block.0)? };
        Ok((taken, InodePlace { block, offset }, !was_used))
    }

    fn note_taken(&self, index: u32, group: &mut Group, bit: u32, wanted: InodeClass) {
        let sb = self.super_block();
        let used = used_inodes(sb, group).max(bit + 1);
        let descriptor = &mut group.descriptor;
        descriptor.free_inodes = descriptor.free_inodes.saturating_sub(1);
        if wanted != InodeClass::Other {
            descriptor.used_dirs = descriptor.used_dirs.saturating_add(1);
            count(&self.directories, 1, 0);
        }
        if sb.checksums != Checksums::None {
            descriptor.itable_unused = sb.inodes_per_group - used;
            descriptor.flags.remove(GroupFlags::INODE_UNINIT);
        }
        count(&self.free_inodes, 0, 1);
        self.note_inodes(index, descriptor.free_inodes, 0);
    }

    /// Frees inode `ino`. Changes one block of `txn`. Fails with `Corrupt`, before anything is changed, if it is
    /// already free.
    pub fn free_inode(&self, txn: &mut Txn<'_>, ino: Ino, was_directory: bool) -> Result<()> {
        let (index, bit) = self.bit_of(ino)?;
        let mut group = self.group(index).map_err(|_| Error::Stale)?.lock();
        let bitmap = group.change_inodes(txn, &self.volume, index)?;
        let range = bit..bit + 1;
        if bits::next_clear(&bitmap.bytes, range.clone()) < range.end {
            let (structure, block) = (Structure::InodeBitmap(index.into()), group.descriptor.inode_bitmap.0);
            return Err(Corrupt::InodeNumber { structure, block, offset: bit / 8, found: ino.0 }.into());
        }
        bits::clear(&mut bitmap.bytes, range);
        if bitmap.note(txn) {
            self.note_dirty(index);
        }
        group.first_inode = group.first_inode.min(bit);
        let descriptor = &mut group.descriptor;
        descriptor.free_inodes += 1;
        if was_directory {
            descriptor.used_dirs = descriptor.used_dirs.saturating_sub(1);
            count(&self.directories, 0, 1);
        }
        count(&self.free_inodes, 1, 0);
        self.note_inodes(index, descriptor.free_inodes, 1);
        Ok(())
    }

    /// Updates the tree of free inodes if the count of a group became zero or nonzero (as `edge` says), or changed
    /// much.
    fn note_inodes(&self, index: u32, free: u32, edge: u32) {
        /// A difference that does not influence the choice for a directory.
        const MUCH: u32 = 32;
        if free == edge || free.is_multiple_of(MUCH) {
            self.inodes.lock().set(index, free);
        }
    }

    /// Returns the default goal for the blocks of `ino`: the start of its group.
    pub fn goal_of(&self, ino: Ino) -> VolBlock {
        let sb = self.super_block();
        sb.group_start(self.group_of_inode(ino))
    }

    fn group_of_inode(&self, ino: Ino) -> u32 {
        self.super_block().inode_index(ino.0).map_or(0, |(group, _)| group)
    }

    /// Returns the group to try first.
    fn first_choice(&self, parent: Ino, wanted: InodeClass) -> u32 {
        let home = self.group_of_inode(parent);
        match wanted {
            InodeClass::Other => self.nearby(home, parent),
            InodeClass::Directory => self.not_worse_than_most(home),
            InodeClass::TopDirectory => self.roomiest(),
        }
    }

    /// Returns the group itself, or one at increasing distances that depend on the directory, so that its files stay
    /// together: `find_group_other`.
    fn nearby(&self, home: u32, parent: Ino) -> u32 {
        let (inodes, groups) = (self.inodes.lock(), u64::from(self.super_block().groups).max(1));
        let start = u64::from(home) + parent.0;
        let hops =
            core::iter::successors(Some(1_u64), |hop| hop.checked_mul(2)).take_while(|&hop| hop < groups);
        let far = hops.scan(start, |at, hop| {
            *at += hop;
            u32::try_from(at.checked_rem(groups)?).ok()
        });
        core::iter::once(home).chain(far).find(|&group| inodes.get(group) > 0).unwrap_or(home)
    }

    /// Returns the parent's group unless it is crowded, or the next group with an average number of free inodes.
    fn not_worse_than_most(&self, home: u32) -> u32 {
        let sb = self.super_block();
        let groups = u64::from(sb.groups).max(1);
        let average = |total: &obento_env::sync::atomic::AtomicU64| {
            let mean = total.load(Ordering::Relaxed).checked_div(groups);
            mean.and_then(|mean| u32::try_from(mean).ok()).unwrap_or(u32::MAX)
        };
        let clusters = sb.clusters_per_group();
        let least_inodes = average(&self.free_inodes).saturating_sub(sb.inodes_per_group / 4).max(1);
        let least_clusters = average(&self.available).saturating_sub(clusters / 4);
        let most_dirs = average(&self.directories).saturating_add(sb.inodes_per_group / 16);
        let is_good = self.group(home).is_ok_and(|group| {
            let group = group.lock();
            group.descriptor.free_inodes >= least_inodes
                && group.available() >= least_clusters
                && group.descriptor.used_dirs <= most_dirs
        });
        if is_good {
            return home;
        }
        self.inodes.lock().next_with(home + 1, least_inodes).unwrap_or(home)
    }

    /// Returns the group with the most free clusters among some groups, which differ in each call.
    fn roomiest(&self) -> u32 {
        /// Multiplier that spreads consecutive numbers (Knuth).
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        let groups = u64::from(self.super_block().groups).max(1);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let start = turn.wrapping_mul(SPREAD) >> 32;
        let candidates = (0..COMPARED.min(groups)).map(|n| {
            let step = groups.div_ceil(COMPARED).max(1);
            let place = (start + n * step).checked_rem(groups);
            place.and_then(|place| u32::try_from(place).ok()).unwrap_or(0)
        });
        let room = |&index: &u32| {
            let Ok(group) = self.group(index) else { return 0 };
            let group = group.lock();
            let usable = u64::from(group.available()) * u64::from(group.descriptor.free_inodes > 0);
            usable.checked_div(u64::from(group.descriptor.used_dirs) + 1).unwrap_or(0)
        };
        candidates.max_by_key(room).unwrap_or(0)
    }
}

/// Returns the number of inodes at the start of a group's table that have been in use, according to the descriptor.
fn used_inodes(sb: &SuperBlock, group: &Group) -> u32 {
    if sb.checksums == Checksums::None {
        return sb.inodes_per_group;
    }
    if group.descriptor.flags.contains(GroupFlags::INODE_UNINIT) {
        return 0;
    }
    sb.inodes_per_group.saturating_sub(group.descriptor.itable_unused)
}

impl InodeClass {
    /// Returns the kind for a file of type `kind` in `parent`.
    pub fn new(kind: obento_base::FileKind, parent: Ino, parent_is_top: bool) -> Self {
        match kind {
            obento_base::FileKind::Directory if parent == ROOT_INO || parent_is_top => Self::TopDirectory,
            obento_base::FileKind::Directory => Self::Directory,
            _ => Self::Other,
        }
    }
}
