//! Repairs of the format's own files: quota files are rewritten from the actual usage, the orphan file is recreated
//! if it has no blocks, and damaged blocks of it are emptied.
//!
//! Invariant: readable limits are preserved.
//! Source: e2fsprogs `lib/support/mkquota.c` `quota_write_inode`; `e2fsck/super.c` `reinit_orphan_block`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::{FromBytes, join, to_u64, to_usize};
use obento_base::{Error, FileKind, Ino, Result};
use obento_env::Clock;

use super::super::inodes::usage;
use super::super::orphans::{clear, is_sound};
use super::edits::Edits;
use crate::feature::{Compat, Incompat, RoCompat};
use crate::format::{PRIVATE_FILE, orphan_blocks};
use crate::inode::InodeFlags;
use crate::quota::{Entries, QuotaFile, QuotaKind, decode};
use crate::raw::{RawInode, RawInodeExtra};
use crate::writer::{FULL_EXTRA_ISIZE, Writer, cost};

impl Edits {
    /// Rewrites a quota file from the actual usage.
    pub(super) fn make_quota_file(&mut self, ino: u32, clock: &Arc<dyn Clock>) -> Result<bool> {
        let kinds = QuotaKind::ALL.into_iter().zip(self.view.quota_inodes());
        let Some((kind, _)) = kinds.into_iter().find(|&(_, of)| of == ino) else { return Ok(false) };
        let mut all = usage(&self.view)?.of(kind);
        let mut bytes = Vec::new();
        // The limits of a file without a readable map are unknown.
        for place in self.dir_blocks(ino).unwrap_or_default() {
            bytes.extend_from_slice(&self.view.read(place, 1)?);
        }
        keep_limits(&mut all, &decode(kind, &bytes).unwrap_or_default());
        let content = QuotaFile::new(kind, &all)?.blocks.concat();
        let size = to_usize(self.view.sb.block_size.into());
        if !self.is_whole(ino)? {
            self.begin_file(ino)?;
        }
        let more = content.len().div_ceil(size).saturating_sub(self.dir_blocks(ino)?.len());
        if more > 0 {
            self.with_writer(clock, |writer| lengthen(writer, Ino(ino.into()), more))?;
        }
        let places = self.dir_blocks(ino)?;
        let len = places.len().saturating_mul(size);
        if len < content.len() {
            return Ok(false);
        }
        for (number, place) in places.into_iter().enumerate() {
            let mut block = alloc::vec![0; size];
            let start = number.saturating_mul(size);
            let part = content.get(start..).unwrap_or_default();
            block.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            self.put(place, &block)?;
        }
        // A check skips an inode that its group marks as never used, and would free its blocks.
        if let Some(group) = self.view.group_that_hides(ino) {
            self.mark_used(group)?;
        }
        Ok(true)
    }

    /// Returns whether an inode is a regular file with all blocks for its size.
    fn is_whole(&self, ino: u32) -> Result<bool> {
        let record = self.record(ino)?;
        let (raw, _) = RawInode::ref_from_prefix(&record).map_err(|_| Error::Invalid)?;
        let size = join(raw.i_size_lo.get(), raw.i_size_high.get());
        let blocks = size.div_ceil(self.view.sb.block_size.into());
        let is_regular = FileKind::from_mode(raw.i_mode.get()) == Some(FileKind::Regular);
        Ok(is_regular && self.dir_blocks(ino).is_ok_and(|found| to_u64(found.len()) == blocks))
    }

    /// Turns an inode into a regular file without blocks. The next round finds that its previous blocks are free.
    pub(super) fn begin_file(&mut self, ino: u32) -> Result<()> {
        let extents = self.view.sb.incompat.contains(Incompat::EXTENT);
        let now = self.now();
        self.edit_record(ino, |record| {
            record.fill(0);
            let Ok((raw, rest)) = RawInode::mut_from_prefix(record) else { return };
            raw.i_mode.set(PRIVATE_FILE);
            raw.i_links_count.set(1);
            raw.i_flags.set(if extents { InodeFlags::EXTENTS.bits() } else { 0 });
            for time in [&mut raw.i_atime, &mut raw.i_ctime, &mut raw.i_mtime] {
                time.set(now);
            }
            if let Ok((extra, _)) = RawInodeExtra::mut_from_prefix(rest) {
                extra.i_extra_isize.set(FULL_EXTRA_ISIZE);
            }
        })?;
        if extents { self.empty_root(ino) } else { Ok(()) }
    }

    /// Recreates the orphan file in the inode that the super block names, or removes it if that is impossible.
    pub(super) fn make_orphan_file(&mut self, ino: u32, clock: &Arc<dyn Clock>) -> Result<()> {
        let sb = &self.view.sb;
        let blocks = to_usize(orphan_blocks(sb));
        if !(sb.first_ino..=sb.inodes_count).contains(&ino) {
            return self.drop_orphan_file(ino);
        }
        self.begin_file(ino)?;
        match self.with_writer(clock, |writer| lengthen(writer, Ino(ino.into()), blocks)) {
            Err(Error::NoSpace) => return self.drop_orphan_file(ino),
            filled => filled?,
        }
        let seed = self.view.sb.has_metadata_csum().then_some(self.seed_of(ino)?);
        for place in self.dir_blocks(ino)? {
            self.block(place, |bytes| clear(bytes, place, seed))?;
        }
        Ok(())
    }

    /// Removes the orphan file: from then on orphans are on the list of the super block.
    pub(super) fn drop_orphan_file(&mut self, ino: u32) -> Result<()> {
        self.super_block(|raw| {
            raw.s_feature_compat.set(raw.s_feature_compat.get() & !Compat::ORPHAN_FILE.bits());
            raw.s_feature_ro_compat.set(raw.s_feature_ro_compat.get() & !RoCompat::ORPHAN_PRESENT.bits());
            raw.s_orphan_file_inum.set(0);
        })?;
        if self.view.record(ino).is_some() { self.clear_inode(ino) } else { Ok(()) }
    }

    /// Empties the damaged blocks of the orphan file.
    pub(super) fn empty_damaged(&mut self, ino: u32) -> Result<()> {
        let seed = self.seed_of(ino)?;
        for place in self.dir_blocks(ino)? {
            let mut bytes = self.view.read(place, 1)?;
            if is_sound(&self.view, seed, place.0, &bytes).is_ok() {
                continue;
            }
            clear(&mut bytes, place, self.view.sb.has_metadata_csum().then_some(seed));
            self.put(place, &bytes)?;
        }
        Ok(())
    }
}

/// Copies limits and times of `old`, including those of owners without usage.
fn keep_limits(all: &mut Entries, old: &Entries) {
    for (&id, stored) in old {
        let taken = all.get(&id).map_or((0.into(), 0.into()), |raw| (raw.dqb_curinodes, raw.dqb_curspace));
        let mut kept = *stored;
        (kept.dqb_curinodes, kept.dqb_curspace) = taken;
        if all.contains_key(&id) || kept.has_limits() {
            all.insert(id, kept);
        }
    }
}

/// Appends zeroed blocks to a file of the format. Fails with `NoSpace` after appending some of them.
fn lengthen(writer: &Writer, ino: Ino, more: usize) -> Result<()> {
    for _ in 0..more {
        let inode = writer.lock_inode(ino)?;
        let mut txn = writer.begin(cost::APPEND + cost::INODE)?;
        let mut edit = writer.edit_inode(&mut txn, inode.view())?;
        let (_, taken) = writer.append_dir_block(&mut txn, &mut edit)?;
        txn.edit(&taken).fill(0);
        writer.store_inode(&mut txn, &edit);
        txn.commit();
    }
    Ok(())
}
