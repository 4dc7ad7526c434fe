//! What fails, fails cleanly: no room, a read-only device, a device that breaks at any request. What was acknowledged is there
//! afterwards, and nothing panics.

use std::sync::Arc;

use obento_base::{DeviceError, Error, FileKind};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{CheckOptions, Driver, Finding, Mending};
use obento_env::NO_CLOCK;
use obento_vfs::Vfs;

use crate::conformance::threads::every_method_may_be_called_from_any_thread_at_any_time;
use crate::crash::campaign::Volume;
use crate::fault::{Failure, Fault, FaultDevice, Lasting, Request, SlowDevice};
use crate::model::StepClock;
use crate::plan::{Actor, Op, random};
use crate::snapshot::{Snapshot, Times};

fn opened(volume: &Volume<'_>, device: &Arc<MemDevice>) -> Vfs {
    let opened = (volume.subject.open)(device.clone(), Arc::new(StepClock::default()));
    Vfs::new(opened.expect("the volume opens"))
}

/// Filled three times over, with files that grow by `step` from round to round, it answers no space and keeps what it has. For
/// formats without holes.
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

/// What is there when the volume is closed is there when it is opened again, and nothing is wrong with it.
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

/// A volume on a device that cannot be written is not opened for changes.
#[track_caller]
pub fn read_only(driver: &dyn Driver, volume: &Volume<'_>) {
    let device = Arc::new(MemDevice::read_only(volume.base.to_vec()));
    let opened = super::open(driver, device, Arc::new(StepClock::default()));
    assert_eq!(opened.err(), Some(Error::ReadOnly));
}

/// Every `step`-th request of each kind fails in every operation, and while what it leaves is read, and recovered after a cut: nothing
/// acknowledged is lost, and nothing that failed goes untold.
#[track_caller]
pub fn requests(volume: &Volume<'_>, step: u64) {
    let name = &volume.name;
    match volume.subject.break_everywhere(&volume.base, &volume.named, step) {
        Ok(tally) => {
            println!(
                "{name}: {} faults, {} noticed, {} made up for",
                tally.tried,
                tally.noticed,
                tally.repeated.len()
            );
            assert_eq!(tally.unnoticed, [""; 0], "{name}");
            // A request that is made again, as one of many blocks is block by block, and what exFAT reads from its second boot region.
            assert!((tally.repeated.len() as u64) < tally.tried / 10, "{name}: {tally:?}");
        }
        Err(reason) => panic!("{name}, {reason}"),
    }
}

/// On a device that takes its time every operation answers as on a fast one, and threads that wait for it do not get in each other's way.
#[track_caller]
pub fn slow(volume: &Volume<'_>) {
    let (name, subject) = (&volume.name, &volume.subject);
    for plan in &volume.named {
        let waited = subject.wait_for(&volume.base, plan);
        waited.unwrap_or_else(|reason| panic!("{name}, {}: {reason}", plan.name));
    }
    let (memory, clock) = (Arc::new(MemDevice::new(volume.base.to_vec())), Arc::new(StepClock::default()));
    let device = SlowDevice::new(memory.clone(), clock.clone());
    let fs = (subject.open)(Arc::new(device), clock).expect("the volume opens");
    assert_eq!(every_method_may_be_called_from_any_thread_at_any_time(&*fs), Ok(()), "{name}");
    super::close(&*fs);
    drop(fs);
    assert_eq!(subject.check_closed(memory), Ok(()), "{name}");
}

/// Whichever read fails while a sound volume is mended, that is told and the volume stays as it is.
#[track_caller]
pub fn mending(volume: &Volume<'_>, driver: &dyn Driver) {
    let device = Arc::new(MemDevice::new(volume.base.to_vec()));
    let mut actor = Actor::new(opened(volume, &device));
    let plan = volume.without_lacking(random(2, &volume.limits));
    // Refused ones are some of a random plan.
    for (number, op) in plan.ops.iter().enumerate() {
        let _ = actor.act(number, op);
    }
    let vfs = actor.vfs().clone();
    drop(actor);
    let before = Snapshot::read(&vfs, None).unwrap();
    vfs.close().unwrap();
    drop(vfs);
    let sound = device.snapshot();
    let mend = |fault| {
        let device = Arc::new(MemDevice::new(sound.clone()));
        let broken = Arc::new(FaultDevice::new(device.clone(), fault));
        let options = CheckOptions { mending: Mending::All, ..CheckOptions::new(Arc::new(NO_CLOCK)) };
        let check = driver.check().expect("it checks");
        let mut found = Vec::<Finding>::new();
        (check.check(broken.clone(), &options, &mut found).map(drop), broken.count(Request::Read), device)
    };
    let (mended, reads, _) = mend(None);
    assert_eq!(mended, Ok(()));
    for (nth, lasting) in (0..reads).flat_map(|nth| [(nth, Lasting::Once), (nth, Lasting::ForGood)]) {
        let fault = Fault { request: Request::Read, nth, lasting, failure: Failure::Io };
        let (mended, _, device) = mend(Some(fault));
        let name = format!("{}, {fault:?}, {mended:?}", volume.name);
        assert!(matches!(mended, Ok(()) | Err(Error::Device(DeviceError::Read { .. }))), "{name}");
        let after = Snapshot::read(&opened(volume, &device), None).unwrap();
        assert_eq!(before.difference(&after, Times::Compared, None), None, "{name}");
        assert_eq!(before.content_difference(&after), None, "{name}");
    }
}
