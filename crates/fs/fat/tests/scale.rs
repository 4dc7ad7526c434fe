//! Large objects: directories with tens of thousands of entries, the largest file, and volumes at the limits of the
//! FAT types.

mod common;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use obento_base::{DeviceNumber, Error, FileKind, Ino, Mode, Name};
use obento_block::MemDevice;
use obento_driver::{Cookie, FileSystem, Format, FormatOptions, LayoutLock, NewNode};
use obento_env::{FixedClock, FixedRandom};
use obento_fat::FatDriver;
use obento_vfs::Vfs;

fn create(fs: &dyn FileSystem, dir: Ino, text: &str, kind: FileKind) -> Result<Ino, Error> {
    let name = Name::new(text.as_bytes()).unwrap();
    let node =
        NewNode { kind, mode: Mode::new(0o755), uid: 0, gid: 0, rdev: DeviceNumber::default(), target: b"" };
    fs.writable().unwrap().create(dir, name, &node).map(|attr| attr.ino)
}

fn make(image: &Path, len: u64, settings: &[(&str, &str)]) {
    std::fs::File::create(image).and_then(|file| file.set_len(len)).unwrap();
    let device = obento_host::FileDevice::open_writable(image).unwrap();
    let mut options =
        FormatOptions::new("vfat", Arc::new(FixedClock(common::FORMAT.now)), Arc::new(FixedRandom(1)));
    options.settings.extend(settings.iter().map(|(name, value)| ((*name).into(), (*value).into())));
    Format::format(&FatDriver::default(), &device, &options).unwrap();
}

fn names(fs: &dyn FileSystem, dir: Ino) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    fs.read_dir(dir, Cookie::START, &mut |entry| {
        names.insert(entry.unwrap().name.to_buf().to_string());
        ControlFlow::Continue(())
    })
    .unwrap();
    names
}

/// Creates, looks up, lists and removes `count` entries. Returns the seconds.
fn round(image: &Path, count: usize, text: impl Fn(usize) -> String) -> f64 {
    make(image, 256 << 20, &[("fat", "32"), ("sectors_per_cluster", "8")]);
    let fs = common::open_to_write(image);
    let dir = create(&*fs, fs.root(), "many", FileKind::Directory).unwrap();
    let begun = Instant::now();
    for n in 0..count {
        create(&*fs, dir, &text(n), FileKind::Regular).unwrap_or_else(|error| panic!("{n}: {error}"));
    }
    assert_eq!(create(&*fs, dir, &text(count / 2), FileKind::Regular), Err(Error::Exists));
    for n in 0..count {
        fs.lookup(dir, Name::new(text(n).to_uppercase().as_bytes()).unwrap()).unwrap();
    }
    assert_eq!(fs.lookup(dir, Name::new(b"not there").unwrap()), Err(Error::NotFound));
    assert_eq!(names(&*fs, dir).len(), count);
    for n in (0..count).step_by(2) {
        fs.writable().unwrap().unlink(dir, Name::new(text(n).as_bytes()).unwrap()).unwrap();
    }
    // Freed entries are used again.
    create(&*fs, dir, "0", FileKind::Regular).unwrap();
    fs.writable().unwrap().unlink(dir, Name::new(b"0").unwrap()).unwrap();
    for n in (1..count).step_by(2) {
        fs.writable().unwrap().unlink(dir, Name::new(text(n).as_bytes()).unwrap()).unwrap();
    }
    let seconds = begun.elapsed().as_secs_f64();
    assert!(names(&*fs, dir).is_empty());
    fs.writable().unwrap().rmdir(fs.root(), Name::new(b"many").unwrap()).unwrap();
    fs.writable().unwrap().close().unwrap();
    common::judge(image);
    seconds
}

#[test]
fn sixty_thousand_entries_take_no_more_time_each_than_a_few() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("many.img");
    // Short names, so that 65,536 entries suffice for them.
    let (few, many) = (round(&image, 6_000, |n| format!("F{n}")), round(&image, 60_000, |n| format!("F{n}")));
    eprintln!("6,000: {few:.2} s, 60,000: {many:.2} s");
    assert!(many < few * 40.0 + 5.0, "ten times as many took {many:.2} s after {few:.2} s");
    round(&image, 20_000, |n| format!("a long name {n}"));
}

#[test]
fn a_directory_ends_with_65536_entries() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("full.img");
    make(&image, 64 << 20, &[("fat", "32"), ("sectors_per_cluster", "1")]);
    let fs = common::open_to_write(&image);
    let dir = create(&*fs, fs.root(), "full", FileKind::Directory).unwrap();
    for n in 0..65_534 {
        create(&*fs, dir, &format!("F{n}"), FileKind::Regular).unwrap_or_else(|error| panic!("{n}: {error}"));
    }
    assert_eq!(create(&*fs, dir, "ONE", FileKind::Regular), Err(Error::NoSpace));
    fs.writable().unwrap().close().unwrap();
    assert_eq!(
        obento_fat::check::issues(Arc::new(obento_host::FileDevice::open(&image).unwrap())),
        Ok(vec![])
    );
}

#[test]
fn a_file_of_4_gib_less_a_byte_is_held_and_a_byte_more_is_refused() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("large.img");
    make(&image, 5 << 30, &[]);
    let fs = common::open_to_write(&image);
    let ino = create(&*fs, fs.root(), "large", FileKind::Regular).unwrap();
    let vfs = Vfs::new(fs.clone());
    let node = vfs.node(ino).unwrap();
    let last = (4_u64 << 30) - 2;
    // If the host stores zeros, each step takes space: one piece near the end suffices to show that it can be read.
    let step = 64 << 20;
    let bytes = vec![0; step as usize];
    for at in (0..last).step_by(step as usize) {
        let len = step.min(last - at) as usize;
        assert_eq!(node.write_at(at, &bytes[..len]), Ok(len));
        if at % (1 << 30) == 0 {
            give_back(&image);
        }
    }
    assert_eq!(node.write_at(last, b"x"), Ok(1));
    assert_eq!(fs.getattr(ino).unwrap().size, u64::from(u32::MAX));
    assert_eq!(node.write_at(last + 1, b"y"), Err(Error::FileTooBig));
    assert_eq!(node.truncate(1 << 32), Err(Error::FileTooBig));
    let lock = LayoutLock::new();
    let layout = lock.shared();
    let past = fs.writable().unwrap().begin_write(&layout, ino, last + 1..(1 << 32) + 1);
    assert_eq!(past.map(drop), Err(Error::FileTooBig));
    let mut byte = [0];
    assert_eq!((node.read_at(last, &mut byte), byte), (Ok(1), *b"x"));
    drop((node, vfs));
    fs.writable().unwrap().close().unwrap();
    // fsck.fat 4.2 counts the 2^32 bytes of its clusters as 0.
    let issues = obento_fat::check::issues(Arc::new(obento_host::FileDevice::open(&image).unwrap()));
    assert_eq!(issues, Ok(vec![]));
    assert!(common::mtool(&image, "mdir", ["::/"]).contains("4294967295"));
}

/// Turns zeros of the image into holes.
fn give_back(image: &Path) {
    let _ = std::process::Command::new("fallocate").arg("-d").arg(image).status();
}

/// Returns a volume with one sector per cluster and exactly `clusters` clusters, whose FAT length has 16 or 32 bits.
fn volume(clusters: u32, is_32: bool) -> Vec<u8> {
    let fat: u32 = if is_32 { 600 } else { 300 };
    let (reserved, root) = (if is_32 { 32_u32 } else { 1 }, if is_32 { 0_u32 } else { 1 });
    let total = reserved + fat + root + clusters;
    let mut bytes = vec![0; total as usize * 512];
    bytes[..11].copy_from_slice(b"\xeb\x3c\x90mkfs.fat");
    bytes[11..13].copy_from_slice(&512_u16.to_le_bytes());
    (bytes[13], bytes[16], bytes[21]) = (1, 1, 0xf8);
    bytes[14..16].copy_from_slice(&(reserved as u16).to_le_bytes());
    bytes[17..19].copy_from_slice(&(root as u16 * 16).to_le_bytes());
    bytes[32..36].copy_from_slice(&total.to_le_bytes());
    if is_32 {
        bytes[36..40].copy_from_slice(&fat.to_le_bytes());
        (bytes[44], bytes[50]) = (2, 6);
    } else {
        bytes[22..24].copy_from_slice(&(fat as u16).to_le_bytes());
    }
    let tail = if is_32 { 0x42 } else { 0x26 };
    bytes[tail] = 0x29;
    bytes[tail + 5..tail + 16].copy_from_slice(b"NO NAME    ");
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    let at = reserved as usize * 512;
    let start: &[u8] = match (clusters, is_32) {
        (_, true) => &[0xf8, 0xff, 0xff, 0x0f, 0xff, 0xff, 0xff, 0x0f, 0xff, 0xff, 0xff, 0x0f],
        (..=4_084, _) => &[0xf8, 0xff, 0xff],
        _ => &[0xf8, 0xff, 0xff, 0xff],
    };
    bytes[at..at + start.len()].copy_from_slice(start);
    if is_32 {
        bytes.copy_within(..512, 6 * 512);
    }
    bytes
}

#[test]
fn at_the_four_limits_the_count_of_clusters_decides_and_the_last_one_is_used() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let cases =
        [(4_084, false, "fat12"), (4_085, false, "fat16"), (65_524, false, "fat16"), (65_525, true, "fat32")];
    for (clusters, is_32, width) in cases {
        let image = folder.path().join(format!("{clusters}.img"));
        std::fs::write(&image, volume(clusters, is_32)).unwrap();
        let fs = common::open_to_write(&image);
        assert_eq!(fs.info().features, [width], "{clusters}");
        let stat = fs.statfs().unwrap();
        assert_eq!(stat.blocks, u64::from(clusters));
        let ino = create(&*fs, fs.root(), "ALL", FileKind::Regular).unwrap();
        let vfs = Vfs::new(fs.clone());
        let node = vfs.node(ino).unwrap();
        let room = stat.free * 512;
        assert_eq!(node.write_at(0, &vec![0x5a; room as usize]), Ok(room as usize), "{clusters}");
        assert_eq!(node.write_at(room, b"x"), Err(Error::NoSpace));
        drop((node, vfs));
        fs.writable().unwrap().close().unwrap();
        common::mtool(&image, "mdir", ["::/"]);
        common::judge(&image);
        let bytes = std::fs::read(&image).unwrap();
        assert_eq!(bytes[bytes.len() - 512..], [0x5a; 512], "the last cluster of {clusters}");
    }
    let refused = common::open(Arc::new(MemDevice::read_only(volume(65_525, false))));
    assert!(refused.is_err(), "no FAT16 has as many");
}
