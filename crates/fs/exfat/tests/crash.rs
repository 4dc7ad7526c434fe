//! Power cuts. After a check has repaired the volume, it is consistent and contains the data that was synced and not
//! changed since. No file shows another file's data.

mod common;
#[path = "common/cuts.rs"]
mod cuts;

use obento_exfat::check::{Issue, issues};
use obento_testkit::crash::campaign;
use obento_testkit::trials;

obento_testkit::crash_trials!(crate::cuts::volume("tiny"), 5, 8);

#[test]
fn every_conformance_case_leaves_a_consistent_volume_at_every_cut() {
    if let Some(volume) = cuts::volume("tiny") {
        trials::cuts::conformance(&volume, 1000);
    }
}

#[test]
fn operations_with_larger_clusters_survive_every_cut() {
    for (shape, every) in [("page", 1), ("pages", 3)] {
        if let Some(volume) = cuts::volume(shape) {
            trials::cuts::some_operations(&volume, every);
        }
    }
}

#[test]
#[ignore = "takes minutes: cargo xtask crash"]
fn campaign_over_short_and_random_plans() {
    let volumes: Vec<_> = ["tiny", "page"].into_iter().filter_map(cuts::volume).collect();
    campaign::from_environment(&volumes).expect_clean();
}

/// Before the repair, only three kinds of damage exist. These are lost clusters, chains that continue after the end of
/// their files, and entries without their first entry or after the end marker. No set refers to free clusters or to
/// those of another file.
#[test]
fn a_cut_leaves_lost_clusters_and_unfinished_names_at_worst() {
    let is_left_by_a_cut = |issue: &Issue| {
        matches!(
            issue,
            Issue::LostClusters { .. }
                | Issue::InUse {}
                | Issue::LongChain { .. }
                | Issue::StrayEntry { .. }
                | Issue::HiddenEntries { .. }
        )
    };
    if let Some(volume) = cuts::volume("tiny") {
        trials::cuts::at_worst(&volume, &|device| {
            let found = issues(device)?;
            assert!(found.iter().all(is_left_by_a_cut), "{found:?}");
            Ok(())
        });
    }
}
