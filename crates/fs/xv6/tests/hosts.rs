//! What programs see of a volume.

mod common;

use std::sync::Arc;

use common::format;
use obento_block::MemDevice;
use obento_driver::{Driver as _, OpenOptions};
use obento_env::SystemClock;
use obento_testkit::hosts::{Library, expect_all};
use obento_testkit::trials;
use obento_xv6::Xv6Driver;

#[test]
fn programs_get_the_expected_results() {
    let device = Arc::new(MemDevice::new(format(32 << 20, 4096)));
    let kept = device.clone();
    let mut library = Library::new(move |access| {
        let options = OpenOptions { access, ..OpenOptions::new(Arc::new(SystemClock)) };
        Xv6Driver.open(device.clone(), &options)
    });
    expect_all(&mut library);
    library.close();
    trials::check(&Xv6Driver, &(kept as _)).unwrap();
}
