//! Deleted files are found.

use obento_exfat::ExFatDriver;
use obento_testkit::undelete;

#[test]
fn a_deleted_file_is_found_with_its_bytes() {
    undelete::a_deleted_file_is_found_with_its_bytes(&ExFatDriver::default(), "exfat");
}

#[test]
fn an_unreadable_sector_does_not_end_a_directory() {
    undelete::an_unreadable_sector_does_not_end_a_directory(&ExFatDriver::default(), "exfat");
}
