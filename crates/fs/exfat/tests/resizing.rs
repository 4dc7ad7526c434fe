//! Changing the size of a volume, judged by fsck.exfat, with power failures.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{FORMAT, Shape, judge, open_to_write, put, shape};
use obento_base::FileKind;
use obento_block::{BlockDevice, MemDevice, Overlay};
use obento_driver::{
    Check as _, CheckOptions, FileSystem, Finding, RepairMode, Resize as _, ResizeError, ResizeOptions,
    ResizeRefusal,
};
use obento_env::FixedClock;
use obento_exfat::check::issues;
use obento_exfat::{ExFatDriver, SuperBlock};
use obento_testkit::changes::{close, name, resolve, walk};
use obento_testkit::crash::{self, SeenStates};
use obento_testkit::record::{Event, RecordDevice};
use obento_testkit::trials;
use obento_vfs::Vfs;

fn resize(device: Arc<dyn BlockDevice>, len: u64) -> Result<u64, ResizeError> {
    let options = ResizeOptions::new(len, Arc::new(FixedClock(FORMAT.now)));
    ExFatDriver::default().resize(device, &options, &mut |_, _| {}).map(|plan| plan.len)
}

fn resize_image(image: &Path, len: u64) -> Result<u64, ResizeError> {
    resize(Arc::new(obento_host::FileDevice::open_writable(image).unwrap()), len)
}

fn in_memory(image: &Path) -> Arc<dyn BlockDevice> {
    Arc::new(MemDevice::read_only(fs::read(image).unwrap()))
}

fn plan(image: &Path, len: u64) -> Result<u64, ResizeError> {
    ExFatDriver::default().plan(&in_memory(image), len).map(|plan| plan.len)
}

fn minimum(image: &Path) -> u64 {
    ExFatDriver::default().minimum(&in_memory(image)).unwrap()
}

/// Changes the length of the image. A new part has old contents.
fn set_len(image: &Path, len: u64) {
    let mut bytes = fs::read(image).unwrap();
    bytes.resize(usize::try_from(len).unwrap(), 0xa5);
    fs::write(image, bytes).unwrap();
}

fn boot(image: &Path) -> SuperBlock {
    use obento_base::wire::FromBytes as _;
    let bytes = fs::read(image).unwrap();
    SuperBlock::decode(&obento_exfat::raw::RawBoot::read_from_bytes(&bytes[..512]).unwrap()).unwrap()
}

fn free_bytes(fs: &dyn FileSystem) -> usize {
    let stat = fs.statfs().unwrap();
    usize::try_from(stat.free * u64::from(stat.block_size)).unwrap()
}

/// Creates a volume whose files and directories are also at its end.
fn spread(shape: &Shape, folder: &Path) -> PathBuf {
    let image = shape.filled(folder);
    let fs = open_to_write(&image);
    let vfs = Vfs::new(fs.clone());
    let ballast = free_bytes(&*fs) - (free_bytes(&*fs) / 8).max(260_000);
    put(&*fs, &vfs, "ballast", FileKind::Regular, &vec![7; ballast]);
    for dir in ["late", "late/inner"] {
        put(&*fs, &vfs, dir, FileKind::Directory, &[]);
    }
    for (at, len) in (0_u8..).zip([1, 4097, 60_000, 20_000]) {
        put(&*fs, &vfs, &format!("late/contiguous {at}"), FileKind::Regular, &vec![at; len]);
        put(&*fs, &vfs, &format!("late/inner/{at}"), FileKind::Regular, &vec![at; len / 4]);
    }
    // Pieces of two files alternate.
    for piece in 0..6_u8 {
        for file in ["late/one", "late/other"] {
            if piece == 0 {
                put(&*fs, &vfs, file, FileKind::Regular, &[]);
            }
            let node = vfs.node(resolve(&*fs, &format!("/{file}")).unwrap()).unwrap();
            let offset = u64::from(piece) * 5000;
            assert_eq!(node.write_at(offset, &[piece; 5000]), Ok(5000));
        }
    }
    let ino = resolve(&*fs, "/ballast").unwrap();
    fs.writable().unwrap().unlink(fs.root(), name("ballast")).unwrap();
    fs.forget(ino);
    close(&*fs);
    judge(&image);
    image
}

/// Returns the types and bytes of all files. A check stores lost clusters in files of the root directory.
fn contents(device: &Arc<dyn BlockDevice>) -> BTreeMap<String, Vec<u8>> {
    let found = walk(&*common::open(device.clone()).unwrap());
    let is_kept = |path: &str| !path.ends_with(".CHK");
    found.into_iter().map(|(path, (_, bytes))| (path, bytes)).filter(|(path, _)| is_kept(path)).collect()
}

#[track_caller]
fn expect_sound(image: &Path, expected: &BTreeMap<String, Vec<u8>>, what: &str) {
    judge(image);
    assert_eq!(issues(in_memory(image)).unwrap(), [], "{what}");
    assert!(contents(&in_memory(image)) == *expected, "{what}: the files differ");
    let stat = common::open_image(image).statfs().unwrap();
    let percent = (stat.blocks - stat.free) * 100 / stat.blocks;
    assert_eq!(u64::from(boot(image).percent), percent, "{what}");
}

#[test]
fn volumes_shrink_and_grow_again_and_keep_all_files() {
    if !common::oracles() {
        return;
    }
    for name in ["sector", "page", "pages", "packed"] {
        let folder = tempfile::tempdir().unwrap();
        let image = spread(shape(name), folder.path());
        let expected = contents(&in_memory(&image));
        assert!(expected.len() > 330, "{name}");
        let old = fs::metadata(&image).unwrap().len();
        let least = minimum(&image);
        for len in [least.midpoint(old), least] {
            let shrunk = resize_image(&image, len).unwrap_or_else(|error| panic!("{name} to {len}: {error}"));
            assert_eq!(shrunk, len / 512 * 512, "{name}");
            set_len(&image, shrunk);
            expect_sound(&image, &expected, name);
        }
        let least = minimum(&image);
        assert!(least <= fs::metadata(&image).unwrap().len(), "{name}");
        let refused = plan(&image, least - 512);
        assert_eq!(refused, Err(ResizeRefusal::TooShort { min: least }.into()), "{name}");
        set_len(&image, old);
        assert_eq!(resize_image(&image, old), Ok(old), "{name}");
        expect_sound(&image, &expected, name);
        let fs = open_to_write(&image);
        put(&*fs, &Vfs::new(fs.clone()), "again", FileKind::Regular, &[9; 400_000]);
        close(&*fs);
        judge(&image);
    }
}

#[test]
fn a_volume_uses_the_room_before_its_first_cluster_for_a_longer_fat() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let shape = Shape { name: "gap", mkfs: &["-c", "512", "-b", "64K"], kib: 6000 };
    let image = spread(&shape, folder.path());
    let expected = contents(&in_memory(&image));
    let before = boot(&image);
    set_len(&image, 7_500_000);
    let grown = resize_image(&image, 7_500_000).unwrap();
    let after = boot(&image);
    assert!(after.fat_len > before.fat_len && after.fat_start == before.fat_start, "{after:?}");
    assert_eq!((after.data_start, after.len), (before.data_start, grown));
    expect_sound(&image, &expected, "a longer FAT");
}

#[test]
fn a_volume_gets_a_new_fat_and_keeps_all_files() {
    if !common::oracles() {
        return;
    }
    for (name, steps) in [
        ("tiny", &[2 << 20_u64, 20 << 20][..]),
        ("sector", &[8 << 20, 60 << 20]),
        ("page", &[60 << 20]),
        ("packed", &[60 << 20]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let image = match name {
            "tiny" => shape(name).make(folder.path()),
            _ => spread(shape(name), folder.path()),
        };
        let expected = contents(&in_memory(&image));
        let before = boot(&image);
        for &len in steps {
            set_len(&image, len);
            assert_eq!(resize_image(&image, len), Ok(len), "{name} to {len}");
            expect_sound(&image, &expected, name);
        }
        let after = boot(&image);
        assert!(after.data_start > before.data_start, "{name}");
        assert!(after.heap_len() + after.data_start > after.len - u64::from(after.cluster_size), "{name}");
        let fs = open_to_write(&image);
        put(&*fs, &Vfs::new(fs.clone()), "again", FileKind::Regular, &[9; 1 << 20]);
        close(&*fs);
        judge(&image);
    }
}

#[test]
fn a_full_volume_does_not_get_a_new_fat() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = shape("tiny").make(folder.path());
    let fs = open_to_write(&image);
    put(&*fs, &Vfs::new(fs.clone()), "ballast", FileKind::Regular, &vec![1; free_bytes(&*fs)]);
    close(&*fs);
    let refused = plan(&image, 20 << 20);
    let why = "the size of its FAT";
    assert!(
        matches!(refused, Err(ResizeError::Refused(ResizeRefusal::TooLong { why: found, .. })) if found == why),
        "{refused:?}"
    );
}

#[test]
fn a_full_volume_grows_by_less_than_a_cluster_without_a_change_and_not_by_one_cluster() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = shape("page").make(folder.path());
    let fs = open_to_write(&image);
    put(&*fs, &Vfs::new(fs.clone()), "ballast", FileKind::Regular, &vec![1; free_bytes(&*fs)]);
    close(&*fs);
    assert_eq!(free_bytes(&*common::open_image(&image)), 0);
    let before = boot(&image);
    let next = before.data_start + before.heap_len() + u64::from(before.cluster_size);
    set_len(&image, next);
    let bytes = fs::read(&image).unwrap();
    assert_eq!(plan(&image, next - 512), Ok(before.len));
    assert_eq!(resize_image(&image, next - 512), Ok(before.len));
    let refused = resize_image(&image, next);
    assert!(
        matches!(refused, Err(ResizeError::Refused(ResizeRefusal::NoRoom | ResizeRefusal::TooLong { .. }))),
        "{refused:?}"
    );
    assert!(fs::read(&image).unwrap() == bytes);
}

#[test]
fn a_volume_in_use_is_refused() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = shape("page").make(folder.path());
    let mut bytes = fs::read(&image).unwrap();
    bytes[106] |= 2;
    fs::write(&image, bytes).unwrap();
    let refused = resize_image(&image, 5 << 20);
    assert!(matches!(refused, Err(ResizeError::Refused(ResizeRefusal::NeedsCheck(_)))), "{refused:?}");
}

/// Fills the free space of a volume that was not checked after a power failure, if it opens. Fails if this changes
/// another file.
fn fill_unchecked(device: &Arc<dyn BlockDevice>, expected: &BTreeMap<String, Vec<u8>>) -> Result<(), String> {
    let device: Arc<dyn BlockDevice> = Arc::new(Overlay::new(device.clone()));
    let clock = Arc::new(FixedClock(FORMAT.now));
    let Ok(fs) = trials::open(&ExFatDriver::default(), device.clone(), clock) else { return Ok(()) };
    put(&*fs, &Vfs::new(fs.clone()), "unchecked", FileKind::Regular, &vec![0x5a; free_bytes(&*fs)]);
    close(&*fs);
    drop(fs);
    let mut found = contents(&device);
    found.remove("/unchecked").or_else(|| found.remove("unchecked")).ok_or("the new file is missing")?;
    match found == *expected {
        true => Ok(()),
        false => Err("a file that was created before a check changed another file".into()),
    }
}

#[test]
fn a_power_failure_while_a_volume_changes_its_size_loses_no_file() {
    if !common::oracles() {
        return;
    }
    for (mkfs, kib, to) in [
        (&["-c", "512", "-b", "4096"][..], 3000, 2200_u64 << 10),
        // The end is within files of several pieces.
        (&["-c", "512", "-b", "4096"], 3000, 2800 << 10),
        (&["-c", "512", "-b", "4096"], 3000, 12 << 20),
        (&["-c", "512", "-b", "64K"], 3000, 3300 << 10),
        (&["-c", "4K", "-b", "16K"], 6000, 3600 << 10),
        (&["-c", "4K", "-b", "16K"], 6000, 60 << 20),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let shape = Shape { name: "cut", mkfs, kib };
        let image = spread(&shape, folder.path());
        set_len(&image, (kib << 10).max(to));
        let bytes = fs::read(&image).unwrap();
        let before: Arc<dyn BlockDevice> = Arc::new(MemDevice::read_only(bytes.clone()));
        let expected = contents(&before);
        let device = Arc::new(RecordDevice::new(MemDevice::new(bytes.clone())));
        resize(device.clone(), to).unwrap();
        let mut events = device.take_events();
        events.push(Event::Flush);
        let limits = crash::Options { samples: 3, torn: 1, ..crash::Options::new(5) };
        let mut judged = 0_u32;
        let summary = crash::explore(&bytes, &events, &limits, &SeenStates::default(), &mut |state| {
            let device = state.device.clone();
            fill_unchecked(&device, &expected)?;
            let clock = Arc::new(FixedClock(FORMAT.now));
            let options = CheckOptions { repair_mode: RepairMode::All, ..CheckOptions::new(clock) };
            ExFatDriver::default()
                .check(device.clone(), &options, &mut Vec::<Finding>::new())
                .map_err(|error| error.to_string())?;
            judged += 1;
            if judged.is_multiple_of(16) {
                trials::judge("fsck.exfat", &*device)?;
            }
            match contents(&device) == expected {
                true => trials::check(&ExFatDriver::default(), &device),
                false => Err("the files differ".into()),
            }
        });
        assert_eq!(summary.failures, [], "{mkfs:?} to {to}");
        assert!(summary.judged > 20, "{mkfs:?} to {to}: {summary:?}");
    }
}
