//! Many plans on many volumes, with power failures, on all processors.
//!
//! A case has a name, such as `ext4-1k/Ordered/closed/bounded-2-1234`, from which it can be created again. A state of a
//! case also has a name. `OBENTO_CRASH=CASE@STATE` checks only that state, the name of a case checks that case, and a
//! part of a name checks all matching cases.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::volume::{PlanEnd, Subject};
use super::{Options, SeenStates, StateName, Summary};
use crate::conformance::{WritingCase, writing_cases};
use crate::hosts;
use crate::mutants::Random;
use crate::plan::{Bounds, Limits, Op, Plan, random};

/// The interval of progress messages.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// The number of failures after which a campaign ends.
const FAILURES: usize = 12;

/// A volume on which plans run.
#[allow(missing_debug_implementations, reason = "it is closures for the most part")]
pub struct Volume<'a> {
    /// The name: `ext4-1k/Ordered`.
    pub name: String,
    /// The bytes before a plan.
    pub base: Arc<[u8]>,
    /// How the volume is opened and checked.
    pub subject: Subject<'a>,
    /// Bytes that are never torn, as in [`Options::whole`].
    pub whole: Range<u64>,
    /// Plans that run before all others.
    pub named: Vec<Plan>,
    /// The short plans for this volume.
    pub bounds: Bounds,
    /// The limits of random plans.
    pub limits: Limits,
    /// Conformance cases that fail on such a small volume, each with the reason. Any other failure counts.
    pub left_out: &'static [(&'static str, &'static str)],
}

impl Volume<'_> {
    /// Returns the random plan with this seed, without operations that the format lacks.
    fn random(&self, seed: u64) -> Plan {
        self.without_lacking(random(seed, &Limits { ops: 30, ..self.limits.clone() }))
    }

    /// Returns `plan` without operations that the format lacks.
    pub fn without_lacking(&self, mut plan: Plan) -> Plan {
        plan.ops.retain(|op| self.bounds.xattrs || !matches!(op, Op::SetXattr(..) | Op::RemoveXattr(..)));
        plan
    }
}

/// The work on a volume.
#[derive(Clone, Debug)]
pub enum Work {
    /// A plan, and how it ends.
    Plan(Plan, PlanEnd),
    /// A conformance case, by name.
    Conformance(&'static str, WritingCase),
    /// A case for hosts.
    Host(hosts::HostCase),
}

/// One case on one volume.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "so has its volume")]
pub struct CrashCase<'a> {
    /// The volume.
    pub volume: &'a Volume<'a>,
    /// The work.
    pub work: Work,
}

impl<'a> CrashCase<'a> {
    /// Returns a case with a plan.
    pub fn new(volume: &'a Volume<'a>, plan: Plan, end: PlanEnd) -> Self {
        Self { volume, work: Work::Plan(plan, end) }
    }

    /// Returns the name, from which the case can be created again.
    pub fn name(&self) -> String {
        let volume = &self.volume.name;
        match &self.work {
            Work::Plan(plan, PlanEnd::Closed) => format!("{volume}/closed/{}", plan.name),
            Work::Plan(plan, PlanEnd::Dropped) => format!("{volume}/{}", plan.name),
            Work::Plan(plan, PlanEnd::Unwatched) => format!("{volume}/unwatched/{}", plan.name),
            Work::Conformance(name, _) => format!("{volume}/conformance/{name}"),
            Work::Host(case) => format!("{volume}/hosts/{}", in_one_word(case.name)),
        }
    }

    /// Returns the description for a failure.
    fn shown(&self) -> String {
        match &self.work {
            Work::Plan(plan, _) => plan.to_string(),
            Work::Conformance(..) | Work::Host(_) => String::new(),
        }
    }

    /// Returns the reason why the case cannot be tested on this volume, if one is known.
    fn is_left_out(&self) -> Option<&'static str> {
        let name = match &self.work {
            Work::Plan(..) => return None,
            Work::Conformance(name, _) | Work::Host(hosts::HostCase { name, .. }) => name,
        };
        self.volume.left_out.iter().find(|(known, _)| known == name).map(|(_, reason)| *reason)
    }

    /// Runs the case and checks the states after power failures.
    fn explore(&self, options: &Options, may_wait: bool, seen: &SeenStates) -> Result<Summary, String> {
        let Volume { base, subject, .. } = self.volume;
        match &self.work {
            Work::Plan(plan, end) => subject.record(base, plan, *end).map(|mut recording| {
                recording.unwatched &= may_wait;
                subject.explore(&recording, options, seen)
            }),
            Work::Conformance(_, case) => {
                let events = subject.record_case(base, *case)?;
                Ok(subject.explore_case(base, &events, options, seen))
            }
            Work::Host(case) => {
                let events = subject.record_host_case(base, case)?;
                Ok(subject.explore_case(base, &events, options, seen))
            }
        }
    }
}

/// The extent of a campaign.
#[derive(Clone, Debug)]
pub struct Depth {
    /// The states of each case.
    pub options: Options,
    /// Check only this state of the case with this name.
    pub only: Option<(String, StateName)>,
    /// Check only the cases whose names contain this.
    pub part: Option<String>,
    /// Whether appends that wait in memory may be missing.
    pub may_wait: bool,
}

impl Depth {
    /// Returns the extent for all cases.
    pub fn new(options: Options) -> Self {
        Self { options, only: None, part: None, may_wait: true }
    }

    /// Returns a few states of each case, for a normal test run.
    pub fn quick() -> Self {
        Self::new(Options { every_subset: 3, samples: 2, torn: 2, ..Options::new(1) })
    }

    /// Applies `OBENTO_CRASH`.
    pub fn with_only(self) -> Self {
        match std::env::var("OBENTO_CRASH") {
            Ok(name) => self.of(&name),
            Err(_) => self,
        }
    }

    /// Selects the state or the cases with this name, as printed by a failure or without `OBENTO_CRASH=`. Panics if the
    /// part after the `@` is not the name of a state.
    pub fn of(mut self, name: &str) -> Self {
        let name = name.strip_prefix("OBENTO_CRASH=").unwrap_or(name);
        let Some((case, state)) = name.split_once('@') else {
            self.part = Some(name.to_owned());
            return self;
        };
        let state: StateName = state.parse().expect("the name is CASE@STATE");
        self.options = self.options.with_only(state);
        self.only = Some((case.to_owned(), state));
        self
    }

    fn is_wanted(&self, name: &str) -> bool {
        match (&self.only, &self.part) {
            (Some((wanted, _)), _) => wanted == name,
            (None, Some(part)) => name.contains(part.as_str()),
            (None, None) => true,
        }
    }
}

/// The result of a campaign.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The number of completed plans.
    pub cases: usize,
    /// The number of checked states; some were checked for several promises.
    pub judged: usize,
    /// The number of windows.
    pub windows: usize,
    /// The cases that were skipped, with the reasons: [`Volume::left_out`].
    pub left_out: Vec<String>,
    /// The failures, each with the name that reproduces it.
    pub failures: Vec<String>,
}

impl Outcome {
    /// Panics with the failures, if any case failed.
    #[track_caller]
    pub fn expect_clean(&self) {
        let shown = self.failures.iter().take(6).cloned().collect::<Vec<_>>().join("\n\n");
        assert!(self.failures.is_empty(), "{} failures:\n{shown}", self.failures.len());
    }
}

/// Checks one case.
pub fn cut(case: &CrashCase<'_>, depth: &Depth, seen: &SeenStates, outcome: &Mutex<Outcome>) {
    let name = case.name();
    if !depth.is_wanted(&name) {
        return;
    }
    if let Some(reason) = case.is_left_out() {
        let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
        return outcome.left_out.push(format!("{name}: {reason}"));
    }
    if depth.only.is_some() {
        eprint!("{}", case.shown());
    }
    let options = Options { whole: case.volume.whole.clone(), ..depth.options.clone() };
    let summary = case.explore(&options, depth.may_wait, seen);
    let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
    outcome.cases += 1;
    let failures: Vec<String> = match summary {
        Err(reason) => vec![format!("OBENTO_CRASH={name}: {reason}")],
        Ok(summary) => {
            outcome.judged += summary.judged;
            outcome.windows += summary.windows;
            let named = |failure| format!("OBENTO_CRASH={name}@{failure}\n{}", case.shown());
            summary.failures.iter().map(named).collect()
        }
    };
    failures.iter().take(1).for_each(|failure| eprintln!("{failure}"));
    outcome.failures.extend(failures);
}

/// Checks the cases that `next` returns, on one thread per processor, until `next` returns none or too many cases
/// failed. Prints progress.
pub fn run<'a>(
    next: &(dyn Fn(usize) -> Option<CrashCase<'a>> + Sync),
    depth: &Depth,
    seen: &SeenStates,
) -> Outcome {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let (number, outcome) = (AtomicUsize::new(0), Mutex::new(Outcome::default()));
    let reported = Mutex::new(Instant::now());
    let failures = || outcome.lock().unwrap_or_else(PoisonError::into_inner).failures.len();
    let work = || {
        while failures() < FAILURES {
            let Some(case) = next(number.fetch_add(1, Ordering::Relaxed)) else { break };
            cut(&case, depth, seen, &outcome);
            let mut reported = reported.lock().unwrap_or_else(PoisonError::into_inner);
            if reported.elapsed() > TELL_EVERY {
                *reported = Instant::now();
                let cases = number.load(Ordering::Relaxed);
                eprintln!("{} states of {cases} plans, {} failures", seen.count(), failures());
            }
        }
    };
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    outcome.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Runs each of `plans` on `volume`.
pub fn all(volume: &Volume<'_>, plans: &[Plan], end: PlanEnd, depth: &Depth) -> Outcome {
    let seen = SeenStates::default();
    let next = |n: usize| plans.get(n).map(|plan| CrashCase::new(volume, plan.clone(), end));
    let outcome = run(&next, depth, &seen);
    let (states, judged) = (seen.count(), outcome.judged);
    eprintln!("{}: {states} states, {judged} judged, of {} plans", volume.name, outcome.cases);
    outcome
}

/// Runs every conformance case on `volume`.
pub fn conformance(volume: &Volume<'_>, depth: &Depth) -> Outcome {
    let (seen, cases) = (SeenStates::default(), conformance_cases(volume).collect::<Vec<_>>());
    let outcome = run(&|n| cases.get(n).cloned(), depth, &seen);
    eprintln!("{}: {} states of {} conformance cases", volume.name, seen.count(), outcome.cases);
    outcome.left_out.iter().for_each(|name| eprintln!("left out: {name}"));
    outcome
}

/// The end of a long campaign.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After this number of different disks.
    States(usize),
    /// After this time.
    Time(Duration),
}

/// Runs the campaign that `cargo xtask crash` requests: the [`long`] one with `OBENTO_CRASH_STATES` or
/// `OBENTO_CRASH_SECONDS`, or all [`sequences`] with `OBENTO_CRASH_SEQUENCES`. `OBENTO_CRASH_SEED` is the seed,
/// `OBENTO_CRASH` selects a part, and `OBENTO_CRASH_SEEN` is a file with the disks of earlier campaigns.
pub fn from_environment(volumes: &[Volume<'_>]) -> Outcome {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seed = number("OBENTO_CRASH_SEED").unwrap_or(1);
    let until = match number("OBENTO_CRASH_SECONDS") {
        Some(seconds) => Until::Time(Duration::from_secs(seconds)),
        None => Until::States(number("OBENTO_CRASH_STATES").unwrap_or(200_000) as usize),
    };
    // Recording a plan takes longer than checking a state, so each plan has many states.
    let options = Options { samples: 60, torn: 60, every_subset: 6, ..Options::new(seed) };
    let kept = std::env::var_os("OBENTO_CRASH_SEEN").map(PathBuf::from);
    let seen = kept
        .as_deref()
        .map_or_else(|| Ok(SeenStates::default()), SeenStates::with_earlier)
        .expect("a file of disks");
    let depth = Depth::new(options).with_only();
    let outcome = match std::env::var_os("OBENTO_CRASH_SEQUENCES") {
        Some(_) => sequences(volumes, &depth, seed, &seen),
        None => long(volumes, &depth, seed, until, &seen),
    };
    if let Some(path) = kept {
        seen.keep(&path).expect("room for a file of disks");
        println!("{} different disks with those of the campaigns before", seen.total());
    }
    outcome
}

/// Runs a campaign over all `volumes`: first the named plans on each with every end, every plan of one operation, and
/// every conformance case. Then all plans of two operations, each on one volume, in an order that depends on `seed`.
/// Plans of three operations and random plans are mixed in. Prints the result.
pub fn long(volumes: &[Volume<'_>], depth: &Depth, seed: u64, until: Until, seen: &SeenStates) -> Outcome {
    let started = Instant::now();
    let name = depth.only.as_ref().map(|(name, _)| name).or(depth.part.as_ref());
    if let Some(outcome) = name.and_then(|name| alone(volumes, name, depth, seen)) {
        return outcome;
    }
    let first = first_cases(volumes);
    // The names of the skipped cases are the only information about them.
    const ENOUGH: usize = 200_000;
    let is_over = |n: usize| match until {
        _ if depth.part.is_some() => n > ENOUGH,
        Until::States(states) => seen.count() >= states,
        Until::Time(time) => started.elapsed() >= time,
    };
    println!("seed {seed}");
    let pairs = AtomicUsize::new(0);
    let next = |n: usize| {
        if is_over(n) {
            return None;
        }
        if let Some(case) = first.get(n) {
            return Some(case.clone());
        }
        Some(later_case(volumes, seed, n - first.len(), &pairs))
    };
    let outcome = run(&next, depth, seen);
    outcome.left_out.iter().for_each(|name| println!("left out: {name}"));
    println!(
        "{} different disks, {} judgements, {} windows, {} plans ({} of the {} sequences of two gone through), {:.1} minutes; {} lost",
        seen.count(),
        outcome.judged,
        outcome.windows,
        outcome.cases,
        pairs.into_inner(),
        volumes.first().map_or(0, |volume| Bounds { len: 2, ..volume.bounds }.count()),
        started.elapsed().as_secs_f64() / 60.0,
        outcome.failures.len()
    );
    outcome
}

/// Checks the case with this name, or the one state of it that `depth` selects. Returns `None` if the name is only a
/// part of a name. Panics if the case or state does not exist, because an unchecked state must not pass.
fn alone(volumes: &[Volume<'_>], name: &str, depth: &Depth, seen: &SeenStates) -> Option<Outcome> {
    let case = case_of(volumes, name);
    if depth.only.is_none() && case.is_none() {
        return None;
    }
    let unknown = format!("no case is called {name}");
    if case.is_none() {
        println!("{unknown}");
    }
    let case = case.expect(&unknown);
    let outcome = run(&|n| (n == 0).then(|| case.clone()), depth, seen);
    let is_judged = outcome.judged > 0 || !outcome.failures.is_empty();
    assert!(is_judged, "{name} has no state of this name, or is left out: {:?}", outcome.left_out);
    println!("{name}: {} judged; {} lost", outcome.judged, outcome.failures.len());
    Some(outcome)
}

/// Runs all plans of one and of two operations, each with every placement of syncs and each on one of `volumes` that
/// supports all operations. Another `seed` selects other volumes. Prints how many were run.
pub fn sequences(volumes: &[Volume<'_>], depth: &Depth, seed: u64, seen: &SeenStates) -> Outcome {
    let started = Instant::now();
    let most = volumes.iter().map(|volume| volume.bounds.count()).max();
    let hosts: Vec<_> = volumes.iter().filter(|volume| Some(volume.bounds.count()) == most).collect();
    let plans: Vec<Plan> = hosts.first().map_or_else(Vec::new, |volume| {
        [1, 2].into_iter().flat_map(|len| Bounds { len, ..volume.bounds }.all()).collect()
    });
    let next = |n: usize| {
        let volume = hosts.get((n + seed as usize) % hosts.len().max(1))?;
        Some(CrashCase::new(volume, plans.get(n)?.clone(), PlanEnd::Dropped))
    };
    let outcome = run(&next, depth, seen);
    println!("{} of {} sequences of one and two operations", outcome.cases, plans.len());
    println!(
        "{} different disks, {} judgements, {} windows, {} plans, {:.1} minutes; {} lost",
        seen.count(),
        outcome.judged,
        outcome.windows,
        outcome.cases,
        started.elapsed().as_secs_f64() / 60.0,
        outcome.failures.len()
    );
    outcome
}

fn first_cases<'a>(volumes: &'a [Volume<'a>]) -> Vec<CrashCase<'a>> {
    let mut cases = Vec::new();
    for end in [PlanEnd::Dropped, PlanEnd::Unwatched, PlanEnd::Closed] {
        for volume in volumes {
            cases.extend(volume.named.iter().map(|plan| CrashCase::new(volume, plan.clone(), end)));
        }
    }
    for volume in volumes {
        let one = Bounds { len: 1, ..volume.bounds };
        cases.extend(one.all().map(|plan| CrashCase::new(volume, plan, PlanEnd::Dropped)));
        cases.extend(conformance_cases(volume));
    }
    cases
}

/// Returns case `index` of the random ones.
fn later_case<'a>(volumes: &'a [Volume<'a>], seed: u64, index: usize, pairs: &AtomicUsize) -> CrashCase<'a> {
    let mut random = Random::new(seed << 32 ^ index as u64);
    let volume = &volumes[random.below(volumes.len() as u64) as usize];
    let end =
        [PlanEnd::Dropped, PlanEnd::Dropped, PlanEnd::Unwatched, PlanEnd::Closed][random.below(4) as usize];
    // Recording a plan takes as long as checking some hundred states, and a short plan has fewer new states.
    let plan = match index % 8 {
        0 | 2 | 4 | 6 => volume.random(seed * 1_000_000 + index as u64),
        1 => Bounds { len: 3, ..volume.bounds }.draw(&mut random),
        _ => next_pair(volume, seed, pairs),
    };
    CrashCase::new(volume, plan, end)
}

/// Returns the next plan of two operations, in an order that visits all of them before it repeats.
fn next_pair(volume: &Volume<'_>, seed: u64, pairs: &AtomicUsize) -> Plan {
    /// A prime greater than any number of plans, so that its multiples reach each number once.
    const STEP: u64 = 2_147_483_647;
    let two = Bounds { len: 2, ..volume.bounds };
    // Consecutive seeds begin far apart.
    let start = Random::new(seed).number() >> 32;
    loop {
        let turn = pairs.fetch_add(1, Ordering::Relaxed) as u64;
        let number = (turn + start).wrapping_mul(STEP) % two.count();
        if let Some(plan) = two.plan(number) {
            return plan;
        }
    }
}

/// Returns every deterministic conformance case, and every case for hosts.
pub fn conformance_cases<'a>(volume: &'a Volume<'a>) -> impl Iterator<Item = CrashCase<'a>> {
    let is_same = |(name, _): &(&str, WritingCase)| !name.contains("from_any_thread");
    let contract = writing_cases().into_iter().filter(is_same);
    let contract = contract.map(|(name, case)| Work::Conformance(name, case));
    let work = contract.chain(hosts::cases().into_iter().map(Work::Host));
    work.map(move |work| CrashCase { volume, work })
}

/// Converts a sentence to a part of a name.
fn in_one_word(sentence: &str) -> String {
    sentence
        .chars()
        .filter(|letter| *letter != ',')
        .map(|letter| if matches!(letter, ' ' | '/') { '-' } else { letter })
        .collect()
}

/// Returns the case with a name, from any campaign.
fn case_of<'a>(volumes: &'a [Volume<'a>], name: &str) -> Option<CrashCase<'a>> {
    let (place, plan) = name.rsplit_once('/')?;
    if let Some(place) = place.strip_suffix("/conformance").or_else(|| place.strip_suffix("/hosts")) {
        let volume = volumes.iter().find(|volume| volume.name == place)?;
        return conformance_cases(volume).find(|case| case.name() == name);
    }
    let (place, end) = match place.rsplit_once('/') {
        Some((place, "closed")) => (place, PlanEnd::Closed),
        Some((place, "unwatched")) => (place, PlanEnd::Unwatched),
        _ => (place, PlanEnd::Dropped),
    };
    let volume = volumes.iter().find(|volume| volume.name == place)?;
    let named = || volume.named.iter().find(|known| known.name == plan).cloned();
    let drawn = || Some(volume.random(plan.strip_prefix("random-")?.parse().ok()?));
    let plan = named().or_else(|| volume.bounds.named(plan)).or_else(drawn)?;
    Some(CrashCase::new(volume, plan, end))
}
