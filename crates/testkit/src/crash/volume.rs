//! Recorded plans on a volume with power failures. The history must allow the contents, and the volume must be
//! consistent.

use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use obento_base::Result;
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{Crash, DataMode, FileSystem};
use obento_env::Clock;
use obento_vfs::{Config, Vfs};

use super::allowed::{self, Rules};
use super::repairable;
use super::{Options, SeenStates, State, Summary, explore};
use crate::conformance::WritingCase;
use crate::hosts::{self, Library};
use crate::model::{History, Run, StepClock};
use crate::mutants::Random;
use crate::outcome::{self, words};
use crate::plan::{Actor, Plan};
use crate::record::{Event, RecordDevice};
use crate::snapshot::{Meta, Snapshot, Times};

/// Opens a volume for changes, after replaying its journal to the device, or after repairing it if the format requires
/// a repair after a crash.
pub type Open<'a> = dyn Fn(Arc<dyn BlockDevice>, Arc<dyn Clock>) -> Result<Arc<dyn FileSystem>> + Sync + 'a;
/// Checks a volume that was closed. The volume is passed as a device and, if they are in memory, as its bytes. Copying
/// it for each of a million states takes longer than the check.
pub type CheckClosed<'a> = dyn Fn(&Arc<dyn BlockDevice>, Option<&[u8]>) -> Result<(), String> + Sync + 'a;
/// The same check with only a device.
pub type Check<'a> = dyn Fn(&dyn BlockDevice) -> Result<(), String> + Sync + 'a;

/// How volumes are opened and checked.
pub struct Subject<'a> {
    /// Opens a volume.
    pub open: &'a Open<'a>,
    /// A fast check, which runs on every state.
    pub check: &'a CheckClosed<'a>,
    /// A slow second check, which runs on one state in [`Subject::second_every`] and of each failed state.
    pub second: &'a Check<'a>,
    /// The interval of the second check; 0 for never.
    pub second_every: u64,
    /// The interval of states in which the power also fails during recovery; 0 for never.
    pub recovery_every: u64,
    /// The promised data mode.
    pub data: DataMode,
}

/// A recorded plan.
pub struct Recording {
    /// The name of the plan.
    pub plan: String,
    /// The volume before the plan.
    pub base: Arc<[u8]>,
    /// The recorded events.
    pub events: Vec<Event>,
    /// The expected contents, and since when.
    pub history: History,
    /// Whether files were not read during the plan, so that appends waited in memory.
    pub unwatched: bool,
    /// Whether another implementation ran the plan, which has no generations of inodes.
    pub by_another: bool,
    /// Whether the clock ran on during an operation, so that only whole seconds are compared.
    pub whole_seconds: bool,
    /// The point from which on states are checked: when [`Plan::setup`] is durable.
    pub from: usize,
}

impl Recording {
    /// Returns the recording of a plan that our driver ran while files were read.
    fn new(base: &Arc<[u8]>, plan: &Plan, events: Vec<Event>, history: History) -> Self {
        let from = first_point(&history, plan);
        let (plan, base) = (plan.name.clone(), Arc::clone(base));
        let (unwatched, by_another, whole_seconds) = (false, false, false);
        Self { plan, base, events, history, unwatched, by_another, whole_seconds, from }
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} operations, {} events", self.plan, self.history.ops.len(), self.events.len())
    }
}

/// The end of a plan: the volume is closed, or the power fails while it is open. Files are read after each operation,
/// except for `Unwatched`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlanEnd {
    /// Closed: power failures also occur during the checkpoint and the write of the clean super block.
    Closed,
    /// Dropped without closing.
    Dropped,
    /// Dropped, and files were not read, so that appends waited in memory.
    Unwatched,
}

/// Seconds after the start of a [`StepClock`]: a time in 2030.
const AFTER_CASES: u64 = 900_000_000;

impl Subject<'_> {
    /// Runs `plan` on the volume in `base` and records it. Fails with a description if it differs from the model.
    pub fn record(&self, base: &Arc<[u8]>, plan: &Plan, end: PlanEnd) -> Result<Recording, String> {
        let device = Arc::new(RecordDevice::new(MemDevice::new(base.to_vec())));
        let mut run = begin(self.open, &device)?;
        run.all(plan, &mut |point| device.mark(point)).map_err(|reason| format!("{plan}{reason}"))?;
        let history = match end {
            PlanEnd::Dropped => run.cut(),
            PlanEnd::Unwatched => return self.record_unwatched(base, plan, run.cut()),
            PlanEnd::Closed => {
                let (vfs, history) = run.finish();
                vfs.close().map_err(|e| format!("{plan}closing: {e}"))?;
                self.check_closed(device.clone())
                    .map_err(|reason| format!("{plan}after closing: {reason}"))?;
                (self.second)(&device).map_err(|reason| format!("{plan}after closing: {reason}"))?;
                history
            }
        };
        Ok(Recording::new(base, plan, device.take_events(), history))
    }

    /// Runs `plan` on the volume in `base` until the power fails, and records it. `open` opens the volume with another
    /// implementation of the format. The result is opened and checked like that of our driver. Fails with a description
    /// if it differs from the model.
    pub fn record_of(&self, open: &Open<'_>, base: &Arc<[u8]>, plan: &Plan) -> Result<Recording, String> {
        let device = Arc::new(RecordDevice::new(MemDevice::new(base.to_vec())));
        let mut run = begin(open, &device)?;
        run.all(plan, &mut |point| device.mark(point)).map_err(|reason| format!("{plan}{reason}"))?;
        let history = run.cut();
        Ok(Recording { by_another: true, ..Recording::new(base, plan, device.take_events(), history) })
    }

    /// Runs the operations of `history` again without reading files, and compares only the final tree.
    fn record_unwatched(&self, base: &Arc<[u8]>, plan: &Plan, history: History) -> Result<Recording, String> {
        let device = Arc::new(RecordDevice::new(MemDevice::new(base.to_vec())));
        let clock = Arc::new(StepClock::default());
        let fs = (self.open)(device.clone(), clock.clone())
            .map_err(|e| format!("the volume does not open: {e}"))?;
        let vfs = Vfs::with(fs, Config { gather_age: None, ..Config::default() });
        let mut actor = Actor::new(vfs.clone());
        device.mark(0);
        for (number, pair) in history.points.windows(2).enumerate() {
            device.mark(number + 1);
            let begun = pair[0].begun;
            if pair[1].begun > begun {
                clock.set(begun as u64 + 1);
                // A refused operation is refused again; the trees are compared.
                let _ = actor.act(begun, &history.ops[begun]);
            }
        }
        let events = device.take_events();
        let (last, found) = (history.trees.last(), Snapshot::read(&vfs, history.trees.last()));
        let found = found.map_err(|e| format!("the volume does not read: {e}"))?;
        if last != Some(&found) {
            let difference = last.and_then(|last| last.difference(&found, Times::Compared, None));
            return Err(format!("{plan}a different tree when no file is read in between: {difference:?}"));
        }
        Ok(Recording { unwatched: true, ..Recording::new(base, plan, events, history) })
    }

    /// Runs a conformance case on the volume in `base`, closes it, and records it. Fails with the message of the case
    /// if it does not pass. The driver's own tests run all cases on a volume that is large enough.
    pub fn record_case(&self, base: &Arc<[u8]>, case: WritingCase) -> Result<Vec<Event>, String> {
        self.record_whole(base, |fs| {
            // A case that requires a missing capability has changed little, and these changes are tested too.
            let _outcome = catch_unwind(AssertUnwindSafe(|| case(&*fs))).map_err(|panic| words(&*panic))?;
            fs.writable().map_or(Ok(()), |fs| fs.close()).map_err(|e| format!("it does not close: {e}"))
        })
    }

    /// Records a case for hosts, like [`record_case`](Self::record_case), run by the library.
    pub fn record_host_case(&self, base: &Arc<[u8]>, case: &hosts::HostCase) -> Result<Vec<Event>, String> {
        self.record_whole(base, |fs| {
            let mut library = Library::repeating(fs);
            match hosts::run(case, 0, &mut library) {
                outcome::CaseEnd::Failed(why) => return Err(why),
                outcome::CaseEnd::Passed | outcome::CaseEnd::Refused(_) => {}
            }
            catch_unwind(AssertUnwindSafe(|| library.close())).map_err(|panic| words(&*panic))
        })
    }

    /// Records `work`, which closes the volume.
    fn record_whole(
        &self,
        base: &Arc<[u8]>,
        work: impl FnOnce(Arc<dyn FileSystem>) -> Result<(), String>,
    ) -> Result<Vec<Event>, String> {
        let device = Arc::new(RecordDevice::new(MemDevice::new(base.to_vec())));
        let clock = Arc::new(StepClock::default());
        // Cases set times up to this year, and a change comes afterwards.
        clock.set(AFTER_CASES);
        work((self.open)(device.clone(), clock).map_err(|e| format!("the volume does not open: {e}"))?)?;
        Ok(device.take_events())
    }

    /// Explores a conformance case: each state opens, reads, closes and is consistent. No tree is expected, even if a
    /// case syncs. The case calls the driver directly and may change things afterwards that no tree shows, such as an
    /// inode without a name or reserved space. Plans, which have a model, test the promises of syncs.
    pub fn explore_case(
        &self,
        base: &[u8],
        events: &[Event],
        options: &Options,
        seen: &SeenStates,
    ) -> Summary {
        let counter = AtomicU64::new(0);
        explore(base, events, options, seen, &mut |state| {
            let number = counter.fetch_add(1, Ordering::Relaxed);
            let second = self.second_every > 0 && number.is_multiple_of(self.second_every);
            self.with_second_opinion(state, second, self.judge_case(state, second))
        })
    }

    fn judge_case(&self, state: &State<'_>, second: bool) -> Result<(), String> {
        let clock = Arc::new(StepClock::default());
        clock.set(1 << 20);
        let fs = (self.open)(Arc::clone(&state.device), clock).map_err(|e| format!("does not open: {e}"))?;
        let vfs = looked_at(fs);
        Snapshot::read(&vfs, None).map_err(|e| format!("does not read: {e}"))?;
        vfs.close().map_err(|e| format!("does not close: {e}"))?;
        drop(vfs);
        self.check_state(state, second)
    }

    /// Returns `judged`, with the result of the second check if it failed, unless the second check was `asked` already.
    fn with_second_opinion(
        &self,
        state: &State<'_>,
        asked: bool,
        judged: Result<(), String>,
    ) -> Result<(), String> {
        judged.map_err(|reason| match (self.second)(&state.device) {
            Err(other) if !asked => format!("{reason}\n  second opinion: {other}"),
            _ => reason,
        })
    }

    /// Checks the consistency of a closed volume.
    fn check_state(&self, state: &State<'_>, second: bool) -> Result<(), String> {
        let checked = state.with_bytes(|bytes| (self.check)(&state.device, Some(bytes)));
        checked.map_err(|reason| format!("inconsistent: {reason}"))?;
        if second {
            (self.second)(&*state.device).map_err(|reason| format!("second opinion: {reason}"))
        } else {
            Ok(())
        }
    }

    /// Checks the consistency of a volume that was closed.
    pub fn check_closed(&self, device: Arc<dyn BlockDevice>) -> Result<(), String> {
        (self.check)(&device, None)
    }

    /// Explores a recording and checks each state.
    pub fn explore(&self, recording: &Recording, options: &Options, seen: &SeenStates) -> Summary {
        let counter = AtomicU64::new(0);
        let options = &Options { from_mark: recording.from, ..options.clone() };
        explore(&recording.base, &recording.events, options, seen, &mut |state| {
            // A single state is checked completely.
            let number = match options.only {
                Some(_) => 0,
                None => counter.fetch_add(1, Ordering::Relaxed),
            };
            self.judge(recording, state, number, &options.whole)
        })
    }

    fn judge(
        &self,
        recording: &Recording,
        state: &State<'_>,
        number: u64,
        whole: &Range<u64>,
    ) -> Result<(), String> {
        let due = |every: u64| every > 0 && number.is_multiple_of(every);
        let untouched = due(self.recovery_every).then(|| copy(&*state.device));
        let second = due(self.second_every);
        let judged = self.judge_once(recording, state.mark, state, second);
        self.with_second_opinion(state, second, judged)?;
        untouched.map_or(Ok(()), |bytes| self.cut_recovery(recording, state, bytes, whole))
    }

    fn judge_once(
        &self,
        recording: &Recording,
        mark: Option<usize>,
        state: &State<'_>,
        second: bool,
    ) -> Result<(), String> {
        let clock = Arc::new(StepClock::default());
        clock.set(1 << 20);
        let device = &state.device;
        let fs = (self.open)(Arc::clone(device), clock).map_err(|e| format!("does not open: {e}"))?;
        let crash = fs.limits().crash;
        let vfs = looked_at(fs);
        let history = &recording.history;
        let tree = Snapshot::read(&vfs, history.trees.last()).map_err(|e| format!("does not read: {e}"))?;
        let tree = if recording.whole_seconds { tree.map_meta(Meta::in_whole_seconds) } else { tree };
        // A failure while the volume was being opened leaves the earlier contents.
        let point = &history.points[mark.unwrap_or(0)];
        let rules = Rules {
            data: self.data,
            gathers: recording.unwatched,
            cuts_at_old_end: false,
            by_another: recording.by_another,
        };
        match crash {
            // Plans that need an order are not tested on a volume without one.
            Crash::Whole | Crash::Unordered => allowed::check(history, point, rules, &tree)?,
            Crash::Repairable => repairable::check(history, point, &tree)?,
        }
        vfs.close().map_err(|e| format!("does not close: {e}"))?;
        drop(vfs);
        self.check_state(state, second)
    }

    /// Tests that two replays are equal to one: the power fails again during the recovery.
    fn cut_recovery(
        &self,
        recording: &Recording,
        state: &State<'_>,
        bytes: Vec<u8>,
        whole: &Range<u64>,
    ) -> Result<(), String> {
        let device = Arc::new(RecordDevice::new(MemDevice::new(bytes.clone())));
        let clock = Arc::new(StepClock::default());
        clock.set(1 << 20);
        let fs = (self.open)(device.clone(), clock).map_err(|e| format!("does not open: {e}"))?;
        drop(fs);
        let mut random = Random::new(state.name.seed ^ state.name.number as u64);
        let options = Options {
            every_subset: 2,
            samples: 1,
            torn: 2,
            failures: 1,
            whole: whole.clone(),
            ..Options::new(random.number())
        };
        let judge = &mut |again: &State<'_>| self.judge_once(recording, state.mark, again, false);
        let summary = explore(&bytes, &device.take_events(), &options, &SeenStates::default(), judge);
        summary.failures.first().map_or(Ok(()), |failure| Err(format!("cut again in recovery at {failure}")))
    }
}

/// Starts a run on the volume of `device` with an empty recording.
fn begin(open: &Open<'_>, device: &Arc<RecordDevice<MemDevice>>) -> Result<Run, String> {
    let clock = Arc::new(StepClock::default());
    let fs = open(device.clone(), clock.clone()).map_err(|e| format!("the volume does not open: {e}"))?;
    let run = Run::new(fs, clock).map_err(|e| format!("the volume does not read: {e}"))?;
    device.mark(0);
    Ok(run)
}

/// Returns a `Vfs` for a volume that is read once and closed. Its cache of names is small, because a large one takes
/// longer to create.
pub(super) fn looked_at(fs: Arc<dyn FileSystem>) -> Vfs {
    Vfs::with(fs, Config { names: 256, ..Config::default() })
}

/// Returns the point where the setup of `plan` is durable.
fn first_point(history: &History, plan: &Plan) -> usize {
    history.points.iter().position(|point| point.durable >= plan.setup).unwrap_or(0)
}

pub(super) fn copy(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).expect("memory can be read");
    bytes
}
