//! A device that breaks at any request, and one that is full: what fails, fails cleanly, and nothing that was acknowledged
//! is lost.

mod common;

use std::sync::Arc;

use common::{check_bytes, findings, format, open, subject, without_xattrs};
use obento_base::{Error, FileKind};
use obento_block::MemDevice;
use obento_testkit::crash::volume::End;
use obento_testkit::fault::{Fault, Lasting};
use obento_testkit::model::StepClock;
use obento_testkit::plan::{Actor, Op, catalogue};
use obento_testkit::snapshot::{Snapshot, Times};
use obento_vfs::Vfs;

#[test]
fn whichever_request_fails_nothing_acknowledged_is_lost() {
    const STEP: u64 = 3;
    let base: Arc<[u8]> = format(2 << 20, 64).into();
    let subject = subject();
    let (mut tried, mut noticed) = (0, 0);
    for plan in without_xattrs(catalogue::every_operation(false)) {
        let recording = subject.record(&base, &plan, End::Closed).unwrap();
        for (request, count) in subject.requests(&recording).unwrap() {
            for nth in (tried % STEP..count).step_by(usize::try_from(STEP).unwrap()) {
                for lasting in [Lasting::Once, Lasting::ForGood] {
                    let fault = Fault { request, nth, lasting };
                    tried += 1;
                    match subject.endure(&recording, fault, false) {
                        Ok(failed) => noticed += u64::from(failed),
                        Err(reason) => panic!("{}, {fault:?}: {reason}", plan.name),
                    }
                }
            }
        }
    }
    eprintln!("{tried} faults, {noticed} noticed");
    assert!(noticed > tried / 4, "{noticed} of {tried} were noticed");
}

#[test]
fn a_full_volume_answers_no_space_and_keeps_what_it_has() {
    let device = Arc::new(MemDevice::new(format(2 << 20, 64)));
    let volume = || Vfs::new(open(device.clone(), Arc::new(StepClock::default())).expect("it opens"));
    let mut actor = Actor::new(volume());
    let fill = |actor: &mut Actor, op: &dyn Fn(usize) -> Op| {
        let refused = (0..10_000).find_map(|n| actor.act(n, &op(n)).err().map(|error| (n, error)));
        let (made, error) = refused.expect("the volume is never full");
        assert_eq!(error, Error::NoSpace);
        made
    };
    for round in 0..3 {
        let path = move |n: usize| format!("r{round}-{n}");
        let create = |n: usize| Op::Create(path(n), FileKind::Regular, 0o644);
        let made = fill(&mut actor, &|n| match n % 2 {
            0 => create(n / 2),
            _ => Op::Append(path(n / 2), 9000 + 40_000 * round),
        });
        fill(&mut actor, &|n| Op::Append(path(0), 1 + n % 700));
        // All but a directory and the first, whose end was refused.
        (1..made / 2).for_each(|n| actor.act(0, &Op::Unlink(path(n))).unwrap());
    }
    let before = Snapshot::read(actor.vfs(), None).unwrap();
    actor.vfs().close().unwrap();
    drop(actor);
    assert_eq!(check_bytes(&device.snapshot()), Ok(()));
    let after = Snapshot::read(&volume(), None).unwrap();
    assert_eq!(before.difference(&after, Times::Compared, None), None);
    assert_eq!(before.content_difference(&after), None);
}

#[test]
fn a_volume_on_a_read_only_device_opens_for_reading_alone() {
    let device = Arc::new(MemDevice::read_only(format(2 << 20, 64)));
    assert_eq!(open(device.clone(), Arc::new(StepClock::default())).err(), Some(Error::ReadOnly));
    assert_eq!(findings(device), []);
}
