//! Failures: a full volume, a read-only device, a device on which any request fails. Synced changes are present
//! afterwards, and nothing panics.

use std::sync::Arc;

use obento_base::{DeviceError, Error, FileKind};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{CheckOptions, Driver, Finding, RepairMode};
use obento_env::NO_CLOCK;
use obento_vfs::Vfs;

use crate::conformance::threads::every_method_may_be_called_from_any_thread_at_any_time;
use crate::crash::campaign::Volume;
use crate::fault::{Fault, FaultDevice, FaultKind, Lasting, Request, SlowDevice};
use crate::model::StepClock;
use crate::plan::{Actor, Op, random};
use crate::snapshot::{Snapshot, Times};

fn opened(volume: &Volume<'_>, device: &Arc<MemDevice>) -> Vfs {
    let opened = (volume.subject.open)(device.clone(), Arc::new(StepClock::default()));
    Vfs::new(opened.expect("the volume opens"))
}

/// Fills the volume three times, with files that grow by `step` from round to round: it reports no space and keeps its
/// contents. For formats without holes.
#[track_caller]
pub fn full(volume: &Volume<'_>, step: usize) {
    let device = Arc::new(MemDevice::new(volume.base.to_vec()));
    let mut actor = Actor::new(opened(volume, &device));
    actor.act(0, &Op::Create("dir".into(), FileKind::Directory, 0o755)).unwrap();
    for round in 0..3 {
        let path = |n: usize| format!("dir/r{round} of the round, {n}");
        let mut made = 0;
        actor.fill(|n| {
            made = n / 2;
            match n % 2 {
                0 => Op::Create(path(n / 2), FileKind::Regular, 0o644),
                _ => Op::Append(path(n / 2), 5 * step / 3 + step * round),
            }
        });
        actor.fill(|n| Op::Append(path(0), 1 + n % 700));
        let dir = Op::Create("another".into(), FileKind::Directory, 0o755);
        assert_eq!(actor.act(0, &dir), Err(Error::NoSpace), "{}", volume.name);
        assert_eq!(actor.act(0, &Op::Truncate(path(1), 1 << 30)), Err(Error::NoSpace), "{}", volume.name);
        actor.act(0, &Op::Truncate(path(1), 100)).unwrap();
        (0..made).step_by(2).for_each(|n| actor.act(0, &Op::Unlink(path(n))).unwrap());
        actor.act(0, &Op::Sync).unwrap();
    }
    keeps_all(volume, &device, actor);
}

/// Tests that the contents at the close are present when the volume is opened again, and that the volume is consistent.
#[track_caller]
pub fn keeps_all(volume: &Volume<'_>, device: &Arc<MemDevice>, actor: Actor) {
    let (vfs, name) = (actor.vfs().clone(), &volume.name);
    drop(actor);
    let before = Snapshot::read(&vfs, None).unwrap();
    vfs.close().unwrap();
    drop(vfs);
    assert_eq!(volume.subject.check_closed(device.clone()), Ok(()), "{name}");
    assert_eq!((volume.subject.second)(&**device as &dyn BlockDevice), Ok(()), "{name}");
    let after = Snapshot::read(&opened(volume, device), None).unwrap();
    assert_eq!(before.difference(&after, Times::Compared, None), None, "{name}");
    assert_eq!(before.content_difference(&after), None, "{name}");
}

/// Tests that a volume on a read-only device is not opened for changes.
#[track_caller]
pub fn read_only(driver: &dyn Driver, volume: &Volume<'_>) {
    let device = Arc::new(MemDevice::read_only(volume.base.to_vec()));
    let opened = super::open(driver, device, Arc::new(StepClock::default()));
    assert_eq!(opened.err(), Some(Error::ReadOnly));
}

/// Makes every `step`-th request of each kind fail in every operation, and while the result is read, and recovered
/// after a power failure. No synced change is lost, and every failure is reported.
#[track_caller]
pub fn requests(volume: &Volume<'_>, step: u64) {
    let name = &volume.name;
    match volume.subject.break_everywhere(&volume.base, &volume.named, step) {
        Ok(tally) => {
            println!(
                "{name}: {} faults, {} noticed, {} hidden",
                tally.tried,
                tally.noticed,
                tally.repeated.len()
            );
            assert_eq!(tally.unnoticed, [""; 0], "{name}");
            // A request that is repeated. Examples are a read of many blocks that is then done block by block, and a
            // read of exFAT's second boot region.
            assert!((tally.repeated.len() as u64) < tally.tried / 10, "{name}: {tally:?}");
        }
        Err(reason) => panic!("{name}, {reason}"),
    }
}

/// Tests that after a failed write every later sync and the close fail with the same error, although the device works
/// again, and that changes fail with `ReadOnly`.
#[track_caller]
pub fn later_syncs(volume: &Volume<'_>) {
    let name = &volume.name;
    let start = |fault| {
        let device = Arc::new(FaultDevice::new(MemDevice::new(volume.base.to_vec()), fault));
        let opened = (volume.subject.open)(device.clone(), Arc::new(StepClock::default()));
        (device, Actor::new(Vfs::new(opened.expect("the volume opens"))))
    };
    let (sound, _unchanged) = start(None);
    // The first write after the volume was opened.
    let nth = sound.count(Request::Write);
    let fault = Fault { request: Request::Write, nth, lasting: Lasting::Once, failure: FaultKind::Io };
    let (device, mut actor) = start(Some(fault));
    // Some drivers write a new directory at once.
    let file = |name: &str| Op::Create(name.into(), FileKind::Regular, 0o644);
    assert_eq!(actor.act(0, &file("a")), Ok(()), "{name}");
    let first = actor.act(0, &Op::Sync);
    assert!(first.is_err() && device.hits() == 1, "{name}: {first:?}");
    assert_eq!(actor.act(0, &Op::Sync), first, "{name}");
    assert_eq!(actor.act(0, &file("b")), Err(Error::ReadOnly), "{name}");
    assert_eq!(actor.act(0, &Op::Sync), first, "{name}");
    let fs = actor.vfs().flushed_file_system();
    assert_eq!(fs.writable().map_or(first, |fs| fs.close()), first, "{name}");
}

/// Tests that on a slow device every operation has the same result as on a fast one, and that waiting threads do not
/// interfere.
#[track_caller]
pub fn slow(volume: &Volume<'_>) {
    let (name, subject) = (&volume.name, &volume.subject);
    for plan in &volume.named {
        let waited = subject.wait_for(&volume.base, plan);
        waited.unwrap_or_else(|reason| panic!("{name}, {}: {reason}", plan.name));
    }
    let (memory, clock) = (Arc::new(MemDevice::new(volume.base.to_vec())), Arc::new(StepClock::default()));
    let device = SlowDevice::shared(memory.clone(), clock.clone());
    let fs = (subject.open)(Arc::new(device), clock).expect("the volume opens");
    assert_eq!(every_method_may_be_called_from_any_thread_at_any_time(&*fs), Ok(()), "{name}");
    super::close(&*fs);
    drop(fs);
    assert_eq!(subject.check_closed(memory), Ok(()), "{name}");
}

/// Tests that a failed read during the repair of a sound volume is reported, and that the volume is unchanged.
#[track_caller]
pub fn repair_mode(volume: &Volume<'_>, driver: &dyn Driver) {
    let device = Arc::new(MemDevice::new(volume.base.to_vec()));
    let mut actor = Actor::new(opened(volume, &device));
    let plan = volume.without_lacking(random(2, &volume.limits));
    // Some operations of a random plan are refused.
    for (number, op) in plan.ops.iter().enumerate() {
        let _ = actor.act(number, op);
    }
    let vfs = actor.vfs().clone();
    drop(actor);
    let before = Snapshot::read(&vfs, None).unwrap();
    vfs.close().unwrap();
    drop(vfs);
    let sound = device.snapshot();
    let repair = |fault| {
        let device = Arc::new(MemDevice::new(sound.clone()));
        let broken = Arc::new(FaultDevice::new(device.clone(), fault));
        let options = CheckOptions { repair_mode: RepairMode::All, ..CheckOptions::new(Arc::new(NO_CLOCK)) };
        let check = driver.check().expect("it checks");
        let mut found = Vec::<Finding>::new();
        (check.check(broken.clone(), &options, &mut found).map(drop), broken.count(Request::Read), device)
    };
    let (repaired, reads, _) = repair(None);
    assert_eq!(repaired, Ok(()));
    for (nth, lasting) in (0..reads).flat_map(|nth| [(nth, Lasting::Once), (nth, Lasting::ForGood)]) {
        let fault = Fault { request: Request::Read, nth, lasting, failure: FaultKind::Io };
        let (repaired, _, device) = repair(Some(fault));
        let name = format!("{}, {fault:?}, {repaired:?}", volume.name);
        assert!(matches!(repaired, Ok(()) | Err(Error::Device(DeviceError::Read { .. }))), "{name}");
        let after = Snapshot::read(&opened(volume, &device), None).unwrap();
        assert_eq!(before.difference(&after, Times::Compared, None), None, "{name}");
        assert_eq!(before.content_difference(&after), None, "{name}");
    }
}
