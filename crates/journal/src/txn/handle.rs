//! The handle of one caller in a transaction.

use core::fmt;
use core::ops::{Deref, DerefMut};

use obento_base::Result;
use obento_block::{Block, Changed, Edit, Seal};

use super::few::Few;
use super::options::Credits;
use super::transactions::Transactions;
use crate::Tid;

/// Number of recently taken blocks to remember, so that taking one of them again costs no credit.
const REMEMBERED: usize = 64;

/// Number of blocks and events for which most handles need no memory allocation.
const USUAL: usize = 8;

/// A change of a block by a handle, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    Changed(u64),
    /// The transaction had changed the block before. Recorded only for a redo log.
    ChangedAgain(u64),
    Revoked(u64),
}

/// The handle of one caller in the running transaction. While a thread has a handle, the thread acquires only
/// leaf locks, begins no other transaction, and waits for no commit.
///
/// A change is a call of [`Txn::edit`], [`Txn::overwrite`], [`Txn::note`] or [`Txn::revoke`]. If a handle is dropped
/// before its first change, the drop has no effect. If a handle is dropped after a change and without [`Txn::commit`],
/// the volume becomes read-only.
#[must_use]
pub struct Txn<'t> {
    owner: &'t Transactions,
    tid: Tid,
    credits: u32,
    /// Total number of granted credits.
    granted: u32,
    taken: Few<u64, USUAL>,
    events: Few<Event, USUAL>,
    role: Role,
    /// Whether the handle has made a change. Changes cannot be undone.
    changed: bool,
    open: bool,
}

/// The role of a handle in its transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// A handle that joined; the commit waits for it.
    Joiner,
    /// The handle of the commit itself.
    Hook,
}

/// A block that a handle may change.
#[derive(Clone, Debug)]
pub struct Taken {
    block: Block,
}

impl Taken {
    /// Returns the block number.
    pub fn number(&self) -> u64 {
        self.block.number()
    }

    /// Returns the version of the block when it was taken. [`Txn::view`] returns the newest version.
    pub fn block(&self) -> &Block {
        &self.block
    }
}

/// A block whose whole contents a handle may replace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TakenUnread {
    number: u64,
}

/// The result of a request for more credits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Extended {
    /// The credits were granted.
    Yes,
    /// The transaction is full, or about to be committed. The caller must bring its changes to a consistent point,
    /// end this handle, and begin another one.
    No,
}

impl<'t> Txn<'t> {
    pub(super) fn new(owner: &'t Transactions, tid: Tid, credits: Credits, role: Role) -> Self {
        let (taken, events) = (Few::new(), Few::new());
        let (credits, changed, open) = (credits.0, false, true);
        Self { owner, tid, credits, granted: credits, taken, events, role, changed, open }
    }

    /// Returns the transaction number.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// Returns the transactions of the volume.
    pub fn owner(&self) -> &'t Transactions {
        self.owner
    }

    /// Returns the number of blocks that the handle can still take.
    pub fn credits_left(&self) -> Credits {
        Credits(self.credits)
    }

    /// Requests `more` credits, without waiting.
    ///
    /// # Errors
    ///
    /// - `ReadOnly`: an error made the volume read-only.
    pub fn extend(&mut self, more: Credits) -> Result<Extended> {
        let extended = match self.role {
            Role::Joiner => self.owner.extend(more)?,
            Role::Hook => Extended::Yes,
        };
        if extended == Extended::Yes {
            self.credits = self.credits.saturating_add(more.0);
            self.granted = self.granted.saturating_add(more.0);
        }
        Ok(extended)
    }

    /// Reads the current version of block `number`, including the changes of all handles. Fails as
    /// [`Cache::get`] does.
    ///
    /// [`Cache::get`]: obento_block::Cache::get
    pub fn get(&self, number: u64) -> Result<Block> {
        self.owner.cache().get(number)
    }

    /// Prepares to change block `number`. This uses one credit, unless the block is among the last 64 blocks
    /// that the handle took.
    ///
    /// # Errors
    ///
    /// - `Device`: the device failed.
    /// - `NoMemory`: memory is exhausted.
    ///
    /// # Panics
    ///
    /// In debug builds, if the handle has no credits left. In other builds, the call succeeds.
    pub fn take(&mut self, number: u64) -> Result<Taken> {
        let block = self.owner.cache().get(number)?;
        self.spend(number)?;
        Ok(Taken { block })
    }

    /// [Takes](Txn::take) a block that the caller has read as `block`. The caller must ensure that no other
    /// thread has changed the block since then.
    pub fn take_seen(&mut self, block: &Block) -> Result<Taken> {
        self.spend(block.number())?;
        Ok(Taken { block: block.clone() })
    }

    /// [Takes](Txn::take) a newly allocated block. The block is not read, and contains zeros. Fails with `NoMemory`.
    pub fn take_new(&mut self, number: u64) -> Result<Taken> {
        self.spend(number)?;
        let block = self.owner.cache().renew(number)?;
        Ok(Taken { block })
    }

    /// [Takes](Txn::take) a block that only [`Txn::overwrite`] changes. The block is not read. Fails with `NoMemory`.
    pub fn take_unread(&mut self, number: u64) -> Result<TakenUnread> {
        self.spend(number)?;
        Ok(TakenUnread { number })
    }

    /// Returns the current version of a taken block.
    pub fn view(&self, taken: &Taken) -> Block {
        self.owner.cache().peek(taken.number()).unwrap_or_else(|| taken.block.clone())
    }

    /// Returns write access to a taken block. Other threads see the change once the result is dropped. From
    /// this call on, the handle cannot be undone: its caller must [`commit`](Txn::commit) it. Waits while
    /// another thread has write access to the block. The calling thread must not have write access to the
    /// block already.
    pub fn edit(&mut self, taken: &Taken) -> BlockMut<'_> {
        self.changed = true;
        let edit = self.owner.cache().edit(&taken.block);
        BlockMut { edit, mark: self.tid.0, events: &mut self.events, is_redone: self.owner.has_redo() }
    }

    /// Replaces the whole contents of a taken block with `bytes`, which must have the length of a block. The
    /// rules of [`edit`](Self::edit) apply: the handle cannot be undone afterwards, and the call waits while
    /// another thread has write access to the block.
    pub fn overwrite(&mut self, taken: TakenUnread, bytes: &[u8]) {
        self.changed = true;
        let changed = self.owner.cache().overwrite(taken.number, bytes, self.tid.0);
        if changed == Changed::First {
            self.events.push(Event::Changed(taken.number));
        } else if self.owner.has_redo() {
            self.events.push(Event::ChangedAgain(taken.number));
        }
    }

    /// Adds a taken block to the transaction without changing it, so that [`CommitHooks::before_commit`] can change
    /// it.
    ///
    /// [`CommitHooks::before_commit`]: super::CommitHooks::before_commit
    pub fn note(&mut self, taken: &Taken) {
        self.changed = true;
        self.events.push(Event::Changed(taken.number()));
    }

    /// Revokes block `number`, which contained metadata or journalled data and was freed. The caller may
    /// allocate the block again once this transaction is durable. The call drops the unwritten changes of the
    /// block. A later replay does not overwrite the new contents of the block with older copies.
    pub fn revoke(&mut self, number: u64) {
        self.changed = true;
        self.owner.cache().forget(number);
        self.events.push(Event::Revoked(number));
    }

    /// Ends the handle and returns the number of its transaction. The changes are not durable yet:
    /// [`Transactions::wait_durable`] returns once they are.
    pub fn commit(mut self) -> Tid {
        self.leave();
        self.tid
    }

    fn spend(&mut self, number: u64) -> Result<()> {
        let forgotten = self.taken.len().saturating_sub(REMEMBERED);
        if self.taken.iter().skip(forgotten).any(|taken| taken == number) {
            return Ok(());
        }
        self.taken.reserve(1)?;
        // A block is recorded once when it changes.
        self.events.reserve(self.taken.len().saturating_add(1))?;
        self.taken.push(number);
        debug_assert!(self.credits > 0, "taking block {number} is more than the handle's credits allow");
        // Using more credits is a bug of the caller, but not a reason to fail: a transaction leaves most of
        // the log free.
        self.credits = self.credits.saturating_sub(1);
        Ok(())
    }

    fn leave(&mut self) {
        if core::mem::take(&mut self.open) {
            self.owner.leave(self.role, self.granted, self.events.iter());
        }
    }
}

impl Drop for Txn<'_> {
    fn drop(&mut self) {
        if self.open && self.changed {
            self.owner.abort(obento_base::Error::ReadOnly);
        }
        self.leave();
    }
}

impl fmt::Debug for Txn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Txn({}, {} credits)", self.tid, self.credits)
    }
}

/// Write access to the bytes of a block. Readers see the new bytes after this guard is dropped.
pub struct BlockMut<'a> {
    edit: Edit<'a>,
    mark: u32,
    events: &'a mut Few<Event, USUAL>,
    /// Whether repeated changes are recorded, too.
    is_redone: bool,
}

impl BlockMut<'_> {
    /// Records that the checksum of the new contents is correct. Readers need not verify the checksum.
    pub fn set_verified(&mut self) {
        self.edit.set_verified();
    }

    /// Defers the checksum to the commit. The commit computes the checksum once, even if the block changes
    /// often.
    pub fn seal_later(&mut self, seal: Seal) {
        self.edit.seal_later(seal);
    }
}

impl Deref for BlockMut<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.edit
    }
}

impl DerefMut for BlockMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.edit
    }
}

impl Drop for BlockMut<'_> {
    fn drop(&mut self) {
        if self.edit.publish_once(self.mark) == Changed::First {
            self.events.push(Event::Changed(self.edit.number()));
        } else if self.is_redone {
            self.events.push(Event::ChangedAgain(self.edit.number()));
        }
    }
}

impl fmt::Debug for BlockMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.edit.fmt(f)
    }
}
