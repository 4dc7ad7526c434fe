//! The contract's cases: on volumes that mtools filled, and on empty ones that are open for changes, which `fsck.fat` judges
//! when a case is done. What the format lacks it says by its limits.

mod common;

use std::sync::Arc;

use obento_block::MemDevice;
use obento_driver::FileSystem;
use obento_testkit::trials::Judged;

fn filled(name: &'static str) -> Option<Arc<dyn FileSystem>> {
    if !common::oracles() {
        return None;
    }
    let device = MemDevice::read_only(common::filled_bytes(name).to_vec());
    Some(common::open(Arc::new(device)).expect("the volume opens"))
}

mod fat12 {
    obento_testkit::reading_conformance!(super::filled("fat12"));
}

mod fat16 {
    obento_testkit::reading_conformance!(super::filled("fat16"));
}

mod fat32 {
    obento_testkit::reading_conformance!(super::filled("fat32"));
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

mod writing_fat12 {
    obento_testkit::writing_conformance!(super::empty("fat12"));
}

mod writing_fat16 {
    obento_testkit::writing_conformance!(super::empty("fat16"));
}

mod writing_fat32 {
    obento_testkit::writing_conformance!(super::empty("fat32"));
}
