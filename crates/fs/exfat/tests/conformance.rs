//! The contract's cases: on volumes with a tree in them, and on empty ones that are open for changes, which `fsck.exfat` judges
//! when a case is done. What the format lacks it says by its limits.

mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use obento_driver::FileSystem;
use obento_testkit::trials::Judged;

fn filled(name: &'static str) -> Option<Arc<dyn FileSystem>> {
    static MADE: Mutex<BTreeMap<&str, Arc<Vec<u8>>>> = Mutex::new(BTreeMap::new());
    if !common::oracles() {
        return None;
    }
    let make = || {
        let folder = tempfile::tempdir().expect("a folder");
        Arc::new(common::bytes_of(&common::shape(name).filled(folder.path())))
    };
    let bytes =
        MADE.lock().expect("no other test broke off in here").entry(name).or_insert_with(make).clone();
    Some(common::open_bytes(&bytes).expect("the volume opens"))
}

mod sector {
    obento_testkit::reading_conformance!(super::filled("sector"));
}

mod pages {
    obento_testkit::reading_conformance!(super::filled("pages"));
}

fn empty(name: &str) -> Option<Judged> {
    if !common::oracles() {
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let image = common::shape(name).make(folder.path());
    let judge = {
        let image = image.clone();
        move || {
            common::judge(&image);
            drop(folder);
        }
    };
    Some(Judged::new(common::open_to_write(&image), judge))
}

mod writing_sector {
    obento_testkit::writing_conformance!(super::empty("sector"));
}

mod writing_page {
    obento_testkit::writing_conformance!(super::empty("page"));
}

mod writing_pages {
    obento_testkit::writing_conformance!(super::empty("pages"));
}
