//! Growing volumes, with power failures and full devices.

use std::sync::Arc;

use obento::driver::{RepairMode, ResizeOptions};
use obento::{
    BlockDevice, CheckOptions, FixedClock, FixedRandom, FormatOptions, Image, MemDevice, Options, Registry,
    SystemClock, Timestamp, check,
};
use obento_testkit::crash::{self, SeenStates};
use obento_testkit::record::{Event, RecordDevice};

const LEN: usize = 12 << 20;
const GROWN: usize = 30 << 20;

fn driver() -> Arc<dyn obento::Driver> {
    Registry::default().find("ext4").unwrap().clone()
}

/// Returns a device of the grown length with a small volume and a file. The rest of the device has old contents.
fn made(fs_type: &str, features: &str, group: u32) -> Vec<u8> {
    let mut bytes = vec![0xa5; GROWN];
    bytes[..LEN].fill(0);
    let device = Arc::new(MemDevice::new(bytes));
    let clock = Arc::new(FixedClock(Timestamp::new(1_700_000_000, 0)));
    let mut options = FormatOptions::new(fs_type, clock, Arc::new(FixedRandom(3)));
    options.len = Some(LEN as u64);
    options.block_size = Some(1024);
    options.features = features.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    options.settings = vec![("blocks_per_group".into(), group.to_string())];
    driver().format().unwrap().format(&*device, &options).unwrap();
    let image = open(device.clone());
    let volume = image.volume(None).unwrap();
    volume.write("/file", vec![7; 300_000]).unwrap();
    volume.close().unwrap();
    bytes_of(&*device)
}

fn bytes_of(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; GROWN];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

fn open(device: Arc<dyn BlockDevice>) -> Image {
    Image::on_device("image".as_ref(), device, &Registry::default(), &Options::default().for_change())
        .unwrap()
}

fn grow(device: Arc<dyn BlockDevice>) -> Result<(), obento::ResizeError> {
    let options = ResizeOptions::new(GROWN as u64, Arc::new(SystemClock));
    driver().resize().unwrap().resize(device, &options, &mut |_, _| {}).map(drop)
}

/// Returns the number of findings that are left, after repairing with `mode`.
fn checked(device: &Arc<dyn BlockDevice>, mode: RepairMode) -> Result<u64, String> {
    let options = CheckOptions { repair_mode: mode, ..CheckOptions::new(Arc::new(SystemClock)) };
    let mut findings = Vec::new();
    let report =
        check(&open(device.clone()), None, &options, &mut findings).map_err(|error| error.to_string())?;
    Ok(report.left())
}

fn has_file(device: &Arc<dyn BlockDevice>) -> Result<(), String> {
    let image = open(device.clone());
    let volume = image.volume_to_read(None).map_err(|error| error.to_string())?;
    match volume.read("/file").map_err(|error| error.to_string())? == vec![7; 300_000] {
        true => Ok(()),
        false => Err("the file has other contents".into()),
    }
}

#[test]
fn a_power_failure_while_a_volume_grows_leaves_a_volume_that_a_check_completes() {
    // Groups of 512 or 1024 blocks need another descriptor block after the change.
    for (fs_type, features, group) in [
        ("ext4", "", 2048),
        ("ext4", "64bit", 1024),
        ("ext4", "64bit,^resize_inode", 1024),
        ("ext4", "^has_journal", 2048),
        ("ext4", "^resize_inode", 2048),
        ("ext4", "sparse_super2", 2048),
        ("ext3", "", 2048),
        ("ext2", "", 512),
        ("ext2", "^resize_inode", 512),
        ("ext2", "meta_bg,^resize_inode", 1024),
    ] {
        let name = format!("{fs_type} {features} {group}");
        let bytes = made(fs_type, features, group);
        let device = Arc::new(RecordDevice::new(MemDevice::new(bytes.clone())));
        grow(device.clone()).unwrap();
        let mut events = device.take_events();
        events.push(Event::Flush);
        // A torn super block is found by its checksum, or not at all: all drivers write it in place.
        let limits = crash::Options { whole: 1024..2048, samples: 6, torn: 2, ..crash::Options::new(5) };
        let summary = crash::explore(&bytes, &events, &limits, &SeenStates::default(), &mut |state| {
            let device = state.device.clone();
            has_file(&device)?;
            let left = checked(&device, RepairMode::All)?;
            if left > 0 || checked(&device, RepairMode::Nothing)? > 0 {
                return Err(format!("{left} findings are left"));
            }
            has_file(&device)?;
            // The second attempt succeeds.
            grow(device.clone()).map_err(|error| error.to_string())?;
            match checked(&device, RepairMode::Nothing)? {
                0 => has_file(&device),
                count => Err(format!("{count} findings after growing again")),
            }
        });
        assert_eq!(summary.failures, [], "{name}");
        assert!(summary.judged > 3, "{name}: {summary:?}");
        let device: Arc<dyn BlockDevice> = device;
        assert_eq!(checked(&device, RepairMode::Nothing), Ok(0), "{name}");
        assert_eq!(driver().probe(&*device).unwrap().unwrap().len, GROWN as u64, "{name}");
    }
}

/// A device that refuses all writes after the first ones.
struct Full {
    below: MemDevice,
    left: std::sync::atomic::AtomicI64,
}

impl BlockDevice for Full {
    fn len(&self) -> u64 {
        self.below.len()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> obento::Result<()> {
        self.below.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> obento::Result<()> {
        const NO_SPACE: i32 = 28;
        let left = self.left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        // A full disk still overwrites what is stored.
        if left <= 0 && offset + buf.len() as u64 > LEN as u64 {
            let len = buf.len() as u64;
            return Err(obento::DeviceError::Write { offset, len, errno: NO_SPACE }.into());
        }
        self.below.write_at(offset, buf)
    }
    fn flush(&self) -> obento::Result<()> {
        self.below.flush()
    }
}

#[test]
fn a_full_disk_leaves_the_old_volume() {
    for fs_type in ["ext4", "ext2"] {
        let bytes = made(fs_type, "", 2048);
        for writes in 0..3 {
            let full = Full { below: MemDevice::new(bytes.clone()), left: writes.into() };
            let device: Arc<dyn BlockDevice> = Arc::new(full);
            assert!(grow(device.clone()).is_err(), "{fs_type} {writes}");
            assert_eq!(driver().probe(&*device).unwrap().unwrap().len, LEN as u64, "{fs_type} {writes}");
            assert!(bytes_of(&*device)[..LEN] == bytes[..LEN], "{fs_type} {writes}");
        }
    }
}
