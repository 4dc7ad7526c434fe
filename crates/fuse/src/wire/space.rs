//! A full volume behind the write-back cache of the kernel.
//!
//! write(2) into the page cache does not ask the server for space, so that the kernel accepts data for which the volume
//! has no room. The kernel limits the data that it gathers ([`crate::dirty_limit`]). While the free space exceeds this
//! limit several times, all gathered data fits. A volume that is too small for this gets no write-back cache.
//!
//! Below [`Bounds::gated`], the kernel asks before each write(2). Attributes of regular files have no validity, so that
//! a write requests them (GETATTR with a file handle). New attributes cause the kernel to discard its record that the
//! file has no capability. It then requests the length of that attribute, removes it, and confirms this by SETATTR
//! without a value. The first of these requests is the gate. It waits until the file's gathered data has reached the
//! server. If the write must be refused, the server reports a capability. The error of SETATTR becomes the error of
//! write(2) before a byte is accepted. A truncation sends the same requests, but its SETATTR has a size, and succeeds.
//! A write to an immutable file is refused in the same way.
//!
//! Invariant: gates are passed one at a time, by a notifier: the pool remains free for the data that the kernel writes
//! back meanwhile.
//! Invariant: with [`Bounds::kept`] free, each write that passes has room, unless it is longer than the free space: the
//! server does not learn its length.
//! Source: Linux 6.18 fs/fuse/file.c `fuse_cache_write_iter`; fs/fuse/inode.c `fuse_change_attributes_common`
//! (`S_NOSEC`); fs/inode.c `file_remove_privs`; security/commoncap.c `cap_inode_need_killpriv`.
//! Decision: docs/decisions/0062-a-full-volume-refuses-writes-before-the-cache.md.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use obento_base::Errno;
use parking_lot::Mutex;

use super::abi::{GetxattrIn, InHeader, SizeOut, opcode};
use super::reply::{ALL_PAGES, Channel, Pending};
use super::request::Request;
use super::syncs::Syncs;
use super::writers::{Writer, Writers};
use super::{Wire, guarded};
use crate::handover::GateState;
use crate::server::{CAPABILITY, Reply, Server};

const MIB: u64 = 1 << 20;
/// Writes are gated below this free space: a multiple of the data that the kernel gathers, and a minimum.
const GATED_TIMES: u64 = 4;
const GATED_LEAST: u64 = 64 * MIB;
/// Space that is kept for writes that have passed, at most, and as a part of the volume.
const KEPT_MOST: u64 = 16 * MIB;
const KEPT_PART: u64 = 16;
/// Number of files whose writes passed last, and whose data is written back before the next write passes. A write that
/// passed may reach the page cache later.
const MOST_PASSED: usize = 16;
/// Length of a capability (`XATTR_CAPS_SZ_2`), which is reported to refuse a write.
const CAPABILITY_LEN: u32 = 20;
/// Space that a new name or an extended attribute may take.
const SMALL: u64 = 8192;

/// Amounts of free space in bytes, from the largest to the smallest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bounds {
    /// Below, writes are gated.
    gated: u64,
    /// Below, a write passes only after gathered data has been written back.
    flushed: u64,
    /// Below, files do not grow.
    kept: u64,
    /// Below, no write passes.
    least: u64,
}

impl Bounds {
    /// Returns the bounds for a volume of `total` bytes, for which the kernel gathers `dirty_limit` bytes at most.
    /// Returns `None` for a volume that is too small for gathering.
    pub fn of(dirty_limit: u64, total: u64) -> Option<Self> {
        let gated = dirty_limit.saturating_mul(GATED_TIMES).max(GATED_LEAST);
        let kept = KEPT_MOST.min(total / KEPT_PART);
        let flushed = dirty_limit.saturating_mul(2).max(GATED_LEAST / 2).saturating_add(kept);
        (total >= gated).then_some(Self { gated, flushed, kept, least: kept / 4 })
    }

    /// Free space from which on writes are no longer gated.
    fn open(self) -> u64 {
        self.gated.saturating_add(self.gated / 2)
    }

    /// Amount of taken space after which the free space is examined.
    fn step(self) -> u64 {
        self.gated / 32
    }
}

/// The state of the gate.
#[derive(Default)]
struct Gate {
    /// Processes that have requested attributes through an open file, and are about to write, or have read to the end.
    announced: Writers<()>,
    /// Processes whose write is being refused.
    refused: Writers<Errno>,
    /// Files whose writes passed and may not have been written back, the last one at the end.
    passed: Vec<u64>,
    /// Sizes of files when their first write passed with less than [`Bounds::kept`] free.
    sizes: HashMap<u64, u64>,
}

/// The space of a volume whose writes the kernel gathers.
pub(super) struct Space {
    /// `None` without a write-back cache.
    bounds: Option<Bounds>,
    is_gated: AtomicBool,
    /// The volume accepts no further changes.
    is_broken: AtomicBool,
    /// Space taken since the free space was examined.
    taken: AtomicU64,
    waiting: Syncs,
    gate: Mutex<Gate>,
    /// Held while data that the kernel has gathered is written back, so that there is room for a request.
    preparing: Arc<Mutex<()>>,
}

impl Space {
    /// Creates the state for a volume with these bounds, of which `free` bytes are free.
    pub fn new(bounds: Option<Bounds>, free: u64) -> Self {
        let is_gated = bounds.is_some_and(|bounds| free < bounds.gated);
        Self {
            bounds,
            is_gated: is_gated.into(),
            is_broken: AtomicBool::default(),
            taken: AtomicU64::default(),
            waiting: Syncs::default(),
            gate: Mutex::default(),
            preparing: Arc::default(),
        }
    }

    /// Continues with the state that another process exported.
    pub fn resume(bounds: Option<Bounds>, state: &GateState) -> Self {
        let gate = Gate {
            announced: state.announced.iter().map(|&writer| (writer, ())).collect(),
            refused: state.refused.iter().map(|&(id, pid, errno)| ((id, pid), Errno(errno))).collect(),
            passed: state.passed.clone(),
            sizes: state.sizes.iter().copied().collect(),
        };
        Self {
            is_gated: state.is_gated.into(),
            is_broken: state.is_broken.into(),
            gate: Mutex::new(gate),
            ..Self::new(bounds, u64::MAX)
        }
    }

    /// Returns the state for another process.
    pub fn export(&self) -> GateState {
        let gate = self.gate.lock();
        GateState {
            is_gated: self.is_gated(),
            is_broken: self.is_broken.load(Ordering::Acquire),
            announced: gate.announced.iter().map(|(writer, ())| writer).collect(),
            refused: gate.refused.iter().map(|((id, pid), errno)| (id, pid, errno.0)).collect(),
            passed: gate.passed.clone(),
            sizes: gate.sizes.iter().map(|(&id, &size)| (id, size)).collect(),
        }
    }

    /// Returns whether writes may be gated.
    pub fn has_gate(&self) -> bool {
        self.bounds.is_some()
    }

    pub fn is_gated(&self) -> bool {
        self.is_gated.load(Ordering::Acquire)
    }

    /// Notes that a process has requested attributes through an open file.
    pub fn announce(&self, header: &InHeader) {
        if self.is_gated() {
            // Readers announce themselves, too, and never pass.
            self.gate.lock().announced.insert((header.nodeid, header.pid), ());
        }
    }

    /// Returns the error for a write that is being refused, if this process waits for one at this file.
    pub fn refusal(&self, header: &InHeader) -> Option<Errno> {
        self.gate.lock().refused.get((header.nodeid, header.pid)).copied()
    }

    /// Ends the refusal of a write.
    pub fn end_refusal(&self, header: &InHeader) {
        let (mut gate, writer) = (self.gate.lock(), (header.nodeid, header.pid));
        gate.refused.remove(writer);
        gate.announced.remove(writer);
    }

    /// Notes that a write is being refused with `error`.
    fn refuse(&self, writer: Writer, error: Errno) {
        // A process that only asks for the capability of an immutable file never comes back.
        self.gate.lock().refused.insert(writer, error);
    }

    /// Returns the files whose writes passed, and forgets all but the last ones.
    fn take_passed(&self) -> Vec<u64> {
        let mut gate = self.gate.lock();
        let passed = gate.passed.clone();
        gate.passed.drain(..passed.len().saturating_sub(MOST_PASSED));
        passed
    }

    /// Space that is not offered to users.
    pub fn kept(&self) -> u64 {
        self.bounds.map_or(0, |bounds| bounds.kept)
    }

    /// Stops gating.
    fn open(&self) {
        self.is_gated.store(false, Ordering::Release);
        let mut gate = self.gate.lock();
        // The kernel may be about to ask for the error of a refused write: another error would be reported instead.
        let refused = mem::take(&mut gate.refused);
        *gate = Gate { refused, ..Gate::default() };
    }
}

impl Wire {
    /// Returns whether a request is one that the kernel sends before a write to a gated file.
    pub(super) fn is_at_gate(&self, request: Request<'_>) -> bool {
        let Request { header, mut body } = request;
        let mut asks_length = || body.take::<GetxattrIn>().is_ok_and(|asked| asked.size == 0);
        header.opcode == opcode::GETXATTR
            && self.space.bounds.is_some()
            && asks_length()
            && body.name() == Ok(CAPABILITY)
            && (self.space.is_gated() || self.server.write_obstacle(header.nodeid).is_some())
    }

    /// Has a request at the gate answered.
    pub(super) fn wait_at_gate(self: &Arc<Self>, header: &InHeader, pending: Pending) {
        if self.space.waiting.push(*header, pending) {
            let wire = Arc::clone(self);
            self.notifiers.run(move || wire.serve_gate());
        }
    }

    /// Answers requests at the gate until none waits.
    fn serve_gate(&self) {
        loop {
            let waiting = self.space.waiting.take();
            if waiting.is_empty() {
                return;
            }
            waiting.into_iter().for_each(|(header, pending)| self.answer_at_gate(&header, pending));
        }
    }

    fn answer_at_gate(&self, header: &InHeader, pending: Pending) {
        let writer = (header.nodeid, header.pid);
        let passes = guarded(|| self.pass(writer));
        let answer = match passes {
            Ok(()) => {
                self.space.end_refusal(header);
                let value = guarded(|| self.xattr(writer.0, CAPABILITY));
                value.map(|value| u32::try_from(value.len()).unwrap_or(u32::MAX))
            }
            Err(error) => {
                self.space.refuse(writer, error);
                Ok(CAPABILITY_LEN)
            }
        };
        let size = answer.map(|size| SizeOut { size, padding: 0 });
        pending.answer(size.as_ref().map(zerocopy::IntoBytes::as_bytes).map_err(|&error| error));
    }

    /// Decides on a write. Fails with the error with which write(2) is to fail.
    fn pass(&self, writer: Writer) -> Reply<()> {
        let Some(bounds) = self.space.bounds else { return Ok(()) };
        let (id, _) = writer;
        if let Some(error) = self.server.write_obstacle(id) {
            return Err(error);
        }
        if self.space.is_broken.load(Ordering::Acquire) {
            return Err(Errno(libc::EROFS));
        }
        let free = self.server.free()?;
        if free >= bounds.open() {
            self.space.open();
            return Ok(());
        }
        {
            let mut gate = self.space.gate.lock();
            // Otherwise this is a truncation or another change, which the server refuses itself.
            if gate.announced.get(writer).is_none() {
                return Ok(());
            }
            gate.passed.retain(|&passed| passed != id);
            gate.passed.push(id);
        }
        if free >= bounds.flushed {
            return Ok(());
        }
        self.write_back_passed();
        if let Some(error) = self.server.failure(id) {
            return Err(error);
        }
        self.expect_room(id, bounds).or_else(|_| {
            self.wait_for_forgets();
            self.expect_room(id, bounds)
        })
    }

    /// Waits until the space of files that were removed before is free. The kernel sends no FORGET while data of the file
    /// is written back.
    fn wait_for_forgets(&self) {
        drop(self.space.preparing.lock());
        std::thread::sleep(Duration::from_millis(1));
        self.wait_until_read();
    }

    /// Has the kernel write back the data of files whose writes passed.
    fn write_back_passed(&self) {
        self.space.take_passed().into_iter().for_each(|id| self.channel.make_old(id, ALL_PAGES));
    }

    /// Fails with NoSpace if `id` must not be written to with as little space as is free.
    fn expect_room(&self, id: u64, bounds: Bounds) -> Reply<()> {
        let free = self.server.free()?;
        let mut gate = self.space.gate.lock();
        if free >= bounds.kept {
            gate.sizes.clear();
            return Ok(());
        }
        drop(gate);
        let attr = self.server.getattr(id)?;
        let is_whole = attr.size > 0 && attr.blocks.saturating_mul(512) >= attr.size;
        gate = self.space.gate.lock();
        let has_grown = *gate.sizes.entry(id).or_insert(attr.size) < attr.size;
        match free >= bounds.least && is_whole && !has_grown {
            true => Ok(()),
            false => Err(Errno(libc::ENOSPC)),
        }
    }

    /// Notes that a request may have taken `len` bytes of space for data.
    pub(super) fn note_taken(&self, len: u64) {
        if !self.space.is_gated() && self.has_less_after(len, |bounds| bounds.gated) {
            self.close_gate();
        }
    }

    /// Notes that a request may have taken space for a name or an extended attribute, and thus room for data that passed
    /// the gate before.
    pub(super) fn note_small(&self) {
        if !self.space.is_gated() {
            return self.note_taken(SMALL);
        }
        if self.has_less_after(SMALL, |bounds| bounds.flushed) {
            let (passed, channel) = (self.space.take_passed(), self.channel.clone());
            self.notifiers.run(move || passed.into_iter().for_each(|id| channel.make_old(id, ALL_PAGES)));
        }
    }

    /// Returns whether less than `bound` is free, now and then: when enough space was taken since the last time.
    fn has_less_after(&self, len: u64, bound: fn(Bounds) -> u64) -> bool {
        let Some(bounds) = self.space.bounds else { return false };
        let taken = self.space.taken.fetch_add(len, Ordering::Relaxed).saturating_add(len);
        if taken < bounds.step() {
            return false;
        }
        self.space.taken.store(0, Ordering::Relaxed);
        self.server.free().is_ok_and(|free| free < bound(bounds))
    }

    /// Prepares for a request that takes `len` bytes at once: data that the kernel has gathered is written back first if
    /// both may not fit. A request that arrives in the meantime waits, since it would otherwise take the space of that
    /// data.
    pub(super) fn prepare_to_take(&self, len: u64) {
        let Some(bounds) = self.space.bounds else { return };
        let _one = self.space.preparing.lock();
        if self.space.is_gated() {
            return self.write_back_passed();
        }
        if self.server.free().is_ok_and(|free| free.saturating_sub(len) < bounds.gated) {
            self.space.is_gated.store(true, Ordering::Release);
            forget_all(&self.server, &self.channel);
        }
    }

    /// Gates writes from now on.
    fn close_gate(&self) {
        if self.space.is_gated.swap(true, Ordering::AcqRel) {
            return;
        }
        let (server, channel) = (Arc::clone(&self.server), self.channel.clone());
        let preparing = Arc::clone(&self.space.preparing);
        self.notifiers.run(move || {
            let _one = preparing.lock();
            forget_all(&server, &channel);
        });
    }

    /// Notes that the volume accepts no further changes: each write is to fail.
    pub(super) fn note_broken(&self) {
        if self.space.bounds.is_some() && !self.space.is_broken.swap(true, Ordering::AcqRel) {
            self.space.is_gated.store(false, Ordering::Release);
            self.close_gate();
        }
    }
}

/// Makes the kernel write back all data that it has gathered, and request attributes before the next write.
fn forget_all(server: &Server, channel: &Channel) {
    server.regular_files().into_iter().for_each(|id| channel.make_old(id, ALL_PAGES));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(nodeid: u64, pid: u32) -> InHeader {
        let (len, opcode) = (0, opcode::GETXATTR);
        InHeader { len, opcode, unique: 2, nodeid, uid: 0, gid: 0, pid, total_extlen: 0, padding: 0 }
    }

    #[test]
    fn a_pending_write_stays_refused_whatever_other_processes_have_asked_for() {
        let space = Space::new(Bounds::of(MIB, 64 * MIB), 0);
        let (own, no_space) = (header(7, 1), Errno(libc::ENOSPC));
        (0..4096).for_each(|pid| space.refuse((8, pid), Errno(libc::EPERM)));
        space.refuse((7, 1), no_space);
        (4096..8191).for_each(|pid| space.refuse((8, pid), Errno(libc::EPERM)));
        assert_eq!(space.refusal(&own), Some(no_space));
        space.end_refusal(&own);
        assert_eq!(space.refusal(&own), None);
    }

    #[test]
    fn a_writer_stays_announced_whatever_other_processes_read() {
        let space = Space::new(Bounds::of(MIB, 64 * MIB), 0);
        (0..4096).for_each(|pid| space.announce(&header(8, pid)));
        space.announce(&header(7, 1));
        (4096..8191).for_each(|pid| space.announce(&header(8, pid)));
        assert!(space.gate.lock().announced.get((7, 1)).is_some());
        let resumed = Space::resume(Bounds::of(MIB, 64 * MIB), &space.export());
        assert_eq!(resumed.export(), space.export());
        assert_eq!(space.export().announced.first(), Some(&(7, 1)));
    }

    #[test]
    fn bounds_are_multiples_of_the_writes_that_the_kernel_gathers() {
        let bounds = Bounds::of(44 * MIB, 8192 * MIB).unwrap();
        assert_eq!(bounds, Bounds { gated: 176 * MIB, flushed: 104 * MIB, kept: 16 * MIB, least: 4 * MIB });
        assert_eq!(bounds.open(), 264 * MIB);
        let small = Bounds::of(MIB, 64 * MIB).unwrap();
        assert_eq!(small, Bounds { gated: 64 * MIB, flushed: 36 * MIB, kept: 4 * MIB, least: MIB });
    }

    #[test]
    fn a_volume_that_the_kernel_could_fill_with_gathered_data_has_no_bounds() {
        assert_eq!(Bounds::of(44 * MIB, 175 * MIB), None);
        assert_eq!(Bounds::of(0, 63 * MIB), None);
        assert!(Bounds::of(u64::MAX, u64::MAX).is_some());
    }
}
