//! Volumes to test with, and what judges them.
#![allow(dead_code, reason = "each test uses a part")]

use std::ops::Deref;
use std::sync::Arc;

use obento_base::{Result, Timestamp};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{Check, CheckOptions, DataMode, FileSystem, Finding, Format, FormatOptions};
use obento_env::{Clock, FixedClock, FixedRandom};
use obento_testkit::crash::campaign::Volume;
use obento_testkit::crash::volume::Subject;
use obento_testkit::plan::Bounds;
use obento_testkit::trials;
use obento_xv6::Xv6Driver;

pub fn clock() -> Arc<FixedClock> {
    Arc::new(FixedClock(Timestamp::new(1_700_000_000, 5)))
}

/// An empty volume of `len` bytes.
pub fn format(len: u64, inodes: u32) -> Vec<u8> {
    let device = MemDevice::new(vec![0xee; usize::try_from(len).unwrap()]);
    let mut options = FormatOptions::new("xv6", clock(), Arc::new(FixedRandom(7)));
    options.settings.push(("inodes".into(), inodes.to_string()));
    options.label = b"teaching".to_vec();
    Format::format(&Xv6Driver, &device, &options).expect("a volume that can be");
    device.snapshot()
}

/// Opens a volume for changes.
pub fn open(device: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>) -> Result<Arc<dyn FileSystem>> {
    trials::open(&Xv6Driver, device, clock)
}

/// What the check finds, mere notes included.
pub fn findings(device: Arc<dyn BlockDevice>) -> Vec<Finding> {
    let mut found = Vec::new();
    Check::check(&Xv6Driver, device, &CheckOptions::new(clock()), &mut found).expect("a super block");
    found
}

/// Says what is wrong with the bytes of a volume that was closed.
pub fn check_bytes(bytes: &[u8]) -> Result<(), String> {
    trials::check(&Xv6Driver, bytes)
}

/// How the crash explorer opens and judges volumes.
pub fn subject() -> Subject<'static> {
    Subject {
        open: &open,
        check: &check_bytes,
        second: &|_| Ok(()),
        second_every: 0,
        recovery_every: 60,
        data: DataMode::Ordered,
    }
}

/// A small volume, to be cut and broken.
pub fn volume() -> Volume<'static> {
    let bounds = Bounds { len: 2, space: false, links: true, xattrs: false };
    trials::volume("xv6", format(2 << 20, 64).into(), subject(), bounds)
}

/// A volume that is closed, opened, closed and checked when it goes.
pub struct Judged {
    fs: Arc<dyn FileSystem>,
    pub device: Arc<MemDevice>,
}

impl Judged {
    pub fn new(bytes: Vec<u8>) -> Self {
        let device = Arc::new(MemDevice::new(bytes));
        Self { fs: open(device.clone(), clock()).expect("a sound volume"), device }
    }
}

impl Deref for Judged {
    type Target = dyn FileSystem;
    fn deref(&self) -> &Self::Target {
        &*self.fs
    }
}

impl Drop for Judged {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let close = |fs: &dyn FileSystem| fs.writable().expect("it is open").close().expect("a sound device");
        close(&*self.fs);
        // Once more, so that what the case left without a name is freed as after a crash.
        close(&*open(self.device.clone(), clock()).expect("a sound volume"));
        assert_eq!(findings(self.device.clone()), []);
    }
}
