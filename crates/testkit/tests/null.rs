//! The null driver keeps the contract, so that what is measured with it holds for others.

use std::sync::Arc;

use obento_driver::FileSystem;
use obento_testkit::null::Null;

fn volume() -> Option<Arc<dyn FileSystem>> {
    Some(Arc::new(Null))
}

mod reading {
    obento_testkit::reading_conformance!(super::volume());
}
