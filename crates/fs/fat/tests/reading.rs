//! The driver reads what mtools wrote, for all FAT types and sizes of sectors and clusters.

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use common::{SHAPES, Shape, judge, mtool, open_image, oracles, shape, walk};
use obento_base::{Error, FileFlags, Mode, Name, Timestamp};
use obento_block::BlockDevice as _;
use obento_driver::{Driver as _, Evidence, FileSystem};
use obento_fat::{CodePage, FatDriver, FatOptions, Owner, Zone};

/// Panics unless the volume contains exactly the tree in `source`.
fn compare(fs: &dyn FileSystem, source: &Path) {
    let mut found = walk(fs);
    let mut todo = vec![(String::new(), source.to_owned())];
    while let Some((path, host)) = todo.pop() {
        for entry in fs::read_dir(&host).unwrap().map(Result::unwrap) {
            let path = format!("{path}/{}", entry.file_name().to_str().unwrap());
            let (attr, bytes) = found.remove(&path).unwrap_or_else(|| panic!("{path} is missing"));
            if entry.file_type().unwrap().is_dir() {
                assert!(attr.is_dir(), "{path}");
                todo.push((path, entry.path()));
                continue;
            }
            assert_eq!(bytes, fs::read(entry.path()).unwrap(), "{path}");
            let expected = Timestamp::new(1_614_834_368 + bytes.len() as i64 * 2, 0);
            assert_eq!((attr.mtime, attr.size), (expected, bytes.len() as u64), "{path}");
        }
    }
    assert!(found.is_empty(), "{:?}", found.keys());
}

fn read_back(shape: &Shape) {
    if !oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = shape.filled(folder.path());
    judge(&image);
    let fs = open_image(&image);
    compare(&*fs, &folder.path().join("source"));
    let stat = fs.statfs().unwrap();
    // The last line is "1111111 bytes free", with spaces between groups of digits.
    let listing = mtool(&image, "mdir", ["::/"]);
    let free = listing.lines().rev().find(|line| line.contains("bytes free")).unwrap();
    let free: u64 = free.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap();
    assert_eq!(stat.free * u64::from(stat.block_size), free);
}

macro_rules! shapes {
    ($($test:ident: $shape:literal)*) => {
        $(#[test]
        fn $test() {
            read_back(shape($shape));
        })*
        #[test]
        fn every_shape_has_a_test() {
            assert_eq!([$($shape),*].len(), SHAPES.len());
        }
    };
}
shapes! {
    fat12_reads_as_mtools_wrote_it: "fat12"
    fat12_with_clusters_of_4k_reads_as_mtools_wrote_it: "fat12-4k"
    fat12_with_sectors_of_2k_and_one_fat_reads_as_mtools_wrote_it: "fat12-sector-2k"
    fat16_reads_as_mtools_wrote_it: "fat16"
    fat16_with_clusters_of_32k_reads_as_mtools_wrote_it: "fat16-32k"
    fat16_with_sectors_of_4k_reads_as_mtools_wrote_it: "fat16-sector-4k"
    fat32_reads_as_mtools_wrote_it: "fat32"
    fat32_with_clusters_of_4k_reads_as_mtools_wrote_it: "fat32-4k"
    fat32_with_sectors_of_4k_reads_as_mtools_wrote_it: "fat32-sector-4k"
}

#[test]
fn a_volume_reports_label_serial_number_and_width() {
    if !oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (name, label, width) in
        [("fat12", "TWELVE", "fat12"), ("fat16", "SIX TEEN", "fat16"), ("fat32", "THIRTY-TWO", "fat32")]
    {
        let image = shape(name).make(folder.path());
        let info = open_image(&image).info();
        assert_eq!((&*info.probe.label, info.probe.fs_type), (label.as_bytes(), "vfat"));
        assert_eq!((&*info.features, &*info.state), (&[width.to_owned()][..], "clean"));
        assert_eq!(info.probe.len, fs::metadata(&image).unwrap().len() / 512 * 512, "{name}");
        assert_eq!(info.probe.serial, Some(0x1234_abcd));
        let device = common::in_memory(&image);
        assert_eq!(FatDriver::default().probe(&*device).unwrap().unwrap(), info.probe);
        // The label in the root directory is the newer one.
        mtool(&image, "mlabel", ["::NEWER"]);
        assert_eq!(open_image(&image).info().probe.label, b"NEWER");
    }
}

#[test]
fn a_name_is_found_whatever_its_case_and_by_its_short_form() {
    if !oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = shape("fat16").make(folder.path());
    let source = folder.path().join("Long Name of a File.text");
    fs::write(&source, "x").unwrap();
    common::mcopy(&image, &source, "::/");
    let fs = open_image(&image);
    let ino = common::resolve(&*fs, "/Long Name of a File.text").unwrap();
    assert_eq!(common::resolve(&*fs, "/LONG NAME OF A FILE.TEXT"), Ok(ino));
    assert_eq!(common::resolve(&*fs, "/longna~1.tex"), Ok(ino));
    assert_eq!(common::resolve(&*fs, "/long"), Err(Error::NotFound));
    assert_eq!(fs.lookup(fs.root(), Name::new(b"\xff").unwrap()), Err(Error::NotFound));
    assert!(fs.getattr(fs.root()).unwrap().flags.contains(FileFlags::CASEFOLD));
}

#[test]
fn options_define_the_properties_that_the_volume_lacks() {
    if !oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = shape("fat16").make(folder.path());
    let source = folder.path().join("\u{e9}.txt");
    fs::write(&source, "x").unwrap();
    mtool(&image, "mcopy", [source.as_os_str(), "::/".as_ref()]);
    mtool(&image, "mattrib", ["+r", "::/\u{e9}.txt"]);
    let plain = open_image(&image);
    let mtime = plain.getattr(common::resolve(&*plain, "/\u{e9}.txt").unwrap()).unwrap().mtime;
    let options = FatOptions {
        owner: Owner {
            uid: 7,
            gid: 8,
            file_mask: Mode::new(0o137),
            dir_mask: Mode::new(0o027),
            zone: Zone(60),
        },
        code_page: CodePage::Cp1252,
        ..FatOptions::default()
    };
    let fs = FatDriver { options }.open(common::in_memory(&image), &common::FORMAT.reading()).unwrap();
    let root = fs.getattr(fs.root()).unwrap();
    assert_eq!((root.uid, root.gid, root.mode), (7, 8, Mode::new(0o750)));
    // The short name depends on the code page; a long name does not.
    let ino = common::resolve(&*fs, "/\u{e9}.txt").or(common::resolve(&*fs, "/\u{90}.txt")).unwrap();
    let attr = fs.getattr(ino).unwrap();
    assert_eq!((attr.uid, attr.gid, attr.mode), (7, 8, Mode::new(0o440)));
    assert_eq!(attr.mtime.secs(), mtime.secs() - 3600);
}

#[test]
fn a_boot_sector_that_is_gone_is_taken_from_its_copy() {
    if !oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = shape("fat32").filled(folder.path());
    let mut bytes = fs::read(&image).unwrap();
    bytes[..512].fill(0);
    let device = Arc::new(obento_block::MemDevice::read_only(bytes));
    assert!(FatDriver::default().probe(&*device).unwrap().is_some());
    let fs = common::open(device).unwrap();
    compare(&*fs, &folder.path().join("source"));
    assert_eq!(fs.info().notices.len(), 2);
}

/// By the specification the number of clusters decides. `mkfs.fat`, `fsck.fat` and Linux use the boot sector, which
/// then has no field for the length of the FAT of FAT16.
#[test]
fn a_fat32_of_few_clusters_is_one() {
    if !oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let few = Shape { name: "few", mkfs: &["-F", "32", "-s", "1"], kib: 2000 };
    let image = few.make(folder.path());
    judge(&image);
    let fs = open_image(&image);
    assert_eq!(fs.info().features, ["fat32"]);
    assert!(walk(&*fs).is_empty());
}

#[test]
fn a_label_keeps_a_first_byte_that_would_mark_a_free_entry() {
    if !oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = shape("fat12").make(folder.path());
    mtool(&image, "mlabel", ["::NEWER"]);
    let mut bytes = fs::read(&image).unwrap();
    let entry = bytes.windows(12).rposition(|entry| entry == b"NEWER      \x08").unwrap();
    bytes[entry] = 0x05;
    fs::write(&image, bytes).unwrap();
    // 0xe5 in code page 437.
    assert_eq!(open_image(&image).info().probe.label, "\u{3c3}EWER".as_bytes());
    let device = common::in_memory(&image);
    assert_eq!(FatDriver::default().probe(&*device).unwrap().unwrap().label, "\u{3c3}EWER".as_bytes());
}

#[test]
fn a_volume_without_jump_and_signature_is_recognised_by_its_type_or_by_its_fat() {
    if !oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = fs::read(shape("fat12").make(folder.path())).unwrap();
    let evidence = |bytes: &[u8]| {
        let device = obento_block::MemDevice::read_only(bytes.to_vec());
        FatDriver::default().probe(&device).unwrap().map(|probe| probe.evidence)
    };
    // Disks of the Atari ST begin with this byte. Linux mounts them.
    bytes[0] = 0x60;
    bytes[510..512].fill(0);
    assert_eq!(evidence(&bytes), Some(Evidence::Signature));
    bytes[0x36..0x3e].fill(0);
    assert_eq!(evidence(&bytes), Some(Evidence::Traces));
    let fat = usize::from(bytes[14]) * 512;
    bytes[fat] ^= 1;
    assert_eq!(evidence(&bytes), None, "the FAT does not repeat the media type");
}

#[test]
fn other_data_than_fat_is_not_recognised() {
    let probe = |bytes: Vec<u8>| {
        FatDriver::default().probe(&obento_block::MemDevice::read_only(bytes)).unwrap().is_some()
    };
    assert!(!probe(Vec::new()));
    assert!(!probe(vec![0; 100]));
    assert!(!probe(vec![0; 1 << 20]));
    assert!(!probe(vec![0xff; 1 << 20]));
    let mut mbr = vec![0; 1 << 20];
    mbr[510..512].copy_from_slice(b"\x55\xaa");
    assert!(!probe(mbr));
    assert!(common::open(Arc::new(obento_block::MemDevice::read_only(vec![0; 4096]))).is_err());
}

#[test]
fn a_truncated_image_is_reported_and_read_up_to_its_end() {
    if !oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = shape("fat32").filled(folder.path());
    let mut bytes = fs::read(&image).unwrap();
    bytes.truncate(bytes.len() / 2);
    let device = Arc::new(obento_block::MemDevice::read_only(bytes));
    assert!(device.len() > 1 << 20);
    let fs = common::open(device).unwrap();
    assert!(matches!(fs.info().notices[..], [obento_driver::Notice::Truncated { .. }]));
    compare(&*fs, &folder.path().join("source"));
}
