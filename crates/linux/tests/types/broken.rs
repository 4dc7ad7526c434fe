//! A device that fails below the kernel: its own error is reported, not the kernel's.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use obento_base::{DeviceError, Error, FileKind, Name, Result};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{Access, Cookie, Driver as _, FileSystem, LayoutLock, OpenOptions};
use obento_env::SystemClock;
use obento_testkit::fault::{Fault, FaultDevice, FaultKind, Lasting, Request};

use super::image::{Image, driver, node};

/// Writes a file and syncs it. Returns the first error.
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
fn a_failed_device_is_reported_with_its_own_message() {
    for name in ["minix", "btrfs", "xfs"] {
        let Some(image) = Image::new(name) else { continue };
        let bytes = image.bytes();
        for request in [Request::Write, Request::Read] {
            let fault = Fault { request, nth: 5, lasting: Lasting::ForGood, failure: FaultKind::Short };
            let device = FaultDevice::new(MemDevice::new(bytes.clone()), Some(fault));
            let error = keep_a_file(name, Arc::new(device)).expect_err(name);
            let is_reported = match request {
                Request::Write => matches!(error, Error::Device(DeviceError::Write { .. })),
                _ => matches!(error, Error::Device(DeviceError::Read { .. })),
            };
            assert!(is_reported, "{name}, {request:?}: {error}");
        }
    }
}

/// The number of listed files: their names take several blocks.
const MANY: usize = 300;

/// Returns the entries of a listing of the root, and its first error.
fn listed(fs: &dyn FileSystem) -> (BTreeSet<Vec<u8>>, Option<Error>) {
    let (mut names, mut missing) = (BTreeSet::new(), None);
    let ended = fs.read_dir(fs.root(), Cookie::START, &mut |entry| {
        match entry {
            // Some types create a `lost+found`.
            Ok(entry) if entry.name.as_bytes().starts_with(b"file") => {
                names.insert(entry.name.as_bytes().to_vec());
            }
            Ok(_) => {}
            Err(error) => missing = missing.or(Some(error)),
        }
        ControlFlow::Continue(())
    });
    (names, missing.or(ended.err()))
}

/// Returns the number of names that listings of a volume with [`MANY`] files show, and their first error. Each failed
/// read has one listing, until the volume does not open. Returns `None` without the type's program or the kernel.
fn listings(name: &str) -> Option<Vec<(usize, Option<Error>)>> {
    let image = Image::new(name)?;
    {
        let fs = image.open(Access::ReadWrite);
        let writable = fs.writable().unwrap();
        for number in 0..MANY {
            let name = format!("file{number}");
            let name = Name::new(name.as_bytes()).unwrap();
            writable.create(fs.root(), name, &node(FileKind::Regular)).unwrap();
        }
        writable.close().unwrap();
    }
    let (bytes, mut found) = (image.bytes(), Vec::new());
    for nth in 0..1000 {
        let fault = Fault { request: Request::Read, nth, lasting: Lasting::Once, failure: FaultKind::Io };
        let device = Arc::new(FaultDevice::new(MemDevice::read_only(bytes.clone()), Some(fault)));
        let options = OpenOptions::new(Arc::new(SystemClock));
        let Ok(fs) = driver(name).open(device.clone(), &options) else {
            assert!(device.hits() > 0, "{name}, {nth}: it did not open");
            continue;
        };
        let hits = device.hits();
        let (names, missing) = listed(&*fs);
        assert!(missing.is_none() || device.hits() > hits, "{name}, {nth}: no request failed");
        found.push((names.len(), missing));
        if device.hits() == 0 {
            return Some(found);
        }
    }
    panic!("{name}: reading does not end");
}

#[test]
fn a_listing_truncated_by_a_device_error_returns_the_error() {
    for name in ["minix", "jfs"] {
        let Some(listings) = listings(name) else { continue };
        assert!(listings.iter().all(|(names, missing)| *names == MANY || missing.is_some()), "{name}");
        assert!(listings.iter().any(|(names, _)| *names < MANY), "{name}: no listing was short");
    }
}

#[test]
fn a_listing_completed_from_a_second_copy_is_no_error() {
    let Some(listings) = listings("btrfs") else { return };
    assert!(listings.iter().all(|(names, missing)| *names == MANY && missing.is_none()), "{listings:?}");
}
