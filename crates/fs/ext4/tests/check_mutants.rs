//! Images damaged at random, the same way in every run: check and e2fsck agree on whether something is wrong, what is
//! mended is mended for both, and no file is lost that e2fsck keeps. `cargo xtask check-mutants` is the long campaign; a
//! mutant that failed is tried alone with `OBENTO_MUTANTS=1 OBENTO_SEED=n OBENTO_ONLY=base`.

mod common;
mod lab;

use std::panic::catch_unwind;
use std::time::{Duration, Instant};

use lab::bases::{ALL, Base, oracles};
use lab::judge::{e2fsck_is_clean, findings, line, lost_to_us_alone, repaired};
use obento_testkit::mutants::{Random, mutate};

/// Longer than an image of a few MiB may take.
const LIMIT: Duration = Duration::from_secs(20);

/// What became of one mutant: an error tells how we and e2fsck differ.
fn judge(bytes: &[u8]) -> Result<(), String> {
    let second = e2fsck_is_clean(bytes);
    let started = Instant::now();
    let found = findings(bytes);
    if started.elapsed() > LIMIT {
        return Err(format!("takes {:?}", started.elapsed()));
    }
    let told: Vec<String> = match &found {
        Ok(found) => found.iter().map(line).collect(),
        Err(error) => vec![error.to_string()],
    };
    match (second.is_clean(), told.is_empty()) {
        (false, true) => return Err(format!("only e2fsck finds something: {}", second.text)),
        (true, false) if second.is_silent() => return Err(format!("only ours finds something: {told:?}")),
        (true, true) => return Ok(()),
        _ => {}
    }
    // What is not a volume any more is nobody's to mend.
    if found.is_err() {
        return Ok(());
    }
    let started = Instant::now();
    let mended = repaired(bytes).map_err(|error| format!("is not mended: {error} {told:?}"))?;
    if started.elapsed() > LIMIT {
        return Err(format!("is mended in {:?}", started.elapsed()));
    }
    let left: Vec<String> = findings(&mended).map_err(|error| error.to_string())?.iter().map(line).collect();
    if !left.is_empty() {
        return Err(format!("after our repair of {told:?} we find {left:?}"));
    }
    let second = e2fsck_is_clean(&mended);
    if !second.is_clean() {
        return Err(format!("after our repair of {told:?} e2fsck says {}", second.text));
    }
    let lost = lost_to_us_alone(bytes, &mended);
    if lost.is_empty() { Ok(()) } else { Err(format!("after our repair of {told:?} {lost:?} are lost")) }
}

fn mutant(base: &'static Base, seed: u64) -> Vec<u8> {
    let mut bytes = base.disk().bytes;
    mutate(&mut bytes, &mut Random::new(seed));
    bytes
}

/// Tries these seeds on these bases; gives how many were judged and what failed.
fn campaign(bases: &[&'static Base], seeds: std::ops::Range<u64>) -> (usize, Vec<String>) {
    let (mut judged, mut failures) = (0, Vec::new());
    for base in bases {
        for seed in seeds.clone() {
            let bytes = mutant(base, seed);
            judged += 1;
            let outcome = catch_unwind(|| judge(&bytes)).unwrap_or_else(|_| Err("panics".into()));
            if let Err(reason) = outcome {
                println!("{} seed {seed}: {reason}\n", base.name);
                failures.push(format!("{} seed {seed}: {reason:.200}", base.name));
            }
        }
    }
    (judged, failures)
}

#[test]
fn check_and_e2fsck_agree_on_mutants() {
    if oracles() {
        let (judged, failures) = campaign(ALL, 1..5);
        assert!(failures.is_empty(), "{} of {judged}:\n{}", failures.len(), failures.join("\n"));
    }
}

#[test]
#[ignore = "takes minutes: cargo xtask check-mutants"]
fn campaign_over_many_mutants() {
    if !oracles() {
        return;
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let first = number("OBENTO_SEED").unwrap_or(1);
    let seeds = first..first + number("OBENTO_MUTANTS").unwrap_or(1000);
    let only = std::env::var("OBENTO_ONLY").ok();
    let bases: Vec<&'static Base> =
        ALL.iter().copied().filter(|base| only.as_ref().is_none_or(|only| base.name == only)).collect();
    println!("seeds {seeds:?}");
    let (judged, failures) = campaign(&bases, seeds);
    println!("{judged} mutants, {} differences", failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
