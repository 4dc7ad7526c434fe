//! Repairs of the journal: its inode from the copy in the super block, and recreating a journal.
//!
//! It is recreated when everything else is repaired ([`Stage::Journal`]): its inode keeps the blocks that it still
//! has, missing blocks are filled with free ones, and the log is empty. A journal of which only the super block is
//! damaged therefore stays in its place. Without space for it, the volume has no journal from then on.
//! Invariant: it is in the usual inode, whatever the super block names, since another inode may be a user's file.
//! Invariant: the log begins with a transaction number by which no old contents of its blocks are taken for a part of
//! it.
//! Source: e2fsprogs `e2fsck/journal.c` `e2fsck_journal_reset_super`, `e2fsck_journal_fix_bad_inode`; `e2fsck/unix.c`
//! (`PR_6_RECREATE_JOURNAL`); `lib/ext2fs/mkjournal.c` `ext2fs_add_journal_inode3`.
//!
//! [`Stage::Journal`]: super::super::issue::Stage

use alloc::sync::Arc;

use obento_base::wire::{FromBytes, FromZeros, IntoBytes, join, split, to_usize};
use obento_base::{Error, Ino, Result};
use obento_block::BlockDevice;
use obento_driver::CheckOptions;
use obento_journal::raw::{MIN_BLOCKS, RawSuperBlock as RawJournal};
use obento_journal::{ExternalJournal, checksum};

use super::edits::Edits;
use crate::checksum::Crc;
use crate::feature::{Compat, Incompat};
use crate::format::{JOURNAL_INO, JournalSize, MAX_JOURNAL_BLOCKS, PRIVATE_FILE, journal_label};
use crate::inode::InodeFlags;
use crate::raw::RawInode;
use crate::replay::{JNL_BACKUP_BLOCKS, restore_journal_inode};

impl Edits {
    /// Creates an empty journal where the super block locates it: on the external device or in the volume.
    pub(super) fn recreate_journal(&mut self, options: &CheckOptions) -> Result<bool> {
        match self.view.sb.raw.s_journal_inum.get() {
            0 => self.make_outer_journal(options),
            _ => self.make_journal(options),
        }
    }

    /// Restores the inode from the copy in the super block.
    pub(super) fn restore_journal(&mut self) -> Result<bool> {
        let (sb, now) = (self.view.sb.clone(), self.now());
        let mut is_restored = false;
        self.edit_record(JOURNAL_INO, |record| {
            let Ok((raw, rest)) = RawInode::mut_from_prefix(record) else { return };
            let mut restored = only_journal_fields(raw);
            is_restored = restore_journal_inode(&sb, &mut restored);
            if is_restored {
                *raw = restored;
                raw.i_ctime.set(now);
                raw.i_mtime.set(now);
                rest.fill(0);
            }
        })?;
        self.super_block(|raw| raw.s_journal_inum.set(JOURNAL_INO))?;
        Ok(is_restored)
    }

    /// Takes blocks of the volume away from the journal: it gets the map in the super block, or no map if it already
    /// has that one. No indirect block is changed, since it may belong to another file.
    pub(super) fn give_up_map(&mut self) -> Result<bool> {
        let record = self.record(JOURNAL_INO)?;
        let Ok((raw, _)) = RawInode::read_from_prefix(&record) else { return Ok(false) };
        let kept = self.view.sb.raw.s_jnl_blocks;
        let is_kept = kept.as_bytes().get(..raw.i_block.len()) == Some(raw.i_block.as_slice());
        if !is_kept && self.restore_journal()? {
            return Ok(true);
        }
        self.super_block(|sb| sb.s_jnl_backup_type = 0)?;
        if raw.i_flags.get() & InodeFlags::EXTENTS.bits() != 0 {
            self.empty_root(JOURNAL_INO)?;
        } else {
            self.inode(JOURNAL_INO, |raw| raw.i_block = [0; 60])?;
        }
        Ok(true)
    }

    /// Creates an empty journal in the volume.
    fn make_journal(&mut self, options: &CheckOptions) -> Result<bool> {
        let ino = JOURNAL_INO;
        let Some(blocks) = self.journal_blocks(ino)? else { return self.drop_journal().map(|()| true) };
        self.ready_journal_inode(ino)?;
        match self.with_writer(&options.clock, |writer| writer.fill_own(Ino(ino.into()), blocks)) {
            Err(Error::NoSpace | Error::FileTooBig) => return self.drop_journal().map(|()| true),
            filled => filled?,
        }
        let (low, high) = split(blocks.saturating_mul(self.view.sb.block_size.into()));
        self.inode(ino, |raw| {
            raw.i_size_lo.set(low);
            raw.i_size_high.set(high);
        })?;
        let Some(place) = self.dir_blocks(ino)?.first().copied() else { return Ok(false) };
        let label = self.journal_label(blocks, 1, &self.view.sb.raw.s_uuid);
        let mut block = alloc::vec![0; to_usize(self.view.sb.block_size.into())];
        block.iter_mut().zip(label.as_bytes()).for_each(|(to, from)| *to = *from);
        self.put(place, &block)?;
        self.copy_journal_inode(ino)?;
        Ok(true)
    }

    /// Turns an inode into a file for a journal. Its blocks stay.
    fn ready_journal_inode(&mut self, ino: u32) -> Result<()> {
        let now = self.now();
        let mut is_new = false;
        self.inode(ino, |raw| {
            *raw = only_journal_fields(raw);
            is_new = raw.i_block.iter().all(|&byte| byte == 0);
            raw.i_mode.set(PRIVATE_FILE);
            raw.i_links_count.set(raw.i_links_count.get().max(1));
            raw.i_dtime.set(0);
            raw.i_ctime.set(now);
            raw.i_mtime.set(now);
            raw.i_flags.set(raw.i_flags.get() & InodeFlags::EXTENTS.bits());
        })?;
        if is_new && self.view.sb.incompat.contains(Incompat::EXTENT) {
            self.inode(ino, |raw| raw.i_flags.set(InodeFlags::EXTENTS.bits()))?;
            self.empty_root(ino)?;
        }
        Ok(())
    }

    /// Stores a copy of the journal's map and size in the super block, and clears the request for a replay.
    pub(super) fn copy_journal_inode(&mut self, ino: u32) -> Result<()> {
        let record = self.record(ino)?;
        let Ok((inode, _)) = RawInode::ref_from_prefix(&record) else { return Ok(()) };
        self.super_block(|raw| {
            raw.s_feature_incompat.set(raw.s_feature_incompat.get() & !Incompat::NEEDS_RECOVERY.bits());
            raw.s_journal_inum.set(ino);
            raw.s_journal_dev.set(0);
            raw.s_jnl_backup_type = JNL_BACKUP_BLOCKS;
            let words = inode.i_block.chunks_exact(4).filter_map(|word| word.first_chunk());
            let words = words.map(|word| u32::from_le_bytes(*word));
            let words = words.chain([inode.i_size_high.get(), inode.i_size_lo.get()]);
            raw.s_jnl_blocks.iter_mut().zip(words).for_each(|(to, word)| to.set(word));
        })
    }

    /// Returns the size of the journal, or the default size if it is unknown. Returns `None` if the volume is too
    /// small for one.
    fn journal_blocks(&self, ino: u32) -> Result<Option<u64>> {
        let sb = &self.view.sb;
        let record = self.record(ino)?;
        let stored = RawInode::ref_from_prefix(&record)
            .map_or(0, |(raw, _)| join(raw.i_size_lo.get(), raw.i_size_high.get()));
        let [.., high, low] = &sb.raw.s_jnl_blocks;
        let is_kept = sb.raw.s_jnl_backup_type == JNL_BACKUP_BLOCKS;
        let kept = if is_kept { join(low.get(), high.get()) } else { 0 };
        let most = MAX_JOURNAL_BLOCKS.min(sb.blocks_count / 2);
        let sizes =
            [kept, stored].into_iter().map(|size| size.checked_div(sb.block_size.into()).unwrap_or(0));
        let mut sizes = sizes.filter(|size| (u64::from(MIN_BLOCKS)..=most).contains(size));
        Ok(sizes.next().or_else(|| JournalSize::by_volume(sb.blocks_count)))
    }

    /// Returns the super block of an empty log, after block `first - 1` of a journal of `blocks` blocks.
    fn journal_label(&self, blocks: u64, first: u32, uuid: &[u8; 16]) -> RawJournal {
        let sb = &self.view.sb;
        let size = JournalSize::of(blocks, sb.compat.contains(Compat::FAST_COMMIT));
        let mut label = journal_label(sb.block_size.bytes(), size, 1, first, uuid);
        label.s_sequence.set(Crc::new(!0).add(uuid).add(&self.now().to_le_bytes()).get());
        label
    }

    /// Creates an empty journal on the external device, if that has the right UUID and no other user.
    fn make_outer_journal(&self, options: &CheckOptions) -> Result<bool> {
        let Some(device) = options.journal.as_ref().filter(|device| !device.is_read_only()) else {
            return Ok(false);
        };
        let device: &Arc<dyn BlockDevice> = device;
        let raw = &self.view.sb.raw;
        let Some(found) = ExternalJournal::probe(&**device)? else { return Ok(false) };
        if found.uuid != raw.s_journal_uuid || found.block_size != self.view.sb.block_size.bytes() {
            return Ok(false);
        }
        let at = u64::from(found.super_block()).saturating_mul(found.block_size.into());
        let mut old = RawJournal::new_zeroed();
        device.read_at(at, old.as_mut_bytes())?;
        if old.s_nr_users.get() > 1 && old.s_checksum.get() == checksum::super_block(old.as_bytes()) {
            return Ok(false);
        }
        let first = found.super_block().saturating_add(1);
        let mut label = self.journal_label(found.len.into(), first, &found.uuid);
        label.s_users = [[0; 16]; 48];
        if let Some(user) = label.s_users.first_mut() {
            *user = raw.s_uuid;
        }
        device.write_at(at, label.as_bytes())?;
        device.flush()?;
        Ok(true)
    }

    /// Removes the journal and every reference to it, as e2fsck does if there is no space for one.
    pub(super) fn drop_journal(&mut self) -> Result<()> {
        let ino = self.view.sb.raw.s_journal_inum.get();
        self.super_block(|raw| {
            raw.s_feature_compat.set(raw.s_feature_compat.get() & !Compat::HAS_JOURNAL.bits());
            raw.s_feature_incompat.set(raw.s_feature_incompat.get() & !Incompat::NEEDS_RECOVERY.bits());
            raw.s_journal_inum.set(0);
            raw.s_journal_dev.set(0);
            raw.s_journal_uuid = [0; 16];
            raw.s_jnl_backup_type = 0;
            raw.s_jnl_blocks = [0.into(); 17];
        })?;
        if ino == JOURNAL_INO { self.clear_inode(ino) } else { Ok(()) }
    }
}

/// Returns the fields of a journal inode that describe its blocks. Everything else is 0, since it may be damaged. The
/// generation is part of the checksums of extent nodes.
fn only_journal_fields(raw: &RawInode) -> RawInode {
    RawInode {
        i_mode: raw.i_mode,
        i_links_count: raw.i_links_count,
        i_size_lo: raw.i_size_lo,
        i_size_high: raw.i_size_high,
        i_blocks_lo: raw.i_blocks_lo,
        l_i_blocks_high: raw.l_i_blocks_high,
        i_flags: raw.i_flags,
        i_block: raw.i_block,
        i_generation: raw.i_generation,
        ..RawInode::new_zeroed()
    }
}
