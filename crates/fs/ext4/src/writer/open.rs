//! Opening a volume for changes, and closing it.
//!
//! Order of opening, in which each step needs the previous one:
//! - the primary super block and its requirements;
//! - fast commits, converted to a transaction of the log;
//! - the journal, replayed onto the device;
//! - the super block again;
//! - groups;
//! - the super block marked as in use, durably before the first transaction;
//! - orphans.
//!
//! Order of closing: all changes in their places, the journal empty, the super block marked clean, each durable before
//! the next.
//! Source: Linux `fs/ext4/super.c` `ext4_fill_super`, `ext4_load_journal`, `ext4_setup_super`, `ext4_put_super`;
//! `fs/ext4/orphan.c` `ext4_orphan_cleanup`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::IntoBytes;
use obento_base::{DeviceError, Error, Feature, Ino, Result, Timestamp};
use obento_block::BlockDevice;
use obento_driver::{Decoded, HandoverState, Notice, OpenOptions};
use obento_journal::{Checksums, Journal, JournalFeatures, JournalWriter, Log};

use super::fold::fold_fast_commits;
use super::redo::fold_redo_log;
use super::uncommitted::seal_super_block;
use super::{QuotaUpdates, Writer};
use crate::feature::{Compat, Incompat, RoCompat};
use crate::locate;
use crate::raw::RawSuperBlock;
use crate::replay::open_journal;
use crate::super_block::{ERROR_FS, PRIMARY_OFFSET, SuperBlock, VALID_FS};
use crate::volume::Volume;

/// `EXT4_DFL_MAX_MNT_COUNT`, for a volume without a maximum.
const DEFAULT_MAX_MOUNTS: u16 = 20;

/// Opens the volume on `device` for changes. Fails with the first error:
/// - `ReadOnly` for a read-only device;
/// - `Corrupt` for the primary super block, or a device that is shorter than the volume;
/// - `Unsupported` for a feature that cannot be written;
/// - the errors of the journal;
/// - `Corrupt` for a group descriptor;
/// - `Corrupt` for the root, which must be a directory.
#[inline(never)]
pub(crate) fn open_writer(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Writer> {
    let found = Decoded::of(options.probe.as_ref(), || locate::find(&*device))?;
    if let Some(error) = found.instead_of {
        return Err(error);
    }
    let sb = found.super_block;
    sb.check_len(device.len())?;
    if device.is_read_only() {
        return Err(Error::ReadOnly);
    }
    if options.super_block.is_some() {
        return Err(Error::Unsupported(Feature::Named("writing with a backup super block")));
    }
    sb.check_writable()?;
    let fast = fold_fast_commits(&device, &sb, options)?;
    fold_redo_log(&device, &sb, options)?;
    open_folded(device, sb, options, fast)
}

/// Opens a volume for changes whose journal contains all changes. `fast` is the number of transactions, if the journal
/// contained fast commits. A function of its own: applying fast commits needs the stack that opening needs.
#[inline(never)]
fn open_folded(
    device: Arc<dyn BlockDevice>,
    mut sb: SuperBlock,
    options: &OpenOptions,
    fast: Option<u64>,
) -> Result<Writer> {
    let mut notices = Vec::new();
    let journal = recover(&device, &mut sb, options, &mut notices)?;
    if let Some(transactions) = fast {
        notices.clear();
        notices.push(Notice::Replayed { transactions });
    }
    // An aborted journal does not affect the orphan list, which is as reliable as before.
    let is_distrusted = sb.is_marked_with_errors();
    let given_up = journal.as_ref().filter(|journal| journal.super_block().errno != 0);
    if given_up.is_some() {
        // The process that aborted the journal could not set the error flag: `ext4_clear_journal_err`.
        sb.raw.s_state.set(sb.raw.s_state.get() | ERROR_FS);
    }
    let was_marked = sb.is_marked_with_errors();
    let state = options.adopt.as_ref().map(|adopted| adopted_state(&adopted.state)).transpose()?;
    let was_clean = state.unwrap_or(sb.raw.s_state.get()) & VALID_FS;
    if options.adopt.is_none() {
        // A volume that another process passes on is marked already.
        enter(&mut sb, options.clock.now(), journal.is_some());
    }
    let mut volume = Volume::new(Arc::clone(&device), sb, options.cache)?;
    volume.set_external_journal(options.journal.clone());
    volume.check_groups()?;
    volume.expect_root()?;
    write_super_block(&*device, volume.super_block(), *volume.super_block().raw)?;
    volume.cache().clear();
    if let Some(journal) = given_up {
        journal.clear_error()?;
    }
    notices.into_iter().for_each(|notice| volume.notice(notice));
    if was_marked {
        volume.notice(Notice::MarkedWithErrors);
    }
    // Without a journal, changes reach their places in any order, so a redo log would be no help.
    let redo = options.redo_log().cloned().filter(|_| journal.is_some());
    redo.iter().for_each(|redo| redo.clear());
    let log = match journal {
        Some(journal) => Log::Jbd2(JournalWriter::open(journal, features(volume.super_block()))?),
        None => Log::None,
    };
    let volume = Arc::new(volume);
    let (clock, quotas) = (Arc::clone(&options.clock), QuotaUpdates::On(options.limits));
    let mut writer = Writer::new(volume, log, clock, &options.journalling, redo, quotas)?;
    writer.was_clean = was_clean;
    writer.recover_orphans(is_distrusted, options.adopt.as_deref())?;
    Ok(writer)
}

/// Returns the part of `s_state` that the first process found when it opened the volume.
fn adopted_state(state: &[u8]) -> Result<u16> {
    state.try_into().map(u16::from_le_bytes).map_err(|_| Error::Invalid)
}

/// Replays the journal onto the device, if the super block marks it as needed, and reads the super block again.
/// Returns `None` if the volume has no journal.
#[inline(never)]
fn recover(
    device: &Arc<dyn BlockDevice>,
    sb: &mut SuperBlock,
    options: &OpenOptions,
    notices: &mut Vec<Notice>,
) -> Result<Option<Journal>> {
    if !sb.compat.contains(Compat::HAS_JOURNAL) {
        return Ok(None);
    }
    let missing = Error::Unsupported(Feature::ExternalJournal);
    let mut journal = open_journal(device, sb, options.journal.as_ref(), notices)?.ok_or(missing)?;
    if let Some(Notice::Damaged(error)) = notices.first() {
        return Err(*error);
    }
    if journal.super_block().needs_replay() {
        if sb.incompat.contains(Incompat::NEEDS_RECOVERY) {
            let summary = journal.recover(&**device, sb.blocks_count)?;
            if summary.transactions > 0 {
                notices.push(Notice::Replayed { transactions: summary.transactions.into() });
            }
            *sb = locate::decode_at(&**device, PRIMARY_OFFSET)?;
        } else {
            // If the volume is marked as clean, the log is not needed: `jbd2_journal_wipe`.
            let summary = journal.replay_index(sb.blocks_count)?.summary;
            journal.mark_empty(summary.next.next(), summary.head)?;
        }
    }
    Ok(Some(journal))
}

/// Marks the volume as in use: `ext4_setup_super`.
fn enter(sb: &mut SuperBlock, now: Timestamp, has_journal: bool) {
    let raw = &mut sb.raw;
    raw.s_mnt_count.set(raw.s_mnt_count.get().saturating_add(1));
    if raw.s_max_mnt_count.get() == 0 {
        raw.s_max_mnt_count.set(DEFAULT_MAX_MOUNTS);
    }
    let (low, high) = time_halves(now);
    raw.s_mtime.set(low);
    raw.s_mtime_hi = high;
    raw.s_wtime.set(low);
    raw.s_wtime_hi = high;
    if has_journal {
        sb.incompat.insert(Incompat::NEEDS_RECOVERY);
        raw.s_feature_incompat.set(sb.incompat.bits());
    } else {
        raw.s_state.set(raw.s_state.get() & !VALID_FS);
    }
    if sb.compat.contains(Compat::ORPHAN_FILE) {
        sb.ro_compat.insert(RoCompat::ORPHAN_PRESENT);
        raw.s_feature_ro_compat.set(sb.ro_compat.bits());
    }
}

/// Returns the seconds since 1970 in 40 bits.
fn time_halves(now: Timestamp) -> (u32, u8) {
    let [a, b, c, d, high, ..] = now.secs().max(0).to_le_bytes();
    (u32::from_le_bytes([a, b, c, d]), high)
}

fn features(sb: &SuperBlock) -> JournalFeatures {
    let checksums = if sb.has_metadata_csum() { Checksums::V3 } else { Checksums::None };
    JournalFeatures { checksums, wide: sb.incompat.contains(Incompat::SIXTY_FOUR_BIT) }
}

/// Writes the primary super block durably, outside of any transaction.
#[inline(never)]
fn write_super_block(device: &dyn BlockDevice, sb: &SuperBlock, raw: RawSuperBlock) -> Result<()> {
    let mut raw = raw;
    seal_super_block(sb, &mut raw);
    device.write_at(PRIMARY_OFFSET, raw.as_bytes())?;
    device.flush()
}

impl Writer {
    /// Frees the orphans of the last use, and completes interrupted truncations. On a volume with errors the orphan
    /// list cannot be trusted, and is discarded as in Linux. The list of a process that passes on the volume is
    /// its own, whatever the volume is marked with: inodes that it passes on stay.
    #[inline(never)]
    fn recover_orphans(&self, was_marked: bool, adopted: Option<&HandoverState>) -> Result<()> {
        if was_marked && adopted.is_none() {
            self.orphans().lock().clear_list();
            self.uncommitted.change_super_block(|raw| raw.s_last_orphan.set(0));
            return Ok(());
        }
        let unread = self.end_orphans(|ino| adopted.is_some_and(|adopted| adopted.uses(ino)))?;
        unread.into_iter().for_each(|error| self.volume().notice(Notice::Damaged(error)));
        Ok(())
    }

    /// Frees orphans that are not in use, and completes truncations. Inodes that are damaged or cannot be read stay on
    /// the list. Returns the first error of a device that failed to read an unused inode. Fails if an inode in use cannot
    /// be read, or if the device fails in another way.
    fn end_orphans(&self, is_used: impl Fn(Ino) -> bool) -> Result<Option<Error>> {
        let all = self.orphans().lock().all();
        let mut unread = None;
        for ino in all {
            let is_used = is_used(ino);
            match self.recover_orphan(ino, is_used) {
                Ok(()) => {}
                Err(error @ Error::Corrupt(_)) => self.note_error(error),
                Err(error @ Error::Device(DeviceError::Read { .. })) if !is_used => {
                    unread = unread.or(Some(error));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(unread)
    }

    #[inline(never)]
    fn recover_orphan(&self, ino: Ino, is_used: bool) -> Result<()> {
        match self.volume().inode(ino) {
            // The inode was not in use when the volume was opened.
            Err(Error::Stale) => {
                let inode = self.volume().unlinked_inode(ino)?;
                let values = self.volume().charged_values(&inode)?;
                let sb = self.volume().super_block();
                self.volume().live().take_up(sb, inode, values, self.txns().durable());
            }
            Ok(inode) if inode.links() == 0 => {}
            inode => return inode.and_then(|_| self.end_truncation(ino)),
        }
        if is_used { Ok(()) } else { self.evict(ino) }
    }

    /// Writes all changes to their places, for another process that opens the volume meanwhile. Returns the state for
    /// it.
    pub(crate) fn prepare_handover(&self) -> Result<[u8; 2]> {
        self.settle_quotas();
        self.txns().sync()?;
        self.txns().checkpoint()?;
        Ok(self.was_clean.to_le_bytes())
    }

    /// Frees orphans, writes all changes to their places, empties the journal and marks the volume clean. Afterwards,
    /// every change fails.
    pub(crate) fn close(&self) -> Result<()> {
        let ended = self.end_orphans(|_| false);
        self.settle_quotas();
        self.txns().close()?;
        ended?.map_or(Ok(()), Err)?;
        let mut raw = self.uncommitted.final_super_block();
        raw.s_feature_incompat.set(raw.s_feature_incompat.get() & !Incompat::NEEDS_RECOVERY.bits());
        if self.orphans().lock().is_empty() {
            raw.s_feature_ro_compat.set(raw.s_feature_ro_compat.get() & !RoCompat::ORPHAN_PRESENT.bits());
        }
        // Without a journal, a volume that was not clean before is not marked clean.
        raw.s_state.set(raw.s_state.get() | self.was_clean);
        let (low, high) = time_halves(self.now());
        raw.s_wtime.set(low);
        raw.s_wtime_hi = high;
        write_super_block(&**self.volume().device(), self.volume().super_block(), raw)?;
        self.volume().cache().clear();
        Ok(())
    }
}
