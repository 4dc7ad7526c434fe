//! Volumes to test with, and what judges them.
#![allow(dead_code, reason = "each test uses a part")]

use std::sync::Arc;

use obento_base::{Result, Timestamp};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{Check, CheckOptions, DataMode, FileSystem, Finding, Format, FormatOptions};
use obento_env::{Clock, FixedClock, FixedRandom};
use obento_testkit::crash::campaign::Volume;
use obento_testkit::crash::volume::Subject;
use obento_testkit::plan::Bounds;
use obento_testkit::trials::{self, Judged, close};
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

/// Says what is wrong with a volume that was closed.
pub fn check(device: &Arc<dyn BlockDevice>, _: Option<&[u8]>) -> Result<(), String> {
    trials::check(&Xv6Driver, device)
}

/// How the crash explorer opens and judges volumes.
pub fn subject() -> Subject<'static> {
    Subject {
        open: &open,
        check: &check,
        second: &|_| Ok(()),
        second_every: 0,
        recovery_every: 60,
        data: DataMode::Ordered,
    }
}

const LEFT_OUT: &[(&str, &str)] = &[
    (
        "a_file_has_at_most_as_many_names_as_the_format_supports",
        "32,767 names take more room than 2 MiB have",
    ),
    ("2324 files are created in a directory, listed, and removed", "there are fewer inodes"),
];

/// A small volume, to be cut and broken: the inodes are as many as the contract's cases make.
pub fn volume() -> Volume<'static> {
    let bounds = Bounds { len: 2, space: false, links: true, xattrs: false };
    let volume = trials::volume("xv6", format(2 << 20, 512).into(), subject(), bounds);
    Volume { left_out: LEFT_OUT, ..volume }
}

/// The volume in `bytes`, which is closed, opened, closed and checked when it goes.
pub fn judged(bytes: Vec<u8>) -> Judged {
    let device = Arc::new(MemDevice::new(bytes));
    let opened = |device: &Arc<MemDevice>| open(device.clone(), clock()).expect("a sound volume");
    let fs = opened(&device);
    let judge = move || {
        // Once more, so that what the case left without a name is freed as after a crash.
        close(&*opened(&device));
        assert_eq!(findings(device), []);
    };
    Judged::new(fs, judge)
}
