//! A device that breaks at any request, and one that is full: what fails, fails cleanly, and nothing that was acknowledged
//! is lost.

mod common;

use std::sync::Arc;

use common::{open, volume};
use obento_base::FileKind;
use obento_block::{BlockDevice as _, MemDevice};
use obento_driver::{Driver as _, FormatOptions};
use obento_env::{FixedRandom, NO_CLOCK};
use obento_testkit::fault::{Fault, FaultDevice, FaultKind, Lasting, Request};
use obento_testkit::model::StepClock;
use obento_testkit::plan::{Actor, Op};
use obento_testkit::trials;
use obento_vfs::Vfs;
use obento_xv6::Xv6Driver;

#[test]
fn whichever_request_fails_nothing_acknowledged_is_lost() {
    trials::faults::requests(&volume(), 7);
}

#[test]
fn every_sync_after_a_failed_write_reports_its_error() {
    trials::faults::later_syncs(&volume());
}

#[test]
fn a_slow_device_changes_no_answer() {
    trials::faults::slow(&volume());
}

#[test]
#[ignore = "takes minutes: cargo xtask crash"]
fn every_single_request_fails_in_turn() {
    trials::faults::requests(&volume(), 1);
}

#[test]
fn a_full_volume_returns_no_space_and_keeps_its_files() {
    let volume = volume();
    let device = Arc::new(MemDevice::new(volume.base.to_vec()));
    let opened = open(device.clone(), Arc::new(StepClock::default())).expect("it opens");
    let mut actor = Actor::new(Vfs::new(opened));
    for round in 0..3 {
        let path = move |n: usize| format!("r{round}-{n}");
        let made = actor.fill(|n| match n % 2 {
            0 => Op::Create(path(n / 2), FileKind::Regular, 0o644),
            _ => Op::Append(path(n / 2), 9000 + 40_000 * round),
        });
        actor.fill(|n| Op::Append(path(0), 1 + n % 700));
        // All but a directory and the first, whose end was refused.
        (1..made / 2).for_each(|n| actor.act(0, &Op::Unlink(path(n))).unwrap());
    }
    trials::faults::keeps_all(&volume, &device, actor);
}

#[test]
fn an_open_volume_passes_to_another_process_with_its_nameless_files() {
    trials::handover::passes_on(&obento_xv6::Xv6Driver, &volume().base, true);
}

#[test]
fn a_volume_on_a_read_only_device_opens_for_reading_alone() {
    trials::faults::read_only(&obento_xv6::Xv6Driver, &volume());
}

#[test]
fn an_interrupted_format_has_erased_the_signatures_of_previous_formats() {
    let format = Xv6Driver.format().unwrap();
    let options = FormatOptions::new("xv6", Arc::new(NO_CLOCK), Arc::new(FixedRandom(1)));
    let old = || MemDevice::new(vec![7; 2 << 20]);
    let whole = FaultDevice::new(old(), None);
    format.format(&whole, &options).unwrap();
    // The first two writes erase the boot block and the super block.
    for nth in 2..whole.count(Request::Write) {
        let (request, lasting, failure) = (Request::Write, Lasting::ForGood, FaultKind::Io);
        let device = FaultDevice::new(old(), Some(Fault { request, nth, lasting, failure }));
        format.format(&device, &options).unwrap_err();
        let mut start = [1; 8192];
        device.read_at(0, &mut start).unwrap();
        assert!(start == [0; 8192], "write {nth}");
    }
}
