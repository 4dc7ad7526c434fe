//! The conformance cases, on volumes with a tree and on empty volumes that are open for changes, which
//! `fsck.exfat` checks after each case. The limits of the format exclude cases that it does not support.

mod common;

use common::FORMAT;

mod sector {
    obento_testkit::reading_conformance!(super::FORMAT.to_read("sector"));
}

mod pages {
    obento_testkit::reading_conformance!(super::FORMAT.to_read("pages"));
}

mod writing_sector {
    obento_testkit::writing_conformance!(super::FORMAT.to_change("sector"));
}

mod writing_page {
    obento_testkit::writing_conformance!(super::FORMAT.to_change("page"));
}

mod writing_pages {
    obento_testkit::writing_conformance!(super::FORMAT.to_change("pages"));
}
