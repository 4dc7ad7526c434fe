//! A device that fails below the kernel: what it said is told, not that the kernel met something.

use std::sync::Arc;

use obento_base::{DeviceError, Error, FileKind, Name, Result};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{Access, Driver as _, LayoutLock, OpenOptions};
use obento_env::SystemClock;
use obento_testkit::fault::{Failure, Fault, FaultDevice, Lasting, Request};

use super::image::{Image, driver, node};

/// Has a file written and made durable. Answers the first error.
fn keep_a_file(name: &str, device: Arc<dyn BlockDevice>) -> Result<()> {
    let options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::new(Arc::new(SystemClock)) };
    let fs = driver(name).open(device, &options)?;
    let (writable, lock) = (fs.writable().unwrap(), LayoutLock::new());
    let ino = writable.create(fs.root(), Name::new(b"kept").unwrap(), &node(FileKind::Regular))?.ino;
    writable.write(&lock.shared(), ino, 0, &[b'x'; 70_000])?;
    writable.sync()?;
    writable.close()
}

#[test]
fn a_device_that_fails_is_told_in_its_own_words() {
    for name in ["minix", "btrfs", "xfs"] {
        let Some(image) = Image::new(name) else { continue };
        let bytes = image.bytes();
        for request in [Request::Write, Request::Read] {
            let fault = Fault { request, nth: 5, lasting: Lasting::ForGood, failure: Failure::Short };
            let device = FaultDevice::new(MemDevice::new(bytes.clone()), Some(fault));
            let error = keep_a_file(name, Arc::new(device)).expect_err(name);
            let is_told = match request {
                Request::Write => matches!(error, Error::Device(DeviceError::Write { .. })),
                _ => matches!(error, Error::Device(DeviceError::Read { .. })),
            };
            assert!(is_told, "{name}, {request:?}: {error}");
        }
    }
}
