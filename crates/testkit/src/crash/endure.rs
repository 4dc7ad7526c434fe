//! Plans on a device on which one request fails: the error is reported properly, and no synced change is lost.
//!
//! A plan runs once for each fault. The result is then read, closed and checked once for each fault of these steps. It
//! is recovered after a power failure once for each fault of [that recovery](super::recover). Before the fault occurs,
//! every operation has the same result as without it.

use std::sync::Arc;

use obento_base::{Error, FileKind, Result};
use obento_block::{BlockDevice, MemDevice, Overlay};
use obento_driver::Crash;
use obento_vfs::Vfs;

use super::allowed::{self, Rules};
use super::repairable;
use super::volume::{PlanEnd, Recording, Subject, copy, looked_at};
use crate::fault::{Fault, FaultDevice, FaultKind, Lasting, Request, SlowDevice};
use crate::model::{Point, StepClock};
use crate::plan::{Actor, Op, Plan};
use crate::snapshot::{Snapshot, Times};

/// The second checker sees one fault in this number.
const SECOND_EVERY: u64 = 50;

/// The number of requests of each kind.
pub(super) type Counts = [(Request, u64); 3];
/// A disk and the writes since. Copying the disk for each fault would take longer than the plan.
pub(super) type Memory = Arc<Overlay<Arc<MemDevice>>>;
pub(super) type Broken = Arc<FaultDevice<Memory>>;

/// A disk after a plan.
struct Left {
    disk: Arc<MemDevice>,
    /// The same bytes as `disk`.
    bytes: Vec<u8>,
    /// Its contents.
    tree: Snapshot,
}

/// The results of faults.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// The number of faults.
    pub tried: u64,
    /// The number of faults that were reported.
    pub noticed: u64,
    /// Requests that failed once and succeeded when repeated, which need not be reported.
    pub repeated: Vec<String>,
    /// Other unreported faults, which are failures.
    pub unnoticed: Vec<String>,
}

/// The progress of a plan.
pub(super) struct Reached {
    pub point: Point,
    pub failed: bool,
    /// The durable contents, if they could be read.
    pub tree: Option<Snapshot>,
}

impl Subject<'_> {
    /// Makes every `step`-th request of each kind fail, once and permanently. Requests fail in each of `plans` on a
    /// volume like `base`, and while the result is opened, read and checked. They also fail while it is recovered after
    /// a power failure. A step of 1 tries each [`FaultKind`]; a longer one takes them in turn.
    ///
    /// Fails with a description in each of these cases:
    /// - a result is neither the device's error nor the same as without the fault;
    /// - a sync succeeds after a failed one;
    /// - the tree is not allowed;
    /// - the volume is inconsistent or reported so.
    pub fn break_everywhere(&self, base: &Arc<[u8]>, plans: &[Plan], step: u64) -> Result<Tally, String> {
        let mut tally = Tally::default();
        let disk = Arc::new(MemDevice::new(base.to_vec()));
        for plan in plans {
            let recording = self.record(base, plan, PlanEnd::Closed)?;
            let (counts, left) = self.requests(&disk, &recording)?;
            each_fault(&mut tally, &plan.name, step, counts, &|fault, second| {
                self.endure(&disk, &recording, fault, second)
            })?;
            let counts = self.requests_of_reading(&left)?;
            let name = format!("{}, read", plan.name);
            each_fault(&mut tally, &name, step, counts, &|fault, second| {
                self.endure_reading(&left, fault, second)
            })?;
            let (cut, counts) = self.cut_at_the_end(base, plan)?;
            let name = format!("{}, recovered", plan.name);
            each_fault(&mut tally, &name, step, counts, &|fault, second| {
                self.endure_recovery(&cut, fault, second)
            })?;
        }
        Ok(tally)
    }

    /// Returns how many requests of each kind the plan of `recording` issues on `disk`, from opening to closing, and the
    /// resulting disk.
    fn requests(&self, disk: &Arc<MemDevice>, recording: &Recording) -> Result<(Counts, Left), String> {
        let (memory, device) = broken(disk, None);
        self.until_fault(recording, &device)?;
        let bytes = copy(&memory);
        let tree = recording.history.trees.last().expect("there is the first").clone();
        Ok((counts(&device), Left { disk: Arc::new(MemDevice::new(bytes.clone())), bytes, tree }))
    }

    /// Runs the plan of `recording` on `disk` until `fault` makes an operation fail, then opens the volume again without
    /// the fault. Returns whether the fault was reported.
    fn endure(
        &self,
        disk: &Arc<MemDevice>,
        recording: &Recording,
        fault: Fault,
        second: bool,
    ) -> Result<bool, String> {
        let (memory, device) = broken(disk, Some(fault));
        let reached = self.until_fault(recording, &device)?;
        self.check_after(recording, &reached, &memory, second)?;
        Ok(reached.failed)
    }

    fn requests_of_reading(&self, left: &Left) -> Result<Counts, String> {
        let (_, device) = broken(&left.disk, None);
        match self.read_everything(&device, left)? {
            None => Ok(counts(&device)),
            Some(error) => Err(format!("no request fails, but: {error}")),
        }
    }

    /// Opens, reads, closes and checks the sound volume in `left` on a device with this fault. Its contents stay the
    /// same.
    fn endure_reading(&self, left: &Left, fault: Fault, second: bool) -> Result<bool, String> {
        let (memory, device) = broken(&left.disk, Some(fault));
        let reported = self.read_everything(&device, left)?;
        let sound: Arc<dyn BlockDevice> = memory;
        let fs = (self.open)(sound.clone(), later()).map_err(|e| format!("does not open again: {e}"))?;
        let vfs = looked_at(fs);
        expect_tree(&vfs, &left.tree)?;
        vfs.close().map_err(|e| format!("does not close: {e}"))?;
        drop(vfs);
        self.judge_closed(sound, second)?;
        Ok(reported.is_some())
    }

    /// Returns the last error. Each error must be the device's error.
    fn read_everything(&self, device: &Broken, left: &Left) -> Result<Option<String>, String> {
        let mut reported = self.look_through(device, &left.tree)?;
        let device: Arc<dyn BlockDevice> = device.clone();
        if let Err(error) = (self.check)(&device, Some(&left.bytes)) {
            if !error.contains("failed: ") {
                return Err(format!("the check of a sound volume reports {error}"));
            }
            reported = Some(error);
        }
        Ok(reported)
    }

    /// Opens a volume, reads it, and closes it. The readable part must be `tree`. Returns the last error; all errors
    /// must be those of the device.
    pub(super) fn look_through(&self, device: &Broken, tree: &Snapshot) -> Result<Option<String>, String> {
        let mut reported = None;
        match (self.open)(device.clone(), later()) {
            Ok(fs) => {
                let vfs = looked_at(fs);
                // A read that failed once succeeds when it is repeated.
                for _ in 0..2 {
                    let found = expect_clean("reading", Snapshot::read(&vfs, Some(tree)), &mut reported)?;
                    found.map_or(Ok(()), |found| same(tree, &found))?;
                }
                expect_clean("statfs", vfs.flushed_file_system().statfs(), &mut reported)?;
                expect_clean("closing", vfs.close(), &mut reported)?;
            }
            Err(error) => drop(expect_clean("opening", Err::<(), _>(error), &mut reported)?),
        }
        Ok(reported)
    }

    /// Runs `plan` on a slow device: all results, and the tree except its times, are the same as on a fast one.
    pub fn wait_for(&self, base: &Arc<[u8]>, plan: &Plan) -> Result<(), String> {
        let recording = self.record(base, plan, PlanEnd::Closed)?;
        let (history, clock) = (&recording.history, Arc::new(StepClock::default()));
        let memory = Arc::new(MemDevice::new(base.to_vec()));
        let device = SlowDevice::new(memory.clone(), clock.clone());
        let fs = (self.open)(Arc::new(device), clock).map_err(|e| format!("does not open: {e}"))?;
        let mut actor = Actor::new(Vfs::new(fs));
        for (number, (op, expected)) in history.ops.iter().zip(&history.answers).enumerate() {
            same_answer(number, op, *expected, actor.act(number, op))?;
        }
        let vfs = actor.vfs().clone();
        let _ = actor.act(0, &Op::Release);
        drop(actor);
        let found = Snapshot::read(&vfs, None).map_err(|e| format!("does not read: {e}"))?;
        let last = history.trees.last().expect("there is the first");
        let differs =
            last.difference(&found, Times::Ignored, None).or_else(|| last.content_difference(&found));
        differs.map_or(Ok(()), |differs| Err(format!("a different tree: {differs}")))?;
        vfs.close().map_err(|e| format!("does not close: {e}"))?;
        drop(vfs);
        self.judge_closed(memory, false)
    }

    fn until_fault(&self, recording: &Recording, device: &Broken) -> Result<Reached, String> {
        let history = &recording.history;
        let clock = Arc::new(StepClock::default());
        let fs = match (self.open)(device.clone(), clock.clone()) {
            Ok(fs) => fs,
            Err(error) if is_fault(error) => {
                return Ok(Reached { point: Point::default(), failed: true, tree: None });
            }
            Err(error) => return Err(format!("opening fails with {error:?}")),
        };
        let mut actor = Actor::new(Vfs::new(fs));
        for (number, (op, expected)) in history.ops.iter().zip(&history.answers).enumerate() {
            clock.set(number as u64 + 1);
            let found = actor.act(number, op);
            if device.hits() > 0 && found != *expected && found.is_err_and(is_fault) {
                return failed_at(recording, number, &actor, device.hits());
            }
            same_answer(number, op, *expected, found)?;
        }
        let vfs = actor.vfs().clone();
        let _ = actor.act(0, &Op::Release);
        drop(actor);
        let done = everything_durable(recording, history.ops.len());
        match vfs.close() {
            Ok(()) => Ok(Reached { point: done, failed: false, tree: None }),
            Err(error) if is_fault(error) => {
                let point = history.points.last().cloned().unwrap_or_default();
                Ok(Reached { point, failed: true, tree: None })
            }
            Err(error) => Err(format!("closing fails with {error:?}")),
        }
    }

    /// Opens the disk of `reached` in `memory` on a sound device, and checks the contents.
    pub(super) fn check_after(
        &self,
        recording: &Recording,
        reached: &Reached,
        memory: &Memory,
        second: bool,
    ) -> Result<(), String> {
        let (point, device): (_, Arc<dyn BlockDevice>) = (&reached.point, memory.clone());
        let fs =
            (self.open)(Arc::clone(&device), later()).map_err(|e| format!("does not open again: {e}"))?;
        let crash = fs.limits().crash;
        let vfs = looked_at(fs);
        let tree = Snapshot::read(&vfs, recording.history.trees.last())
            .map_err(|e| format!("does not read: {e}"))?;
        // A layer between the plan and the driver can hide a fault, and continue with fewer files of its own. The files
        // of the plan then get other inode numbers.
        let tree = if reached.failed { tree } else { tree.with_ids_at_paths_of(&recording.history.trees) };
        // The files were not read during the plan.
        let rules = Rules { data: self.data, gathers: true, cuts_at_old_end: false, by_another: false };
        match crash {
            // The power did not fail, so the order of the writes has no effect.
            Crash::Whole | Crash::Unordered => allowed::check(&recording.history, point, rules, &tree)?,
            Crash::Repairable => repairable::check(&recording.history, point, &tree)?,
        }
        // The data of a failed write may be in clusters without an owner, which the repair saves.
        let mut tree = tree;
        tree.objects.retain(|path, _| crash != Crash::Repairable || !repairable::is_saved(path));
        reached.tree.as_ref().map_or(Ok(()), |expected| same(expected, &tree))?;
        vfs.close().map_err(|e| format!("does not close: {e}"))?;
        drop(vfs);
        self.judge_closed(device, second)
    }

    fn judge_closed(&self, device: Arc<dyn BlockDevice>, second: bool) -> Result<(), String> {
        self.check_closed(device.clone()).map_err(|reason| format!("inconsistent: {reason}"))?;
        if second {
            (self.second)(&*device).map_err(|reason| format!("second opinion: {reason}"))
        } else {
            Ok(())
        }
    }
}

/// Tries every `step`-th of this number of requests, and counts the results.
fn each_fault(
    tally: &mut Tally,
    name: &str,
    step: u64,
    counts: Counts,
    endure: &dyn Fn(Fault, bool) -> Result<bool, String>,
) -> Result<(), String> {
    for (request, count) in counts {
        for nth in (tally.tried % step..count).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
            for lasting in [Lasting::Once, Lasting::ForGood] {
                let all = FaultKind::of(request);
                let turn = tally.tried as usize % all.len();
                for &failure in if step == 1 { all } else { &all[turn..=turn] } {
                    let fault = Fault { request, nth, lasting, failure };
                    tally.tried += 1;
                    let reported = endure(fault, tally.tried.is_multiple_of(SECOND_EVERY));
                    match reported.map_err(|reason| format!("{name}, {fault:?}: {reason}"))? {
                        true => tally.noticed += 1,
                        false if lasting == Lasting::Once => {
                            tally.repeated.push(format!("{name}, {fault:?}"))
                        }
                        false => tally.unnoticed.push(format!("{name}, {fault:?}")),
                    }
                }
            }
        }
    }
    Ok(())
}

/// Returns a device on which `fault` occurs, and its memory. `disk` stays as it is.
pub(super) fn broken(disk: &Arc<MemDevice>, fault: Option<Fault>) -> (Memory, Broken) {
    let memory = Arc::new(Overlay::new(disk.clone()));
    (memory.clone(), Arc::new(FaultDevice::new(memory, fault)))
}

pub(super) fn counts(device: &Broken) -> Counts {
    Request::ALL.map(|request| (request, device.count(request)))
}

/// Returns a clock that is later than every plan.
pub(super) fn later() -> Arc<StepClock> {
    let clock = Arc::new(StepClock::default());
    clock.set(1 << 20);
    clock
}

/// Operation `number` failed. Either only that operation failed, or the volume is read-only from now on. In both cases
/// it is read.
fn failed_at(recording: &Recording, number: usize, actor: &Actor, hits: u64) -> Result<Reached, String> {
    let history = &recording.history;
    let reported = |what: String| {
        format!("operation {number}, {:?}, fails ({hits} faults), and {what}", history.ops[number])
    };
    let look = || {
        let tree = expect_clean("reading", Snapshot::read(actor.vfs(), None), &mut None).map_err(reported)?;
        expect_clean("statfs", actor.vfs().flushed_file_system().statfs(), &mut None).map_err(reported)?;
        Ok::<_, String>(tree)
    };
    let create = Op::Create("after-the-fault".into(), FileKind::Regular, 0o600);
    if actor.vfs().sync().is_ok() {
        let point = Point { begun: number + 1, ..everything_durable(recording, number) };
        return Ok(Reached { point, failed: true, tree: look()? });
    }
    if actor.vfs().sync().is_ok() {
        return Err(reported("a later sync succeeds after one that failed".into()));
    }
    look()?;
    match Actor::new(actor.vfs().clone()).act(number, &create) {
        Ok(()) => Err(reported("the volume still changes after a sync that failed".into())),
        Err(error) if is_fault(error) => {
            let point = history.points.iter().find(|point| point.begun == number + 1).cloned();
            Ok(Reached { point: point.unwrap_or_default(), failed: true, tree: None })
        }
        Err(error) => Err(reported(format!("a change fails with {error:?}"))),
    }
}

/// Returns the point after `ops` operations, all of them synced.
fn everything_durable(recording: &Recording, ops: usize) -> Point {
    let history = &recording.history;
    let ops = ops.min(history.trees.len() - 1);
    let synced = history.trees[ops].objects.values().map(|object| (object.id, ops)).collect();
    Point { begun: ops, durable: ops, synced }
}

fn is_fault(error: Error) -> bool {
    matches!(error, Error::Device(_)) || error == Error::ReadOnly
}

/// Records an error, which must be the device's.
fn expect_clean<T>(what: &str, done: Result<T>, reported: &mut Option<String>) -> Result<Option<T>, String> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(error) if is_fault(error) => {
            *reported = Some(error.to_string());
            Ok(None)
        }
        Err(error) => Err(format!("{what} fails with {error:?}")),
    }
}

fn same_answer(number: usize, op: &Op, expected: Result<()>, found: Result<()>) -> Result<(), String> {
    match found == expected {
        true => Ok(()),
        false => {
            Err(format!("operation {number}, {op:?}, returns {found:?}, but {expected:?} without a fault"))
        }
    }
}

fn expect_tree(vfs: &Vfs, tree: &Snapshot) -> Result<(), String> {
    let found = Snapshot::read(vfs, Some(tree)).map_err(|e| format!("does not read: {e}"))?;
    same(tree, &found)
}

fn same(expected: &Snapshot, found: &Snapshot) -> Result<(), String> {
    let differs = expected.difference(found, Times::Compared, None);
    let differs = differs.or_else(|| expected.content_difference(found));
    differs.map_or(Ok(()), |differs| Err(format!("a different tree: {differs}")))
}
