//! The contract's cases: on volumes with a tree in them, and on empty ones that are open for changes, which `fsck.exfat` judges
//! when a case is done. What the format lacks it says by its limits.

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
