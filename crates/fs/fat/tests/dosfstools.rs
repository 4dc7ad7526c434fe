//! The cases of dosfstools' own tests (`tests/check-*.fsck` there), reproduced: the damage of each case is applied to
//! a volume of `mkfs.fat`. `fsck.fat` and our check must agree which volumes are clean, before and after either has
//! repaired them. Volumes that `fsck.fat` cannot read are refused.

mod common;
#[path = "common/damage.rs"]
mod damage;

use std::path::Path;
use std::sync::Arc;

use damage::{D, E, F, LONG, Volume, clean_to_fsck, found, repair_copy};
use obento_block::MemDevice;
use obento_driver::RepairMode;
use obento_fat::check::Issue;
use obento_testkit::oracle::program;

const ALL: &[&str] = &["fat12", "fat16", "fat32"];

/// Returns the volume after `fsck.fat -a` with these arguments, and its exit status: 1 if it repaired something.
fn repaired_by_fsck(args: &[&str], bytes: &[u8], folder: &Path) -> (Vec<u8>, Option<i32>) {
    let image = folder.join("repaired.img");
    std::fs::write(&image, bytes).unwrap();
    let output = program("fsck.fat").arg("-a").args(args).arg(&image).output().unwrap();
    (std::fs::read(&image).unwrap(), output.status.code())
}

/// Returns whether the volume can be opened.
fn opens(bytes: &[u8]) -> bool {
    common::open(Arc::new(MemDevice::read_only(bytes.to_vec()))).is_ok()
}

/// Applies `harm` to a volume of each shape. Both checkers must find it, both must agree about the volume after
/// either repair, and it must open.
fn case(shapes: &[&str], harm: impl Fn(&mut Volume)) {
    case_with(&[], shapes, harm);
}

/// Runs [`case`] with more arguments for `fsck.fat -a`.
fn case_with(args: &[&str], shapes: &[&str], harm: impl Fn(&mut Volume)) {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for name in shapes {
        let mut volume = Volume::new(name);
        harm(&mut volume);
        let issues = found(&volume.bytes);
        assert!(!issues.is_empty(), "{name}: nothing is found");
        assert!(clean_to_fsck(&volume.bytes, folder.path()).is_err(), "{name}: fsck.fat finds nothing");
        assert!(opens(&volume.bytes), "{name}");

        let (ours, left) = repair_copy(&volume.bytes, RepairMode::All);
        assert_eq!((left, found(&ours)), (0, vec![]), "{name}: {issues:?}");
        clean_to_fsck(&ours, folder.path()).unwrap_or_else(|said| panic!("{name}: {said}"));

        let (theirs, status) = repaired_by_fsck(args, &volume.bytes, folder.path());
        assert_eq!(status, Some(1), "{name}");
        // It may need another run for consequences of the first, as for a `.` in the root directory.
        let is_clean = clean_to_fsck(&theirs, folder.path());
        assert_eq!(found(&theirs).is_empty(), is_clean.is_ok(), "{name}: {is_clean:?}, {:?}", found(&theirs));
        assert!(opens(&ours) && opens(&theirs), "{name}");
    }
}

/// Returns the offset of the label in the boot sector.
fn boot_label(volume: &Volume) -> usize {
    if volume.width == 32 { 0x47 } else { 0x2b }
}

fn set_boot_label(volume: &mut Volume, label: &[u8; 11]) {
    let at = boot_label(volume);
    let copies = if volume.width == 32 { &[0, 6 * 512][..] } else { &[0] };
    for start in copies {
        volume.bytes[start + at..][..11].copy_from_slice(label);
    }
}

#[test]
fn bad_names() {
    for bad in [b'*', b'?', b':', b'"', b'|', 0x01, 0x7f] {
        case(&["fat12", "fat32"], |volume| {
            let at = volume.entry(F);
            volume.bytes[at + 1] = bad;
        });
    }
    // A space at the start of a name.
    case(ALL, |volume| {
        let at = volume.entry(F);
        volume.bytes[at] = b' ';
    });
}

#[test]
fn first_cluster() {
    // It does not choose between FATs if neither begins correctly.
    for value in [0, 0xf8, 0xfff_ffe8] {
        case_with(&["-F", "1"], ALL, |volume| volume.link(0, value));
    }
}

#[test]
fn dos_cln_shut() {
    case(&["fat16"], |volume| volume.link(1, 0x7fff));
    case(&["fat32"], |volume| volume.link(1, 0x07ff_ffff));
}

#[test]
fn chain_to_free_cluster() {
    case(ALL, |volume| {
        let first = volume.first(F);
        volume.link(first + 1, first + 200);
    });
}

#[test]
fn chain_too_long() {
    case(ALL, |volume| {
        let size = u32::try_from(volume.cluster).unwrap();
        volume.set_size(F, size + 1);
    });
}

#[test]
fn chain_to_other_file() {
    case(ALL, |volume| {
        let (first, other) = (volume.first(F), volume.first(LONG));
        volume.link(first + 1, other);
    });
}

#[test]
fn circular_chain() {
    for back in 0..3 {
        case(ALL, |volume| {
            let first = volume.first(F);
            volume.link(first + 2, first + back);
        });
    }
}

#[test]
fn duplicate_names() {
    case(ALL, |volume| {
        let (e, f) = (volume.entry(E), volume.entry(F));
        volume.bytes.copy_within(e..e + 11, f);
    });
}

#[test]
fn dot_entries() {
    for (name, at) in [(".", 0), ("..", 32)] {
        // It refers to another directory.
        case(ALL, |volume| {
            let (place, wrong) = (volume.offset(volume.first(E)) + at, volume.first(F));
            volume.bytes[place + 26..place + 28].copy_from_slice(&wrong.to_le_bytes()[..2]);
        });
        // It is a file.
        case(ALL, |volume| {
            let place = volume.offset(volume.first(E)) + at;
            volume.bytes[place + 11] = 0x20;
            assert!(volume.bytes[place..].starts_with(name.as_bytes()));
        });
    }
    // They are in the root directory.
    case(ALL, |volume| {
        let d = volume.entry(D);
        let dots = volume.offset(volume.first(D));
        let end = d + 32;
        assert_eq!(volume.bytes[end], 0);
        volume.bytes.copy_within(dots..dots + 32, end);
    });
}

#[test]
fn label_different() {
    case(ALL, |volume| set_boot_label(volume, b"OTHER      "));
}

#[test]
fn label_only_boot() {
    case(ALL, |volume| {
        let at = volume.root;
        assert_eq!(volume.bytes[at + 11], 8);
        volume.bytes[at] = 0xe5;
        volume.bytes[at + 11] = 0;
    });
}

#[test]
fn label_only_root() {
    case(ALL, |volume| set_boot_label(volume, b"NO NAME    "));
}

/// Marks a file as encrypted, as Windows does (`DIR_NTRes` 0x21, a name `*.PFI`).
fn encrypt(volume: &mut Volume, name: &[u8], short: &[u8; 11]) {
    let at = volume.entry(name);
    volume.bytes[at..at + 11].copy_from_slice(short);
    volume.bytes[at + 11..at + 13].copy_from_slice(&[0x20, 0x21]);
}

#[test]
fn encryption_with_invalid_83() {
    case(ALL, |volume| {
        encrypt(volume, F, b"T:ST_E~1PFI");
        set_boot_label(volume, b"NO NAME    ");
    });
}

#[test]
fn encryption_with_duplicate_dirent() {
    case(ALL, |volume| {
        let at = volume.entry(E);
        encrypt(volume, F, b"TEST_E~1PFI");
        volume.bytes[at..at + 11].copy_from_slice(b"TEST_E~1PFI");
        set_boot_label(volume, b"NO NAME    ");
    });
}

/// Erases the first sector, whose backup is in sector `copy`. dosfstools uses the backup since it has this test;
/// `fsck.fat` 4.2 does not.
fn wiped_boot_sector(copy: u16) {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut volume = Volume::new("fat32");
    let at = usize::from(copy) * 512;
    volume.bytes[0x32..0x34].copy_from_slice(&copy.to_le_bytes());
    volume.bytes[6 * 512..7 * 512].fill(0);
    volume.bytes.copy_within(..512, at);
    assert_eq!(found(&volume.bytes), []);
    clean_to_fsck(&volume.bytes, folder.path()).unwrap();
    let sound = volume.bytes.clone();
    volume.bytes[..512].fill(0);
    let issues = found(&volume.bytes);
    assert!(matches!(issues[..], [Issue::BootSector { sector, .. }] if sector == copy), "{issues:?}");
    assert!(opens(&volume.bytes));
    let (bytes, left) = repair_copy(&volume.bytes, RepairMode::All);
    assert_eq!(left, 0);
    assert!(bytes == sound);
}

#[test]
fn bad_boot_sector() {
    wiped_boot_sector(6);
}

#[test]
fn backup_boot_sector_mismatch() {
    wiped_boot_sector(5);
}

#[test]
fn volumes_that_fsck_fat_cannot_read_are_refused() {
    if !common::oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let wrong: &[(&str, usize, &[u8])] = &[
        ("no bytes a sector", 11, &[0, 0]),
        ("no sectors a cluster", 13, &[0]),
        ("no FATs", 16, &[0]),
        ("no sectors", 19, &[0; 17]),
    ];
    for shape in ALL {
        for (what, at, bytes) in wrong {
            let mut volume = Volume::new(shape);
            volume.bytes[*at..at + bytes.len()].copy_from_slice(bytes);
            // There is no backup.
            if *shape == "fat32" {
                volume.bytes[6 * 512..7 * 512].fill(0);
            }
            assert!(clean_to_fsck(&volume.bytes, folder.path()).is_err(), "{shape}, {what}");
            assert!(!opens(&volume.bytes), "{shape}, {what}");
        }
    }
}
