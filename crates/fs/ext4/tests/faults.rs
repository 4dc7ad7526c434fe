//! Failures: no space, no inode, a read-only volume, a device that fails at any request. Acknowledged data is not
//! lost, and the volume is consistent.

mod common;
#[path = "common/consistency.rs"]
mod consistency;
#[path = "common/crash.rs"]
mod crash;

use std::sync::Arc;

use common::volumes::{SMALL, Shape, e2fsck, open};
use obento_base::{DeviceNumber, Error, FileKind, Mode, Name};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{DataMode, Journalling, LayoutLock, NewNode, Size, TimeChange};
use obento_ext4::Ext4Driver;
use obento_testkit::crash::campaign::Volume;
use obento_testkit::crash::volume::Subject;
use obento_testkit::fault::{Fault, FaultDevice, FaultKind, Lasting, Request};
use obento_testkit::model::StepClock;
use obento_testkit::plan::{Actor, Op, Space};
use obento_testkit::snapshot::{Snapshot, Times};
use obento_testkit::{Oracle, require, trials};
use obento_vfs::Vfs;

fn oracles() -> bool {
    require(&[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")])
}

fn volume(device: &Arc<MemDevice>) -> Vfs {
    let clock = Arc::new(StepClock::default());
    Vfs::new(open(device.clone(), clock, DataMode::Ordered).expect("the volume opens"))
}

fn create(path: &str) -> Op {
    Op::Create(path.into(), FileKind::Regular, 0o644)
}

/// Tests that the current tree is the same after closing and opening the volume again, and that the volume is
/// consistent.
fn expect_kept(actor: Actor, device: &Arc<MemDevice>) {
    let vfs = actor.vfs().clone();
    drop(actor);
    let before = Snapshot::read(&vfs, None).unwrap();
    vfs.close().unwrap();
    drop(vfs);
    assert_eq!(consistency::check(&**device), Ok(()));
    assert_eq!(e2fsck(&**device), Ok(()));
    let after = Snapshot::read(&volume(device), None).unwrap();
    assert_eq!(before.difference(&after, Times::Compared, None), None);
    assert_eq!(before.content_difference(&after), None);
}

fn on_each(test: impl Fn(&Shape, &Arc<MemDevice>)) {
    if oracles() {
        for shape in SMALL {
            eprintln!("{}", shape.name);
            test(shape, &Arc::new(MemDevice::new(shape.bytes().to_vec())));
        }
    }
}

#[test]
fn a_full_volume_returns_no_space_and_keeps_its_files() {
    on_each(|shape, device| {
        let mut actor = Actor::new(volume(device));
        for round in 0..3 {
            let path = |n: usize| format!("r{round}-{n}");
            let mut made = 0;
            actor.fill(|n| {
                made = n / 2;
                if n % 2 == 0 { create(&path(n / 2)) } else { Op::Append(path(n / 2), 3000 + 900 * round) }
            });
            actor.fill(|n| Op::Append(path(0), 1 + n % 700));
            let xattr = Op::SetXattr(path(0), "user.x".into(), 600, obento_driver::XattrMode::Set);
            assert!(matches!(actor.act(0, &xattr), Ok(()) | Err(Error::NoSpace)));
            if shape.space {
                let more = Op::Space(path(1), Space::Allocate(Size::Grow), 0..16 << 20);
                assert_eq!(actor.act(0, &more), Err(Error::NoSpace));
                actor.act(0, &Op::Truncate(path(1), 100)).unwrap();
            }
            (0..made).step_by(2).for_each(|n| actor.act(0, &Op::Unlink(path(n))).unwrap());
            actor.act(0, &Op::Sync).unwrap();
        }
        expect_kept(actor, device);
    });
}

#[test]
fn a_full_inode_table_returns_no_space_and_keeps_its_files() {
    on_each(|_, device| {
        let mut actor = Actor::new(volume(device));
        let made = actor.fill(|n| create(&format!("f{n}")));
        let dir = Op::Create("dir".into(), FileKind::Directory, 0o755);
        assert_eq!(actor.act(0, &dir), Err(Error::NoSpace));
        assert_eq!(actor.act(0, &Op::Symlink("link".into(), 10)), Err(Error::NoSpace));
        actor.act(0, &Op::Unlink(format!("f{}", made / 2))).unwrap();
        actor.act(0, &Op::Sync).unwrap();
        actor.act(0, &create("one-more")).unwrap();
        expect_kept(actor, device);
    });
}

#[test]
fn a_write_that_cannot_be_published_releases_its_reservation() {
    if !oracles() {
        return;
    }
    let device = |fault| Arc::new(FaultDevice::new(MemDevice::new(SMALL[0].bytes().to_vec()), fault));
    let until_sync = |device: &Arc<FaultDevice<MemDevice>>| {
        let fs = open(device.clone(), Arc::new(StepClock::default()), DataMode::Ordered).unwrap();
        let (root, lock) = (fs.root(), LayoutLock::new());
        let writable = fs.writable().unwrap();
        let node = NewNode {
            kind: FileKind::Regular,
            mode: Mode::new(0o644),
            uid: 0,
            gid: 0,
            rdev: DeviceNumber::default(),
            target: b"",
        };
        let file = writable.create(root, Name::new(b"f").unwrap(), &node).unwrap().ino;
        let free = fs.statfs().unwrap().free;
        let layout = lock.shared();
        let ticket = writable.begin_write(&layout, file, 0..9000).unwrap();
        assert_eq!(fs.statfs().unwrap().free, free - 9);
        let synced = writable.sync();
        let ended = writable.end_write(ticket, TimeChange::Now);
        (synced, ended, free - fs.statfs().unwrap().free)
    };
    let counting = device(None);
    assert_eq!(until_sync(&counting), (Ok(()), Ok(()), 9));
    let fault = Fault { request: Request::Flush, nth: 1, lasting: Lasting::ForGood, failure: FaultKind::Io };
    let (synced, ended, taken) = until_sync(&device(Some(fault)));
    assert!(synced.is_err());
    assert_eq!((ended, taken), (Err(Error::ReadOnly), 0));
}

/// An aborted journal is marked until the volume itself has the error flag; then the journal is usable again.
#[test]
fn a_journal_that_was_given_up_is_taken_up_again_and_the_volume_stays_marked() {
    if !oracles() {
        return;
    }
    let memory = Arc::new(MemDevice::new(SMALL[0].bytes().to_vec()));
    let fault = Fault { request: Request::Flush, nth: 2, lasting: Lasting::ForGood, failure: FaultKind::Io };
    let broken = Arc::new(FaultDevice::new(Arc::clone(&memory), Some(fault)));
    let vfs = Vfs::new(open(broken, Arc::new(StepClock::default()), DataMode::Ordered).unwrap());
    Actor::new(vfs.clone()).act(0, &create("f")).unwrap();
    assert!(vfs.sync().is_err());
    drop(vfs);
    volume(&memory).close().unwrap();
    assert_eq!(consistency::check_marked(&*memory), Ok(()));
    assert_eq!(e2fsck(&*memory), Ok(()));
}

/// A hole of more pieces than fit a transaction is punched in steps: after a failure each block is old or zero.
#[test]
fn a_punch_that_fails_midway_leaves_each_block_old_or_zeros() {
    const BLOCK: usize = 1024;
    const PIECES: u64 = 1500;
    if !oracles() {
        return;
    }
    let device = Arc::new(MemDevice::new(Shape { len: 12, ..SMALL[0] }.bytes().to_vec()));
    let mut actor = Actor::new(volume(&device));
    actor.act(0, &create("f")).unwrap();
    (0..PIECES).for_each(|n| actor.act(0, &Op::Write("f".into(), 2048 * n, BLOCK)).unwrap());
    let vfs = actor.vfs().clone();
    drop(actor);
    vfs.close().unwrap();
    drop(vfs);
    let mut base = vec![0; device.len() as usize];
    device.read_at(0, &mut base).unwrap();
    let read = |vfs: &Vfs| {
        let node = Actor::new(vfs.clone()).node("f").unwrap();
        let mut bytes = vec![0; node.attr().unwrap().size as usize];
        assert_eq!(node.read_at(0, &mut bytes), Ok(bytes.len()));
        bytes
    };
    let before = read(&volume(&device));
    let mut midway = 0;
    for nth in 0.. {
        let memory = Arc::new(MemDevice::new(base.clone()));
        let fault = Fault { request: Request::Read, nth, lasting: Lasting::Once, failure: FaultKind::Io };
        let broken = Arc::new(FaultDevice::new(Arc::clone(&memory), Some(fault)));
        let Ok(fs) = open(broken.clone(), Arc::new(StepClock::default()), DataMode::Ordered) else {
            continue;
        };
        let vfs = Vfs::new(fs);
        let _ = Actor::new(vfs.clone()).act(0, &Op::Space("f".into(), Space::Punch, 0..before.len() as u64));
        // A volume that became read-only keeps committed changes.
        let _ = vfs.close();
        drop(vfs);
        let after = read(&volume(&memory));
        assert_eq!(after.len(), before.len());
        let blocks = || before.chunks(BLOCK).zip(after.chunks(BLOCK));
        assert!(blocks().all(|(old, new)| new == old || new.iter().all(|&b| b == 0)), "fault {nth}");
        midway += usize::from(after != before && after.iter().any(|&b| b != 0));
        assert_eq!(e2fsck(&*memory), Ok(()), "fault {nth}");
        if broken.hits() == 0 {
            break;
        }
    }
    assert!(midway > 0);
}

#[test]
fn a_volume_on_a_read_only_device_opens_for_reading_alone() {
    if oracles() {
        let device = Arc::new(MemDevice::read_only(SMALL[0].bytes().to_vec()));
        let opened = open(device, Arc::new(StepClock::default()), DataMode::Ordered);
        assert_eq!(opened.err(), Some(Error::ReadOnly));
    }
}

/// Calls `test` with each small volume in each mode. The volume may have the error flag.
fn on_volumes(test: impl Fn(&Volume<'_>)) {
    if oracles() {
        let openers = crash::openers(&crash::MODES, Journalling::default());
        for volume in crash::volumes(SMALL, &openers) {
            let Subject { open, second, data, .. } = volume.subject;
            let check = &consistency::check_marked_closed;
            let subject = Subject { open, check, second, second_every: 0, recovery_every: 0, data };
            test(&Volume { subject, ..volume });
        }
    }
}

#[test]
fn whichever_request_fails_nothing_acknowledged_is_lost() {
    on_volumes(|volume| trials::faults::requests(volume, 211));
}

#[test]
fn every_sync_after_a_failed_write_reports_its_error() {
    on_volumes(trials::faults::later_syncs);
}

#[test]
fn a_slow_device_changes_no_answer() {
    on_volumes(trials::faults::slow);
}

#[test]
fn a_check_of_a_sound_volume_repairs_nothing_whichever_read_fails() {
    on_volumes(|volume| {
        if volume.subject.data == DataMode::Ordered {
            trials::faults::repair_mode(volume, &Ext4Driver);
        }
    });
}

#[test]
#[ignore = "takes minutes: cargo xtask crash"]
fn every_single_request_fails_in_turn() {
    // Every fault in the smallest shape and the default mode, and every seventh elsewhere.
    on_volumes(|volume| {
        trials::faults::requests(volume, if volume.name == "ext4-1k/Ordered" { 1 } else { 7 })
    });
}
