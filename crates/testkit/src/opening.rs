//! Opening and checking a volume with the result of a probe.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use obento_base::Result;
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{Access, CheckOptions, Driver, Finding, FormatOptions, OpenOptions};
use obento_env::{FixedRandom, NO_CLOCK};

/// Counts the reads of `len` bytes at `offset`.
struct ReadCounter {
    memory: MemDevice,
    offset: u64,
    len: usize,
    reads: AtomicU32,
}

impl BlockDevice for ReadCounter {
    obento_base::forward! { self.memory;
        fn len(&self) -> u64;
        fn is_read_only(&self) -> bool;
        fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()>;
        fn flush(&self) -> Result<()>;
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let is_counted = (offset, buf.len()) == (self.offset, self.len);
        self.reads.fetch_add(is_counted.into(), Ordering::Relaxed);
        self.memory.read_at(offset, buf)
    }
}

/// Returns `len` bytes with an empty volume of the type `fs_type`.
pub fn formatted(driver: &dyn Driver, fs_type: &str, len: usize) -> MemDevice {
    let memory = MemDevice::new(vec![0; len]);
    let options = FormatOptions::new(fs_type, Arc::new(NO_CLOCK), Arc::new(FixedRandom(1)));
    driver.format().unwrap().format(&memory, &options).unwrap();
    memory
}

/// Asserts that `driver` reads the `len` bytes at `offset` of an undamaged volume once for a probe, a check, and opening
/// for reading and for change. `offset` and `len` are those of the structure that the probe decodes.
pub fn assert_read_once(driver: &dyn Driver, memory: MemDevice, offset: u64, len: usize) {
    assert_read_once_except(driver, memory, offset, len, 0);
}

/// Asserts the same as [`assert_read_once`] for a driver whose check compares the bytes of the structure with others, for
/// which it reads them `compared` times.
pub fn assert_read_once_except(
    driver: &dyn Driver,
    memory: MemDevice,
    offset: u64,
    len: usize,
    compared: u32,
) {
    let device = Arc::new(ReadCounter { memory, offset, len, reads: AtomicU32::new(0) });
    let expect_one = |step: &str| assert_eq!(device.reads.swap(1, Ordering::Relaxed), 1, "{step}");

    let probe = driver.probe(&*device).unwrap();
    assert!(probe.is_some(), "the volume is recognised");
    expect_one("the probe");

    let mut findings: Vec<Finding> = Vec::new();
    let options = CheckOptions { probe: probe.clone(), ..CheckOptions::new(Arc::new(NO_CLOCK)) };
    driver.check().unwrap().check(device.clone(), &options, &mut findings).unwrap();
    assert!(findings.is_empty(), "{findings:?}");
    device.reads.fetch_sub(compared, Ordering::Relaxed);
    expect_one("the check");

    let reading = OpenOptions { probe, ..OpenOptions::new(Arc::new(NO_CLOCK)) };
    driver.open(device.clone(), &reading).unwrap();
    expect_one("opening for reading");

    if driver.access() == Access::ReadWrite {
        let volume =
            driver.open(device.clone(), &OpenOptions { access: Access::ReadWrite, ..reading }).unwrap();
        expect_one("opening for change");
        volume.writable().unwrap().close().unwrap();
    }
}
