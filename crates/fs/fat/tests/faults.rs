//! What fails, fails cleanly: no room, a read-only device, a device that breaks at any request. What was acknowledged is there
//! after a check, and nothing panics.

mod common;
#[path = "common/cuts.rs"]
mod cuts;

use std::sync::Arc;

use cuts::{base, check, open, second, subject};
use obento_base::{Error, FileKind};
use obento_block::MemDevice;
use obento_driver::{Access, Driver as _, OpenOptions};
use obento_fat::FatDriver;
use obento_testkit::model::StepClock;
use obento_testkit::plan::{Actor, Op, catalogue};
use obento_testkit::snapshot::{Snapshot, Times};
use obento_vfs::Vfs;

fn volume(device: &Arc<MemDevice>) -> Vfs {
    Vfs::new(open(device.clone(), Arc::new(StepClock::default())).expect("the volume opens"))
}

#[test]
fn a_full_volume_answers_no_space_and_keeps_what_it_has() {
    if !common::oracles() {
        return;
    }
    for shape in ["fat12", "fat12-sector-2k", "fat16", "fat32"] {
        let device = Arc::new(MemDevice::new(base(shape).to_vec()));
        let mut actor = Actor::new(volume(&device));
        actor.act(0, &Op::Create("dir".into(), FileKind::Directory, 0o755)).unwrap();
        for round in 0..3 {
            let path = |n: usize| format!("dir/r{round} of the round, {n}");
            let mut made = 0;
            actor.fill(|n| {
                made = n / 2;
                match n % 2 {
                    0 => Op::Create(path(n / 2), FileKind::Regular, 0o644),
                    _ => Op::Append(path(n / 2), 150_000 + 90_000 * round),
                }
            });
            actor.fill(|n| Op::Append(path(0), 1 + n % 700));
            let dir = Op::Create("another".into(), FileKind::Directory, 0o755);
            assert_eq!(actor.act(0, &dir), Err(Error::NoSpace), "{shape}");
            assert_eq!(actor.act(0, &Op::Truncate(path(1), 1 << 30)), Err(Error::NoSpace), "{shape}");
            actor.act(0, &Op::Truncate(path(1), 100)).unwrap();
            (0..made).step_by(2).for_each(|n| actor.act(0, &Op::Unlink(path(n))).unwrap());
            actor.act(0, &Op::Sync).unwrap();
        }
        let vfs = actor.vfs().clone();
        drop(actor);
        let before = Snapshot::read(&vfs, None).unwrap();
        vfs.close().unwrap();
        drop(vfs);
        assert_eq!(check(&device.snapshot()), Ok(()), "{shape}");
        assert_eq!(second(&*device), Ok(()), "{shape}");
        let after = Snapshot::read(&volume(&device), None).unwrap();
        assert_eq!(before.difference(&after, Times::Compared, None), None, "{shape}");
        assert_eq!(before.content_difference(&after), None, "{shape}");
    }
}

#[test]
fn a_full_root_directory_answers_no_space() {
    if !common::oracles() {
        return;
    }
    // mkfs.fat makes whole clusters of the 64 entries that were asked for, of 4 KiB here, and there are no more for it.
    let device = Arc::new(MemDevice::new(base("fat12-4k").to_vec()));
    let mut actor = Actor::new(volume(&device));
    let made = actor.fill(|n| Op::Create(format!("f{n}"), FileKind::Regular, 0o644));
    assert_eq!(made, 128);
    actor.act(0, &Op::Unlink("f7".into())).unwrap();
    let long = Op::Create("a name of several entries".into(), FileKind::Regular, 0o644);
    assert_eq!(actor.act(0, &long), Err(Error::NoSpace));
    actor.act(0, &Op::Create("f7".into(), FileKind::Regular, 0o644)).unwrap();
    actor.vfs().clone().close().unwrap();
    assert_eq!(check(&device.snapshot()), Ok(()));
}

#[test]
fn a_volume_on_a_read_only_device_opens_for_reading_alone() {
    if common::oracles() {
        let device = Arc::new(MemDevice::read_only(base("fat12").to_vec()));
        let clock = Arc::new(StepClock::default());
        let options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(clock) };
        assert_eq!(FatDriver::default().open(device, &options).err(), Some(Error::ReadOnly));
    }
}

/// Every `step`-th request of each kind fails in every operation: how many faults there were, and how many were noticed.
fn broken(shape: &str, step: u64) -> (u64, u64) {
    let plans = catalogue::every_operation(false);
    let outcome = subject().break_everywhere(&base(shape), &plans, step);
    outcome.unwrap_or_else(|reason| panic!("{shape}, {reason}"))
}

#[test]
fn whichever_request_fails_nothing_acknowledged_is_lost() {
    if !common::oracles() {
        return;
    }
    for shape in ["fat12", "fat12-sector-2k"] {
        let (tried, noticed) = broken(shape, 23);
        eprintln!("{shape}: {tried} faults, {noticed} noticed");
        assert!(noticed > tried / 4, "{noticed} of {tried} were noticed");
    }
}

#[test]
#[ignore = "takes minutes: cargo xtask crash"]
fn every_single_request_fails_in_turn() {
    if common::oracles() {
        let (tried, noticed) = broken("fat12", 1);
        println!("{tried} faults, {noticed} noticed");
    }
}
