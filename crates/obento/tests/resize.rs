//! Growing and shrinking volumes, and adding and removing journals and quota files, with power failures and full devices.

use std::sync::Arc;

use obento::base::Timestamp;
use obento::block::{BlockDevice, MemDevice};
use obento::check::check;
use obento::driver::{
    Access, CheckOptions, Driver, FileSystem, FormatOptions, OpenOptions, Probe, RepairMode, Resize,
    ResizeError, ResizeObserver, ResizeOptions, ResizePlan, TuneOptions,
};
use obento::env::{FixedClock, FixedRandom, SystemClock};
use obento::partition::{DiskId, Guid, NewPartition, NewTable, PartitionType, Table};
use obento::resize::{LongerSpace, NewSize, ResizeFailure, plan_resize};
use obento::{Image, Options, Registry};
use obento_ext4::Ext4Driver;
use obento_testkit::crash::{self, SeenStates};
use obento_testkit::record::{Event, RecordDevice};

const LEN: usize = 12 << 20;
const GROWN: usize = 30 << 20;

fn driver() -> Arc<dyn obento::driver::Driver> {
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

fn grow(device: Arc<dyn BlockDevice>) -> Result<(), obento::driver::ResizeError> {
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
            return Err(obento::base::DeviceError::Write { offset, len, errno: NO_SPACE }.into());
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

/// The length to which volumes shrink, in the third of five groups or so.
const SHRUNK: u64 = 5 << 20;

/// Returns a volume with a fragmented tree whose blocks and inodes are in all groups.
fn filled(fs_type: &str, features: &str) -> Vec<u8> {
    let device = Arc::new(MemDevice::new(made(fs_type, features, 2048)));
    let image = open(device.clone());
    let volume = image.volume(None).unwrap();
    for dir in 0..12 {
        volume.create_dir(format!("/d{dir}").as_str()).unwrap();
        for file in 0..12_u8 {
            let path = format!("/d{dir}/{file}");
            volume.write(path.as_str(), vec![file; 1 + usize::from(file) * 3_000]).unwrap();
        }
    }
    for dir in (0..12).step_by(3) {
        volume.remove_dir_all(format!("/d{dir}").as_str()).unwrap();
    }
    volume.close().unwrap();
    bytes_of(&*device)
}

fn has_tree(device: &Arc<dyn BlockDevice>) -> Result<(), String> {
    has_file(device)?;
    let image = open(device.clone());
    let volume = image.volume_to_read(None).map_err(|error| error.to_string())?;
    for dir in (0..12).filter(|dir| dir % 3 != 0) {
        for file in 0..12_u8 {
            let path = format!("/d{dir}/{file}");
            let found = volume.read(path.as_str()).map_err(|error| format!("{path}: {error}"))?;
            if found != vec![file; 1 + usize::from(file) * 3_000] {
                return Err(format!("{path} has other contents"));
            }
        }
    }
    Ok(())
}

fn shrink(device: Arc<dyn BlockDevice>) -> Result<u64, obento::driver::ResizeError> {
    let options = ResizeOptions::new(SHRUNK, Arc::new(SystemClock));
    driver().resize().unwrap().resize(device, &options, &mut |_, _| {}).map(|plan| plan.len)
}

#[test]
fn a_power_failure_while_a_volume_shrinks_loses_no_file() {
    for (fs_type, features) in [
        ("ext4", ""),
        ("ext4", "^resize_inode"),
        ("ext4", "meta_bg,^resize_inode"),
        ("ext3", ""),
        ("ext4", "^has_journal,^resize_inode"),
    ] {
        let name = format!("{fs_type} {features}");
        let bytes = filled(fs_type, features);
        let device = Arc::new(RecordDevice::new(MemDevice::new(bytes.clone())));
        let shrunk = shrink(device.clone());
        let mut events = device.take_events();
        if features.contains("^has_journal") && shrunk.is_err() {
            // Inodes of removed groups cannot move without a journal; nothing was written.
            assert!(events.is_empty(), "{name}");
            continue;
        }
        shrunk.unwrap_or_else(|error| panic!("{name}: {error}"));
        events.push(Event::Flush);
        let limits = crash::Options { whole: 1024..2048, samples: 3, torn: 1, ..crash::Options::new(5) };
        let summary = crash::explore(&bytes, &events, &limits, &SeenStates::default(), &mut |state| {
            let device = state.device.clone();
            let left = checked(&device, RepairMode::All)?;
            if left > 0 || checked(&device, RepairMode::Nothing)? > 0 {
                return Err(format!("{left} findings are left"));
            }
            has_tree(&device)?;
            shrink(device.clone()).map_err(|error| error.to_string())?;
            match checked(&device, RepairMode::Nothing)? {
                0 => has_tree(&device),
                count => Err(format!("{count} findings after shrinking again")),
            }
        });
        assert_eq!(summary.failures, [], "{name}");
        assert!(summary.judged > 20, "{name}: {summary:?}");
        let device: Arc<dyn BlockDevice> = device;
        assert_eq!(checked(&device, RepairMode::Nothing), Ok(0), "{name}");
        assert!(driver().probe(&*device).unwrap().unwrap().len <= SHRUNK, "{name}");
        has_tree(&device).unwrap();
    }
}

/// Changes a feature of the volume on `device`, as `tune -O` does.
fn tune(device: Arc<dyn BlockDevice>, feature: &str) -> Result<(), String> {
    let mut options = TuneOptions::new(Arc::new(SystemClock));
    options.settings.push(("features".into(), feature.into()));
    driver().tune().unwrap().tune(device, &options).map(drop).map_err(|error| error.to_string())
}

#[test]
fn a_power_failure_while_a_journal_is_added_or_removed_leaves_a_volume_that_a_check_completes() {
    for (fs_type, features, change) in [
        ("ext2", "", "has_journal"),
        ("ext4", "^has_journal", "has_journal"),
        ("ext3", "", "^has_journal"),
        ("ext4", "64bit", "^has_journal"),
    ] {
        let name = format!("{fs_type} {features} {change}");
        let bytes = made(fs_type, features, 2048);
        let device = Arc::new(RecordDevice::new(MemDevice::new(bytes.clone())));
        tune(device.clone(), change).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut events = device.take_events();
        events.push(Event::Flush);
        let limits = crash::Options { whole: 512..1024, samples: 4, torn: 1, ..crash::Options::new(5) };
        let summary = crash::explore(&bytes, &events, &limits, &SeenStates::default(), &mut |state| {
            let device = state.device.clone();
            has_file(&device)?;
            let left = checked(&device, RepairMode::All)?;
            if left > 0 || checked(&device, RepairMode::Nothing)? > 0 {
                return Err(format!("{left} findings are left"));
            }
            has_file(&device)?;
            // The second attempt succeeds, and so does the opposite change.
            for change in [change.to_owned(), format!("^{change}").replace("^^", "")] {
                tune(device.clone(), &change)?;
                match checked(&device, RepairMode::Nothing)? {
                    0 => has_file(&device)?,
                    count => return Err(format!("{count} findings after {change}")),
                }
            }
            Ok(())
        });
        assert_eq!(summary.failures, [], "{name}");
        assert!(summary.judged > 3, "{name}: {summary:?}");
    }
}

/// Checks that no file has lost its name: a check would store it in `/lost+found`.
fn has_lost_nothing(device: &Arc<dyn BlockDevice>) -> Result<(), String> {
    let image = open(device.clone());
    let volume = image.volume_to_read(None).map_err(|error| error.to_string())?;
    let found = volume.read_dir("/lost+found").map_err(|error| error.to_string())?.count();
    if found == 0 { Ok(()) } else { Err(format!("{found} entries in /lost+found")) }
}

/// Changes quota files of the volume on `device`, as `tune -O` and `tune -Q` do.
fn tune_quota(device: Arc<dyn BlockDevice>, setting: &str, value: &str) -> Result<(), String> {
    let mut options = TuneOptions::new(Arc::new(SystemClock));
    options.settings.push((setting.into(), value.into()));
    driver().tune().unwrap().tune(device, &options).map(drop).map_err(|error| error.to_string())
}

#[test]
fn a_power_failure_while_quota_files_are_added_or_removed_leaves_a_volume_that_a_check_completes() {
    for (fs_type, features, before, setting, change, back) in [
        ("ext4", "", "", "features", "quota,project", "^quota,^project"),
        ("ext4", "^has_journal", "", "features", "quota,project", "^quota,^project"),
        ("ext4", "^has_journal", "quota,project", "features", "^quota,^project", "quota"),
        ("ext4", "64bit", "quota,project", "features", "^project", "project"),
        ("ext4", "", "quota", "quota", "^usrquota", "usrquota"),
        ("ext3", "", "", "features", "quota", "^quota"),
        ("ext4", "^has_journal", "quota", "features", "project", "^project"),
        ("ext4", "^has_journal", "quota,project", "quota", "^usrquota,^prjquota", "usrquota,prjquota"),
        ("ext4", "^has_journal", "project,quota", "features", "^project", "project"),
    ] {
        let name = format!("{fs_type} {features} {change}");
        let device = Arc::new(MemDevice::new(made(fs_type, features, 2048)));
        if !before.is_empty() {
            tune_quota(device.clone(), "features", before).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        let bytes = bytes_of(&*device);
        let device = Arc::new(RecordDevice::new(MemDevice::new(bytes.clone())));
        tune_quota(device.clone(), setting, change).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut events = device.take_events();
        events.push(Event::Flush);
        let limits = crash::Options { whole: 512..1024, samples: 4, torn: 1, ..crash::Options::new(5) };
        let summary = crash::explore(&bytes, &events, &limits, &SeenStates::default(), &mut |state| {
            let device = state.device.clone();
            has_file(&device)?;
            let left = checked(&device, RepairMode::All)?;
            if left > 0 || checked(&device, RepairMode::Nothing)? > 0 {
                return Err(format!("{left} findings are left"));
            }
            has_file(&device)?;
            has_lost_nothing(&device)?;
            // The second attempt succeeds, and so does the opposite change.
            for change in [change, back] {
                tune_quota(device.clone(), setting, change)?;
                match checked(&device, RepairMode::Nothing)? {
                    0 => has_file(&device)?,
                    count => return Err(format!("{count} findings after {change}")),
                }
            }
            Ok(())
        });
        assert_eq!(summary.failures, [], "{name}");
        assert!(summary.judged > 3, "{name}: {summary:?}");
    }
}

#[test]
fn a_new_quota_file_leaves_the_file_whose_blocks_a_stale_reserved_inode_maps() {
    let mut bytes = made("ext2", "", 2048);
    let field = |at: usize, len: usize| {
        bytes[at..at + len].iter().rev().fold(0, |all, &byte| all << 8 | usize::from(byte))
    };
    // The super block and the descriptor of the first group are in the blocks 1 and 2.
    let (size, table) = (field(1024 + 88, 2), field(2 * 1024 + 8, 4) * 1024);
    let record = |ino: usize| table + (ino - 1) * size..table + ino * size;
    // The file is the first inode after /lost+found.
    let file = bytes[record(12)].to_vec();
    assert_eq!(file[1] & 0xf0, 0x80, "a regular file");
    bytes[record(3)].copy_from_slice(&file);
    let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(bytes));
    tune_quota(device.clone(), "features", "quota").unwrap();
    has_file(&device).unwrap();
    assert_eq!(checked(&device, RepairMode::Nothing), Ok(0));
}

#[test]
fn a_check_keeps_the_blocks_of_a_quota_file_that_its_group_marked_as_never_used() {
    let mut bytes = made("ext4", "^has_journal,^metadata_csum,uninit_bg", 2048);
    // `RO_COMPAT_QUOTA`, `RO_COMPAT_PROJECT` and `s_prj_quota_inum`; the inode follows the last one in use.
    bytes[1024 + 101] |= 0x21;
    bytes[1024 + 0x26c] = 13;
    let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(bytes));
    assert_eq!(checked(&device, RepairMode::All), Ok(0));
    assert_eq!(checked(&device, RepairMode::Nothing), Ok(0));
    // Fails if the blocks of the file are free.
    tune_quota(device.clone(), "features", "^quota,^project").unwrap();
    assert_eq!(checked(&device, RepairMode::Nothing), Ok(0));
    has_file(&device).unwrap();
}

/// A driver of ext4 that fails to grow a volume, before or after a write.
struct FailsToGrow {
    writes: bool,
}

impl Driver for FailsToGrow {
    fn names(&self) -> &'static [&'static str] {
        Ext4Driver.names()
    }
    fn access(&self) -> Access {
        Ext4Driver.access()
    }
    fn probe(&self, device: &dyn BlockDevice) -> obento::Result<Option<Probe>> {
        Ext4Driver.probe(device)
    }
    fn open(
        &self,
        device: Arc<dyn BlockDevice>,
        options: &OpenOptions,
    ) -> obento::Result<Arc<dyn FileSystem>> {
        Ext4Driver.open(device, options)
    }
    fn resize(&self) -> Option<&dyn Resize> {
        Some(self)
    }
}

impl Resize for FailsToGrow {
    fn plan(&self, device: &Arc<dyn BlockDevice>, len: u64) -> Result<ResizePlan, ResizeError> {
        Resize::plan(&Ext4Driver, device, len)
    }
    fn minimum(&self, device: &Arc<dyn BlockDevice>) -> Result<u64, ResizeError> {
        Resize::minimum(&Ext4Driver, device)
    }
    fn resize(
        &self,
        device: Arc<dyn BlockDevice>,
        _options: &ResizeOptions,
        _observer: ResizeObserver<'_>,
    ) -> Result<ResizePlan, ResizeError> {
        if self.writes {
            device.write_at(device.len() - 1, &[1])?;
        }
        Err(obento::Error::NoMemory.into())
    }
}

#[test]
fn a_volume_that_does_not_grow_leaves_its_space_or_the_error_states_the_new_length() {
    const MIB: u64 = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let volume = &made("ext4", "", 2048)[..LEN];
    let mut disk = vec![0; 64 << 20];
    disk[1 << 20..][..LEN].copy_from_slice(volume);
    let disk = Arc::new(MemDevice::new(disk));
    let partition = NewPartition {
        number: None,
        kind: PartitionType::Gpt(Guid::from_u128(0x0fc63daf_8483_4772_8e79_3d69d8477de4)),
        name: String::new(),
        uuid: Guid::from_u128(5),
        attributes: 0,
        range: MIB..MIB + LEN as u64,
    };
    NewTable { id: DiskId::Guid(Guid::from_u128(77)), partitions: vec![partition] }.write(&*disk).unwrap();
    let disk = disk.snapshot();
    for (bytes, space) in [(volume, LongerSpace::File), (&disk, LongerSpace::Partition)] {
        for writes in [false, true] {
            std::fs::write(&path, bytes).unwrap();
            let registry = Registry::empty().with(FailsToGrow { writes });
            let image = Image::builder().registry(registry).for_change().open(&path).unwrap();
            let planned = plan_resize(&image, None, NewSize::Bytes(GROWN as u64)).unwrap();
            let failure = planned.run(Arc::new(SystemClock), &mut |_, _| {}).unwrap_err();
            drop(image);
            let left = std::fs::read(&path).unwrap();
            let no_memory = ResizeError::Failed(obento::Error::NoMemory);
            if !writes {
                assert!(matches!(&failure, ResizeFailure::Resize(error) if *error == no_memory), "{failure}");
                assert!(left == bytes, "{space:?}: the bytes are as before");
                continue;
            }
            let ResizeFailure::Longer { failure: inner, space: found, len } = &failure else {
                panic!("{space:?}: {failure}");
            };
            assert_eq!((*found, *len), (space, GROWN as u64));
            assert!(matches!(&**inner, ResizeFailure::Resize(error) if *error == no_memory), "{inner}");
            assert!(failure.to_string().ends_with(&format!(" now has {GROWN} bytes")), "{failure}");
            match space {
                LongerSpace::File => assert_eq!(left.len(), GROWN),
                LongerSpace::Partition => {
                    let table = Table::read(&MemDevice::new(left)).unwrap().unwrap();
                    assert_eq!(table.partitions[0].end(), MIB + GROWN as u64);
                }
            }
        }
    }
}
