//! The power fails: what is found after a check mended it is consistent, holds what was synced and not changed since, and shows
//! nobody what is another's.

mod common;

use std::sync::Arc;

use obento_base::Result;
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{Access, CheckOptions, DataMode, Driver as _, FileSystem, Mending, OpenOptions};
use obento_env::Clock;
use obento_exfat::ExFatDriver;
use obento_exfat::check::{Issue, check_volume, issues};
use obento_testkit::crash::volume::{End, Subject};
use obento_testkit::crash::{Options, Seen};
use obento_testkit::plan::{Limits, Plan, catalogue, random};

/// Mends what a cut left, and opens it.
fn open(device: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>) -> Result<Arc<dyn FileSystem>> {
    let options = CheckOptions { mending: Mending::All, ..CheckOptions::new(clock.clone()) };
    check_volume(&device, &options, &mut |_| ())?;
    ExFatDriver::default().open(device, &OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(clock) })
}

fn check(bytes: &[u8]) -> std::result::Result<(), String> {
    let found = issues(Arc::new(MemDevice::read_only(bytes.to_vec()))).map_err(|error| error.to_string())?;
    if found.is_empty() { Ok(()) } else { Err(format!("{found:?}")) }
}

/// `fsck.exfat` agrees.
fn second(device: &dyn BlockDevice) -> std::result::Result<(), String> {
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("cut.img");
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).expect("memory can be read");
    std::fs::write(&image, bytes).expect("room");
    obento_testkit::oracle::call("fsck.exfat", ["-n".as_ref(), image.as_os_str()])
        .map(drop)
        .map_err(|error| error.to_string())
}

fn subject() -> Subject<'static> {
    Subject {
        open: &open,
        check: &check,
        second: &second,
        second_every: 100,
        recovery_every: 0,
        data: DataMode::Ordered,
    }
}

/// How many disks were judged, and the first that was refused.
fn cut(subject: &Subject<'_>, shape: &str, plans: &[Plan], end: End) -> (usize, Option<String>) {
    let folder = tempfile::tempdir().expect("a folder");
    let base: Arc<[u8]> = common::bytes_of(&common::shape(shape).make(folder.path())).into();
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
    eprintln!("{shape}: {} disks, {judged} judged, of {} plans", seen.count(), plans.len());
    (judged, None)
}

fn survives(shape: &str, plans: &[Plan], end: End) {
    if !common::oracles() {
        return;
    }
    let (judged, failure) = cut(&subject(), shape, plans, end);
    if let Some(failure) = failure {
        panic!("{failure}");
    }
    assert!(judged > 5 * plans.len(), "{judged}");
}

#[test]
fn every_operation_survives_every_cut() {
    survives("tiny", &catalogue::every_operation(false), End::Dropped);
}

#[test]
fn every_operation_survives_every_cut_until_the_volume_is_closed() {
    survives("tiny", &catalogue::every_operation(false), End::Closed);
}

#[test]
fn random_plans_survive_every_cut() {
    let limits = Limits { ops: 30, space: false, ..Limits::SMALL };
    let plans: Vec<Plan> = (0..8).map(|seed| random(seed, &limits)).collect();
    survives("tiny", &plans, End::Closed);
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
    let plans = catalogue::every_operation(false);
    let (_, failure) = cut(&Subject { open: &open, ..subject() }, "tiny", &plans, End::Dropped);
    assert_eq!(failure, None);
}
