//! One caller's part of a transaction.

use core::fmt;
use core::ops::{Deref, DerefMut};

use obento_base::Result;
use obento_block::{Block, Changed, Edit, Seal};

use super::few::Few;
use super::options::Credits;
use super::transactions::Transactions;
use crate::Tid;

/// So many of the blocks taken last are remembered, to count one that is taken again once.
const REMEMBERED: usize = 64;

/// So many blocks most handles take at most, and so many things happen to them.
const USUAL: usize = 8;

/// What a handle did to a block, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    Changed(u64),
    Revoked(u64),
}

/// One caller's part of the running transaction. See the module for what its thread must not do meanwhile.
///
/// Dropping it before the first [`Txn::edit`] is free. Dropping it after turns the volume read-only.
#[must_use]
pub struct Txn<'t> {
    owner: &'t Transactions,
    tid: Tid,
    credits: u32,
    /// What it was given in all.
    granted: u32,
    taken: Few<u64, USUAL>,
    events: Few<Event, USUAL>,
    role: Role,
    /// Whether anything was changed, which cannot be undone.
    changed: bool,
    open: bool,
}

/// Why a handle is in the transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// It joined; the commit waits for it.
    Joiner,
    /// It is the commit's own.
    Hook,
}

/// A block that a handle may change.
#[derive(Clone, Debug)]
pub struct Taken {
    block: Block,
}

impl Taken {
    /// Its number.
    pub fn number(&self) -> u64 {
        self.block.number()
    }

    /// The version that was taken; [`Txn::view`] gives the newest.
    pub fn block(&self) -> &Block {
        &self.block
    }
}

/// Whether a handle got more credits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Extended {
    /// It did.
    Yes,
    /// The transaction is full or about to be committed: end this handle at a consistent point and begin another.
    No,
}

impl<'t> Txn<'t> {
    pub(super) fn new(owner: &'t Transactions, tid: Tid, credits: Credits, role: Role) -> Self {
        let (taken, events) = (Few::new(), Few::new());
        let (credits, changed, open) = (credits.0, false, true);
        Self { owner, tid, credits, granted: credits, taken, events, role, changed, open }
    }

    /// The transaction.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// The transactions that it is one of.
    pub fn owner(&self) -> &'t Transactions {
        self.owner
    }

    /// How many more blocks can be taken.
    pub fn credits_left(&self) -> Credits {
        Credits(self.credits)
    }

    /// Asks for `more` credits. Errors: ReadOnly.
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

    /// Reads block `number` as it is now, this handle's own changes included.
    pub fn get(&self, number: u64) -> Result<Block> {
        self.owner.cache().get(number)
    }

    /// Makes ready to change block `number`, for one credit unless it was taken lately. Errors: those of the device;
    /// NoMemory.
    pub fn take(&mut self, number: u64) -> Result<Taken> {
        let block = self.owner.cache().get(number)?;
        self.spend(number)?;
        Ok(Taken { block })
    }

    /// [`Txn::take`] of a block that the caller has just seen, and that nobody else changes since.
    pub fn take_seen(&mut self, block: &Block) -> Result<Taken> {
        self.spend(block.number())?;
        Ok(Taken { block: block.clone() })
    }

    /// Like [`Txn::take`] for a block that is newly in use: it is not read and holds zeros. Errors: NoMemory.
    pub fn take_new(&mut self, number: u64) -> Result<Taken> {
        self.spend(number)?;
        let block = self.owner.cache().renew(number)?;
        Ok(Taken { block })
    }

    /// A taken block as it is now.
    pub fn view(&self, taken: &Taken) -> Block {
        self.owner.cache().peek(taken.number()).unwrap_or_else(|| taken.block.clone())
    }

    /// Changes a taken block. The change is there, for everybody, when the answer is dropped.
    pub fn edit(&mut self, taken: &Taken) -> BlockMut<'_> {
        self.changed = true;
        let edit = self.owner.cache().edit(&taken.block);
        BlockMut { edit, mark: self.tid.0, events: &mut self.events }
    }

    /// [`Txn::edit`] that gives a taken block `bytes`, which are all of it, without a look at what it held.
    pub fn replace(&mut self, taken: &Taken, bytes: &[u8]) {
        self.changed = true;
        let edit = self.owner.cache().edit_as(&taken.block, bytes);
        drop(BlockMut { edit, mark: self.tid.0, events: &mut self.events });
    }

    /// Notes that a taken block is part of the transaction, which [`CommitHooks::before_commit`] will change.
    ///
    /// [`CommitHooks::before_commit`]: super::CommitHooks::before_commit
    pub fn note(&mut self, taken: &Taken) {
        self.changed = true;
        self.events.push(Event::Changed(taken.number()));
    }

    /// Block `number`, which held metadata or journalled data, is free once this transaction is durable: what was
    /// changed in it is dropped, and no older copy in the log will be replayed over what it holds by then.
    pub fn revoke(&mut self, number: u64) {
        self.changed = true;
        self.owner.cache().forget(number);
        self.events.push(Event::Revoked(number));
    }

    /// Ends the handle. Its changes are in the transaction that it answers, which is not durable yet:
    /// [`Transactions::wait_durable`] sees to that.
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
        // A block is noted once when it changes.
        self.events.reserve(self.taken.len().saturating_add(1))?;
        self.taken.push(number);
        debug_assert!(self.credits > 0, "taking block {number} is more than the handle's credits allow");
        // More is a mistake of the caller but no reason to fail: a transaction leaves most of the log free.
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

/// The bytes of a block, to be changed. Readers see the change when this is dropped.
pub struct BlockMut<'a> {
    edit: Edit<'a>,
    mark: u32,
    events: &'a mut Few<Event, USUAL>,
}

impl BlockMut<'_> {
    /// Notes that the checksum is right now, so that no reader computes it.
    pub fn set_verified(&mut self) {
        self.edit.set_verified();
    }

    /// Notes that the commit puts the checksum in, so that it is computed once however often the block changes.
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
        }
    }
}

impl fmt::Debug for BlockMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.edit.fmt(f)
    }
}
