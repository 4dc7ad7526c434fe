//! State in memory until a commit: inodes, orphans, counts of groups, the super block.
//!
//! Locking: leaves; the lock of the orphans before those of inodes, the others one at a time.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::mem::offset_of;
use core::ops::Range;

use obento_base::wire::{IntoBytes, split, to_usize};
use obento_base::{Corrupt, Error, Result, Structure, Timestamp};
use obento_env::sync::Mutex;
use obento_journal::{CommitHooks, Tid, Txn};

use super::orphans::Orphans;
use super::quotas::{QuotaUpdates, Quotas};
use crate::allocator::Allocator;
use crate::checksum::Crc;
use crate::feature::{Incompat, RoCompat};
use crate::group::Totals;
use crate::quota::UsageChanges;
use crate::raw::RawSuperBlock;
use crate::super_block::{ERROR_FS, PRIMARY_OFFSET, SuperBlock, VALID_FS};
use crate::volume::Volume;

/// The super block that the next commit writes.
#[derive(Debug)]
struct Pending {
    raw: Box<RawSuperBlock>,
    dirty: bool,
}

/// State that waits for a commit.
pub struct UncommittedState {
    volume: Arc<Volume>,
    allocator: Allocator,
    super_block: Mutex<Pending>,
    orphans: Orphans,
    quotas: Quotas,
}

impl UncommittedState {
    #[inline(never)]
    pub(super) fn new(volume: Arc<Volume>, quotas: QuotaUpdates) -> Result<Self> {
        let raw = volume.super_block().raw.clone();
        Ok(Self {
            allocator: Allocator::new(Arc::clone(&volume))?,
            super_block: Mutex::new(Pending { raw, dirty: false }),
            orphans: Orphans::load(&volume)?,
            quotas: Quotas::open(&volume, quotas)?,
            volume,
        })
    }

    pub(super) fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    pub(super) fn allocator(&self) -> &Allocator {
        &self.allocator
    }

    pub(super) fn orphans(&self) -> &Orphans {
        &self.orphans
    }

    pub(super) fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// Changes the super block. The running transaction writes it.
    pub(super) fn change_super_block(&self, change: impl FnOnce(&mut RawSuperBlock)) {
        let mut pending = self.super_block.lock();
        change(&mut pending.raw);
        pending.dirty = true;
    }

    /// Returns the super block that will be written.
    pub(super) fn super_block(&self) -> RawSuperBlock {
        *self.super_block.lock().raw
    }

    pub(super) fn need_large_file(&self) {
        let mut pending = self.super_block.lock();
        let features = RoCompat::from_bits_retain(pending.raw.s_feature_ro_compat.get());
        if !features.contains(RoCompat::LARGE_FILE) {
            pending.raw.s_feature_ro_compat.set((features | RoCompat::LARGE_FILE).bits());
            pending.dirty = true;
        }
    }

    /// Records damage in the super block as `ext4_error` does: function, place, time, count.
    pub(super) fn note_error(&self, error: Error, now: Timestamp) {
        let Error::Corrupt(damage) = error else { return };
        let (ino, block) = place_of(&damage);
        let ino = u32::try_from(ino).unwrap_or(0);
        let time = u32::try_from(now.secs().max(0) & 0xffff_ffff).unwrap_or(0);
        self.change_super_block(|raw| {
            raw.s_state.set(raw.s_state.get() | ERROR_FS);
            raw.s_error_count.set(raw.s_error_count.get().saturating_add(1));
            raw.s_last_error_time.set(time);
            raw.s_last_error_ino.set(ino);
            raw.s_last_error_block.set(block);
            raw.s_last_error_func = FUNCTION;
            raw.s_last_error_errcode = EFSCORRUPTED;
            if raw.s_first_error_time.get() == 0 {
                raw.s_first_error_time.set(time);
                raw.s_first_error_ino.set(ino);
                raw.s_first_error_block.set(block);
                raw.s_first_error_func = FUNCTION;
                raw.s_first_error_errcode = EFSCORRUPTED;
            }
        });
    }

    /// Updates free counts and checksum of the super block, and writes it into its block.
    pub(super) fn write_super_block(&self, txn: &mut Txn<'_>) -> Result<()> {
        let mut pending = self.super_block.lock();
        let sb = self.volume.super_block();
        let (block, place) = super_block_place(sb);
        let taken = txn.take(block)?;
        set_counts(sb, &mut pending.raw, self.allocator.counts());
        seal_super_block(sb, &mut pending.raw);
        pending.dirty = false;
        if let Some(bytes) = txn.edit(&taken).get_mut(place) {
            bytes.copy_from_slice(pending.raw.as_bytes());
        }
        Ok(())
    }

    /// Returns the super block of a volume that is closed cleanly, without its checksum.
    pub(super) fn final_super_block(&self) -> RawSuperBlock {
        let mut raw = self.super_block();
        set_counts(self.volume.super_block(), &mut raw, self.allocator.counts());
        raw
    }
}

impl CommitHooks for UncommittedState {
    fn before_commit(&self, txn: &mut Txn<'_>) -> Result<()> {
        let mut orphans = self.orphans.lock();
        orphans.place_new(txn, &self.volume)?;
        let head = orphans.head();
        let mut changes = UsageChanges::default();
        let record = self.quotas.recorder(&self.volume, &mut changes);
        self.volume.live().flush(txn, self.volume.super_block(), |ino| orphans.dtime(ino), record);
        drop(orphans);
        self.quotas.write_back(txn, &self.volume, &mut changes)?;
        let counted = self.allocator.write_back(txn)?;
        let mut pending = self.super_block.lock();
        if pending.raw.s_last_orphan.get() != head {
            pending.raw.s_last_orphan.set(head);
            pending.dirty = true;
        }
        let is_due = counted || pending.dirty;
        drop(pending);
        if is_due { self.write_super_block(txn) } else { Ok(()) }
    }

    fn durable(&self, tid: Tid) {
        self.allocator.durable(tid);
        self.volume.live().durable(tid);
    }
}

/// The function of recorded errors: our function names and lines would not help a user.
const FUNCTION: [u8; 32] = *b"obento\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// `EXT4_ERR_EFSCORRUPTED` of Linux `fs/ext4/ext4.h`.
const EFSCORRUPTED: u8 = 8;

/// Returns the block that contains the primary super block, and its place there.
pub(super) fn super_block_place(sb: &SuperBlock) -> (u64, Range<usize>) {
    let block_size = u64::from(sb.block_size);
    let start = to_usize(PRIMARY_OFFSET.checked_rem(block_size).unwrap_or(0));
    let end = start.saturating_add(size_of::<RawSuperBlock>());
    (PRIMARY_OFFSET.checked_div(block_size).unwrap_or(0), start..end)
}

/// Sets the free counts.
pub(crate) fn set_counts(sb: &SuperBlock, raw: &mut RawSuperBlock, counts: Totals) {
    // In blocks here, in clusters in the descriptors: `ext4_update_super`.
    let blocks = counts.free_blocks.saturating_mul(sb.cluster_blocks().into());
    let (low, high) = split(blocks);
    raw.s_free_blocks_count_lo.set(low);
    if sb.incompat.contains(Incompat::SIXTY_FOUR_BIT) {
        raw.s_free_blocks_count_hi.set(high);
    }
    raw.s_free_inodes_count.set(u32::try_from(counts.free_inodes).unwrap_or(u32::MAX));
}

/// Sets the checksum, if the volume has checksums.
pub(crate) fn seal_super_block(sb: &SuperBlock, raw: &mut RawSuperBlock) {
    if sb.has_metadata_csum() {
        let covered = raw.as_bytes().get(..offset_of!(RawSuperBlock, s_checksum)).unwrap_or_default();
        let sum = Crc::new(!0).add(covered).get();
        raw.s_checksum.set(sum);
    }
}

/// Returns the backup of a super block in `group`, with its checksum.
pub(crate) fn backup_super_block(sb: &SuperBlock, group: u32) -> RawSuperBlock {
    let mut raw = *sb.raw;
    raw.s_state.set(raw.s_state.get() & !VALID_FS);
    // The field has 16 bits. e2fsprogs stores the maximum for higher group numbers.
    raw.s_block_group_nr.set(u16::try_from(group).unwrap_or(u16::MAX));
    seal_super_block(sb, &mut raw);
    raw
}

/// Returns the inode and the block of damage, or 0 if it names none of them.
fn place_of(damage: &Corrupt) -> (u64, u64) {
    let of_structure = |structure: &Structure| match structure {
        Structure::Inode(ino)
        | Structure::ExtentTree(ino)
        | Structure::IndirectBlock(ino)
        | Structure::Directory(ino)
        | Structure::DirectoryIndex(ino)
        | Structure::InlineData(ino)
        | Structure::Symlink(ino)
        | Structure::Xattr(ino)
        | Structure::Quota(ino) => ino.0,
        _ => 0,
    };
    match damage {
        Corrupt::Magic { structure, block, .. }
        | Corrupt::Checksum { structure, block, .. }
        | Corrupt::Field { structure, block, .. }
        | Corrupt::InodeNumber { structure, block, .. }
        | Corrupt::Depth { structure, block, .. }
        | Corrupt::Truncated { structure, block, .. }
        | Corrupt::BlockRange { structure, start: block, .. } => (of_structure(structure), *block),
        Corrupt::UnusedInode { ino } => (ino.0, 0),
        Corrupt::RecordLength { dir, block, .. } | Corrupt::EntryName { dir, block, .. } => (dir.0, *block),
        Corrupt::DirectoryHole { dir, .. } => (dir.0, 0),
        Corrupt::ExtentOrder { ino, block, .. } => (ino.0, *block),
        _ => (0, 0),
    }
}
