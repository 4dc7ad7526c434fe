//! The power fails: what is found afterwards is consistent, holds what was synced, and of the rest the old or the new.

mod common;

use std::sync::Arc;

use common::{format, subject, without_xattrs};
use obento_base::Result;
use obento_block::BlockDevice;
use obento_env::Clock;
use obento_testkit::crash::volume::{End, Subject};
use obento_testkit::crash::{Options, Seen};
use obento_testkit::plan::{Limits, Plan, catalogue, random};

fn survives(plans: Vec<Plan>, end: End) {
    let (judged, failure) = cut(&subject(), &plans, end);
    if let Some(failure) = failure {
        panic!("{failure}");
    }
    assert!(judged > 20 * plans.len(), "{judged}");
}

/// How many disks were judged, and the first that was refused.
fn cut(subject: &Subject<'_>, plans: &[Plan], end: End) -> (usize, Option<String>) {
    let base: Arc<[u8]> = format(2 << 20, 64).into();
    let seen = Seen::default();
    let options = Options { every_subset: 3, samples: 2, torn: 2, ..Options::new(1) };
    let mut judged = 0;
    for plan in plans {
        let recording = subject.record(&base, plan, end).unwrap_or_else(|reason| panic!("{reason}"));
        let summary = subject.explore(&recording, &options, &seen);
        judged += summary.judged;
        if let Some(failure) = summary.failures.first() {
            return (judged, Some(format!("{plan}{failure}")));
        }
    }
    eprintln!("{} disks, {judged} judged, of {} plans", seen.count(), plans.len());
    (judged, None)
}

#[test]
fn every_operation_survives_every_cut() {
    survives(without_xattrs(catalogue::every_operation(false)), End::Dropped);
}

#[test]
fn every_operation_survives_every_cut_until_the_volume_is_closed() {
    survives(without_xattrs(catalogue::every_operation(false)), End::Closed);
}

#[test]
fn every_operation_survives_every_cut_while_appends_wait_in_memory() {
    survives(without_xattrs(catalogue::every_operation(false)), End::Unwatched);
}

#[test]
fn random_plans_survive_every_cut() {
    let limits = Limits { ops: 30, space: false, ..Limits::SMALL };
    survives(without_xattrs((0..12).map(|seed| random(seed, &limits))), End::Closed);
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
    let plans = without_xattrs(catalogue::every_operation(false));
    let (_, failure) = cut(&Subject { open: &open, ..subject() }, &plans[..8], End::Dropped);
    assert!(failure.is_some());
}
