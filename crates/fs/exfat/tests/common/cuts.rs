//! The driver as the crash explorer and the fault device use it.
#![allow(dead_code, reason = "each test uses a part")]

use std::sync::Arc;

use obento_base::Result;
use obento_block::BlockDevice;
use obento_driver::FileSystem;
use obento_env::Clock;
use obento_exfat::ExFatDriver;
use obento_testkit::crash::campaign::Volume;
use obento_testkit::plan::Bounds;
use obento_testkit::trials;

use super::common;

/// Repairs a volume after a power cut, and opens it.
pub fn open(device: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>) -> Result<Arc<dyn FileSystem>> {
    trials::repair_and_open(&ExFatDriver::default(), device, clock)
}

/// Fails with the inconsistencies of a volume.
pub fn check(device: &Arc<dyn BlockDevice>, _: Option<&[u8]>) -> std::result::Result<(), String> {
    trials::check(&ExFatDriver::default(), device)
}

/// Checks a volume with `fsck.exfat`.
pub fn second(device: &dyn BlockDevice) -> std::result::Result<(), String> {
    trials::judge("fsck.exfat", device)
}

/// Returns an empty volume.
pub fn base(shape: &str) -> Arc<[u8]> {
    let folder = tempfile::tempdir().expect("a folder");
    common::bytes_of(&common::shape(shape).make(folder.path())).into()
}

/// Returns an empty volume for cuts and faults, if the checkers are installed.
pub fn volume(shape: &str) -> Option<Volume<'static>> {
    let bounds = Bounds { len: 2, space: false, links: false, xattrs: false };
    let subject = || trials::repaired_subject(&open, &check, &second);
    common::oracles().then(|| trials::volume(shape, base(shape), subject(), bounds))
}
