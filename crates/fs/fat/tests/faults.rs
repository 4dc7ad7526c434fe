//! Failures: no space, a read-only device, a device that fails at any request. Acknowledged data is present after a
//! check, and nothing panics.

mod common;
#[path = "common/cuts.rs"]
mod cuts;

use std::sync::Arc;

use obento_base::{Error, FileKind};
use obento_block::MemDevice;
use obento_fat::FatDriver;
use obento_testkit::model::StepClock;
use obento_testkit::plan::{Actor, Op};
use obento_testkit::trials;
use obento_vfs::Vfs;

#[test]
fn a_full_volume_returns_no_space_and_keeps_its_files() {
    for volume in ["fat12", "fat12-sector-2k", "fat16", "fat32"].into_iter().filter_map(cuts::volume) {
        trials::faults::full(&volume, 90_000);
    }
}

#[test]
fn a_volume_on_a_read_only_device_opens_for_reading_alone() {
    if let Some(volume) = cuts::volume("fat12") {
        trials::faults::read_only(&FatDriver::default(), &volume);
    }
}

#[test]
fn whichever_request_fails_nothing_acknowledged_is_lost() {
    // Volumes with wider FAT entries are larger, so that each fault takes longer.
    for (shape, step) in [("fat12", 23), ("fat12-sector-2k", 23), ("fat16", 97), ("fat32", 41)] {
        if let Some(volume) = cuts::volume(shape) {
            trials::faults::requests(&volume, step);
        }
    }
}

#[test]
fn every_sync_after_a_failed_write_reports_its_error() {
    for volume in ["fat12", "fat16", "fat32"].into_iter().filter_map(cuts::volume) {
        trials::faults::later_syncs(&volume);
    }
}

#[test]
fn a_slow_device_changes_no_answer() {
    for volume in ["fat12", "fat12-sector-2k", "fat16", "fat32"].into_iter().filter_map(cuts::volume) {
        trials::faults::slow(&volume);
    }
}

#[test]
fn a_check_of_a_sound_volume_repairs_nothing_whichever_read_fails() {
    for volume in ["fat12", "fat16"].into_iter().filter_map(cuts::volume) {
        trials::faults::repair_mode(&volume, &FatDriver::default());
    }
}

#[test]
#[ignore = "takes minutes: cargo xtask crash"]
fn every_single_request_fails_in_turn() {
    for (shape, step) in [("fat12", 1), ("fat12-sector-2k", 1), ("fat16", 11), ("fat32", 11)] {
        if let Some(volume) = cuts::volume(shape) {
            trials::faults::requests(&volume, step);
        }
    }
}

#[test]
fn a_full_root_directory_answers_no_space() {
    // mkfs.fat rounds the 64 requested entries up to a whole cluster of 4 KiB, which has 128. The directory cannot
    // grow.
    let Some(volume) = cuts::volume("fat12-4k") else { return };
    let device = Arc::new(MemDevice::new(volume.base.to_vec()));
    let opened = cuts::open(device.clone(), Arc::new(StepClock::default())).unwrap();
    let mut actor = Actor::new(Vfs::new(opened));
    let made = actor.fill(|n| Op::Create(format!("f{n}"), FileKind::Regular, 0o644));
    assert_eq!(made, 128);
    actor.act(0, &Op::Unlink("f7".into())).unwrap();
    let long = Op::Create("a name of several entries".into(), FileKind::Regular, 0o644);
    assert_eq!(actor.act(0, &long), Err(Error::NoSpace));
    actor.act(0, &Op::Create("f7".into(), FileKind::Regular, 0o644)).unwrap();
    trials::faults::keeps_all(&volume, &device, actor);
}

#[test]
fn an_open_volume_passes_to_another_process_with_its_nameless_files() {
    for volume in ["fat12", "fat12-sector-2k", "fat16", "fat32"].into_iter().filter_map(cuts::volume) {
        trials::handover::passes_on(&FatDriver::default(), &volume.base, true);
    }
}
