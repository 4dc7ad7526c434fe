//! The cases of the contract for volumes that are read.

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
