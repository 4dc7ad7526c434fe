//! A plan done to a device on which one request fails: the error is clean, and nothing that was promised is lost.
//!
//! A plan is done once for each fault, and what it left is then read, closed and checked once for each fault of that, and recovered
//! after a cut once for each fault of [that](super::recover). Until a fault is told every operation answers as it did without it.

use std::sync::Arc;

use obento_base::{Error, FileKind, Result};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::Crash;
use obento_vfs::Vfs;

use super::allowed::{self, Rules};
use super::repairable;
use super::volume::{End, Recording, Subject, copy, looked_at};
use crate::fault::{Failure, Fault, FaultDevice, Lasting, Request, SlowDevice};
use crate::model::{Point, StepClock};
use crate::plan::{Actor, Op, Plan};
use crate::snapshot::{Snapshot, Times};

/// A second judge sees one fault in so many.
const SECOND_EVERY: u64 = 50;

/// How many requests of each kind there are.
pub(super) type Counts = [(Request, u64); 3];
pub(super) type Broken = Arc<FaultDevice<Arc<MemDevice>>>;

/// What faults came to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// How many there were.
    pub tried: u64,
    /// Those that somebody was told of.
    pub noticed: u64,
    /// Requests that failed once and were made again, so that nobody needs to be told.
    pub repeated: Vec<String>,
    /// The others, which should not be.
    pub unnoticed: Vec<String>,
}

/// How far a plan got.
pub(super) struct Reached {
    pub point: Point,
    pub failed: bool,
    /// What was read and is durable, if it could be.
    pub tree: Option<Snapshot>,
}

impl Subject<'_> {
    /// Has every `step`-th request of each kind fail, once and for good, in each of `plans` on a volume like `base`, while what they
    /// left is opened, read and checked, and while what a cut leaves of them is recovered. A step of 1 tries each [`Failure`], a longer one takes them in turn.
    ///
    /// An error tells what was wrong: an answer that is neither that of the device nor what there was without the fault, a sync that
    /// succeeds after one that failed, a tree that was not promised, a volume that is inconsistent or called so.
    pub fn break_everywhere(&self, base: &Arc<[u8]>, plans: &[Plan], step: u64) -> Result<Tally, String> {
        let mut tally = Tally::default();
        for plan in plans {
            let recording = self.record(base, plan, End::Closed)?;
            let (counts, left) = self.requests(&recording)?;
            each_fault(&mut tally, &plan.name, step, counts, &|fault, second| {
                self.endure(&recording, fault, second)
            })?;
            let (left, tree) = (&left, recording.history.trees.last().expect("there is the first"));
            let counts = self.requests_of_reading(left, tree)?;
            let name = format!("{}, read", plan.name);
            each_fault(&mut tally, &name, step, counts, &|fault, second| {
                self.endure_reading(left, tree, fault, second)
            })?;
            let (cut, counts) = self.cut_at_the_end(base, plan)?;
            let name = format!("{}, recovered", plan.name);
            each_fault(&mut tally, &name, step, counts, &|fault, second| {
                self.endure_recovery(&cut, fault, second)
            })?;
        }
        Ok(tally)
    }

    /// How many requests of each kind the plan of `recording` makes, from opening to closing, and what it leaves.
    fn requests(&self, recording: &Recording) -> Result<(Counts, Vec<u8>), String> {
        let (memory, device) = broken(&recording.base, None);
        self.until_fault(recording, &device)?;
        Ok((counts(&device), copy(&memory)))
    }

    /// Does the plan of `recording` until `fault` makes an operation fail, then opens the volume anew without it. Says
    /// whether the fault was noticed.
    fn endure(&self, recording: &Recording, fault: Fault, second: bool) -> Result<bool, String> {
        let (memory, device) = broken(&recording.base, Some(fault));
        let reached = self.until_fault(recording, &device)?;
        self.check_after(recording, &reached, &memory, second)?;
        Ok(reached.failed)
    }

    fn requests_of_reading(&self, left: &[u8], tree: &Snapshot) -> Result<Counts, String> {
        let (_, device) = broken(left, None);
        match self.read_everything(&device, left, tree)? {
            None => Ok(counts(&device)),
            Some(error) => Err(format!("nothing fails, and: {error}")),
        }
    }

    /// Opens, reads, closes and checks the sound volume in `left` on a device with this fault. What can be read is `tree`, and so it is
    /// afterwards.
    fn endure_reading(
        &self,
        left: &[u8],
        tree: &Snapshot,
        fault: Fault,
        second: bool,
    ) -> Result<bool, String> {
        let (memory, device) = broken(left, Some(fault));
        let told = self.read_everything(&device, left, tree)?;
        let sound: Arc<dyn BlockDevice> = memory;
        let fs = (self.open)(sound.clone(), later()).map_err(|e| format!("does not open again: {e}"))?;
        let vfs = looked_at(fs);
        expect_tree(&vfs, tree)?;
        vfs.close().map_err(|e| format!("does not close: {e}"))?;
        drop(vfs);
        self.judge_closed(sound, second)?;
        Ok(told.is_some())
    }

    /// The last error, all of which are the device's.
    fn read_everything(
        &self,
        device: &Broken,
        left: &[u8],
        tree: &Snapshot,
    ) -> Result<Option<String>, String> {
        let mut told = self.look_through(device, tree)?;
        let device: Arc<dyn BlockDevice> = device.clone();
        if let Err(error) = (self.check)(&device, left) {
            if !error.contains("failed: ") {
                return Err(format!("the check of a sound volume says {error}"));
            }
            told = Some(error);
        }
        Ok(told)
    }

    /// Opens a volume, reads it, which is `tree` where it can be read, and closes it. The last error, all of which are the device's.
    pub(super) fn look_through(&self, device: &Broken, tree: &Snapshot) -> Result<Option<String>, String> {
        let mut told = None;
        match (self.open)(device.clone(), later()) {
            Ok(fs) => {
                let vfs = looked_at(fs);
                // What failed once is there when it is asked for again.
                for _ in 0..2 {
                    let found = expect_clean("reading", Snapshot::read(&vfs, Some(tree)), &mut told)?;
                    found.map_or(Ok(()), |found| same(tree, &found))?;
                }
                expect_clean("statfs", vfs.file_system().statfs(), &mut told)?;
                expect_clean("closing", vfs.close(), &mut told)?;
            }
            Err(error) => drop(expect_clean("opening", Err::<(), _>(error), &mut told)?),
        }
        Ok(told)
    }

    /// Does `plan` on a slow device: all answers, and the tree but for its times, are those of a fast one.
    pub fn wait_for(&self, base: &Arc<[u8]>, plan: &Plan) -> Result<(), String> {
        let recording = self.record(base, plan, End::Closed)?;
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
        differs.map_or(Ok(()), |differs| Err(format!("another tree: {differs}")))?;
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
            Err(error) => return Err(format!("opening answers {error:?}")),
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
            Err(error) => Err(format!("closing answers {error:?}")),
        }
    }

    /// Opens what `reached` left in `memory` on a sound device, and expects what it says.
    pub(super) fn check_after(
        &self,
        recording: &Recording,
        reached: &Reached,
        memory: &Arc<MemDevice>,
        second: bool,
    ) -> Result<(), String> {
        let (point, device): (_, Arc<dyn BlockDevice>) = (&reached.point, memory.clone());
        let fs =
            (self.open)(Arc::clone(&device), later()).map_err(|e| format!("does not open again: {e}"))?;
        let crash = fs.limits().crash;
        let vfs = looked_at(fs);
        let tree = Snapshot::read(&vfs, recording.history.trees.last())
            .map_err(|e| format!("does not read: {e}"))?;
        // Nobody looked at the files while the plan was done.
        let rules = Rules { data: self.data, gathers: true, cuts_at_old_end: false, by_another: false };
        match crash {
            Crash::Whole => allowed::check(&recording.history, point, rules, &tree)?,
            Crash::Repairable => repairable::check(&recording.history, point, &tree)?,
        }
        // What a write that failed had begun may be nobody's, which the mend saves.
        let mut tree = tree;
        tree.objects.retain(|path, _| crash == Crash::Whole || !repairable::is_saved(path));
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

/// Tries every `step`-th of so many requests, and counts what came of it.
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
                let all = Failure::of(request);
                let turn = tally.tried as usize % all.len();
                for &failure in if step == 1 { all } else { &all[turn..=turn] } {
                    let fault = Fault { request, nth, lasting, failure };
                    tally.tried += 1;
                    let told = endure(fault, tally.tried.is_multiple_of(SECOND_EVERY));
                    match told.map_err(|reason| format!("{name}, {fault:?}: {reason}"))? {
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

pub(super) fn broken(bytes: &[u8], fault: Option<Fault>) -> (Arc<MemDevice>, Broken) {
    let memory = Arc::new(MemDevice::new(bytes.to_vec()));
    (memory.clone(), Arc::new(FaultDevice::new(memory, fault)))
}

pub(super) fn counts(device: &Broken) -> Counts {
    Request::ALL.map(|request| (request, device.count(request)))
}

/// A clock after every plan.
pub(super) fn later() -> Arc<StepClock> {
    let clock = Arc::new(StepClock::default());
    clock.set(1 << 20);
    clock
}

/// Operation `number` failed: either it alone, and the volume goes on, or the volume is read-only for good. Either way it is read.
fn failed_at(recording: &Recording, number: usize, actor: &Actor, hits: u64) -> Result<Reached, String> {
    let history = &recording.history;
    let told = |what: String| {
        format!("operation {number}, {:?}, fails ({hits} faults), and {what}", history.ops[number])
    };
    let look = || {
        let tree = expect_clean("reading", Snapshot::read(actor.vfs(), None), &mut None).map_err(told)?;
        expect_clean("statfs", actor.vfs().file_system().statfs(), &mut None).map_err(told)?;
        Ok::<_, String>(tree)
    };
    let create = Op::Create("after-the-fault".into(), FileKind::Regular, 0o600);
    if actor.vfs().sync().is_ok() {
        let point = Point { begun: number + 1, ..everything_durable(recording, number) };
        return Ok(Reached { point, failed: true, tree: look()? });
    }
    if actor.vfs().sync().is_ok() {
        return Err(told("a later sync succeeds after one that failed".into()));
    }
    look()?;
    match Actor::new(actor.vfs().clone()).act(number, &create) {
        Ok(()) => Err(told("the volume still changes after a sync that failed".into())),
        Err(error) if is_fault(error) => {
            let point = history.points.iter().find(|point| point.begun == number + 1).cloned();
            Ok(Reached { point: point.unwrap_or_default(), failed: true, tree: None })
        }
        Err(error) => Err(told(format!("a change answers {error:?}"))),
    }
}

/// After `ops` operations, all of them synced.
fn everything_durable(recording: &Recording, ops: usize) -> Point {
    let history = &recording.history;
    let ops = ops.min(history.trees.len() - 1);
    let synced = history.trees[ops].objects.values().map(|object| (object.id, ops)).collect();
    Point { begun: ops, durable: ops, synced }
}

fn is_fault(error: Error) -> bool {
    matches!(error, Error::Device(_)) || error == Error::ReadOnly
}

/// What came of something; an error is noted, and must be the device's.
fn expect_clean<T>(what: &str, done: Result<T>, told: &mut Option<String>) -> Result<Option<T>, String> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(error) if is_fault(error) => {
            *told = Some(error.to_string());
            Ok(None)
        }
        Err(error) => Err(format!("{what} answers {error:?}")),
    }
}

fn same_answer(number: usize, op: &Op, expected: Result<()>, found: Result<()>) -> Result<(), String> {
    match found == expected {
        true => Ok(()),
        false => {
            Err(format!("operation {number}, {op:?}, answers {found:?}, and {expected:?} without a fault"))
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
    differs.map_or(Ok(()), |differs| Err(format!("another tree: {differs}")))
}
