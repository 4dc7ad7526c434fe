//! Enforcing the limits of owners.
//!
//! The driver takes room when it promises space or inodes: for data when it reserves blocks, otherwise before
//! the first change of an operation. Index blocks of accepted data are never refused, as in Linux.
//! Invariant: no accepted data is lost because of a limit, since its blocks keep their room until they are
//! charged.
//! Source: Linux `fs/quota/dquot.c`; `fs/ext4/mballoc.c` `ext4_mb_new_blocks`; `fs/ext4/balloc.c` `ext4_new_meta_blocks`
//! (`dquot_alloc_block_nofail`); `fs/ext4/super.c` `ext4_statfs_project`.

use core::ops::Range;

use obento_base::{Error, Ino, Result};
use obento_driver::{NewNode, StatFs};
use obento_env::thread::is_without_limits;

use super::{InodeEdit, Writer};
use crate::inode::{Inode, InodeFlags};
use crate::quota::{Accounts, Admission, Charge, Enforcement, OwnerIds, OwnerRoom, QuotaKind};

/// Returns whether limits bind this thread.
fn enforcement() -> Enforcement {
    if is_without_limits() { Enforcement::Exempt } else { Enforcement::Bound }
}

impl Writer {
    fn accounts(&self) -> &alloc::sync::Arc<Accounts> {
        self.quotas().accounts()
    }

    /// Returns whether limits are enforced, and an owner has limits.
    pub(crate) fn has_limits(&self) -> bool {
        self.accounts().are_needed()
    }

    fn seconds(&self) -> u64 {
        u64::try_from(self.now().secs()).unwrap_or(0)
    }

    fn block_len_in_bytes(&self) -> u64 {
        self.volume().block_size().into()
    }

    fn take_room(&self, owners: OwnerIds, amount: (u64, u64)) -> Result<Option<Admission>> {
        self.accounts().admit(owners, amount, enforcement(), self.seconds())
    }

    /// Returns the owners of an inode. A file of the format has none.
    fn owners(&self, ino: Ino, record: &[u8]) -> OwnerIds {
        let charge = Charge::new(self.volume().super_block().into(), record, 0);
        charge.filter(|_| !self.volume().is_reserved(ino)).map_or([None; 3], |charge| charge.ids.map(Some))
    }

    /// Takes room for a new inode in directory `parent`. Fails with `QuotaExceeded`.
    pub(crate) fn room_for_inode(&self, parent: &Inode, node: &NewNode<'_>) -> Result<Option<Admission>> {
        self.take_room(self.owners_of(parent, node).map(Some), (1, 0))
    }

    /// Takes room for an inode that gets new owners, and for its blocks that are reserved for callers. Fails
    /// with `QuotaExceeded`.
    pub(super) fn room_for_transfer(&self, inode: &Inode, gaining: OwnerIds) -> Result<Option<Admission>> {
        let values = self.volume().charged_values(inode)?;
        let charge = Charge::new(self.volume().super_block().into(), inode.record(), values);
        // No room is held for these blocks if the owners have no limits.
        let handed = self.handed_bytes(inode.ino());
        // An inode without names is charged, too.
        let (inodes, bytes) = charge.map_or((1, 0), |charge| (charge.inodes, charge.bytes));
        self.take_room(gaining, (inodes, bytes.saturating_add(handed)))
    }

    /// Keeps the room for the reserved blocks of an inode that was stored with its new owners.
    pub(super) fn hold_transferred(&self, edit: &InodeEdit, room: Option<Admission>) {
        if room.is_some() {
            let owners = self.owners(edit.ino(), &edit.record());
            self.accounts().hold(edit.ino(), owners, self.handed_bytes(edit.ino()), self.seconds());
        }
    }

    /// Takes room for `blocks` new blocks of the inode of `edit`, until `edit` is dropped. Fails with `QuotaExceeded`.
    pub(crate) fn keep_room(&self, edit: &mut InodeEdit, blocks: u64) -> Result<()> {
        let owners = self.owners(edit.ino(), &edit.record());
        let bytes = blocks.saturating_mul(self.block_len_in_bytes());
        edit.keep(self.take_room(owners, (0, bytes))?)
    }

    /// Takes room for an attribute of the inode of `edit` whose value is in an inode and is counted as `blocks` blocks,
    /// until `edit` is dropped. Linux charges the new value before it releases the old one (`ext4_xattr_set_entry`).
    /// Fails with `QuotaExceeded`.
    pub(crate) fn keep_value_room(&self, edit: &mut InodeEdit, blocks: u64) -> Result<()> {
        let owners = self.owners(edit.ino(), &edit.record());
        let bytes = blocks.saturating_mul(self.block_len_in_bytes());
        edit.keep(self.take_room(owners, (1, bytes))?)
    }

    /// Fails with `QuotaExceeded` unless the owners of the inode of `edit` have room for one more inode. Linux charges them
    /// for a new inode with a value until its reference is charged (`ext4_xattr_inode_create`).
    pub(crate) fn expect_room_to_create(&self, edit: &InodeEdit) -> Result<()> {
        let [user, group, _] = self.owners(edit.ino(), &edit.record());
        self.take_room([user, group, None], (1, 0)).map(drop)
    }

    /// Takes room for the first blocks of `whole`, which are whole clusters. Returns these blocks. Fails with
    /// `QuotaExceeded` if there is no room for the first cluster.
    pub(crate) fn room_for_data(
        &self,
        inode: &Inode,
        whole: Range<u64>,
    ) -> Result<(Range<u64>, Option<Admission>)> {
        let owners = self.owners(inode.ino(), inode.record());
        if !self.accounts().bind(owners) {
            return Ok((whole, None));
        }
        let block = self.block_len_in_bytes();
        let cluster = u64::from(self.volume().super_block().cluster_blocks());
        let wanted = whole.end.saturating_sub(whole.start);
        let admissible =
            self.accounts().admissible(owners, wanted.saturating_mul(block), enforcement(), self.seconds());
        let clusters = admissible.checked_div(block.saturating_mul(cluster)).unwrap_or(0);
        let len = clusters.saturating_mul(cluster).min(wanted);
        if len == 0 {
            return Err(Error::QuotaExceeded);
        }
        let room = self.take_room(owners, (0, len.saturating_mul(block)))?;
        Ok((whole.start..whole.start.saturating_add(len), room))
    }

    /// Keeps the room for blocks of `inode` as long as the blocks are reserved for callers.
    pub(crate) fn hold_room(&self, inode: &Inode, room: Option<Admission>) {
        if room.is_some() {
            let owners = self.owners(inode.ino(), inode.record());
            self.accounts().hold(inode.ino(), owners, self.handed_bytes(inode.ino()), self.seconds());
        }
    }

    /// Gives up the room of those blocks of `ino` that are no longer reserved for callers.
    pub(crate) fn hold_still(&self, ino: Ino) {
        if self.accounts().held(ino) > 0 {
            self.accounts().hold_still(ino, self.handed_bytes(ino), self.seconds());
        }
    }

    /// Ends the reservation of the blocks in `range`, with which the inode was stored.
    pub(crate) fn end_holding(&self, ino: Ino, range: &Range<u64>) {
        self.reservations().take_handed(ino, range);
        self.hold_still(ino);
    }

    fn handed_bytes(&self, ino: Ino) -> u64 {
        self.reservations().handed_blocks(ino).saturating_mul(self.block_len_in_bytes())
    }

    /// Records the changed charge of an inode.
    pub(super) fn note_usage(&self, ino: Ino, (before, after): (Option<Charge>, Option<Charge>)) {
        if !self.volume().is_reserved(ino) {
            self.accounts().store(ino, before, after, self.seconds());
        }
    }

    /// Limits the statistics of the volume to the limits of the project of the directory `inode`.
    pub(crate) fn within_project(&self, inode: &Inode, stat: StatFs) -> StatFs {
        if !inode.has(InodeFlags::PROJINHERIT) {
            return stat;
        }
        let project = inode.attr(self.volume().super_block()).project;
        let OwnerRoom { bytes, inodes } = self.accounts().room(QuotaKind::Project, project);
        let blocks = |bytes: u64| bytes.checked_div(stat.block_size.into()).unwrap_or(0);
        let (mut stat, space) = (stat, bytes.map(|(limit, used)| (blocks(limit), blocks(used))));
        if let Some((limit, used)) = space.filter(|(limit, _)| *limit > 0) {
            let left = limit.saturating_sub(used);
            stat.blocks = stat.blocks.min(limit);
            (stat.free, stat.available) = (stat.free.min(left), stat.available.min(left));
        }
        if let Some((limit, used)) = inodes {
            stat.inodes = stat.inodes.min(limit);
            stat.free_inodes = stat.free_inodes.min(limit.saturating_sub(used));
        }
        stat
    }
}
