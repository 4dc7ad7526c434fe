//! Changes are written once they reach their age, without a request.

use obento_fat::FatDriver;
use obento_testkit::age;

#[test]
fn a_change_reaches_the_device_after_a_time_without_a_sync() {
    age::a_change_is_written_after_a_while(&FatDriver::default(), "vfat");
}

#[test]
fn without_an_age_nothing_is_written_before_a_sync() {
    age::without_an_age_all_waits(&FatDriver::default(), "vfat");
}
