//! Many plans on many volumes, cut on all processors.
//!
//! A case has a name - `ext4-1k/Ordered/closed/bounded-2-1234` - from which it is made again, and so has each of its states:
//! `OBENTO_CRASH=CASE@STATE`, the [`StateName`] behind the `@`, judges that one alone, the name of a case that case, and a part of one
//! the cases that have it.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::volume::{End, Subject};
use super::{Options, Seen, StateName, Summary};
use crate::conformance::{WritingCase, writing_cases};
use crate::hosts;
use crate::mutants::Random;
use crate::plan::{Bounds, Limits, Op, Plan, random};

/// How often a campaign says how far it is.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// Failures after which it ends.
const FAILURES: usize = 12;

/// A volume that plans are done to.
#[allow(missing_debug_implementations, reason = "it is closures for the most part")]
pub struct Volume<'a> {
    /// What it is called: `ext4-1k/Ordered`.
    pub name: String,
    /// Its bytes before a plan.
    pub base: Arc<[u8]>,
    /// How it is opened and judged.
    pub subject: Subject<'a>,
    /// Bytes that are never torn, as [`Options::whole`] has it.
    pub whole: Range<u64>,
    /// Plans that are done before all others.
    pub named: Vec<Plan>,
    /// Short plans that suit it.
    pub bounds: Bounds,
    /// What random plans keep to.
    pub limits: Limits,
    /// Cases of the contract that do not pass on a volume so small, each with the reason. Another one that does not is a failure.
    pub left_out: &'static [(&'static str, &'static str)],
}

impl Volume<'_> {
    /// The random plan of this seed, without what the format lacks.
    fn random(&self, seed: u64) -> Plan {
        self.without_lacking(random(seed, &Limits { ops: 30, ..self.limits.clone() }))
    }

    /// `plan` without what the format lacks.
    pub fn without_lacking(&self, mut plan: Plan) -> Plan {
        plan.ops.retain(|op| self.bounds.xattrs || !matches!(op, Op::SetXattr(..) | Op::RemoveXattr(..)));
        plan
    }
}

/// What is done to a volume.
#[derive(Clone, Debug)]
pub enum Work {
    /// A plan, and how it ends.
    Plan(Plan, End),
    /// A case of the contract, by its name.
    Conformance(&'static str, WritingCase),
    /// A case that hosts are held to.
    Host(hosts::Case),
}

/// One piece of work for one volume.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "so has its volume")]
pub struct Case<'a> {
    /// The volume.
    pub volume: &'a Volume<'a>,
    /// What is done to it.
    pub work: Work,
}

impl<'a> Case<'a> {
    /// A plan for a volume.
    pub fn new(volume: &'a Volume<'a>, plan: Plan, end: End) -> Self {
        Self { volume, work: Work::Plan(plan, end) }
    }

    /// What makes it again.
    pub fn name(&self) -> String {
        let volume = &self.volume.name;
        match &self.work {
            Work::Plan(plan, End::Closed) => format!("{volume}/closed/{}", plan.name),
            Work::Plan(plan, End::Dropped) => format!("{volume}/{}", plan.name),
            Work::Plan(plan, End::Unwatched) => format!("{volume}/unwatched/{}", plan.name),
            Work::Conformance(name, _) => format!("{volume}/conformance/{name}"),
            Work::Host(case) => format!("{volume}/hosts/{}", in_one_word(case.name)),
        }
    }

    /// What a failure shows of it.
    fn shown(&self) -> String {
        match &self.work {
            Work::Plan(plan, _) => plan.to_string(),
            Work::Conformance(..) | Work::Host(_) => String::new(),
        }
    }

    /// Why nothing of it can be cut on this volume, if that is known.
    fn is_left_out(&self) -> Option<&'static str> {
        let name = match &self.work {
            Work::Plan(..) => return None,
            Work::Conformance(name, _) | Work::Host(hosts::Case { name, .. }) => name,
        };
        self.volume.left_out.iter().find(|(known, _)| known == name).map(|(_, reason)| *reason)
    }

    /// Does it, and cuts it.
    fn explore(&self, options: &Options, may_wait: bool, seen: &Seen) -> Result<Summary, String> {
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

/// How closely to look.
#[derive(Clone, Debug)]
pub struct Depth {
    /// The states of each case.
    pub options: Options,
    /// One state alone, of the case of this name.
    pub only: Option<(String, StateName)>,
    /// The cases alone whose name has this in it.
    pub part: Option<String>,
    /// Whether appends that waited in memory may be missing.
    pub may_wait: bool,
}

impl Depth {
    /// All cases.
    pub fn new(options: Options) -> Self {
        Self { options, only: None, part: None, may_wait: true }
    }

    /// A few states of each case: what a test has time for.
    pub fn quick() -> Self {
        Self::new(Options { every_subset: 3, samples: 2, torn: 2, ..Options::new(1) })
    }

    /// What `OBENTO_CRASH` asks for.
    pub fn with_only(self) -> Self {
        match std::env::var("OBENTO_CRASH") {
            Ok(name) => self.of(&name),
            Err(_) => self,
        }
    }

    /// The state or the cases of this name, as a failure prints it or without `OBENTO_CRASH=`. Panics if what is behind the `@` is no
    /// name of a state.
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

/// What came of many cases.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Plans that were done.
    pub cases: usize,
    /// States that were judged, some of them for several promises.
    pub judged: usize,
    /// Windows that were cut.
    pub windows: usize,
    /// Cases of which nothing was cut, and why: [`Volume::left_out`].
    pub left_out: Vec<String>,
    /// What was refused, each with what reproduces it.
    pub failures: Vec<String>,
}

impl Outcome {
    /// Panics with what failed, if anything did.
    #[track_caller]
    pub fn expect_clean(&self) {
        let shown = self.failures.iter().take(6).cloned().collect::<Vec<_>>().join("\n\n");
        assert!(self.failures.is_empty(), "{} failures:\n{shown}", self.failures.len());
    }
}

/// Cuts one case.
pub fn cut(case: &Case<'_>, depth: &Depth, seen: &Seen, outcome: &Mutex<Outcome>) {
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

/// Cuts the cases that `next` gives, on as many threads as there are processors, until there are no more or too many
/// failed; says how far it is.
pub fn run<'a>(next: &(dyn Fn(usize) -> Option<Case<'a>> + Sync), depth: &Depth, seen: &Seen) -> Outcome {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let (number, outcome) = (AtomicUsize::new(0), Mutex::new(Outcome::default()));
    let told = Mutex::new(Instant::now());
    let failures = || outcome.lock().unwrap_or_else(PoisonError::into_inner).failures.len();
    let work = || {
        while failures() < FAILURES {
            let Some(case) = next(number.fetch_add(1, Ordering::Relaxed)) else { break };
            cut(&case, depth, seen, &outcome);
            let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
            if told.elapsed() > TELL_EVERY {
                *told = Instant::now();
                let cases = number.load(Ordering::Relaxed);
                eprintln!("{} states of {cases} plans, {} failures", seen.count(), failures());
            }
        }
    };
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    outcome.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Does each of `plans` to `volume`.
pub fn all(volume: &Volume<'_>, plans: &[Plan], end: End, depth: &Depth) -> Outcome {
    let seen = Seen::default();
    let next = |n: usize| plans.get(n).map(|plan| Case::new(volume, plan.clone(), end));
    let outcome = run(&next, depth, &seen);
    let (states, judged) = (seen.count(), outcome.judged);
    eprintln!("{}: {states} states, {judged} judged, of {} plans", volume.name, outcome.cases);
    outcome
}

/// Does every conformance case to `volume`.
pub fn conformance(volume: &Volume<'_>, depth: &Depth) -> Outcome {
    let (seen, cases) = (Seen::default(), conformance_cases(volume).collect::<Vec<_>>());
    let outcome = run(&|n| cases.get(n).cloned(), depth, &seen);
    eprintln!("{}: {} states of {} conformance cases", volume.name, seen.count(), outcome.cases);
    outcome.left_out.iter().for_each(|name| eprintln!("left out: {name}"));
    outcome
}

/// When a long campaign ends.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// So many different disks were judged.
    States(usize),
    /// So much time is over.
    Time(Duration),
}

/// The campaign that `cargo xtask crash` asks for: the [`long`] one of `OBENTO_CRASH_STATES` or `OBENTO_CRASH_SECONDS`, or with
/// `OBENTO_CRASH_SEQUENCES` that of all [`sequences`]; `OBENTO_CRASH_SEED`, `OBENTO_CRASH` for a part, and `OBENTO_CRASH_SEEN` for a file with the disks of the campaigns before.
pub fn from_environment(volumes: &[Volume<'_>]) -> Outcome {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seed = number("OBENTO_CRASH_SEED").unwrap_or(1);
    let until = match number("OBENTO_CRASH_SECONDS") {
        Some(seconds) => Until::Time(Duration::from_secs(seconds)),
        None => Until::States(number("OBENTO_CRASH_STATES").unwrap_or(200_000) as usize),
    };
    // To record a plan costs more than to judge a state: many of each.
    let options = Options { samples: 60, torn: 60, every_subset: 6, ..Options::new(seed) };
    let kept = std::env::var_os("OBENTO_CRASH_SEEN").map(PathBuf::from);
    let seen =
        kept.as_deref().map_or_else(|| Ok(Seen::default()), Seen::with_earlier).expect("a file of disks");
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

/// A campaign over all `volumes`: the named plans on each with every end, every plan of one operation and every conformance case
/// on each, and then
/// all plans of two operations, each on one volume, in an order that `seed` gives, with plans of three and random ones
/// between them. Prints what came of it.
pub fn long(volumes: &[Volume<'_>], depth: &Depth, seed: u64, until: Until, seen: &Seen) -> Outcome {
    let started = Instant::now();
    let name = depth.only.as_ref().map(|(name, _)| name).or(depth.part.as_ref());
    if let Some(outcome) = name.and_then(|name| alone(volumes, name, depth, seen)) {
        return outcome;
    }
    let first = first_cases(volumes);
    // Of all that is left out nothing is known but its name.
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

/// Cuts the case of this name, or the one state of it that `depth` asks for. `None` where a part of a name is asked for, and it is no
/// whole one. Panics where there is no such case or state: what was not judged did not pass.
fn alone(volumes: &[Volume<'_>], name: &str, depth: &Depth, seen: &Seen) -> Option<Outcome> {
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

/// All plans of one and of two operations, each with every placement of what makes them durable, each on one of `volumes` that has all
/// that plans ask for; another `seed` gives each another one. Prints how many of them were done.
pub fn sequences(volumes: &[Volume<'_>], depth: &Depth, seed: u64, seen: &Seen) -> Outcome {
    let started = Instant::now();
    let most = volumes.iter().map(|volume| volume.bounds.count()).max();
    let hosts: Vec<_> = volumes.iter().filter(|volume| Some(volume.bounds.count()) == most).collect();
    let plans: Vec<Plan> = hosts.first().map_or_else(Vec::new, |volume| {
        [1, 2].into_iter().flat_map(|len| Bounds { len, ..volume.bounds }.all()).collect()
    });
    let next = |n: usize| {
        let volume = hosts.get((n + seed as usize) % hosts.len().max(1))?;
        Some(Case::new(volume, plans.get(n)?.clone(), End::Dropped))
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

fn first_cases<'a>(volumes: &'a [Volume<'a>]) -> Vec<Case<'a>> {
    let mut cases = Vec::new();
    for end in [End::Dropped, End::Unwatched, End::Closed] {
        for volume in volumes {
            cases.extend(volume.named.iter().map(|plan| Case::new(volume, plan.clone(), end)));
        }
    }
    for volume in volumes {
        let one = Bounds { len: 1, ..volume.bounds };
        cases.extend(one.all().map(|plan| Case::new(volume, plan, End::Dropped)));
        cases.extend(conformance_cases(volume));
    }
    cases
}

/// Case `index` of those that are drawn.
fn later_case<'a>(volumes: &'a [Volume<'a>], seed: u64, index: usize, pairs: &AtomicUsize) -> Case<'a> {
    let mut random = Random::new(seed << 32 ^ index as u64);
    let volume = &volumes[random.below(volumes.len() as u64) as usize];
    let end = [End::Dropped, End::Dropped, End::Unwatched, End::Closed][random.below(4) as usize];
    // To record a plan takes as long as to judge some hundred states, and of a short one there are fewer that are new.
    let plan = match index % 8 {
        0 | 2 | 4 | 6 => volume.random(seed * 1_000_000 + index as u64),
        1 => Bounds { len: 3, ..volume.bounds }.draw(&mut random),
        _ => next_pair(volume, seed, pairs),
    };
    Case::new(volume, plan, end)
}

/// The next plan of two operations, in an order that goes over all of them before it begins again.
fn next_pair(volume: &Volume<'_>, seed: u64, pairs: &AtomicUsize) -> Plan {
    /// A prime larger than any count of plans, so that its multiples reach each number once.
    const STEP: u64 = 2_147_483_647;
    let two = Bounds { len: 2, ..volume.bounds };
    // Seeds that follow each other begin far apart.
    let start = Random::new(seed).number() >> 32;
    loop {
        let turn = pairs.fetch_add(1, Ordering::Relaxed) as u64;
        let number = (turn + start).wrapping_mul(STEP) % two.count();
        if let Some(plan) = two.plan(number) {
            return plan;
        }
    }
}

/// Every case of the contract that does the same in each run, and every one that hosts are held to.
pub fn conformance_cases<'a>(volume: &'a Volume<'a>) -> impl Iterator<Item = Case<'a>> {
    let is_same = |(name, _): &(&str, WritingCase)| !name.contains("from_any_thread");
    let contract = writing_cases().into_iter().filter(is_same);
    let contract = contract.map(|(name, case)| Work::Conformance(name, case));
    let work = contract.chain(hosts::cases().into_iter().map(Work::Host));
    work.map(move |work| Case { volume, work })
}

/// A sentence as a part of a name.
fn in_one_word(sentence: &str) -> String {
    sentence
        .chars()
        .filter(|letter| *letter != ',')
        .map(|letter| if matches!(letter, ' ' | '/') { '-' } else { letter })
        .collect()
}

/// The case of a name, whatever campaign gave it.
fn case_of<'a>(volumes: &'a [Volume<'a>], name: &str) -> Option<Case<'a>> {
    let (place, plan) = name.rsplit_once('/')?;
    if let Some(place) = place.strip_suffix("/conformance").or_else(|| place.strip_suffix("/hosts")) {
        let volume = volumes.iter().find(|volume| volume.name == place)?;
        return conformance_cases(volume).find(|case| case.name() == name);
    }
    let (place, end) = match place.rsplit_once('/') {
        Some((place, "closed")) => (place, End::Closed),
        Some((place, "unwatched")) => (place, End::Unwatched),
        _ => (place, End::Dropped),
    };
    let volume = volumes.iter().find(|volume| volume.name == place)?;
    let named = || volume.named.iter().find(|known| known.name == plan).cloned();
    let drawn = || Some(volume.random(plan.strip_prefix("random-")?.parse().ok()?));
    let plan = named().or_else(|| volume.bounds.named(plan)).or_else(drawn)?;
    Some(Case::new(volume, plan, end))
}
