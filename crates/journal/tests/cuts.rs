//! Power cuts at every write of random transactions: recovery restores a permitted state.

mod common;

use common::world::{World, options};
use obento_journal::{Checksums, JournalFeatures};
use obento_testkit::crash::{Options, SeenStates, Summary, explore};
use obento_testkit::mutants::Random;

/// A journal so small that it wraps and is checkpointed often.
const JOURNAL: u32 = 26;

fn cut(seed: u64, features: JournalFeatures) -> Summary {
    let mut world = World::new(JOURNAL, features, options());
    world.run(&mut Random::new(seed), 60);
    let stats = world.transactions.stats();
    assert!(stats.commits > 15 && stats.checkpoints > 3 && stats.revoked > 3, "{stats:?}");
    let events = world.events();
    explore(world.base(), &events, &Options::new(seed), &SeenStates::default(), &mut |state| {
        world.judge(state)
    })
}

fn survives(features: JournalFeatures) {
    for seed in 1..4 {
        let summary = cut(seed, features);
        println!("seed {seed}: {} states in {} windows", summary.judged, summary.windows);
        assert_eq!(summary.failures, [], "seed {seed}");
        assert!(summary.judged > 500, "{summary:?}");
    }
}

#[test]
fn a_log_without_checksums_survives_every_cut() {
    survives(JournalFeatures { checksums: Checksums::None, wide: false });
}

#[test]
fn a_log_with_v2_checksums_survives_every_cut() {
    survives(JournalFeatures { checksums: Checksums::V2, wide: true });
}

#[test]
fn a_log_with_v3_checksums_survives_every_cut() {
    survives(JournalFeatures { checksums: Checksums::V3, wide: true });
}

#[test]
fn closing_leaves_the_last_state_and_an_empty_log() {
    let features = JournalFeatures { checksums: Checksums::V3, wide: false };
    let mut world = World::new(JOURNAL, features, options());
    world.run(&mut Random::new(9), 80);
    world.transactions.close().unwrap();
    assert!(world.transactions.begin(obento_journal::Credits(1)).is_err());
    let device = world.transactions.cache().device().clone();
    let journal = common::world::journal(device.clone(), JOURNAL);
    assert!(!journal.super_block().needs_replay());
    assert_eq!(world.transactions.cache().pinned(), 0);
    world.compare(&*device, Some(world.last_promise())).unwrap();
}
