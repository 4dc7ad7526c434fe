//! The power fails: what is found afterwards is consistent, holds what was synced, and of the rest the old or the new.

mod common;

use obento_testkit::crash::campaign;
use obento_testkit::crash::volume::PlanEnd;
use obento_testkit::trials;

obento_testkit::crash_trials!(Some(crate::common::volume()), 20, 12);

#[test]
fn every_operation_survives_every_cut_while_appends_wait_in_memory() {
    trials::cuts::every_operation(&common::volume(), PlanEnd::Unwatched, 20);
}

#[test]
fn every_conformance_case_leaves_a_consistent_volume_at_every_cut() {
    trials::cuts::conformance(&common::volume(), 1000);
}

#[test]
#[ignore = "takes minutes: cargo xtask crash"]
fn campaign_over_short_and_random_plans() {
    campaign::from_environment(&[common::volume()]).expect_clean();
}
