//! What the crash explorer needs of ext4, and a pool of threads that share a campaign.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use obento_block::BlockDevice;
use obento_driver::{DataMode, Journalling};
use obento_env::Clock;
use obento_testkit::crash::volume::{End, Subject};
use obento_testkit::crash::{Options, Seen, StateName};
use obento_testkit::plan::Plan;

use crate::common::volumes::{self, Shape};
use crate::consistency;

pub const MODES: [DataMode; 3] = [DataMode::Ordered, DataMode::Journal, DataMode::Writeback];

/// One plan to be done to one volume in one mode.
#[derive(Clone)]
pub struct Case {
    pub shape: Shape,
    pub base: Arc<[u8]>,
    pub mode: DataMode,
    pub plan: Plan,
    pub end: End,
}

impl Case {
    /// `ext4-1k/Ordered/rename-over`.
    pub fn name(&self) -> String {
        let end = match self.end {
            End::Closed => "/closed",
            End::Dropped => "",
            End::Unwatched => "/unwatched",
        };
        format!("{}/{:?}{end}/{}", self.shape.name, self.mode, self.plan.name)
    }
}

/// How closely to look.
#[derive(Clone)]
pub struct Depth {
    pub options: Options,
    pub second_every: u64,
    pub recovery_every: u64,
    /// One state alone, of the case of this name.
    pub only: Option<(String, StateName)>,
    /// The cases alone whose name has this in it.
    pub part: Option<String>,
    pub journalling: Journalling,
    /// Whether appends that waited in memory may be missing.
    pub may_wait: bool,
}

impl Depth {
    pub fn new(options: Options) -> Self {
        // The super block has its checksum in its second sector and is found before any journal: nobody, the kernel
        // and e2fsck included, can tell a torn one from a damaged one.
        let options = Options { whole: 1024..2048, ..options };
        Self {
            options,
            second_every: 400,
            recovery_every: 60,
            only: None,
            part: None,
            journalling: Journalling::default(),
            may_wait: true,
        }
    }

    /// What `OBENTO_CRASH` asks for: one state, `ext4-1k/Ordered/rename-over@417:1:23`, or a part of names of cases.
    pub fn with_only(mut self) -> Self {
        let Ok(name) = std::env::var("OBENTO_CRASH") else { return self };
        let Some((case, state)) = name.split_once('@') else {
            self.part = Some(name);
            return self;
        };
        let state: StateName = state.parse().expect("OBENTO_CRASH is CASE@EVENT:SEED:NUMBER");
        self.options.seed = state.seed;
        self.only = Some((case.to_owned(), state));
        self
    }
}

/// What came of many cases.
#[derive(Debug, Default)]
pub struct Outcome {
    pub cases: usize,
    pub judged: usize,
    pub windows: usize,
    pub failures: Vec<String>,
}

/// Cuts one case.
pub fn cut(case: &Case, depth: &Depth, seen: &Seen, outcome: &Mutex<Outcome>) {
    let name = case.name();
    let mut options = depth.options.clone();
    match &depth.only {
        Some((wanted, _)) if *wanted != name => return,
        None if depth.part.as_ref().is_some_and(|part| !name.contains(part.as_str())) => return,
        Some((_, state)) => options.only = Some(*state),
        None => {}
    }
    let journalling = Journalling { mode: case.mode, ..depth.journalling };
    let open =
        |device: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>| volumes::open_with(device, clock, journalling);
    if depth.only.is_some() {
        eprint!("{}", case.plan);
    }
    let subject = Subject {
        open: &open,
        check: &consistency::check_bytes,
        second: &volumes::e2fsck,
        second_every: depth.second_every,
        recovery_every: depth.recovery_every,
        data: case.mode,
    };
    let result = subject.record(&case.base, &case.plan, case.end);
    let summary = result.map(|mut recording| {
        recording.unwatched &= depth.may_wait;
        subject.explore(&recording, &options, seen)
    });
    let mut outcome = outcome.lock().unwrap();
    outcome.cases += 1;
    let failures: Vec<String> = match summary {
        Err(reason) => vec![format!("{name}: {reason}")],
        Ok(summary) => {
            outcome.judged += summary.judged;
            outcome.windows += summary.windows;
            summary.failures.iter().map(|failure| format!("OBENTO_CRASH={name}@{failure}")).collect()
        }
    };
    failures.iter().take(1).for_each(|failure| eprintln!("{failure}"));
    outcome.failures.extend(failures);
}

/// Cuts the cases that `next` gives, on two threads, until there are no more; tells how far it got.
pub fn campaign(next: &(dyn Fn(usize) -> Option<Case> + Sync), depth: &Depth, seen: &Seen) -> Outcome {
    const THREADS: usize = 2;
    const FAILURES: usize = 12;
    let (number, outcome) = (AtomicUsize::new(0), Mutex::new(Outcome::default()));
    let told = Mutex::new(Instant::now());
    let work = || {
        while outcome.lock().unwrap().failures.len() < FAILURES {
            let Some(case) = next(number.fetch_add(1, Ordering::Relaxed)) else { break };
            cut(&case, depth, seen, &outcome);
            let mut told = told.lock().unwrap();
            if told.elapsed() > Duration::from_secs(5) {
                *told = Instant::now();
                let outcome = outcome.lock().unwrap();
                let (states, cases) = (seen.count(), outcome.cases);
                eprintln!("{states} states of {cases} plans, {} failures", outcome.failures.len());
            }
        }
    };
    std::thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(work))));
    outcome.into_inner().unwrap()
}

/// Fails with what failed.
pub fn expect_clean(outcome: &Outcome) {
    let shown = outcome.failures.iter().take(6).cloned().collect::<Vec<_>>().join("\n\n");
    assert!(outcome.failures.is_empty(), "{} failures:\n{shown}", outcome.failures.len());
}
