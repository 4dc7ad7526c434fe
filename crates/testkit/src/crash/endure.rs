//! A plan done to a device on which one request fails: the error is clean, and nothing that was promised is lost.

use std::sync::Arc;

use obento_base::{Error, FileKind};
use obento_block::MemDevice;
use obento_driver::Crash;
use obento_vfs::Vfs;

use super::allowed::{self, Rules};
use super::repairable;
use super::volume::{End, Recording, Subject, looked_at};
use crate::fault::{Fault, FaultDevice, Lasting, Request};
use crate::model::{Point, StepClock};
use crate::plan::{Actor, Op, Plan};
use crate::snapshot::Snapshot;

/// How far a plan got.
struct Reached {
    point: Point,
    failed: bool,
}

impl Subject<'_> {
    /// How many requests of each kind the plan of `recording` makes, from opening to closing.
    pub fn requests(&self, recording: &Recording) -> Result<[(Request, u64); 3], String> {
        let device = Arc::new(FaultDevice::new(MemDevice::new(recording.base.to_vec()), None));
        self.until_fault(recording, &device)?;
        Ok(Request::ALL.map(|request| (request, device.count(request))))
    }

    /// Does the plan of `recording` until `fault` makes an operation fail, then opens the volume anew without it. Says
    /// whether the fault was noticed. An error tells what was wrong: an answer that is no I/O error, a sync that
    /// succeeds after one that failed, a tree that was not promised, a volume that is inconsistent.
    pub fn endure(&self, recording: &Recording, fault: Fault, second: bool) -> Result<bool, String> {
        let memory = Arc::new(MemDevice::new(recording.base.to_vec()));
        let device = Arc::new(FaultDevice::new(Arc::clone(&memory), Some(fault)));
        let reached = self.until_fault(recording, &device)?;
        self.check_after(recording, &reached.point, &memory, second)?;
        Ok(reached.failed)
    }

    /// Has every `step`-th request of each kind fail, once and for good, in each of `plans` on a volume like `base`. Says how many faults
    /// there were, and how many of them were noticed; a second judge sees each fiftieth. An error is that of [`endure`](Self::endure).
    pub fn break_everywhere(
        &self,
        base: &Arc<[u8]>,
        plans: &[Plan],
        step: u64,
    ) -> Result<(u64, u64), String> {
        let (mut tried, mut noticed) = (0, 0);
        for plan in plans {
            let recording = self.record(base, plan, End::Closed)?;
            for (request, count) in self.requests(&recording)? {
                for nth in (tried % step..count).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
                    for lasting in [Lasting::Once, Lasting::ForGood] {
                        let fault = Fault { request, nth, lasting };
                        tried += 1;
                        let failed = self.endure(&recording, fault, tried % 50 == 0);
                        let failed =
                            failed.map_err(|reason| format!("{}, {fault:?}: {reason}", plan.name))?;
                        noticed += u64::from(failed);
                    }
                }
            }
        }
        Ok((tried, noticed))
    }

    fn until_fault<D>(&self, recording: &Recording, device: &Arc<FaultDevice<D>>) -> Result<Reached, String>
    where
        D: obento_block::BlockDevice + 'static,
    {
        let history = &recording.history;
        let clock = Arc::new(StepClock::default());
        let fs = match (self.open)(device.clone(), clock.clone()) {
            Ok(fs) => fs,
            Err(error) => {
                expect_clean(error).map_err(|reason| format!("opening: {reason}"))?;
                return Ok(Reached { point: Point::default(), failed: true });
            }
        };
        let mut actor = Actor::new(Vfs::new(fs));
        for (number, op) in history.ops.iter().enumerate() {
            clock.set(number as u64 + 1);
            let Err(error) = actor.act(number, op) else { continue };
            if device.hits() == 0 || !is_fault(error) {
                // What is refused is refused with or without a fault.
                continue;
            }
            return failed_at(recording, number, &actor, device.hits());
        }
        let vfs = actor.vfs().clone();
        let _ = actor.act(0, &Op::Release);
        drop(actor);
        let done = everything_durable(recording, history.ops.len());
        Ok(match vfs.close() {
            Ok(()) => Reached { point: done, failed: false },
            Err(error) => {
                expect_clean(error).map_err(|reason| format!("closing: {reason}"))?;
                let point = history.points.last().cloned().unwrap_or_default();
                Reached { point, failed: true }
            }
        })
    }

    fn check_after(
        &self,
        recording: &Recording,
        point: &Point,
        memory: &Arc<MemDevice>,
        second: bool,
    ) -> Result<(), String> {
        let device: Arc<dyn obento_block::BlockDevice> = memory.clone();
        let clock = Arc::new(StepClock::default());
        clock.set(1 << 20);
        let fs = (self.open)(Arc::clone(&device), clock).map_err(|e| format!("does not open again: {e}"))?;
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
        vfs.close().map_err(|e| format!("does not close: {e}"))?;
        drop(vfs);
        self.check_closed(device.clone()).map_err(|reason| format!("inconsistent: {reason}"))?;
        if second {
            (self.second)(&*device).map_err(|reason| format!("second opinion: {reason}"))
        } else {
            Ok(())
        }
    }
}

/// Operation `number` failed: either it alone, and the volume goes on, or the volume is read-only for good.
fn failed_at(recording: &Recording, number: usize, actor: &Actor, hits: u64) -> Result<Reached, String> {
    let history = &recording.history;
    let told = |what: &str| {
        Err(format!("operation {number}, {:?}, fails ({hits} faults), and {what}", history.ops[number]))
    };
    let before =
        || history.points.iter().find(|point| point.begun == number + 1).cloned().unwrap_or_default();
    let create = Op::Create("after-the-fault".into(), FileKind::Regular, 0o600);
    match actor.vfs().sync() {
        Ok(()) => {
            let mut point = everything_durable(recording, number);
            point.begun = number + 1;
            Ok(Reached { point, failed: true })
        }
        Err(_) if actor.vfs().sync().is_ok() => told("a later sync succeeds after one that failed"),
        Err(_) => match Actor::new(actor.vfs().clone()).act(number, &create) {
            Ok(()) => told("the volume still changes after a sync that failed"),
            Err(error) if is_fault(error) => Ok(Reached { point: before(), failed: true }),
            Err(error) => told(&format!("a change answers {error:?}")),
        },
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

fn expect_clean(error: Error) -> Result<(), String> {
    if is_fault(error) { Ok(()) } else { Err(format!("answers {error:?}")) }
}
