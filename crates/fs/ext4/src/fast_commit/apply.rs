//! Applying fast commits to the volume permanently.
//!
//! The code that changes volumes makes the changes that [`FastCommits`] shows, to a copy of the volume in memory
//! (`writer::fold`). The order of writes therefore does not matter.
//! Order: space that fast commits refer to is allocated before other space. Removals come before additions, because a
//! number may have been reused. Names come last, when the inodes that they refer to exist.
//! Source: Linux `fs/ext4/fast_commit.c` `ext4_fc_replay`.

use alloc::vec::Vec;

use obento_base::{Error, Feature, Ino, Name, Result};
use obento_journal::{Credits, Txn};

use super::{FastCommits, InodeChange, NameChanges};
use crate::allocator::{BlockRun, InodeClass};
use crate::dir::{DirEdit, NewEntry};
use crate::inode::{Inode, InodeFlags, InodePlace};
use crate::map::{Blocks, MappedRun};
use crate::quota::Charge;
use crate::writer::{InodeEdit, InodeGuard, InodeWrite, Writer, cost};

/// Blocks that change for one name, including the growth of a directory.
const NAME: Credits = Credits(2 + 3 * (cost::APPEND.0 + 2));

/// The old and the new state of an inode.
struct Step<'a> {
    ino: Ino,
    change: &'a InodeChange,
    /// The free space in its ranges.
    reserved: Vec<(u32, MappedRun, Vec<BlockRun>)>,
}

impl Writer {
    /// Applies `commits` to the volume. Nothing else may change the volume meanwhile.
    pub(crate) fn apply_fast_commits(&self, commits: &FastCommits) -> Result<()> {
        let mut steps = Vec::new();
        for (ino, change) in commits.inodes() {
            steps.push(Step { ino, change, reserved: self.reserve_ranges(change)? });
        }
        for step in &steps {
            self.end_former_life(step)?;
        }
        for step in steps.iter().filter(|step| !step.change.is_gone()) {
            self.apply_record(step)?;
        }
        for step in steps.iter().filter(|step| !step.change.is_gone()) {
            for &(at, run, _) in &step.reserved {
                self.empty_range(step.ino, at, run)?;
            }
            for (at, run, reserved) in &step.reserved {
                self.fill_range(step.ino, *at, *run, reserved.clone())?;
            }
        }
        for (dir, names) in commits.directories() {
            self.apply_names(dir, names)?;
        }
        Ok(())
    }

    #[inline(never)]
    fn reserve_ranges(&self, change: &InodeChange) -> Result<Vec<(u32, MappedRun, Vec<BlockRun>)>> {
        let mut all = Vec::new();
        for (at, run) in change.ranges.iter() {
            let reserved = match run.place {
                Blocks::Mapped(start) | Blocks::Unwritten(start) => {
                    self.allocator().reserve_there(BlockRun { start, len: run.len })?
                }
                Blocks::Hole => Vec::new(),
            };
            all.try_reserve(1)?;
            all.push((at, run, reserved));
        }
        Ok(all)
    }

    /// Locks inode `ino` if it is in use.
    fn lock_used(&self, ino: Ino) -> Result<Option<InodeGuard<'_>>> {
        match self.lock_inode(ino) {
            Err(Error::Stale) => Ok(None),
            inode => inode.map(Some),
        }
    }

    /// Frees an inode whose number is now free or belongs to another inode.
    #[inline(never)]
    fn end_former_life(&self, step: &Step<'_>) -> Result<()> {
        let Some(inode) = self.lock_used(step.ino)? else { return Ok(()) };
        let is_other = step.change.map_dropped && !inode.has(InodeFlags::INLINE_DATA);
        if !step.change.is_gone() && !is_other {
            return Ok(());
        }
        let mut txn = self.begin(cost::INODE + cost::ORPHAN)?;
        let mut edit = self.edit_inode(&mut txn, inode.view())?;
        self.add_orphan(step.ino)?;
        edit.set_links(0);
        self.store_inode(&mut txn, &edit);
        txn.commit();
        drop(inode);
        self.evict(step.ino)
    }

    #[inline(never)]
    fn apply_record(&self, step: &Step<'_>) -> Result<()> {
        let inode = self.lock_used(step.ino)?;
        let unwritten = self.allocator().unwritten_before(step.ino)?;
        self.prepare_owners_after(step, inode.as_deref())?;
        let mut txn = self.begin(cost::NEW_INODE + Credits(unwritten) + cost::APPEND)?;
        let mut edit = match &inode {
            Some(inode) => self.edit_merged(&mut txn, step, inode.view())?,
            None => self.edit_made(&mut txn, step)?,
        };
        // Linux writes no such fast commit: `ext4_xattr_set_handle` requests a full commit (`EXT4_FC_REASON_XATTR`).
        let attributes = |inode: &Inode| inode.xattr_block();
        if edit.inode().ok().as_ref().and_then(attributes) != inode.as_deref().and_then(attributes) {
            return Err(Error::Unsupported(Feature::Named("fast commits of attributes in blocks")));
        }
        if let Some(parent) = step.change.made_in.filter(|_| inode.is_none()) {
            edit = self.start_directory(&mut txn, edit, parent)?;
        }
        self.store_inode(&mut txn, &edit);
        txn.commit();
        Ok(())
    }

    /// Creates the quota entries of the new owners of an inode.
    fn prepare_owners_after(&self, step: &Step<'_>, inode: Option<&Inode>) -> Result<()> {
        let sb = self.volume().super_block();
        let unused = alloc::vec![0; sb.inode_size.into()];
        let record = step.change.merge(inode.map_or(&*unused, Inode::record))?;
        Charge::new(sb.into(), &record, 0).map_or(Ok(()), |charge| self.prepare_owners(charge.ids))
    }

    /// Returns the new record of an existing inode, with its current blocks.
    fn edit_merged<'t>(
        &self,
        txn: &mut Txn<'t>,
        step: &Step<'_>,
        inode: InodeWrite<'t>,
    ) -> Result<InodeEdit> {
        let before = self.edit_inode(txn, inode)?;
        let record = step.change.merge(inode.record())?;
        let taken = txn.take(inode.place().block.0)?;
        let sb = self.volume().super_block();
        let mut edit = InodeEdit::of_record(sb, step.ino, inode.place(), &record, taken, before.charged())?;
        edit.set_sectors(before.sectors())?;
        edit.set_values(before.values());
        Ok(edit)
    }

    /// Returns the record of a created inode, without blocks.
    fn edit_made(&self, txn: &mut Txn<'_>, step: &Step<'_>) -> Result<InodeEdit> {
        let size = self.volume().super_block().inode_size;
        let record = step.change.merge(&alloc::vec![0; size.into()])?;
        let wanted = if step.change.is_directory() { InodeClass::Directory } else { InodeClass::Other };
        let new = self.allocator().take_inode(txn, step.ino, wanted)?;
        let place: InodePlace = new.place;
        let mut edit =
            InodeEdit::of_record(self.volume().super_block(), step.ino, place, &record, new.table, None)?;
        edit.set_sectors(0)?;
        Ok(edit)
    }

    /// Creates the first block of a created directory, since the logged record refers to blocks that were never
    /// logged.
    #[inline(never)]
    fn start_directory(&self, txn: &mut Txn<'_>, edit: InodeEdit, parent: Ino) -> Result<InodeEdit> {
        let mut edit = edit;
        edit.remove_flags(InodeFlags::INLINE_DATA | InodeFlags::INDEX | InodeFlags::EXTENTS);
        edit.i_block_mut().fill(0);
        self.start_extents(&mut edit);
        edit.set_size(0);
        let view = edit.inode()?;
        let mut dir = DirEdit::of(self, edit, &view)?;
        dir.start(txn, parent)?;
        Ok(dir.inode)
    }

    fn apply_names(&self, dir: Ino, names: &NameChanges) -> Result<()> {
        if self.lock_used(dir)?.is_none() {
            return Ok(());
        }
        for name in names.touched() {
            // An invalid name can come only from a damaged log.
            let Ok(name) = Name::new(name) else { continue };
            let view = self.lock_inode(dir)?;
            let stored = match self.volume().lookup(&view, name) {
                Err(Error::NotFound) => None,
                stored => Some(stored?),
            };
            let now = names.resolve(name.as_bytes(), stored);
            if now != stored {
                self.apply_name(view.view(), name, stored.is_some(), now)?;
            }
        }
        Ok(())
    }

    /// Makes `name` in `dir` refer to `now`, or removes it.
    #[inline(never)]
    fn apply_name(&self, dir: InodeWrite<'_>, name: &Name, is_there: bool, now: Option<Ino>) -> Result<()> {
        let kind = now.map(|ino| self.volume().inode(ino).map(|inode| inode.kind())).transpose()?;
        let mut txn = self.begin(NAME + NAME)?;
        let mut edit = DirEdit::new(self, &mut txn, dir)?;
        if is_there {
            let hit = edit.find(name)?;
            let run = edit.take(&mut txn, &hit.home)?;
            edit.remove(&mut txn, &run, hit.spot);
            edit.store(&mut txn);
        }
        if let (Some(ino), Some(kind)) = (now, kind) {
            let view = edit.inode.inode()?;
            let room = self.volume().with_directory(&view, |directory| directory.room(name))?;
            let (run, slot) = edit.make_room(&mut txn, name, room)?;
            let ino = u32::try_from(ino.0).map_err(|_| Error::Stale)?;
            edit.put(&mut txn, &run, slot, &NewEntry { name: name.as_bytes(), ino, kind });
            edit.store(&mut txn);
        }
        txn.commit();
        Ok(())
    }
}

impl InodeChange {
    /// Returns whether the inode is now free.
    fn is_gone(&self) -> bool {
        self.node.is_some_and(|node| node.links == 0)
    }

    fn is_directory(&self) -> bool {
        self.node.is_some_and(|node| node.is_dir)
    }
}
