//! Random plans against tmpfs; a copy of the volume is checked after each operation.

mod common;

use obento_testkit::trials;
use obento_xv6::Xv6Driver;

#[test]
fn random_plans_do_as_in_memory_and_leave_a_consistent_volume_after_each_operation() {
    trials::model::random_plans(&common::volume(), &Xv6Driver, 0..12);
}
