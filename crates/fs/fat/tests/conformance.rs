//! The conformance cases, on volumes that mtools filled and on empty volumes that are open for changes, which
//! `fsck.fat` checks after each case. The limits of the format exclude cases that it does not support.

mod common;

use common::FORMAT;

mod fat12 {
    obento_testkit::reading_conformance!(super::FORMAT.to_read("fat12"));
}

mod fat16 {
    obento_testkit::reading_conformance!(super::FORMAT.to_read("fat16"));
}

mod fat32 {
    obento_testkit::reading_conformance!(super::FORMAT.to_read("fat32"));
}

mod writing_fat12 {
    obento_testkit::writing_conformance!(super::FORMAT.to_change("fat12"));
}

mod writing_fat16 {
    obento_testkit::writing_conformance!(super::FORMAT.to_change("fat16"));
}

mod writing_fat32 {
    obento_testkit::writing_conformance!(super::FORMAT.to_change("fat32"));
}
