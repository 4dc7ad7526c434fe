//! The ledger of a mount: the state that survives a failure of the server (`-o failover`).
//!
//! The ledger is a file in memory (memfd), which the keeper of the mount also has open. The server writes to it before
//! it replies to a request. After a failure, the next server reads it.
//!
//! | offset | contents |
//! |---|---|
//! | 0 and 2048 | two copies of the [`Header`], which are written in turn |
//! | 4096 | the number of slots in use |
//! | 1 MiB | slots of nodes: node ID, lookups, whether it is a regular file |
//! | 1 GiB | the redo log: changed blocks of transactions that are not durable |
//!
//! Invariant: one request at a time changes the volume ([`Ledger::turn`]). Its reply is sent before the next turn
//! begins, so that at most one reply is noted and not sent.
//! Invariant: the header refers to the changed blocks, to the noted reply and to the changed node of a request. One
//! write publishes all three. The kernel does not divide this write, because it is within a page.
//! Invariant: the count of lookups is never too low. If the server fails between counting a lookup and its reply, the
//! count is too high: then the inode stays in use until the end of the mount.
//! Decision: docs/decisions/0070-a-keeper-restarts-a-failed-server.md.

mod header;
mod slots;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use obento_base::{Errno, Error};
use obento_block::{Block, BlockImage, RedoLog};
use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use crate::handover::NodeState;
use crate::server::Reply;
use header::{Header, Note};
use slots::{NodeSlot, Slots};

/// Bit of `unique` in a request that the kernel sends again: `FUSE_UNIQUE_RESEND`.
const SENT_AGAIN: u64 = 1 << 63;
/// Offset of the redo log.
const LOG: u64 = 1 << 30;
/// Length of the redo log from which the server commits.
const LONG: u64 = 32 << 20;
/// The longest reply that is noted. Only ioctl(2) can have longer ones, and these change nothing.
const LONGEST_NOTE: usize = 1024;

/// What the request of a thread may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// It changes no file, but may count lookups.
    Lookups,
    /// It changes files, and has the same effect if it is performed again.
    Repeatable,
    /// It changes files, and must not be performed twice.
    Once,
}

thread_local! {
    /// The effect of the request whose turn it is, if this thread handles it.
    static HERE: Cell<Option<Effect>> = const { Cell::new(None) };
}

/// The ledger of a mount.
pub struct Ledger {
    file: OwnedFd,
    turn: Mutex<()>,
    state: Mutex<State>,
}

struct State {
    header: Header,
    slots: Slots,
    /// The last transaction in the redo log.
    last: Option<u32>,
    /// The reply and the nodes of the request whose turn it is.
    note: Option<Note>,
    nodes: Vec<NodeSlot>,
}

/// The turn of a request, which ends when this is dropped.
pub(crate) struct Turn<'l> {
    _one: MutexGuard<'l, ()>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        HERE.set(None);
    }
}

impl Ledger {
    /// Creates an empty ledger. Fails if memory is exhausted.
    pub fn new() -> io::Result<Self> {
        let file = memfd_create(c"obento-ledger", MemfdFlags::CLOEXEC)?;
        let state = State::new(Header::default(), Slots::default());
        let this = Self { file, turn: Mutex::default(), state: Mutex::new(state) };
        this.save(&mut this.state.lock())?;
        Ok(this)
    }

    /// Reads the ledger of a server that has failed.
    ///
    /// # Errors
    ///
    /// - `InvalidData`: the ledger is damaged, or the failed server has marked it as incomplete.
    /// - The errors of reading the file.
    pub fn open(file: OwnedFd) -> io::Result<Self> {
        let header = Header::read(&file)?;
        if header.is_broken {
            let cause = "the server could not record its changes before it failed";
            return Err(io::Error::new(io::ErrorKind::InvalidData, cause));
        }
        let state = State::new(header, Slots::read(&file)?);
        let this = Self { file, turn: Mutex::default(), state: Mutex::new(state) };
        this.settle_nodes(&mut this.state.lock())?;
        Ok(this)
    }

    /// Returns the nodes that the kernel has not forgotten.
    pub fn nodes(&self) -> Vec<NodeState> {
        let state = self.state.lock();
        let node = |slot: NodeSlot| NodeState {
            id: slot.id,
            lookups: slot.lookups,
            is_plain: false,
            is_regular: slot.is_regular,
            is_cached_for_long: true,
            is_written: false,
            failure: None,
        };
        state.slots.all().map(node).collect()
    }

    /// Waits for the turn of a request of this thread.
    pub(crate) fn turn(&self, effect: Effect) -> Turn<'_> {
        let one = self.turn.lock();
        HERE.set(Some(effect));
        Turn { _one: one }
    }

    /// Returns the reply to the request `unique`, if the kernel sends it again and a server has performed it.
    pub(crate) fn reply_to(&self, unique: u64) -> Option<Reply<Vec<u8>>> {
        let state = self.state.lock();
        let note = state.header.note.as_ref()?;
        (unique == note.unique | SENT_AGAIN).then(|| match note.error {
            0 => Ok(note.body.clone()),
            error => Err(Errno(error)),
        })
    }

    /// Notes the reply to the request whose turn it is. The redo log publishes it with the changes.
    pub(crate) fn note(&self, unique: u64, reply: &Reply<()>, body: &[u8]) {
        let (error, body) = match reply {
            Ok(()) if body.len() > LONGEST_NOTE => return,
            Ok(()) => (0, body.to_vec()),
            Err(error) => (error.0, Vec::new()),
        };
        self.state.lock().note = Some(Note { unique: unique & !SENT_AGAIN, error, body });
    }

    /// Records the lookups of a node; 0 removes the node. If the request of this thread changes files, the redo log
    /// publishes the count with the changes.
    pub(crate) fn count(&self, id: u64, lookups: u64, is_regular: bool) {
        let slot = NodeSlot { id, lookups, is_regular };
        let mut state = self.state.lock();
        if HERE.get().is_some_and(|effect| effect != Effect::Lookups) {
            state.nodes.retain(|other| other.id != id);
            return state.nodes.push(slot);
        }
        let State { slots, .. } = &mut *state;
        if let Err(error) = slots.set(&self.file, slot) {
            self.break_off(&mut state, &error);
        }
    }

    /// Returns whether the redo log is so long that the server should commit.
    pub(crate) fn is_long(&self) -> bool {
        let state = self.state.lock();
        state.header.end > LONG && !state.is_durable()
    }

    /// Marks the ledger as incomplete: no server can continue after a failure of this one.
    pub(crate) fn give_up(&self, error: &dyn std::fmt::Display) {
        self.break_off(&mut self.state.lock(), error);
    }

    fn break_off(&self, state: &mut State, error: &dyn std::fmt::Display) {
        if !std::mem::replace(&mut state.header.is_broken, true) {
            tracing::error!(%error, "no server can continue after a failure of this one");
        }
        let _ = self.save(state);
    }

    fn save(&self, state: &mut State) -> io::Result<()> {
        state.header.write(&self.file)
    }

    /// Moves the nodes of the header to their slots.
    fn settle_nodes(&self, state: &mut State) -> io::Result<()> {
        if state.header.nodes.is_empty() {
            return Ok(());
        }
        let State { header, slots, .. } = state;
        header.nodes.iter().try_for_each(|&slot| slots.set(&self.file, slot))?;
        // Otherwise they would later replace newer counts.
        header.nodes.clear();
        self.save(state)
    }

    fn add(&self, state: &mut State, transaction: u32, blocks: &[Block]) -> io::Result<()> {
        if state.header.end > 0 && state.is_durable() {
            state.header.end = 0;
            self.save(state)?;
            ftruncate(&self.file, LOG)?;
        }
        if !blocks.is_empty() {
            let record = record(transaction, blocks);
            write_all(&self.file, LOG.saturating_add(state.header.end), &record)?;
            state.header.end = state.header.end.saturating_add(record.len() as u64);
            state.last = Some(transaction);
        }
        // A commit in another thread publishes no reply.
        if HERE.get().is_some_and(|effect| effect != Effect::Lookups) && state.note.is_some() {
            state.header.note = state.note.take();
            state.header.nodes = std::mem::take(&mut state.nodes);
        }
        self.save(state)?;
        self.settle_nodes(state)
    }
}

impl RedoLog for Ledger {
    fn is_held_here(&self) -> bool {
        HERE.get() == Some(Effect::Once)
    }

    fn append(&self, transaction: u32, blocks: &[Block]) -> obento_base::Result<()> {
        let mut state = self.state.lock();
        let added = self.add(&mut state, transaction, blocks);
        added.map_err(|error| {
            self.break_off(&mut state, &error);
            Error::NoMemory
        })
    }

    fn durable(&self, transaction: u32) {
        let mut state = self.state.lock();
        state.header.durable = Some(transaction);
        if let Err(error) = self.save(&mut state) {
            self.break_off(&mut state, &error);
        }
    }

    fn changes(&self) -> obento_base::Result<Vec<BlockImage>> {
        let state = self.state.lock();
        let mut bytes = vec![0; usize::try_from(state.header.end).map_err(|_| Error::Invalid)?];
        read_all(&self.file, LOG, &mut bytes).map_err(|_| Error::Invalid)?;
        let (mut rest, mut newest) = (&bytes[..], BTreeMap::new());
        while !rest.is_empty() {
            let (transaction, blocks, after) = parse_record(rest).ok_or(Error::Invalid)?;
            if state.header.durable.is_none_or(|durable| is_after(transaction, durable)) {
                newest.extend(blocks);
            }
            rest = after;
        }
        Ok(newest.into_iter().map(|(number, bytes)| (number, bytes.to_vec())).collect())
    }

    fn clear(&self) {
        let mut state = self.state.lock();
        (state.header.end, state.header.durable, state.last) = (0, None, None);
        if let Err(error) = self.save(&mut state) {
            self.break_off(&mut state, &error);
        }
    }
}

impl State {
    fn new(header: Header, slots: Slots) -> Self {
        Self { header, slots, last: None, note: None, nodes: Vec::new() }
    }

    /// Returns whether all transactions in the redo log are durable.
    fn is_durable(&self) -> bool {
        let (last, durable) = (self.last, self.header.durable);
        last.is_some_and(|last| durable.is_some_and(|durable| !is_after(last, durable)))
    }
}

impl AsFd for Ledger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").field("header", &self.state.lock().header).finish_non_exhaustive()
    }
}

/// Compares numbers of transactions, which wrap around.
fn is_after(transaction: u32, other: u32) -> bool {
    transaction.wrapping_sub(other).cast_signed() > 0
}

/// Encodes a record of the redo log: transaction, number and size of the blocks, and each block after its number.
fn record(transaction: u32, blocks: &[Block]) -> Vec<u8> {
    let size = blocks.first().map_or(0, |block| block.len());
    let mut bytes = Vec::with_capacity(12 + blocks.len() * (8 + size));
    for number in [transaction, blocks.len() as u32, size as u32] {
        bytes.extend(number.to_le_bytes());
    }
    for block in blocks {
        bytes.extend(block.number().to_le_bytes());
        bytes.extend(&block[..]);
    }
    bytes
}

/// The transaction of a record, its blocks, and the bytes after it.
type ParsedRecord<'b> = (u32, Vec<(u64, &'b [u8])>, &'b [u8]);

fn parse_record(bytes: &[u8]) -> Option<ParsedRecord<'_>> {
    let (head, mut rest) = bytes.split_first_chunk::<12>()?;
    let number = |at: usize| head.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    let (transaction, count, size) = (number(0)?, number(4)?, usize::try_from(number(8)?).ok()?);
    let mut blocks = Vec::new();
    for _ in 0..count {
        let (number, after) = rest.split_first_chunk::<8>()?;
        let (block, after) = after.split_at_checked(size)?;
        blocks.push((u64::from_le_bytes(*number), block));
        rest = after;
    }
    Some((transaction, blocks, rest))
}

fn write_all(file: &OwnedFd, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::pwrite(file, bytes, offset))?;
        bytes = bytes.get(written..).unwrap_or_default();
        offset = offset.saturating_add(written as u64);
    }
    Ok(())
}

/// Fills `bytes`. Bytes past the end of the file are 0.
fn read_all(file: &OwnedFd, mut offset: u64, mut bytes: &mut [u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let read = rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut *bytes, offset))?;
        if read == 0 {
            bytes.fill(0);
            return Ok(());
        }
        bytes = bytes.get_mut(read..).unwrap_or_default();
        offset = offset.saturating_add(read as u64);
    }
    Ok(())
}
