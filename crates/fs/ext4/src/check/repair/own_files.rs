//! Mends of the format's own files: quota files are made anew from what is in use, damaged blocks of the orphan file are
//! emptied.
//!
//! Invariant: limits that can be read stay.
//! Source: e2fsprogs `lib/support/mkquota.c` `quota_write_inode`; `e2fsck/super.c` `reinit_orphan_block`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::{split, to_u64, to_usize};
use obento_base::{Ino, Result};
use obento_env::Clock;

use super::super::Issue;
use super::super::inodes::usage;
use super::super::orphans::{NOT_REGULAR, is_sound};
use super::super::quota::OrphanFile;
use super::edits::Edits;
use crate::checksum::Crc;
use crate::feature::{Compat, RoCompat};
use crate::map::APPEND_CREDITS;
use crate::quota::{BLOCK, Entries, QuotaFile, QuotaKind, decode};
use crate::writer::{ORPHAN_MAGIC, Writer, cost};

/// Magic number and checksum at the end of a block of the orphan file.
const TAIL: usize = 8;

impl Edits {
    /// Mends a quota file or the orphan file; false for another issue.
    pub(super) fn mend_own_file(&mut self, issue: &Issue, clock: &Arc<dyn Clock>) -> Result<bool> {
        match *issue {
            Issue::QuotaUsage { ino, .. } | Issue::QuotaInode { ino, .. } => {
                Ok(!self.rebuilt.insert(ino) || self.make_quota_file(ino, clock)?)
            }
            Issue::OrphanFile { ino, why: NOT_REGULAR } => self.drop_orphan_file(ino),
            Issue::OrphanFile { ino, .. } => self.empty_damaged(ino),
            _ => Ok(false),
        }
    }

    fn make_quota_file(&mut self, ino: u32, clock: &Arc<dyn Clock>) -> Result<bool> {
        let kinds = QuotaKind::ALL.into_iter().zip(self.view.quota_inodes());
        let Some((kind, _)) = kinds.into_iter().find(|&(_, of)| of == ino) else { return Ok(false) };
        let mut all = usage(&self.view)?.of(kind, OrphanFile::Counts);
        let mut bytes = Vec::new();
        for place in self.dir_blocks(ino)? {
            bytes.extend_from_slice(&self.view.read(place, 1)?);
        }
        keep_limits(&mut all, &decode(kind, &bytes).unwrap_or_default());
        let content = QuotaFile::new(kind, &all)?.blocks.concat();
        let size = to_usize(self.view.sb.block_size.into());
        let more = content.len().div_ceil(size).saturating_sub(self.dir_blocks(ino)?.len());
        if more > 0 {
            self.with_writer(clock, |writer| lengthen(writer, Ino(ino.into()), more))?;
        }
        let places = self.dir_blocks(ino)?;
        if places.len().saturating_mul(size) < content.len() {
            return Ok(false);
        }
        for (number, place) in places.into_iter().enumerate() {
            let mut block = alloc::vec![0; size];
            let start = number.saturating_mul(size);
            let part = content.get(start..).unwrap_or_default();
            block.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            self.put(place, &block)?;
        }
        let (low, high) = split(to_u64(content.len().next_multiple_of(BLOCK)));
        self.inode(ino, |raw| {
            if u64::from(raw.i_size_lo.get()) < u64::from(low) {
                raw.i_size_lo.set(low);
                raw.i_size_high.set(high);
            }
        })?;
        Ok(true)
    }

    /// Takes the orphan file away: orphans are listed in the super block from then on.
    fn drop_orphan_file(&mut self, ino: u32) -> Result<bool> {
        self.super_block(|raw| {
            raw.s_feature_compat.set(raw.s_feature_compat.get() & !Compat::ORPHAN_FILE.bits());
            raw.s_feature_ro_compat.set(raw.s_feature_ro_compat.get() & !RoCompat::ORPHAN_PRESENT.bits());
            raw.s_orphan_file_inum.set(0);
        })?;
        self.clear_inode(ino).map(|()| true)
    }

    fn empty_damaged(&mut self, ino: u32) -> Result<bool> {
        let seed = self.seed_of(ino)?;
        for place in self.dir_blocks(ino)? {
            let mut bytes = self.view.read(place, 1)?;
            if is_sound(&self.view, seed, place.0, &bytes).is_ok() {
                continue;
            }
            bytes.fill(0);
            let end = bytes.len().saturating_sub(TAIL);
            let (slots, tail) = bytes.split_at_mut(end);
            let sum = Crc::new(seed).add(&place.0.to_le_bytes()).add(slots).get();
            let sum = if self.view.sb.has_metadata_csum() { sum } else { 0 };
            let words = ORPHAN_MAGIC.to_le_bytes().into_iter().chain(sum.to_le_bytes());
            tail.iter_mut().zip(words).for_each(|(to, from)| *to = from);
            self.put(place, &bytes)?;
        }
        Ok(true)
    }
}

/// What of `old` is not a count: limits and times, of those too who take nothing now.
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

/// Adds blocks of zeros to a file of the format. Errors: NoSpace, after which it has some of them.
fn lengthen(writer: &Writer, ino: Ino, more: usize) -> Result<()> {
    for _ in 0..more {
        let locked = writer.locks().write(&[ino]);
        let view = writer.volume().inode(ino)?;
        let mut txn = writer.begin(APPEND_CREDITS + cost::INODE)?;
        let mut edit = writer.edit_known(&mut txn, &view)?;
        let (_, taken) = writer.append_dir_block(&mut txn, &mut edit)?;
        txn.edit(&taken).fill(0);
        writer.store_inode(&mut txn, &edit);
        txn.commit();
        drop(locked);
    }
    Ok(())
}
