//! Created volumes: `fsck.exfat` finds nothing, and they equal those of mkfs.exfat.

mod common;

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use common::{judge, oracles};
use obento_block::{BlockDevice as _, MemDevice};
use obento_driver::{Contents, Driver as _, Format, FormatError, FormatOptions};
use obento_env::{FixedRandom, NO_CLOCK};
use obento_exfat::ExFatDriver;
use obento_host::FileDevice;
use obento_testkit::opening::{assert_read_once, formatted};
use obento_testkit::oracle::{program, run};

fn options(settings: &[(&str, &str)]) -> FormatOptions {
    let settings = settings.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    FormatOptions { settings, ..FormatOptions::new("exfat", Arc::new(NO_CLOCK), Arc::new(FixedRandom(7))) }
}

fn make(image: &Path, len: u64, options: &FormatOptions) {
    File::create(image).and_then(|file| file.set_len(len)).unwrap();
    let device = FileDevice::open_writable(image).unwrap();
    Format::format(
        &ExFatDriver::default(),
        &device,
        &FormatOptions { contents: Contents::Zeros, ..options.clone() },
    )
    .unwrap();
}

const MIB: u64 = 1 << 20;

#[test]
fn volumes_are_byte_for_byte_those_of_mkfs_exfat() {
    if !oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    /// Size, arguments of mkfs.exfat, settings, label.
    type Case<'a> = (u64, &'a [&'a str], &'a [(&'a str, &'a str)], &'a str);
    let cases: &[Case<'_>] = &[
        (64 * MIB, &["-L", "A \u{fc}ber"], &[], "A \u{fc}ber"),
        (16 * MIB, &[], &[], ""),
        (256 * MIB, &[], &[], ""),
        (257 * MIB, &["-L", "eleven long"], &[], "eleven long"),
        (5 * MIB + 512, &["-c", "512", "-b", "4K"], &[("cluster_size", "512"), ("boundary_align", "4K")], ""),
        (300 * MIB, &["-c", "64K"], &[("cluster_size", "64K")], ""),
        (64 * MIB, &["--pack-bitmap"], &[("pack_bitmap", "")], ""),
        (300 * MIB, &["--pack-bitmap", "-c", "4K"], &[("pack_bitmap", ""), ("cluster_size", "4096")], ""),
        (200 * MIB, &["-c", "32M", "-b", "8M"], &[("cluster_size", "32M"), ("boundary_align", "8M")], ""),
    ];
    for (len, theirs, ours, label) in cases {
        let (their_image, our_image) = (folder.path().join("theirs"), folder.path().join("ours"));
        let _ = std::fs::remove_file(&their_image);
        File::create(&their_image).and_then(|file| file.set_len(*len)).unwrap();
        let made = run(program("mkfs.exfat").args(*theirs).arg(&their_image));
        let what = format!("{len} bytes, {theirs:?}");
        if made.is_err() {
            let device = MemDevice::new(vec![0; *len as usize]);
            let refused = Format::format(&ExFatDriver::default(), &device, &options(ours));
            assert!(refused.is_err(), "mkfs.exfat refuses {what}");
            continue;
        }
        let expected = std::fs::read(&their_image).unwrap();
        // mkfs.exfat derives the serial number from the clock.
        let serial = u32::from_le_bytes(expected[100..104].try_into().unwrap());
        let mut ours = options(ours);
        ours.settings.push(("volume_id".into(), format!("{:04X}-{:04X}", serial >> 16, serial & 0xffff)));
        ours.label = label.as_bytes().to_vec();
        make(&our_image, *len, &ours);
        let found = std::fs::read(&our_image).unwrap();
        let differs = expected.iter().zip(&found).position(|(theirs, ours)| theirs != ours);
        assert_eq!((differs, found.len()), (None, expected.len()), "{what}");
        judge(&our_image);
    }
}

#[test]
fn a_volume_of_two_tebibytes_is_the_same_where_it_has_bytes() {
    if !oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (their_image, our_image) = (folder.path().join("theirs"), folder.path().join("ours"));
    File::create(&their_image).and_then(|file| file.set_len(2 << 40)).unwrap();
    run(program("mkfs.exfat").arg(&their_image)).unwrap();
    let (theirs, ours) = (FileDevice::open(&their_image).unwrap(), {
        let mut serial = [0; 4];
        FileDevice::open(&their_image).unwrap().read_at(100, &mut serial).unwrap();
        make(&our_image, 2 << 40, &options(&[("volume_id", &format!("{:x}", u32::from_le_bytes(serial)))]));
        FileDevice::open(&our_image).unwrap()
    });
    let mut pieces = [vec![0; 8 << 20], vec![0; 8 << 20]];
    // The boot regions and the start of the FAT; the bitmap, the up-case table and the root directory.
    for at in [0, 133_120 * 512] {
        theirs.read_at(at, &mut pieces[0]).unwrap();
        ours.read_at(at, &mut pieces[1]).unwrap();
        assert!(pieces[0] == pieces[1], "from {at} on");
    }
    judge(&our_image);
}

#[test]
fn large_sectors_a_guid_and_old_contents_result_in_a_sound_volume() {
    if !oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    for sector in ["512", "1024", "2048", "4096"] {
        std::fs::write(&image, vec![0xee; 8 << 20]).unwrap();
        let guid: [u8; 16] = std::array::from_fn(|at| at as u8 + 1);
        let options = FormatOptions {
            uuid: Some(guid),
            contents: Contents::Preserved,
            ..options(&[("sector_size", sector), ("boundary_align", "64K")])
        };
        let device = FileDevice::open_writable(&image).unwrap();
        Format::format(&ExFatDriver::default(), &device, &options).unwrap();
        drop(device);
        judge(&image);
        let probe = ExFatDriver::default().probe(&FileDevice::open(&image).unwrap()).unwrap().unwrap();
        assert_eq!((probe.uuid, probe.len), (Some(guid), 8 << 20), "{sector}");
        let fs = common::open_to_write(&image);
        obento_testkit::changes::create(&*fs, fs.root(), "f", obento_base::FileKind::Directory).unwrap();
        obento_testkit::changes::close(&*fs);
        judge(&image);
    }
}

#[test]
fn an_impossible_layout_is_refused_before_any_write() {
    let device = MemDevice::new(vec![0; 4 << 20]);
    let refused =
        |options: &FormatOptions| Format::format(&ExFatDriver::default(), &device, options).unwrap_err();
    assert!(matches!(refused(&options(&[("clusters", "4")])), FormatError::UnknownSetting { .. }));
    for (name, value) in [
        ("cluster_size", "3000"),
        ("cluster_size", "64M"),
        ("sector_size", "8192"),
        ("boundary_align", "x"),
        ("pack_bitmap", "yes"),
        ("volume_id", "123456789"),
    ] {
        assert!(
            matches!(refused(&options(&[(name, value)])), FormatError::BadValue { .. }),
            "{name}={value}"
        );
    }
    let small = [("cluster_size", "512"), ("sector_size", "4096")];
    assert!(matches!(refused(&options(&small)), FormatError::Excludes { .. }));
    assert!(matches!(refused(&options(&[("boundary_align", "4M")])), FormatError::TooSmall { .. }));
    let long = FormatOptions { len: Some(1 << 30), ..options(&[]) };
    assert!(matches!(refused(&long), FormatError::PastDevice { .. }));
    let mut bytes = vec![1; 4 << 20];
    device.read_at(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|&byte| byte == 0));
    let label = FormatOptions { label: b"more than eleven".to_vec(), ..options(&[]) };
    let refused = ExFatDriver::default().plan(64 << 20, &label).unwrap_err().to_string();
    assert!(refused.contains("at most 11 UTF-16 units"), "{refused}");
}

#[test]
fn a_probe_a_check_and_an_open_read_the_boot_region_once() {
    let driver = ExFatDriver::default();
    assert_read_once(&driver, formatted(&driver, "exfat", 16 << 20), 0, 12 * 512);
}

/// mkfs of this type leaves such bytes, too: they may belong to other data on the device.
#[test]
fn bytes_after_a_volume_that_is_shorter_than_its_device_stay() {
    let image = tempfile::NamedTempFile::new().unwrap();
    fs::write(image.path(), vec![0xa5; 48 << 20]).unwrap();
    let device = FileDevice::open_writable(image.path()).unwrap();
    let options = FormatOptions { len: Some(40 << 20), contents: Contents::Unknown, ..options(&[]) };
    Format::format(&ExFatDriver::default(), &device, &options).unwrap();
    drop(device);
    let bytes = fs::read(image.path()).unwrap();
    assert!(bytes[40 << 20..].iter().all(|&byte| byte == 0xa5));
    assert!(bytes[30 << 20..40 << 20].iter().all(|&byte| byte == 0), "the volume was not discarded");
}
