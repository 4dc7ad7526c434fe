//! Changing a volume: the state that a volume needs in addition to [`Volume`].
//!
//! Reading code uses [`Volume`], which sees each change at once, since the blocks in the cache are current. The steps
//! of a change are: lock the inodes ([`InodeLocks`]), read the current state ([`InodeWrite`]), [`Writer::begin`], take
//! blocks and copy inodes ([`Writer::edit_inode`]), change them, [`Writer::store_inode`], commit.
//!
//! Invariant: all that can fail precedes the first change of a block. If that is impossible, allocations are released
//! in the same transaction, which is then committed.
//! Invariant: state that waits for the commit (group descriptors, super block) is written by [`UncommittedState`]
//! before the commit. It is in the same transaction as the changes that it counts. Locking, outermost first: the
//! layouts of `vfs`; [`InodeLocks`], all of them at once; a transaction; then leaves: the orphan list, groups, the
//! super block, reservations, moved blocks, tables of the allocator, cache.

mod attributes;
pub mod cost;
mod evict;
mod fold;
mod guard;
mod inode_edit;
mod inodes;
mod limits;
mod locks;
mod open;
mod orphans;
mod quotas;
mod redo;
mod uncommitted;

use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::{Error, Ino, Result, Timestamp};
use obento_block::RedoLog;
use obento_driver::{DataMode, Journalling};
use obento_env::{Clock, IN_KERNEL};
use obento_journal::{CommitOptions, Credits, Log, Tid, Transactions, Txn};

use crate::allocator::Allocator;
use crate::map::{MovedTable, NodeSpaceTable, ReservationTable};
use crate::raw::RawSuperBlock;
use crate::super_block::{raw_label, until_nul};
use crate::volume::Volume;
use crate::xattr::Shares;
use orphans::Orphans;

pub(crate) use evict::PreparedEviction;
pub(crate) use fold::fold_fast_commits;
pub(crate) use guard::{InodeGuard, InodeWrite};
pub(crate) use inode_edit::FULL_EXTRA_ISIZE;
pub use inode_edit::{InodeEdit, Time};
pub use locks::{InodeLocks, LockedInodes};
pub(crate) use open::open_writer;
pub(crate) use quotas::{QuotaUpdates, entry_place};
pub use uncommitted::UncommittedState;
pub(crate) use uncommitted::{backup_super_block, seal_super_block, set_counts};

/// `EXT4_ERRORS_CONTINUE` of `s_errors`.
const ERRORS_CONTINUE: u16 = 1;

/// An open volume that can be changed.
pub struct Writer {
    uncommitted: Arc<UncommittedState>,
    txns: Arc<Transactions>,
    locks: InodeLocks,
    reservations: ReservationTable,
    node_space: NodeSpaceTable,
    moved: MovedTable,
    shares: Shares,
    clock: Arc<dyn Clock>,
    mode: DataMode,
    /// `EXT4_VALID_FS` if the volume was clean when it was opened.
    was_clean: u16,
    /// Whether changes are added to a redo log.
    has_redo: bool,
    /// Whether the device is flushed between writes that depend on each other.
    has_barrier: bool,
}

impl Writer {
    /// Creates the writer of `volume`, whose journal is empty and whose super block is marked as in use.
    #[inline(never)]
    pub(crate) fn new(
        volume: Arc<Volume>,
        log: Log,
        clock: Arc<dyn Clock>,
        journalling: &Journalling,
        redo: Option<Arc<dyn RedoLog>>,
        quotas: QuotaUpdates,
    ) -> Result<Self> {
        let has_redo = redo.is_some();
        let cache = Arc::clone(volume.cache());
        let uncommitted = Arc::new(UncommittedState::new(volume, quotas)?);
        let options = CommitOptions {
            barrier: journalling.barrier,
            interval: Some(journalling.commit_interval).filter(|interval| !interval.is_zero()),
            redo,
            ..CommitOptions::new(Arc::clone(&clock))
        };
        let txns = Transactions::new(cache, log, options, Arc::<UncommittedState>::clone(&uncommitted));
        Ok(Self {
            uncommitted,
            txns,
            locks: InodeLocks::new(),
            reservations: ReservationTable::default(),
            node_space: NodeSpaceTable::default(),
            moved: MovedTable::default(),
            shares: Shares::default(),
            clock,
            mode: journalling.mode,
            was_clean: 0,
            has_redo,
            has_barrier: journalling.barrier,
        })
    }

    /// Returns the volume, for reading code.
    pub fn volume(&self) -> &Arc<Volume> {
        self.uncommitted.volume()
    }

    /// Returns the transactions.
    pub fn txns(&self) -> &Arc<Transactions> {
        &self.txns
    }

    /// Returns the locks of inodes.
    pub fn locks(&self) -> &InodeLocks {
        &self.locks
    }

    /// Returns the allocator of blocks and inodes.
    pub fn allocator(&self) -> &Allocator {
        self.uncommitted.allocator()
    }

    /// Returns the reservations of files.
    pub(crate) fn reservations(&self) -> &ReservationTable {
        &self.reservations
    }

    /// Returns the blocks that are reserved for nodes of the maps of files.
    pub(crate) fn node_space(&self) -> &NodeSpaceTable {
        &self.node_space
    }

    /// Returns the files whose blocks were moved recently.
    pub(crate) fn moved(&self) -> &MovedTable {
        &self.moved
    }

    /// Returns the attribute blocks and values that files share.
    pub(crate) fn shares(&self) -> &Shares {
        &self.shares
    }

    /// Returns whether changes are added to a redo log.
    pub(crate) fn has_redo(&self) -> bool {
        self.has_redo && !IN_KERNEL
    }

    /// Returns whether the device is flushed between writes that depend on each other.
    pub(crate) fn has_barrier(&self) -> bool {
        self.has_barrier
    }

    /// Returns the data mode.
    pub fn mode(&self) -> DataMode {
        self.mode
    }

    /// Returns the time now.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Joins the running transaction, to change at most `credits` blocks. Fails with `ReadOnly`.
    pub fn begin(&self, credits: Credits) -> Result<Txn<'_>> {
        self.add_missing_owners();
        let with_quotas = credits + self.uncommitted.quotas().credits();
        self.txns.begin(Credits(with_quotas.0.min(credits.0.max(self.txns.credits_max().0))))
    }

    /// Calls `act`. If it fails with `NoSpace` and a commit would free space, commits and calls it again. The caller
    /// must have no open transaction; `act` takes the locks that it needs.
    pub fn with_space<T>(&self, mut act: impl FnMut() -> Result<T>) -> Result<T> {
        match act() {
            Err(Error::NoSpace) if self.allocator().has_waiting() => {
                self.txns.wait_durable(self.txns.running())?;
                act()
            }
            done => done,
        }
    }

    /// [`obento_driver::WritableFileSystem::sync_files`]. The device is flushed even if there is nothing to commit,
    /// for data that was overwritten in place.
    pub(crate) fn sync_files(&self, inos: &[Ino]) -> Result<()> {
        let changes = inos.iter().filter_map(|&ino| self.last_change(ino));
        let last = changes.reduce(|last, tid| if tid.is_after(last) { tid } else { last });
        self.txns.sync_to(last.unwrap_or_else(|| self.txns.durable()))
    }

    /// Sets the feature for files larger than 2 GiB.
    pub fn need_large_file(&self) {
        self.uncommitted.need_large_file();
    }

    /// Records `error` in the super block if it is damage. The next commit writes the error flag. If the super block
    /// requires it (`errors=remount-ro`, or a panic, which is treated the same), the volume is read-only from then
    /// on. The caller must have no open transaction.
    pub fn note_error(&self, error: Error) {
        if !matches!(error, Error::Corrupt(_)) {
            return;
        }
        self.note_damage(error);
        if self.volume().super_block().raw.s_errors.get() > ERRORS_CONTINUE {
            // The error stays in memory if the super block cannot be written.
            let _ = self.save_super_block(|_| {});
            self.txns.abort(error);
        }
    }

    /// Records `error` in the super block if it is damage, within a transaction.
    pub(crate) fn note_damage(&self, error: Error) {
        self.uncommitted.note_error(error, self.now());
    }

    /// Returns the label of the volume.
    pub fn label(&self) -> Vec<u8> {
        until_nul(&self.uncommitted.super_block().s_volume_name).to_vec()
    }

    /// Changes the label durably. The copies of the super block keep the old one, until `tune` or `check` changes them.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        let label = raw_label(label).ok_or(Error::Invalid)?;
        self.save_super_block(|raw| raw.s_volume_name = label)
    }

    /// Changes the super block durably. Changes nothing if no transaction can begin.
    fn save_super_block(&self, change: impl FnOnce(&mut RawSuperBlock)) -> Result<()> {
        let mut txn = self.begin(Credits(1))?;
        self.uncommitted.change_super_block(change);
        self.uncommitted.write_super_block(&mut txn)?;
        let tid = txn.commit();
        self.txns.wait_durable(tid)
    }

    /// Records that `tid` changed data of `ino` but not its record.
    pub(crate) fn note_change(&self, ino: Ino, tid: Tid) {
        self.volume().live().note_data(ino, tid);
    }

    /// Returns the last transaction that changed `ino`, unless that has been durable for some time.
    pub fn last_change(&self, ino: Ino) -> Option<Tid> {
        self.volume().live().last_change(ino)
    }

    fn orphans(&self) -> &Orphans {
        self.uncommitted.orphans()
    }
}

impl Drop for Writer {
    /// A module of the kernel can be unloaded after the volume is dropped, so no thread may continue then.
    fn drop(&mut self) {
        self.txns.stop();
    }
}
