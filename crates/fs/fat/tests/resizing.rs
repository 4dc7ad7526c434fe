//! Changing the size of a volume, judged by fsck.fat and mtools, with power failures.

mod common;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use common::{FORMAT, Shape, judge, mcopy, mtool, shape};
use obento_block::{BlockDevice, MemDevice};
use obento_driver::{
    Check as _, CheckOptions, Finding, RepairMode, Resize as _, ResizeError, ResizeOptions, ResizeRefusal,
};
use obento_env::FixedClock;
use obento_fat::FatDriver;
use obento_fat::check::issues;
use obento_testkit::crash::{self, SeenStates};
use obento_testkit::record::{Event, RecordDevice};
use obento_testkit::trials;

fn resize(device: Arc<dyn BlockDevice>, len: u64) -> Result<u64, ResizeError> {
    let options = ResizeOptions::new(len, Arc::new(FixedClock(FORMAT.now)));
    FatDriver::default().resize(device, &options, &mut |_, _| {}).map(|plan| plan.len)
}

fn resize_image(image: &Path, len: u64) -> Result<u64, ResizeError> {
    resize(Arc::new(obento_host::FileDevice::open_writable(image).unwrap()), len)
}

fn plan(image: &Path, len: u64) -> Result<u64, ResizeError> {
    let device: Arc<dyn BlockDevice> = common::in_memory(image);
    FatDriver::default().plan(&device, len).map(|plan| plan.len)
}

fn minimum(image: &Path) -> u64 {
    let device: Arc<dyn BlockDevice> = common::in_memory(image);
    FatDriver::default().minimum(&device).unwrap()
}

fn cut(image: &Path, len: u64) {
    File::options().write(true).open(image).unwrap().set_len(len).unwrap();
}

/// Creates a volume whose files and directories are also at its end.
fn spread(shape: &Shape, folder: &Path) -> std::path::PathBuf {
    let image = shape.filled(folder);
    let ballast = folder.join("ballast");
    let len = usize::try_from(shape.kib).unwrap() * 960 - 700_000;
    fs::write(&ballast, vec![7; len]).unwrap();
    mcopy(&image, &ballast, "::/");
    mtool(&image, "mmd", ["::/late"]);
    for child in ["sizes", "many", "d"] {
        mcopy(&image, &folder.join("source").join(child), "::/late");
    }
    mtool(&image, "mdel", ["::/ballast"]);
    mtool(&image, "mdeltree", ["::/sizes"]);
    judge(&image);
    image
}

/// Returns all files of an image as mtools copies them.
fn copied(image: &Path, folder: &Path, name: &str) -> std::path::PathBuf {
    let target = folder.join(name);
    let _ = fs::remove_dir_all(&target);
    fs::create_dir(&target).unwrap();
    mtool(image, "mcopy", [OsStr::new("-s"), "-Q".as_ref(), "::/".as_ref(), target.as_os_str()]);
    target
}

#[track_caller]
fn expect_same(left: &Path, right: &Path, what: &str) {
    obento_testkit::oracle::call("diff", [OsStr::new("-r"), left.as_os_str(), right.as_os_str()])
        .unwrap_or_else(|error| panic!("{what}: {error}"));
}

#[test]
fn volumes_of_all_types_shrink_and_grow_again_and_keep_all_files() {
    if !common::oracles() {
        return;
    }
    for name in ["fat12", "fat12-4k", "fat16", "fat16-sector-4k", "fat32", "fat32-4k"] {
        let folder = tempfile::tempdir().unwrap();
        let shape = shape(name);
        let image = spread(shape, folder.path());
        let before = copied(&image, folder.path(), "before");
        let old = fs::metadata(&image).unwrap().len();
        let least = minimum(&image);
        for len in [(old * 9 / 16).max(least + (100 << 10)), least] {
            let shrunk = resize_image(&image, len).unwrap_or_else(|error| panic!("{name} to {len}: {error}"));
            assert!(shrunk <= len && len - shrunk < 256 << 10, "{name}: {shrunk} of {len}");
            cut(&image, shrunk);
            judge(&image);
            assert_eq!(issues(common::in_memory(&image)).unwrap(), [], "{name}");
            expect_same(&before, &copied(&image, folder.path(), "after"), name);
        }
        let least = minimum(&image);
        assert!(least <= fs::metadata(&image).unwrap().len(), "{name}");
        let refused = plan(&image, least - (256 << 10));
        assert_eq!(refused, Err(ResizeRefusal::TooShort { min: least }.into()), "{name}");
        // The new part of the file has old contents.
        let mut bytes = fs::read(&image).unwrap();
        bytes.resize(usize::try_from(old).unwrap(), 0xa5);
        fs::write(&image, bytes).unwrap();
        let grown = resize_image(&image, old).unwrap();
        assert!(old - grown < 256 << 10, "{name}");
        judge(&image);
        assert_eq!(issues(common::in_memory(&image)).unwrap(), [], "{name}");
        expect_same(&before, &copied(&image, folder.path(), "after"), name);
        // mtools uses the space again.
        mcopy(&image, &folder.path().join("ballast"), "::/");
        judge(&image);
    }
}

#[test]
fn a_volume_grows_only_as_far_as_its_type_allows() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (name, why) in [("fat12", "the limit of FAT12"), ("fat16-sector-4k", "the limit of FAT16")] {
        let image = shape(name).make(folder.path());
        let Err(ResizeError::Refused(ResizeRefusal::TooLong { max, why: found })) = plan(&image, 1 << 40)
        else {
            panic!("{name}")
        };
        assert_eq!(found, why, "{name}");
        cut(&image, max);
        assert_eq!(resize_image(&image, max), Ok(max), "{name}");
        judge(&image);
        let refused = plan(&image, max + (1 << 20));
        assert_eq!(refused, Err(ResizeRefusal::TooLong { max, why }.into()), "{name}");
    }
}

#[test]
fn a_volume_gets_larger_fats_and_keeps_all_files() {
    if !common::oracles() {
        return;
    }
    for (name, steps) in [
        ("fat12-4k", &[14_000_u64, 15_500][..]),
        ("fat16", &[20_000, 31_000]),
        ("fat16-sector-4k", &[120_000, 200_000]),
        ("fat32", &[50_000, 120_000]),
        ("fat32-4k", &[700_000]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let image = spread(shape(name), folder.path());
        let before = copied(&image, folder.path(), "before");
        for &kib in steps {
            let mut bytes = fs::read(&image).unwrap();
            bytes.resize(usize::try_from(kib << 10).unwrap(), 0xa5);
            fs::write(&image, bytes).unwrap();
            let grown =
                resize_image(&image, kib << 10).unwrap_or_else(|error| panic!("{name} to {kib}: {error}"));
            assert!((kib << 10) - grown < 256 << 10, "{name}: {grown} of {kib} KiB");
            judge(&image);
            assert_eq!(issues(common::in_memory(&image)).unwrap(), [], "{name} {kib}");
            expect_same(&before, &copied(&image, folder.path(), "after"), name);
        }
        mcopy(&image, &folder.path().join("ballast"), "::/");
        judge(&image);
        assert_eq!(issues(common::in_memory(&image)).unwrap(), [], "{name}");
    }
}

#[test]
fn a_full_volume_does_not_get_larger_fats() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = shape("fat32").make(folder.path());
    let free = common::shape("fat32").kib * 1024 - (700 << 10);
    let ballast = folder.path().join("ballast");
    fs::write(&ballast, vec![7; usize::try_from(free).unwrap()]).unwrap();
    mcopy(&image, &ballast, "::/");
    let refused = plan(&image, 200 << 20);
    let why = "the size of its FAT";
    assert!(
        matches!(refused, Err(ResizeError::Refused(ResizeRefusal::TooLong { why: found, .. })) if found == why),
        "{refused:?}"
    );
}

#[test]
fn a_volume_with_errors_is_refused() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = shape("fat16").make(folder.path());
    let mut bytes = fs::read(&image).unwrap();
    bytes[0x25] |= 1;
    fs::write(&image, bytes).unwrap();
    let refused = resize_image(&image, 12 << 20);
    assert!(matches!(refused, Err(ResizeError::Refused(ResizeRefusal::NeedsCheck(_)))), "{refused:?}");
}

/// Returns the bytes of all files. A check stores the clusters of interrupted copies in files in the root directory.
fn contents(device: &Arc<dyn BlockDevice>) -> BTreeMap<String, Vec<u8>> {
    let found = common::walk(&*common::open(device.clone()).unwrap());
    let is_kept = |path: &str| !path.to_ascii_lowercase().starts_with("/fsck");
    found.into_iter().map(|(path, (_, bytes))| (path, bytes)).filter(|(path, _)| is_kept(path)).collect()
}

#[test]
fn a_power_failure_while_a_volume_shrinks_or_gets_larger_fats_loses_no_file() {
    if !common::oracles() {
        return;
    }
    for (mkfs, kib, to) in [
        (&["-F", "12", "-s", "4"][..], 6000, 3000_u64 << 10),
        (&["-F", "12", "-s", "8"], 6000, 15_000 << 10),
        (&["-F", "16", "-s", "1"], 6000, 12 << 20),
        (&["-F", "32", "-s", "1"], 40_000, 60 << 20),
        (&["-F", "16", "-s", "1"], 6000, 3600 << 10),
        (&["-F", "32", "-s", "1"], 40_000, 35 << 20),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let shape = Shape { name: "cut", mkfs, kib };
        let image = spread(&shape, folder.path());
        let mut bytes = fs::read(&image).unwrap();
        bytes.resize(bytes.len().max(usize::try_from(to).unwrap()), 0xa5);
        let before: Arc<dyn BlockDevice> = Arc::new(MemDevice::read_only(bytes.clone()));
        let expected = contents(&before);
        assert!(expected.len() > 100, "{mkfs:?} to {to}");
        let device = Arc::new(RecordDevice::new(MemDevice::new(bytes.clone())));
        resize(device.clone(), to).unwrap();
        let mut events = device.take_events();
        events.push(Event::Flush);
        let limits = crash::Options { samples: 3, torn: 1, ..crash::Options::new(5) };
        let summary = crash::explore(&bytes, &events, &limits, &SeenStates::default(), &mut |state| {
            let device = state.device.clone();
            let clock = Arc::new(FixedClock(FORMAT.now));
            let options = CheckOptions { repair_mode: RepairMode::All, ..CheckOptions::new(clock) };
            FatDriver::default()
                .check(device.clone(), &options, &mut Vec::<Finding>::new())
                .map_err(|error| error.to_string())?;
            match contents(&device) == expected {
                true => trials::check(&FatDriver::default(), &device),
                false => Err("the files differ".into()),
            }
        });
        assert_eq!(summary.failures, [], "{mkfs:?} to {to}");
        assert!(summary.judged > 20, "{mkfs:?} to {to}: {summary:?}");
    }
}
