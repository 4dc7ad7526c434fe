//! The power fails: what is found after a check mended it is consistent, holds what was synced and not changed since, and shows
//! nobody what is another's.

mod common;
#[path = "common/cuts.rs"]
mod cuts;

use std::sync::Arc;

use cuts::{base, open, subject};
use obento_block::BlockDevice;
use obento_env::Clock;
use obento_exfat::check::{Issue, issues};
use obento_testkit::crash::campaign::{self, Depth, Volume};
use obento_testkit::crash::volume::{End, Subject};
use obento_testkit::plan::{Bounds, Limits, Plan, catalogue, random};

fn volume<'a>(subject: Subject<'a>, shape: &str) -> Volume<'a> {
    Volume {
        name: shape.into(),
        base: base(shape),
        subject,
        whole: 0..0,
        named: catalogue::every_operation(false),
        bounds: Bounds { len: 2, space: false, links: false, xattrs: false },
        limits: Limits { space: false, ..Limits::SMALL },
    }
}

fn survives(shape: &str, end: End) {
    if common::oracles() {
        let volume = volume(subject(), shape);
        let outcome = campaign::all(&volume, &volume.named, end, &Depth::quick());
        outcome.expect_clean();
        assert!(outcome.judged > 5 * volume.named.len(), "{outcome:?}");
    }
}

#[test]
fn every_operation_survives_every_cut() {
    survives("tiny", End::Dropped);
}

#[test]
fn every_operation_survives_every_cut_until_the_volume_is_closed() {
    survives("tiny", End::Closed);
}

#[test]
fn short_plans_with_every_sync_survive_every_cut() {
    if common::oracles() {
        let volume = volume(subject(), "tiny");
        campaign::all(&volume, &volume.bounds.sample(), End::Dropped, &Depth::quick()).expect_clean();
    }
}

#[test]
fn random_plans_survive_every_cut() {
    if common::oracles() {
        let volume = volume(subject(), "tiny");
        let limits = Limits { ops: 30, ..volume.limits.clone() };
        let plans: Vec<Plan> = (0..8).map(|seed| random(seed, &limits)).collect();
        campaign::all(&volume, &plans, End::Closed, &Depth::quick()).expect_clean();
    }
}

#[test]
#[ignore = "takes minutes: cargo xtask crash"]
fn campaign_over_short_and_random_plans() {
    if common::oracles() {
        let volumes = ["tiny"].map(|shape| volume(subject(), shape));
        campaign::from_environment(&volumes).expect_clean();
    }
}

/// Before it is mended: clusters that nobody names, chains that go on behind their files, entries without their first or
/// behind the end. No set leads to what is free or another's.
#[test]
fn a_cut_leaves_lost_clusters_and_unfinished_names_at_worst() {
    if !common::oracles() {
        return;
    }
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
    let open = |device: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>| {
        let found = issues(device.clone())?;
        assert!(found.iter().all(is_left_by_a_cut), "{found:?}");
        open(device, clock)
    };
    let volume = volume(Subject { open: &open, ..subject() }, "tiny");
    campaign::all(&volume, &volume.named, End::Dropped, &Depth::quick()).expect_clean();
}
