//! Failures: no space, a read-only device, a device that fails at any request. Acknowledged data is present after a
//! check, and nothing panics.

mod common;
#[path = "common/cuts.rs"]
mod cuts;

use obento_exfat::ExFatDriver;
use obento_testkit::trials;

#[test]
fn a_full_volume_returns_no_space_and_keeps_its_files() {
    for volume in ["tiny", "page", "packed"].into_iter().filter_map(cuts::volume) {
        trials::faults::full(&volume, 30_000);
    }
}

#[test]
fn a_volume_on_a_read_only_device_opens_for_reading_alone() {
    if let Some(volume) = cuts::volume("tiny") {
        trials::faults::read_only(&ExFatDriver::default(), &volume);
    }
}

#[test]
fn whichever_request_fails_nothing_acknowledged_is_lost() {
    for volume in ["tiny", "packed"].into_iter().filter_map(cuts::volume) {
        trials::faults::requests(&volume, 23);
    }
}

#[test]
fn every_sync_after_a_failed_write_reports_its_error() {
    for volume in ["tiny", "packed"].into_iter().filter_map(cuts::volume) {
        trials::faults::later_syncs(&volume);
    }
}

#[test]
fn a_slow_device_changes_no_answer() {
    for volume in ["tiny", "packed"].into_iter().filter_map(cuts::volume) {
        trials::faults::slow(&volume);
    }
}

#[test]
fn a_check_of_a_sound_volume_repairs_nothing_whichever_read_fails() {
    for volume in ["tiny", "packed"].into_iter().filter_map(cuts::volume) {
        trials::faults::repair_mode(&volume, &ExFatDriver::default());
    }
}

#[test]
#[ignore = "takes minutes: cargo xtask crash"]
fn every_single_request_fails_in_turn() {
    for volume in ["tiny", "packed"].into_iter().filter_map(cuts::volume) {
        trials::faults::requests(&volume, 1);
    }
}

#[test]
fn an_open_volume_passes_to_another_process_with_its_nameless_files() {
    for volume in ["tiny", "page", "packed"].into_iter().filter_map(cuts::volume) {
        trials::handover::passes_on(&ExFatDriver::default(), &volume.base, true);
    }
}
