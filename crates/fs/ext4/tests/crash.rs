//! Power cuts: the volume is consistent afterwards, contains the synced data, and has the old or the new state of the
//! rest.
//!
//! A failure prints a name; `OBENTO_CRASH=NAME cargo test -p obento-ext4 --test crash -- --ignored campaign` builds
//! only that state. `cargo xtask crash` is the long campaign.

mod common;
#[path = "common/consistency.rs"]
mod consistency;
#[path = "common/crash.rs"]
mod cutting;

use common::volumes::{QUOTAS, SMALL, Shape};
use cutting::{MODES, openers, volumes};
use obento_driver::{DataMode, Journalling};
use obento_testkit::crash::campaign::{self, Depth};
use obento_testkit::crash::volume::PlanEnd;
use obento_testkit::plan::Plan;
use obento_testkit::{Oracle, require, trials};

fn oracles() -> bool {
    require(&[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")])
}

fn survives(shape: Shape, mode: DataMode, end: PlanEnd) {
    if oracles() {
        let openers = openers(&[mode], Journalling::default());
        let volume = &volumes(&[shape], &openers)[0];
        campaign::all(volume, &volume.named, end, &Depth::quick()).expect_clean();
    }
}

#[test]
fn every_operation_survives_every_cut_with_ordered_data() {
    survives(SMALL[0], DataMode::Ordered, PlanEnd::Dropped);
}

#[test]
fn every_operation_survives_every_cut_with_journalled_data() {
    survives(SMALL[0], DataMode::Journal, PlanEnd::Dropped);
}

#[test]
fn every_operation_survives_every_cut_with_data_in_no_order() {
    survives(SMALL[0], DataMode::Writeback, PlanEnd::Closed);
}

#[test]
fn every_operation_survives_every_cut_on_an_ext3() {
    survives(SMALL[1], DataMode::Ordered, PlanEnd::Closed);
}

#[test]
fn every_operation_survives_every_cut_with_quota_files() {
    survives(QUOTAS, DataMode::Ordered, PlanEnd::Dropped);
}

/// No process reads the files until the power fails: appends stay in memory, and only these may be missing.
#[test]
fn every_operation_survives_every_cut_while_appends_wait_in_memory() {
    survives(SMALL[0], DataMode::Ordered, PlanEnd::Unwatched);
}

#[test]
fn short_plans_with_every_sync_survive_every_cut() {
    if oracles() {
        let openers = openers(&[DataMode::Ordered], Journalling::default());
        let volume = &volumes(&SMALL[..1], &openers)[0];
        campaign::all(volume, &volume.bounds.sample(), PlanEnd::Dropped, &Depth::quick()).expect_clean();
    }
}

#[test]
fn every_conformance_case_leaves_a_consistent_volume_at_every_cut() {
    if oracles() {
        let openers = openers(&[DataMode::Ordered], Journalling::default());
        trials::cuts::conformance(&volumes(&SMALL[..1], &openers)[0], 1000);
    }
}

/// Appends wait in memory: a model without this delay would report missing bytes.
#[test]
fn a_model_without_waiting_appends_misses_them() {
    if oracles() {
        let openers = openers(&[DataMode::Ordered], Journalling::default());
        let volume = &volumes(&SMALL[..1], &openers)[0];
        let plans: Vec<Plan> =
            volume.named.iter().filter(|plan| plan.name == "appends-that-wait").cloned().collect();
        let depth = Depth { may_wait: false, ..Depth::quick() };
        let outcome = campaign::all(volume, &plans, PlanEnd::Unwatched, &depth);
        assert!(!outcome.failures.is_empty(), "{outcome:?}");
    }
}

/// The explorer can fail: if barriers are omitted, by the driver or by its device, it finds the loss.
#[test]
fn without_barriers_synced_data_is_lost() {
    if oracles() {
        let journalling = Journalling { barrier: false, ..Journalling::default() };
        let openers = [journalling, Journalling::default()].map(|how| openers(&[DataMode::Ordered], how));
        let [unasked, asked] = openers.each_ref().map(|openers| volumes(&SMALL[..1], openers).remove(0));
        let outcome = campaign::all(&unasked, &unasked.named[..8], PlanEnd::Dropped, &Depth::quick());
        assert!(!outcome.failures.is_empty(), "{outcome:?}");
        trials::cuts::without_barriers(&asked);
    }
}

/// Every volume in every mode: see [`campaign::long`].
#[test]
#[ignore = "takes minutes: cargo xtask crash"]
fn campaign_over_all_shapes_and_modes() {
    if oracles() {
        let openers = openers(&MODES, Journalling::default());
        campaign::from_environment(&volumes(SMALL, &openers)).expect_clean();
    }
}
