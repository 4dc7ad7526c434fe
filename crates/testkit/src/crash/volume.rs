//! A plan done to a volume, recorded, and cut: what is found must be what the history allows, and be consistent.

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
use super::{Options, Seen, State, Summary, explore};
use crate::conformance::WritingCase;
use crate::hosts::{self, Library};
use crate::model::{History, Run, StepClock};
use crate::mutants::Random;
use crate::outcome::{self, words};
use crate::plan::{Actor, Plan};
use crate::record::{Event, RecordDevice};
use crate::snapshot::{Snapshot, Times};

/// Opens a volume for changes, after replaying its journal onto the device; one of a format that is mended after a cut,
/// after mending it.
pub type Open<'a> = dyn Fn(Arc<dyn BlockDevice>, Arc<dyn Clock>) -> Result<Arc<dyn FileSystem>> + Sync + 'a;
/// Says what is inconsistent on a volume that was closed. It is given twice, as a device and as its bytes, since to copy it for each of
/// a million states takes longer than to look at it.
pub type CheckClosed<'a> = dyn Fn(&Arc<dyn BlockDevice>, &[u8]) -> Result<(), String> + Sync + 'a;
/// The same, of a device alone.
pub type Check<'a> = dyn Fn(&dyn BlockDevice) -> Result<(), String> + Sync + 'a;

/// How volumes are opened and judged.
pub struct Subject<'a> {
    /// Opens one.
    pub open: &'a Open<'a>,
    /// A fast check, made of every state.
    pub check: &'a CheckClosed<'a>,
    /// A slow second opinion, asked for one state in [`Subject::second_every`] and for each that failed.
    pub second: &'a Check<'a>,
    /// See there; 0 for never.
    pub second_every: u64,
    /// One state in so many is also cut while it is being recovered; 0 for none.
    pub recovery_every: u64,
    /// What was promised for data.
    pub data: DataMode,
}

/// A plan that was done and recorded.
pub struct Recording {
    /// Its name.
    pub plan: String,
    /// The volume before.
    pub base: Arc<[u8]>,
    /// What was done to it.
    pub events: Vec<Event>,
    /// What it should hold, and since when.
    pub history: History,
    /// Whether nobody looked meanwhile, so that appends waited in memory.
    pub unwatched: bool,
    /// Whether another implementation did it, which tells no generations of inodes.
    pub by_another: bool,
    /// The point from which on cuts are judged: where [`Plan::setup`] is durable.
    pub from: usize,
}

impl Recording {
    /// What ours did while somebody looked.
    fn new(base: &Arc<[u8]>, plan: &Plan, events: Vec<Event>, history: History) -> Self {
        let from = first_point(&history, plan);
        let (plan, base) = (plan.name.clone(), Arc::clone(base));
        Self { plan, base, events, history, unwatched: false, by_another: false, from }
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} operations, {} events", self.plan, self.history.ops.len(), self.events.len())
    }
}

/// Whether a plan ends with the volume closed or with the power gone while it is open. Meanwhile every file is read after
/// each operation, but for the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Closed: also the checkpoint and the clean super block are cut.
    Closed,
    /// Dropped, without a word.
    Dropped,
    /// Dropped, and nobody looked at the files meanwhile, so that appends waited in memory.
    Unwatched,
}

/// Seconds after the start of a [`StepClock`]: a moment of 2030.
const AFTER_CASES: u64 = 900_000_000;

impl Subject<'_> {
    /// Does `plan` to the volume in `base` and records it. An error tells where it went another way than the model.
    pub fn record(&self, base: &Arc<[u8]>, plan: &Plan, end: End) -> Result<Recording, String> {
        let device = Arc::new(RecordDevice::new(MemDevice::new(base.to_vec())));
        let mut run = begin(self.open, &device)?;
        run.all(plan, &mut |point| device.mark(point)).map_err(|reason| format!("{plan}{reason}"))?;
        let history = match end {
            End::Dropped => run.cut(),
            End::Unwatched => return self.record_unwatched(base, plan, run.cut()),
            End::Closed => {
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

    /// Has another implementation of the format, which `open` opens volumes with, do `plan` to the volume in `base`, until the power goes,
    /// and records it: what it leaves is opened and judged like what ours leaves. An error tells where it went another way than the
    /// model.
    pub fn record_of(&self, open: &Open<'_>, base: &Arc<[u8]>, plan: &Plan) -> Result<Recording, String> {
        let device = Arc::new(RecordDevice::new(MemDevice::new(base.to_vec())));
        let mut run = begin(open, &device)?;
        run.all(plan, &mut |point| device.mark(point)).map_err(|reason| format!("{plan}{reason}"))?;
        let history = run.cut();
        Ok(Recording { by_another: true, ..Recording::new(base, plan, device.take_events(), history) })
    }

    /// Does what `history` tells once more, and looks only at the end, which must be the same.
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
                // What is refused is refused again: the trees are compared.
                let _ = actor.act(begun, &history.ops[begun]);
            }
        }
        let events = device.take_events();
        let (last, found) = (history.trees.last(), Snapshot::read(&vfs, history.trees.last()));
        let found = found.map_err(|e| format!("the volume does not read: {e}"))?;
        if last != Some(&found) {
            let difference = last.and_then(|last| last.difference(&found, Times::Compared, None));
            return Err(format!("{plan}another tree when nobody looks meanwhile: {difference:?}"));
        }
        Ok(Recording { unwatched: true, ..Recording::new(base, plan, events, history) })
    }

    /// Does a conformance case to the volume in `base`, closes it, and records what reached the device. An error tells
    /// what it said where it does not pass here: the driver's own tests run it on a volume large enough for all of them.
    pub fn record_case(&self, base: &Arc<[u8]>, case: WritingCase) -> Result<Vec<Event>, String> {
        self.record_whole(base, |fs| {
            // One that needs what the volume lacks has done little, which can be cut as well.
            let _outcome = catch_unwind(AssertUnwindSafe(|| case(&*fs))).map_err(|panic| words(&*panic))?;
            fs.writable().map_or(Ok(()), |fs| fs.close()).map_err(|e| format!("it does not close: {e}"))
        })
    }

    /// [`record_case`](Self::record_case), of one that hosts are held to, by the library.
    pub fn record_host_case(&self, base: &Arc<[u8]>, case: &hosts::Case) -> Result<Vec<Event>, String> {
        self.record_whole(base, |fs| {
            let mut library = Library::repeating(fs);
            match hosts::run(case, 0, &mut library) {
                outcome::End::Failed(why) => return Err(why),
                outcome::End::Passed | outcome::End::Refused(_) => {}
            }
            catch_unwind(AssertUnwindSafe(|| library.close())).map_err(|panic| words(&*panic))
        })
    }

    /// Records what `work` does, which closes the volume.
    fn record_whole(
        &self,
        base: &Arc<[u8]>,
        work: impl FnOnce(Arc<dyn FileSystem>) -> Result<(), String>,
    ) -> Result<Vec<Event>, String> {
        let device = Arc::new(RecordDevice::new(MemDevice::new(base.to_vec())));
        let clock = Arc::new(StepClock::default());
        // Cases set times of these years, after which a change comes.
        clock.set(AFTER_CASES);
        work((self.open)(device.clone(), clock).map_err(|e| format!("the volume does not open: {e}"))?)?;
        Ok(device.take_events())
    }

    /// Cuts what a conformance case did: each state opens, reads, closes and is consistent. No tree is expected, though a case may sync:
    /// it calls the driver itself, whose calls nobody sees, and what it still changes afterwards - an inode without a name, space that is
    /// reserved - no tree shows. What syncs promise the plans prove, which have a model.
    pub fn explore_case(&self, base: &[u8], events: &[Event], options: &Options, seen: &Seen) -> Summary {
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

    /// `judged`, and where it is a refusal what the second judge says of it, unless it was `asked` already.
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

    /// Whether the volume, which was closed, is consistent.
    fn check_state(&self, state: &State<'_>, second: bool) -> Result<(), String> {
        let checked = state.with_bytes(|bytes| (self.check)(&state.device, bytes));
        checked.map_err(|reason| format!("inconsistent: {reason}"))?;
        if second {
            (self.second)(&*state.device).map_err(|reason| format!("second opinion: {reason}"))
        } else {
            Ok(())
        }
    }

    /// What is inconsistent on a volume that was closed.
    pub fn check_closed(&self, device: Arc<dyn BlockDevice>) -> Result<(), String> {
        let bytes = copy(&*device);
        (self.check)(&device, &bytes)
    }

    /// Cuts a recording and judges each state.
    pub fn explore(&self, recording: &Recording, options: &Options, seen: &Seen) -> Summary {
        let counter = AtomicU64::new(0);
        let options = &Options { from_mark: recording.from, ..options.clone() };
        explore(&recording.base, &recording.events, options, seen, &mut |state| {
            // Alone, a state is looked at from all sides.
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
        // A cut while the volume was being opened leaves what was there before.
        let point = &history.points[mark.unwrap_or(0)];
        let rules = Rules {
            data: self.data,
            gathers: recording.unwatched,
            cuts_at_old_end: false,
            by_another: recording.by_another,
        };
        match crash {
            Crash::Whole => allowed::check(history, point, rules, &tree)?,
            Crash::Repairable => repairable::check(history, point, &tree)?,
        }
        vfs.close().map_err(|e| format!("does not close: {e}"))?;
        drop(vfs);
        self.check_state(state, second)
    }

    /// Replay twice is replay once: the power goes again while the first cut is being recovered.
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
        let summary = explore(&bytes, &device.take_events(), &options, &Seen::default(), judge);
        summary.failures.first().map_or(Ok(()), |failure| Err(format!("cut again in recovery at {failure}")))
    }
}

/// A run on the volume of `device`, of which nothing was recorded yet.
fn begin(open: &Open<'_>, device: &Arc<RecordDevice<MemDevice>>) -> Result<Run, String> {
    let clock = Arc::new(StepClock::default());
    let fs = open(device.clone(), clock.clone()).map_err(|e| format!("the volume does not open: {e}"))?;
    let run = Run::new(fs, clock).map_err(|e| format!("the volume does not read: {e}"))?;
    device.mark(0);
    Ok(run)
}

/// A volume that is read once, and closed: a cache of many names would take longer to make and to empty than that.
pub(super) fn looked_at(fs: Arc<dyn FileSystem>) -> Vfs {
    Vfs::with(fs, Config { names: 256, ..Config::default() })
}

/// Where the setup of `plan` is durable.
fn first_point(history: &History, plan: &Plan) -> usize {
    history.points.iter().position(|point| point.durable >= plan.setup).unwrap_or(0)
}

pub(super) fn copy(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).expect("memory can be read");
    bytes
}
