//! Random plans compared with tmpfs, except for properties that the format does not store. A copy of the volume is
//! checked after each operation.

mod common;
#[path = "common/cuts.rs"]
mod cuts;

use obento_exfat::ExFatDriver;
use obento_testkit::trials;

#[test]
fn random_plans_do_as_in_memory_and_leave_a_consistent_volume_after_each_operation() {
    for volume in ["tiny", "page", "packed"].into_iter().filter_map(cuts::volume) {
        trials::model::random_plans(&volume, &ExFatDriver::default(), 0..12);
    }
}
