//! Power cuts. After a check has repaired the volume, it is consistent and contains the data that was synced and not
//! changed since. No file shows another file's data.

mod common;
#[path = "common/cuts.rs"]
mod cuts;

use obento_fat::check::{Issue, issues};
use obento_testkit::crash::campaign;
use obento_testkit::crash::volume::PlanEnd;
use obento_testkit::trials;

obento_testkit::crash_trials!(crate::cuts::volume("fat12"), 5, 8);

#[test]
fn every_operation_with_large_sectors_survives_every_cut_until_the_volume_is_closed() {
    if let Some(volume) = cuts::volume("fat12-sector-2k") {
        trials::cuts::every_operation(&volume, PlanEnd::Closed, 5);
    }
}

#[test]
fn every_conformance_case_leaves_a_consistent_volume_at_every_cut() {
    if let Some(volume) = cuts::volume("fat12") {
        trials::cuts::conformance(&volume, 1000);
    }
}

#[test]
fn operations_with_wider_entries_and_larger_clusters_survive_every_cut() {
    for (shape, every) in [("fat12-4k", 1), ("fat16", 1), ("fat32", 6)] {
        if let Some(volume) = cuts::volume(shape) {
            trials::cuts::some_operations(&volume, every);
        }
    }
}

#[test]
#[ignore = "takes minutes: cargo xtask crash"]
fn campaign_over_short_and_random_plans() {
    let shapes = ["fat12", "fat12-sector-2k", "fat12-4k", "fat16", "fat32"];
    let volumes: Vec<_> = shapes.into_iter().filter_map(cuts::volume).collect();
    campaign::from_environment(&volumes).expect_clean();
}

/// Before the repair there are only: lost clusters, FATs that differ, and names that are incomplete or not visible
/// yet. No entry and no chain leads to free clusters or to those of another file.
#[test]
fn a_cut_leaves_lost_clusters_and_unfinished_names_at_worst() {
    let is_left_by_a_cut = |issue: &Issue| {
        matches!(
            issue,
            Issue::LostChain { .. }
                | Issue::FatCopy { .. }
                | Issue::InUse {}
                | Issue::FreeCount { .. }
                | Issue::LongChain { .. }
                | Issue::OrphanedLongName { .. }
                | Issue::LongName { .. }
                | Issue::HiddenEntries { .. }
                | Issue::DotEntry { .. }
        )
    };
    if let Some(volume) = cuts::volume("fat12") {
        trials::cuts::at_worst(&volume, &|device| {
            let found = issues(device)?;
            assert!(found.iter().all(is_left_by_a_cut), "{found:?}");
            Ok(())
        });
    }
}
