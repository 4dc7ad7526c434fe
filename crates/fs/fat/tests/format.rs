//! New volumes: byte for byte those of `mkfs.fat` for the same options, and clean to `fsck.fat`.

mod common;

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use obento_base::Timestamp;
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{Contents, Format, FormatError, FormatNotice, FormatOptions, Formatted};
use obento_env::{FixedClock, FixedRandom};
use obento_fat::FatDriver;
use obento_host::FileDevice;
use obento_testkit::opening::{assert_read_once_except, formatted};
use obento_testkit::oracle::program;

/// The time and the volume ID of `mkfs.fat --invariant`.
const INVARIANT: Timestamp = Timestamp::new(1_426_325_213, 0);

fn format(device: &dyn BlockDevice, options: &FormatOptions) -> Result<Formatted, FormatError> {
    Format::format(&FatDriver::default(), device, options)
}

fn options(settings: &[(&str, &str)]) -> FormatOptions {
    let mut options = FormatOptions::new("vfat", Arc::new(FixedClock(INVARIANT)), Arc::new(FixedRandom(1)));
    options.settings.push(("volume_id".into(), "1234abcd".into()));
    options.settings.extend(settings.iter().map(|(name, value)| ((*name).into(), (*value).into())));
    options
}

/// Returns the letter of mkfs.fat for a setting.
fn letter(name: &str) -> &'static str {
    match name {
        "fat" => "-F",
        "sectors_per_cluster" => "-s",
        "sector_size" => "-S",
        "reserved_sectors" => "-R",
        "fats" => "-f",
        "root_entries" => "-r",
        "no_align" => "-a",
        "hidden_sectors" => "-h",
        "media" => "-M",
        "drive_number" => "-D",
        "geometry" => "-g",
        "backup_boot_sector" => "-b",
        "mbr" => "--mbr",
        "message" => "-m",
        "bad_blocks" => "-l",
        "check_blocks" => "-c",
        other => panic!("{other}"),
    }
}

/// Creates the volume with both programs in sparse files. Returns whether both succeeded.
fn both(folder: &Path, len: u64, settings: &[(&str, &str)], label: &str) -> bool {
    let (theirs, ours) = (folder.join("theirs"), folder.join("ours"));
    for image in [&theirs, &ours] {
        File::create(image).and_then(|file| file.set_len(len)).unwrap();
    }
    let mut mkfs = program("mkfs.fat");
    mkfs.arg("--invariant");
    for (name, value) in settings {
        mkfs.arg(letter(name));
        if ["message", "bad_blocks"].contains(name) {
            let file = folder.join(name);
            fs::write(&file, value.replace(' ', if *name == "message" { " " } else { "\n" })).unwrap();
            mkfs.arg(file);
        } else if !value.is_empty() {
            mkfs.arg(value);
        }
    }
    if !label.is_empty() {
        mkfs.args(["-n", label]);
    }
    let output = mkfs.arg(&theirs).output().unwrap();
    let device = obento_host::FileDevice::open_writable(&ours).unwrap();
    let mut options = options(settings);
    options.label = label.as_bytes().to_vec();
    let made = format(&device, &options);
    let what = format!("{len} bytes, {settings:?}, '{label}'");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(made.is_ok(), output.status.success(), "{what}: {made:?}, but mkfs.fat: {said}");
    if made.is_err() {
        assert!(written_len(&ours) == 0, "{what}: a refused request writes nothing");
        return false;
    }
    same_bytes(&theirs, &ours, &what);
    true
}

/// Returns the offset after the last byte that is not in a hole.
fn written_len(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(path).unwrap().blocks()
}

fn same_bytes(theirs: &Path, ours: &Path, what: &str) {
    let (mut one, mut other) = (File::open(theirs).unwrap(), File::open(ours).unwrap());
    let (mut left, mut right) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let len = one.metadata().unwrap().len();
    // Metadata is at the front; holes after it are not read.
    for at in (0..len.min(24 << 20)).step_by(1 << 20) {
        let count = (len - at).min(1 << 20) as usize;
        for (file, bytes) in [(&mut one, &mut left), (&mut other, &mut right)] {
            file.seek(SeekFrom::Start(at)).unwrap();
            file.read_exact(&mut bytes[..count]).unwrap();
        }
        if let Some(place) = (0..count).find(|&place| left[place] != right[place]) {
            let (theirs, ours) = (left[place], right[place]);
            panic!(
                "{what}: byte {:#x} is {theirs:#x} of mkfs.fat and {ours:#x} of obento",
                at + place as u64
            );
        }
    }
}

#[test]
fn a_volume_of_any_length_is_that_of_mkfs_fat() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let kib = [
        32,
        40,
        64,
        100,
        160,
        360,
        361,
        720,
        1200,
        1440,
        1441,
        2048,
        2880,
        4096,
        4100,
        8192,
        8194,
        16_000,
        32_000,
        32_680,
        33_000,
        65_536,
        100_000,
        131_072,
        200_001,
        262_144,
        300_000,
        524_287,
        524_288,
        524_289,
        600_000,
        1 << 20,
        2 << 20,
        9 << 20,
        17 << 20,
        33 << 20,
        65 << 20,
    ];
    let made = kib.iter().filter(|&&kib| both(folder.path(), kib << 10, &[], "")).count();
    assert!(made >= kib.len() - 3, "{made} of {}", kib.len());
    assert!(both(folder.path(), (1440 << 10) + 511, &[], "ODD"));
    assert!(both(folder.path(), (20_000 << 10) + 513, &[], "ODD"));
}

#[test]
fn every_setting_is_that_of_mkfs_fat_at_every_length() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let long = "A long message. ".repeat(40);
    let settings: &[&[(&str, &str)]] = &[
        &[("fat", "12")],
        &[("fat", "16")],
        &[("fat", "32")],
        &[("fat", "32"), ("sectors_per_cluster", "1")],
        &[("sectors_per_cluster", "1")],
        &[("sectors_per_cluster", "8")],
        &[("sectors_per_cluster", "128")],
        &[("sector_size", "1024")],
        &[("sector_size", "2048"), ("fat", "16")],
        &[("sector_size", "4096")],
        &[("sector_size", "4096"), ("fat", "32")],
        &[("reserved_sectors", "1")],
        &[("reserved_sectors", "5"), ("fat", "32")],
        &[("reserved_sectors", "3"), ("fat", "32"), ("no_align", "")],
        &[("reserved_sectors", "100")],
        &[("fats", "1")],
        &[("fats", "4"), ("no_align", "")],
        &[("root_entries", "17")],
        &[("root_entries", "32768")],
        &[("root_entries", "100"), ("no_align", "")],
        &[("no_align", ""), ("fat", "16")],
        &[("no_align", ""), ("sectors_per_cluster", "4")],
        &[("hidden_sectors", "0x800"), ("media", "0xf0")],
        &[("media", "0xfd"), ("drive_number", "3")],
        &[("drive_number", "0xff")],
        &[("geometry", "255/63")],
        &[("geometry", "0x10/7"), ("fat", "32")],
        &[("backup_boot_sector", "9"), ("fat", "32")],
        &[("backup_boot_sector", "0"), ("fat", "32")],
        &[("backup_boot_sector", "31"), ("fat", "32")],
        &[("backup_boot_sector", "1"), ("fat", "32")],
        &[("backup_boot_sector", "32"), ("fat", "32"), ("no_align", "")],
        &[("mbr", ""), ("fat", "12")],
        &[("mbr", ""), ("fat", "16")],
        &[("mbr", ""), ("fat", "32"), ("hidden_sectors", "5")],
        &[("mbr", ""), ("geometry", "255/63")],
        &[("mbr", ""), ("geometry", "1/63")],
        &[("mbr", ""), ("geometry", "16/64")],
        &[("mbr", ""), ("geometry", "1/1"), ("sector_size", "1024")],
        &[("message", "No system here.\n\n\ta\tb\r\n\tPress a key"), ("mbr", "")],
        &[("message", "")],
        &[("message", &long)],
        &[("message", &long), ("fat", "32")],
        &[("message", &long), ("mbr", "")],
        &[("bad_blocks", "500 501 719"), ("sectors_per_cluster", "2"), ("fat", "12")],
        &[("bad_blocks", "2000 2001 8191"), ("fat", "16")],
        &[("check_blocks", "")],
        &[("bad_blocks", "0")],
        &[("bad_blocks", "5000000")],
    ];
    let mut made = 0;
    for settings in settings {
        for kib in [720_u64, 3000, 9_001, 40_000, 140_000, 700_000] {
            made += usize::from(both(folder.path(), kib << 10, settings, ""));
        }
    }
    assert!(made > 100, "both programs created {made}");
}

#[test]
fn at_the_limits_of_the_widths_mkfs_fat_decides_alike() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // One sector per cluster, so that the count passes the limits one by one.
    for (around, width) in [(4_085_u64, "12"), (4_085, "16"), (65_525, "16"), (65_525, "32")] {
        let bits: u64 = width.parse().unwrap();
        let fat = ((around + 2) * bits).div_ceil(8 * 512);
        let root = if bits == 32 { 0 } else { 1 };
        for clusters in around - 3..around + 3 {
            let len = (2 + fat + root + clusters) * 512;
            let settings: &[(&str, &str)] = &[
                ("fat", width),
                ("sectors_per_cluster", "1"),
                ("reserved_sectors", "2"),
                ("fats", "1"),
                ("root_entries", "16"),
                ("no_align", ""),
            ];
            both(folder.path(), len, settings, "");
            both(folder.path(), len, &settings[1..], "");
        }
    }
}

#[test]
fn labels_are_those_of_mkfs_fat() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for label in ["BOOT", "ELEVEN CHAR", "lower", "NO NAME", " ", "a b", "x-_$%'`(){}", "~!#&@^"] {
        let made = both(folder.path(), 2 << 20, &[], label);
        assert!(made, "{label}");
    }
    for label in ["a.b", "a*b", " x", "q?", "tab\t", "a/b"] {
        assert!(!both(folder.path(), 2 << 20, &[], label), "{label}");
    }
    assert!(!both(folder.path(), 2 << 20, &[], "TWELVE CHARS"), "a label that is too long is refused");
}

#[test]
fn a_volume_created_over_other_bytes_shows_none_of_them_and_is_clean() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (contents, fat) in
        [(Contents::Unknown, "16"), (Contents::Preserved, "32"), (Contents::Preserved, "12")]
    {
        let kib = if fat == "12" { 1440 } else { 40_000 };
        let device = MemDevice::new(vec![0xa5; kib << 10]);
        let made = format(&device, &FormatOptions { contents, ..options(&[("fat", fat)]) }).unwrap();
        assert_eq!((made.fs_type, made.features), ("vfat", vec![format!("fat{fat}")]));
        let mut bytes = vec![0; kib << 10];
        device.read_at(0, &mut bytes).unwrap();
        let image = folder.path().join("image");
        fs::write(&image, &bytes).unwrap();
        common::judge(&image);
        let fs = common::open_to_write(&image);
        assert!(common::walk(&*fs).is_empty());
        let root = fs.root();
        let node = obento_driver::NewNode {
            kind: obento_base::FileKind::Regular,
            mode: obento_base::Mode::new(0o755),
            uid: 0,
            gid: 0,
            rdev: obento_base::DeviceNumber::default(),
            target: b"",
        };
        fs.writable().unwrap().create(root, obento_base::Name::new(b"a file").unwrap(), &node).unwrap();
        fs.writable().unwrap().close().unwrap();
        common::judge(&image);
    }
}

#[test]
fn impossible_settings_are_refused_by_name_before_any_write() {
    let device = MemDevice::new(vec![0; 4 << 20]);
    let refused = |name: &str, value: &str| format(&device, &options(&[(name, value)])).unwrap_err();
    assert!(matches!(refused("fatt", "12"), FormatError::UnknownSetting { name } if name == "fatt"));
    for (setting, value) in [
        ("fat", "13"),
        ("fat", ""),
        ("sectors_per_cluster", "3"),
        ("sectors_per_cluster", "256"),
        ("sector_size", "256"),
        ("sector_size", "8192"),
        ("reserved_sectors", "0"),
        ("fats", "5"),
        ("root_entries", "15"),
        ("no_align", "1"),
        ("hidden_sectors", "4294967296"),
        ("media", "0xf1"),
        ("drive_number", "256"),
        ("geometry", "16"),
        ("geometry", "0/63"),
        ("volume_id", "xyz"),
        ("volume_id", "123456789"),
        ("codepage", "932"),
        ("message", "\u{100}"),
        ("bad_blocks", "x"),
        ("bad_blocks", "1"),
        ("bad_blocks", "4096"),
        ("check_blocks", "y"),
        ("mbr", "y"),
    ] {
        let error = refused(setting, value);
        assert!(
            matches!(&error, FormatError::BadValue { name, .. } if name == &setting),
            "{setting}: {error}"
        );
    }
    let features = FormatOptions { features: vec!["has_journal".into()], ..options(&[]) };
    let error = format(&device, &features).unwrap_err();
    assert!(matches!(error, FormatError::UnknownFeature { .. }));
    let mut bytes = vec![1; 4 << 20];
    device.read_at(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|&byte| byte == 0));
}

/// A device that cannot read between two offsets.
struct Broken(MemDevice, std::ops::Range<u64>);

impl BlockDevice for Broken {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> obento_base::Result<()> {
        let end = offset + buf.len() as u64;
        if offset < self.1.end && self.1.start < end {
            return Err(obento_base::DeviceError::Read { offset, len: end - offset, errno: 5 }.into());
        }
        self.0.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> obento_base::Result<()> {
        self.0.write_at(offset, buf)
    }
    fn flush(&self) -> obento_base::Result<()> {
        self.0.flush()
    }
    fn discard(&self, range: std::ops::Range<u64>) -> obento_base::Result<()> {
        self.0.discard(range)
    }
}

#[test]
fn clusters_that_cannot_be_read_are_bad_and_counted_as_used() {
    if !common::oracles() {
        return;
    }
    for (len, width) in [(8_u64 << 20, "12"), (40 << 20, "16"), (40 << 20, "32")] {
        let settings = &[("fat", width), ("check_blocks", ""), ("sectors_per_cluster", "8")];
        let device = Broken(MemDevice::new(vec![0; len as usize]), (5 << 20)..(5 << 20) + 4096);
        let Ok(made) = format(&device, &options(settings)) else { panic!("{width}") };
        // The range is not aligned to clusters. A FAT32 volume of this size has few.
        let is_few = matches!(made.notices.first(), Some(FormatNotice::FewClusters { .. }));
        assert_eq!(is_few, width == "32");
        let last = made.notices.last();
        assert!(matches!(last, Some(FormatNotice::BadUnits(1 | 2))), "{width}: {:?}", made.notices);
        let image = tempfile::NamedTempFile::new().unwrap();
        fs::write(image.path(), device.0.snapshot()).unwrap();
        let checked = program("fsck.fat").arg("-n").arg(image.path()).output().unwrap();
        assert!(checked.status.success(), "{width}: {}", String::from_utf8_lossy(&checked.stdout));
    }
    let device = Broken(MemDevice::new(vec![0; 8 << 20]), 0..512);
    assert!(matches!(format(&device, &options(&[("check_blocks", "")])), Err(FormatError::Device(_))));
}

/// As mkfs.fat warns; Windows takes the width of a FAT from the number of clusters.
#[test]
fn a_fat32_volume_with_too_few_clusters_has_a_notice() {
    let notices =
        |len: usize| format(&MemDevice::new(vec![0; len]), &options(&[("fat", "32")])).unwrap().notices;
    assert_eq!(notices(1 << 20), [FormatNotice::FewClusters { clusters: 1984, least: 65_525 }]);
    assert_eq!(notices(64 << 20), []);
}

#[test]
fn a_probe_a_check_and_an_open_read_the_boot_sector_once() {
    let driver = FatDriver::default();
    for len in [2 << 20, 32 << 20, 600 << 20] {
        // The check reads the label of the boot sector.
        assert_read_once_except(&driver, formatted(&driver, "vfat", len), 0, 512, 1);
    }
}

/// mkfs of this type leaves such bytes, too: they may belong to other data on the device.
#[test]
fn bytes_after_a_volume_that_is_shorter_than_its_device_stay() {
    let image = tempfile::NamedTempFile::new().unwrap();
    fs::write(image.path(), vec![0xa5; 48 << 20]).unwrap();
    let device = FileDevice::open_writable(image.path()).unwrap();
    let options = FormatOptions { len: Some(40 << 20), contents: Contents::Unknown, ..options(&[]) };
    format(&device, &options).unwrap();
    drop(device);
    let bytes = fs::read(image.path()).unwrap();
    assert!(bytes[40 << 20..].iter().all(|&byte| byte == 0xa5));
    assert!(bytes[30 << 20..40 << 20].iter().all(|&byte| byte == 0), "the volume was not discarded");
}
