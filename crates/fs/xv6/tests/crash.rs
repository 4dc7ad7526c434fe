//! The power fails: what is found afterwards is consistent, holds what was synced, and of the rest the old or the new.

mod common;

use std::sync::Arc;

use common::{format, subject, without_xattrs};
use obento_base::Result;
use obento_block::BlockDevice;
use obento_env::Clock;
use obento_testkit::crash::campaign::{self, Depth, Volume};
use obento_testkit::crash::volume::{End, Subject};
use obento_testkit::plan::{Bounds, Limits, catalogue, random};

fn volume(subject: Subject<'_>) -> Volume<'_> {
    Volume {
        name: "xv6".into(),
        base: format(2 << 20, 64).into(),
        subject,
        whole: 0..0,
        named: without_xattrs(catalogue::every_operation(false)),
        bounds: Bounds { len: 2, space: false, links: true, xattrs: false },
        limits: Limits { space: false, ..Limits::SMALL },
    }
}

fn survives(end: End) {
    let volume = volume(subject());
    let outcome = campaign::all(&volume, &volume.named, end, &Depth::quick());
    outcome.expect_clean();
    assert!(outcome.judged > 20 * volume.named.len(), "{outcome:?}");
}

#[test]
fn every_operation_survives_every_cut() {
    survives(End::Dropped);
}

#[test]
fn every_operation_survives_every_cut_until_the_volume_is_closed() {
    survives(End::Closed);
}

#[test]
fn every_operation_survives_every_cut_while_appends_wait_in_memory() {
    survives(End::Unwatched);
}

#[test]
fn short_plans_with_every_sync_survive_every_cut() {
    let volume = volume(subject());
    campaign::all(&volume, &volume.bounds.sample(), End::Dropped, &Depth::quick()).expect_clean();
}

#[test]
fn random_plans_survive_every_cut() {
    let volume = volume(subject());
    let plans =
        without_xattrs((0..12).map(|seed| random(seed, &Limits { ops: 30, ..volume.limits.clone() })));
    campaign::all(&volume, &plans, End::Closed, &Depth::quick()).expect_clean();
}

#[test]
#[ignore = "takes minutes: cargo xtask crash"]
fn campaign_over_short_and_random_plans() {
    campaign::from_environment(&[volume(subject())]).expect_clean();
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
    let open = |device: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>| {
        common::open(Arc::new(WithoutBarriers(device)), clock)
    };
    let volume = volume(Subject { open: &open, ..subject() });
    let outcome = campaign::all(&volume, &volume.named[..8], End::Dropped, &Depth::quick());
    assert!(!outcome.failures.is_empty(), "{outcome:?}");
}
