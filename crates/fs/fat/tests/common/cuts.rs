//! What the crash explorer and the fault device are told of the driver.
#![allow(dead_code, reason = "each test takes what it needs")]

use std::sync::Arc;

use obento_base::Result;
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{Access, CheckOptions, DataMode, Driver as _, FileSystem, Mending, OpenOptions};
use obento_env::Clock;
use obento_fat::FatDriver;
use obento_fat::check::{check_volume, issues};
use obento_testkit::crash::volume::Subject;

use super::common;

/// Mends what a cut left, and opens it: only what is safe to mend may be wrong.
pub fn open(device: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>) -> Result<Arc<dyn FileSystem>> {
    let options = CheckOptions { mending: Mending::All, ..CheckOptions::new(clock.clone()) };
    check_volume(device.clone(), &options, &mut |_| ())?;
    FatDriver::default().open(device, &OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(clock) })
}

/// Errors: what is wrong with a volume.
pub fn check(bytes: &[u8]) -> std::result::Result<(), String> {
    let found = issues(Arc::new(MemDevice::read_only(bytes.to_vec()))).map_err(|error| error.to_string())?;
    if found.is_empty() { Ok(()) } else { Err(format!("{found:?}")) }
}

/// `fsck.fat` agrees.
pub fn second(device: &dyn BlockDevice) -> std::result::Result<(), String> {
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("cut.img");
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).expect("memory can be read");
    std::fs::write(&image, bytes).expect("room");
    obento_testkit::oracle::call("fsck.fat", ["-n".as_ref(), image.as_os_str()])
        .map(drop)
        .map_err(|error| error.to_string())
}

/// The driver, to be cut and broken.
pub fn subject() -> Subject<'static> {
    Subject {
        open: &open,
        check: &check,
        second: &second,
        second_every: 100,
        recovery_every: 0,
        data: DataMode::Ordered,
    }
}

/// An empty volume.
pub fn base(shape: &str) -> Arc<[u8]> {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::read(common::shape(shape).make(folder.path())).expect("an image").into()
}
