//! Opening and checking a volume with the result of a probe.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use obento_base::Result;
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{Access, CheckOptions, Driver as _, Format, FormatOptions, OpenOptions, issues_of};
use obento_env::{FixedRandom, NO_CLOCK};
use obento_ext4::{Ext4Driver, check_volume};

/// Counts the reads of the primary super block.
struct CountingDevice(MemDevice, AtomicU32);

impl BlockDevice for CountingDevice {
    obento_base::forward! { self.0;
        fn len(&self) -> u64;
        fn is_read_only(&self) -> bool;
        fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()>;
        fn flush(&self) -> Result<()>;
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.1.fetch_add((offset == 1024).into(), Ordering::Relaxed);
        self.0.read_at(offset, buf)
    }
}

#[test]
fn a_probe_a_check_and_an_open_read_the_super_block_once() {
    let memory = MemDevice::new(vec![0; 32 << 20]);
    let mut options = FormatOptions::new("ext4", Arc::new(NO_CLOCK), Arc::new(FixedRandom(1)));
    options.block_size = Some(4096);
    Format::format(&Ext4Driver, &memory, &options).unwrap();
    let device = Arc::new(CountingDevice(memory, AtomicU32::new(0)));
    let reads = || device.1.load(Ordering::Relaxed);

    let probe = Ext4Driver.probe(&*device).unwrap();
    assert_eq!(reads(), 1);
    let checking = CheckOptions { probe: probe.clone(), ..CheckOptions::new(Arc::new(NO_CLOCK)) };
    let issues = issues_of(|_, emit| check_volume(device.clone(), &checking, emit)).unwrap();
    assert_eq!((issues, reads()), (Vec::new(), 1));

    let reading = OpenOptions { probe, ..OpenOptions::new(Arc::new(NO_CLOCK)) };
    let info = Ext4Driver.open(device.clone(), &reading).unwrap().info();
    assert_eq!((info.state.as_str(), reads()), ("clean", 1));

    let writing = OpenOptions { access: Access::ReadWrite, ..reading };
    let volume = Ext4Driver.open(device.clone(), &writing).unwrap();
    assert_eq!((volume.info().state.as_str(), reads()), ("clean, needs recovery", 1));
    volume.writable().unwrap().close().unwrap();
    assert_eq!(obento_ext4::issues(device.clone()).unwrap(), []);
}
