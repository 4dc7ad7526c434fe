//! An image on a disk of the host that fills up while the image is changed.

use std::fs::{self, File};
use std::path::Path;

use obento_testkit::oracle::{LoopMount, program, run};
use obento_testkit::{Oracle, require};

use crate::support::{Disk, text};

/// Returns whether a small file system can be mounted.
fn oracles() -> bool {
    require(&[Oracle::LoopMount, Oracle::Root])
}

/// Creates a small file system of the host that contains a larger image and is full. `make` creates the
/// image.
fn filled(make: impl FnOnce(&Disk, &Path)) -> Option<Disk> {
    let disk = Disk::new("4M", &[])?;
    let mount = LoopMount::new(&disk.image(), "").unwrap();
    let inner = mount.path().join("inner.img");
    make(&disk, &inner);
    let at = |path: &str| format!("{}:{path}", inner.display());
    fs::write(disk.folder().join("big"), vec![7; 8 << 20]).unwrap();
    assert!(disk.obento(&["mkdir", &at("/before")]).status.success());
    let output = disk.obento(&["cp", "big", &at("/big")]);
    let errors = text(&output.stderr);
    assert!(matches!(output.status.code(), Some(1 | 2)), "{errors}");
    assert!(errors.contains("failed: no space left on the disk of the image"), "{errors}");
    assert!(errors.contains("help: free space on the disk of the image"), "{errors}");
    fs::copy(&inner, disk.folder().join("inner.img")).unwrap();
    mount.unmount().unwrap();
    Some(disk)
}

#[test]
fn a_full_disk_of_the_host_is_reported_with_a_hint_and_the_volume_stays_intact() {
    if !oracles() {
        return;
    }
    let made = filled(|_, inner| {
        File::create(inner).unwrap().set_len(64 << 20).unwrap();
        run(program("mke2fs").args(["-q", "-F", "-t", "ext4", "-J", "size=1"]).arg(inner)).unwrap();
    });
    let Some(disk) = made else { return };
    // On a disk with free space, the journal restores the earlier contents.
    disk.check("sync inner.img:/", 0, "", "");
    let checked = run(program("e2fsck").args(["-f", "-n"]).arg(disk.folder().join("inner.img")));
    assert!(checked.is_ok(), "{checked:?}");
    assert_eq!(disk.read("ls inner.img:/"), "before\nlost+found\n");
}

#[test]
fn other_formats_stay_consistent_on_a_full_disk_of_the_host_too() {
    let repair = ["check", "-y", "inner.img"].as_slice();
    for (format, repair) in [("vfat", repair), ("exfat", repair), ("xv6", &["sync", "inner.img:/"])] {
        if !oracles() {
            return;
        }
        let made = filled(|disk, inner| {
            let words = ["mkfs", "-t", format, "-q", &inner.display().to_string(), "64M"];
            let output = disk.obento(&words);
            assert!(output.status.success(), "{format}: {}", text(&output.stderr));
        });
        let Some(disk) = made else { return };
        // On a disk with free space, unfinished changes are repaired, and the earlier files are present.
        let repaired = disk.obento(repair);
        assert!(matches!(repaired.status.code(), Some(0 | 1)), "{format}: {repaired:?}");
        let checked = disk.obento(&["check", "inner.img"]);
        assert_eq!(checked.status.code(), Some(0), "{format}: {checked:?}");
        let listed = disk.read("ls inner.img:/");
        assert!(listed.lines().any(|name| name == "before"), "{format}: {listed}");
    }
}
