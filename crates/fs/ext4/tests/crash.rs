//! The power fails: what is found afterwards is consistent, holds what was synced, and of the rest the old or the new.
//!
//! A failure prints a name; `OBENTO_CRASH=NAME cargo test -p obento-ext4 --test crash -- --ignored campaign` builds that
//! state alone. `cargo xtask crash` is the long campaign.

mod common;
#[path = "common/consistency.rs"]
mod consistency;
#[path = "common/crash.rs"]
mod cutting;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::volumes::{SMALL, Shape};
use cutting::{Case, Depth, MODES, campaign, expect_clean};
use obento_driver::{DataMode, Journalling};
use obento_testkit::crash::volume::End;
use obento_testkit::crash::{Options, Seen};
use obento_testkit::plan::{Limits, catalogue, random};
use obento_testkit::{Oracle, require};

fn oracles() -> bool {
    require(&[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")])
}

fn cases(shapes: &[Shape], modes: &[DataMode], end: End) -> Vec<Case> {
    let bases: Vec<(Shape, Arc<[u8]>)> = shapes.iter().map(|shape| (*shape, shape.bytes())).collect();
    let all = bases.iter().flat_map(|(shape, base)| modes.iter().map(move |&mode| (shape, base, mode)));
    all.flat_map(|(shape, base, mode)| {
        let plans = catalogue::every_operation(shape.space).into_iter();
        plans.map(move |plan| Case { shape: *shape, base: base.clone(), mode, plan, end })
    })
    .collect()
}

fn quick() -> Depth {
    let options = Options { every_subset: 3, samples: 2, torn: 2, ..Options::new(1) };
    Depth { second_every: 150, recovery_every: 100, ..Depth::new(options) }
}

fn run(cases: &[Case], depth: &Depth) {
    let seen = Seen::default();
    let outcome = campaign(&|n| cases.get(n).cloned(), depth, &seen);
    eprintln!("{} states, {} judged, of {} plans", seen.count(), outcome.judged, outcome.cases);
    expect_clean(&outcome);
}

#[test]
fn every_operation_survives_every_cut_with_ordered_data() {
    if oracles() {
        run(&cases(&SMALL[..1], &[DataMode::Ordered], End::Dropped), &quick());
    }
}

#[test]
fn every_operation_survives_every_cut_with_journalled_data() {
    if oracles() {
        run(&cases(&SMALL[..1], &[DataMode::Journal], End::Dropped), &quick());
    }
}

#[test]
fn every_operation_survives_every_cut_with_data_in_no_order() {
    if oracles() {
        run(&cases(&SMALL[..1], &[DataMode::Writeback], End::Closed), &quick());
    }
}

#[test]
fn every_operation_survives_every_cut_on_an_ext3() {
    if oracles() {
        run(&cases(&SMALL[1..2], &[DataMode::Ordered], End::Closed), &quick());
    }
}

/// Nobody looks at the files until the power is gone: appends wait in memory, and those alone may be missing.
#[test]
fn every_operation_survives_every_cut_while_appends_wait_in_memory() {
    if oracles() {
        run(&cases(&SMALL[..1], &[DataMode::Ordered], End::Unwatched), &quick());
    }
}

/// They do wait: to a model that does not know of it bytes are missing.
#[test]
fn a_model_without_waiting_appends_misses_them() {
    if oracles() {
        let mut cases = cases(&SMALL[..1], &[DataMode::Ordered], End::Unwatched);
        cases.retain(|case| case.plan.name == "appends-that-wait");
        let depth = Depth { may_wait: false, ..quick() };
        let outcome = campaign(&|n| cases.get(n).cloned(), &depth, &Seen::default());
        assert!(!outcome.failures.is_empty(), "{outcome:?}");
    }
}

/// The explorer is no rubber stamp: with barriers left out it finds what is lost.
#[test]
fn without_barriers_what_was_synced_is_lost() {
    if !oracles() {
        return;
    }
    let journalling = Journalling { barrier: false, ..Journalling::default() };
    let depth = Depth { journalling, ..quick() };
    let cases = cases(&SMALL[..1], &[DataMode::Ordered], End::Dropped);
    let outcome = campaign(&|n| cases[..8].get(n).cloned(), &depth, &Seen::default());
    assert!(!outcome.failures.is_empty(), "{outcome:?}");
}

/// The random plan of this seed, on the volume of `from`.
fn random_of(from: &Case, seed: u64, end: End) -> Case {
    let limits = Limits { ops: 30, ..from.shape.limits() };
    Case { plan: random(seed, &limits), end, ..from.clone() }
}

/// The case of a name like `inline-data/Writeback/closed/random-1000067@73:1:5`, whatever else a campaign holds.
fn random_case(name: &str, named: &[Case]) -> Option<Case> {
    let name = name.split('@').next()?;
    let (place, plan) = name.rsplit_once('/')?;
    let seed = plan.strip_prefix("random-")?.parse().ok()?;
    let (place, end) = match place.rsplit_once('/') {
        Some((place, "closed")) => (place, End::Closed),
        Some((place, "unwatched")) => (place, End::Unwatched),
        _ => (place, End::Dropped),
    };
    let from = named.iter().find(|case| format!("{}/{:?}", case.shape.name, case.mode) == place)?;
    Some(random_of(from, seed, end))
}

/// Every operation and random plans on every shape in every mode, until `OBENTO_CRASH_STATES` different disks were
/// judged.
#[test]
#[ignore = "takes minutes: cargo xtask crash"]
fn campaign_over_all_shapes_and_modes() {
    if !oracles() {
        return;
    }
    let number = |name: &str, other| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(other);
    let (states, seed) = (number("OBENTO_CRASH_STATES", 200_000), number("OBENTO_CRASH_SEED", 1));
    let started = Instant::now();
    // To record a plan costs more than to judge a state: many of each.
    let options = Options { samples: 60, torn: 60, every_subset: 6, ..Options::new(seed) };
    let depth = Depth::new(options).with_only();
    let mut named = cases(SMALL, &MODES, End::Dropped);
    named.extend(cases(&SMALL[..1], &MODES, End::Closed));
    named.extend(cases(SMALL, &MODES, End::Unwatched));
    let seen = Seen::default();
    let wanted = std::env::var("OBENTO_CRASH").ok().and_then(|name| random_case(&name, &named));
    let next = |n: usize| {
        if wanted.is_some() {
            return wanted.clone().filter(|_| n == 0);
        }
        if let Some(case) = named.get(n) {
            return Some(case.clone());
        }
        let index = n - named.len();
        let few = depth.only.is_some() || depth.part.is_some();
        let done = if few { index > 3_000 } else { seen.count() >= states as usize };
        if done {
            return None;
        }
        let from = &named[(index * 7919) % named.len()];
        let end = match index % 4 {
            0 => End::Closed,
            1 => End::Unwatched,
            _ => End::Dropped,
        };
        Some(random_of(from, seed * 1_000_000 + index as u64, end))
    };
    println!("seed {seed}");
    let outcome = campaign(&next, &depth, &seen);
    let minutes = Duration::from_secs(started.elapsed().as_secs()).as_secs_f64() / 60.0;
    println!(
        "{} different disks, {} judgements, {} windows, {} plans, {minutes:.1} minutes",
        seen.count(),
        outcome.judged,
        outcome.windows,
        outcome.cases
    );
    expect_clean(&outcome);
}
