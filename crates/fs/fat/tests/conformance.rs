//! The contract's cases on volumes that mtools filled.

mod common;

use std::sync::Arc;

use obento_block::MemDevice;
use obento_driver::FileSystem;

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
