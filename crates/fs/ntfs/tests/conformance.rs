//! The conformance cases for volumes that are read.

mod common;

use common::FORMAT;

mod sector {
    obento_testkit::reading_conformance!(super::FORMAT.to_read("512"));
}

mod page {
    obento_testkit::reading_conformance!(super::FORMAT.to_read("4k"));
}

mod large_sectors {
    obento_testkit::reading_conformance!(super::FORMAT.to_read("4kn-64k"));
}

#[test]
fn an_open_volume_passes_to_another_process() {
    for bytes in ["512", "4k", "4kn-64k"].into_iter().filter_map(|shape| FORMAT.filled(shape)) {
        obento_testkit::trials::handover::passes_on_reading(&obento_ntfs::NtfsDriver::default(), &bytes);
    }
}
