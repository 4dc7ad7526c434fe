//! The power fails: what is found after a check mended it is consistent, holds what was synced and not changed since, and shows
//! nobody what is another's.

mod common;

use std::sync::Arc;

use obento_base::Result;
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{Access, CheckOptions, DataMode, Driver as _, FileSystem, Mending, OpenOptions};
use obento_env::Clock;
use obento_fat::FatDriver;
use obento_fat::check::{Issue, check_volume, issues};
use obento_testkit::crash::volume::{End, Subject};
use obento_testkit::crash::{Options, Seen};
use obento_testkit::plan::{Limits, Plan, catalogue, random};

/// Mends what a cut left, and opens it: only what is safe to mend may be wrong.
fn open(device: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>) -> Result<Arc<dyn FileSystem>> {
    let options = CheckOptions { mending: Mending::All, ..CheckOptions::new(clock.clone()) };
    check_volume(device.clone(), &options, &mut |_| ())?;
    FatDriver::default().open(device, &OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(clock) })
}

fn check(bytes: &[u8]) -> std::result::Result<(), String> {
    let found = issues(Arc::new(MemDevice::read_only(bytes.to_vec()))).map_err(|error| error.to_string())?;
    if found.is_empty() { Ok(()) } else { Err(format!("{found:?}")) }
}

/// `fsck.fat` agrees.
fn second(device: &dyn BlockDevice) -> std::result::Result<(), String> {
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("cut.img");
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).expect("memory can be read");
    std::fs::write(&image, bytes).expect("room");
    obento_testkit::oracle::call("fsck.fat", ["-n".as_ref(), image.as_os_str()])
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

fn base(shape: &str) -> Arc<[u8]> {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::read(common::shape(shape).make(folder.path())).expect("an image").into()
}

/// How many disks were judged, and the first that was refused.
fn cut(subject: &Subject<'_>, shape: &str, plans: &[Plan], end: End) -> (usize, Option<String>) {
    let base = base(shape);
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
fn every_operation_on_fat12_survives_every_cut() {
    survives("fat12", &catalogue::every_operation(false), End::Dropped);
}

#[test]
fn every_operation_with_large_sectors_survives_every_cut_until_the_volume_is_closed() {
    survives("fat12-sector-2k", &catalogue::every_operation(false), End::Closed);
}

#[test]
fn random_plans_survive_every_cut() {
    let limits = Limits { ops: 30, space: false, ..Limits::SMALL };
    let plans: Vec<Plan> = (0..8).map(|seed| random(seed, &limits)).collect();
    survives("fat12", &plans, End::Closed);
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
    let plans = catalogue::every_operation(false);
    let (_, failure) = cut(&Subject { open: &open, ..subject() }, "fat12", &plans[..8], End::Dropped);
    assert!(failure.is_some());
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
    let plans = catalogue::every_operation(false);
    let (_, failure) = cut(&Subject { open: &open, ..subject() }, "fat12", &plans, End::Dropped);
    assert_eq!(failure, None);
}
