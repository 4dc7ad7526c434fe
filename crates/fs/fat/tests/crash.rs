//! The power fails: what is found after a check mended it is consistent, holds what was synced and not changed since, and shows
//! nobody what is another's.

mod common;
#[path = "common/cuts.rs"]
mod cuts;

use std::sync::Arc;

use cuts::{base, open, subject};
use obento_base::Result;
use obento_block::BlockDevice;
use obento_env::Clock;
use obento_fat::check::{Issue, issues};
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
fn every_operation_on_fat12_survives_every_cut() {
    survives("fat12", End::Dropped);
}

#[test]
fn every_operation_with_large_sectors_survives_every_cut_until_the_volume_is_closed() {
    survives("fat12-sector-2k", End::Closed);
}

#[test]
fn short_plans_with_every_sync_survive_every_cut() {
    if common::oracles() {
        let volume = volume(subject(), "fat12");
        campaign::all(&volume, &volume.bounds.sample(), End::Dropped, &Depth::quick()).expect_clean();
    }
}

#[test]
fn random_plans_survive_every_cut() {
    if common::oracles() {
        let volume = volume(subject(), "fat12");
        let limits = Limits { ops: 30, ..volume.limits.clone() };
        let plans: Vec<Plan> = (0..8).map(|seed| random(seed, &limits)).collect();
        campaign::all(&volume, &plans, End::Closed, &Depth::quick()).expect_clean();
    }
}

#[test]
#[ignore = "takes minutes: cargo xtask crash"]
fn campaign_over_short_and_random_plans() {
    if common::oracles() {
        let volumes = ["fat12", "fat12-sector-2k"].map(|shape| volume(subject(), shape));
        campaign::from_environment(&volumes).expect_clean();
    }
}

/// A device that forgets to flush, as the explorer records it.
struct WithoutBarriers(Arc<dyn BlockDevice>);

impl BlockDevice for WithoutBarriers {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn is_read_only(&self) -> bool {
        self.0.is_read_only()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.0.write_at(offset, buf)
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

/// The explorer is no rubber stamp: with barriers left out it finds what is lost.
#[test]
fn without_barriers_what_was_synced_is_lost() {
    if !common::oracles() {
        return;
    }
    let open =
        |device: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>| open(Arc::new(WithoutBarriers(device)), clock);
    let volume = volume(Subject { open: &open, ..subject() }, "fat12");
    let outcome = campaign::all(&volume, &volume.named[..8], End::Dropped, &Depth::quick());
    assert!(!outcome.failures.is_empty(), "{outcome:?}");
}

/// Before it is mended: clusters that nobody names, copies that differ, names that are not whole or not yet shown. No entry and
/// no chain leads to what is free or another's.
#[test]
fn a_cut_leaves_lost_clusters_and_unfinished_names_at_worst() {
    if !common::oracles() {
        return;
    }
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
    let open = |device: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>| {
        let found = issues(device.clone())?;
        assert!(found.iter().all(is_left_by_a_cut), "{found:?}");
        open(device, clock)
    };
    let volume = volume(Subject { open: &open, ..subject() }, "fat12");
    campaign::all(&volume, &volume.named, End::Dropped, &Depth::quick()).expect_clean();
}
