//! An image on a disk of the host that fills up while the image is changed.

use std::fs::{self, File};
use std::path::Path;

use obento_testkit::oracle::{LoopMount, program, run};
use obento_testkit::{Oracle, require};

use crate::support::{Disk, text};

/// Whether there is anything to fill.
fn oracles() -> bool {
    require(&[Oracle::LoopMount, Oracle::Root])
}

/// A small file system of the host with an image in it that is larger, which `make` makes at a path, full.
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
    assert!(errors.contains("failed: no space left on the disk that the image lies on"), "{errors}");
    assert!(errors.contains("help: free space on the disk of the image"), "{errors}");
    fs::copy(&inner, disk.folder().join("inner.img")).unwrap();
    mount.unmount().unwrap();
    Some(disk)
}

#[test]
fn a_full_disk_of_the_host_is_told_in_words_with_what_to_do_and_the_volume_stays_whole() {
    if !oracles() {
        return;
    }
    let made = filled(|_, inner| {
        File::create(inner).unwrap().set_len(64 << 20).unwrap();
        run(program("mke2fs").args(["-q", "-F", "-t", "ext4", "-J", "size=1"]).arg(inner)).unwrap();
    });
    let Some(disk) = made else { return };
    // On a disk with room the journal brings back what was there.
    disk.check("sync inner.img:/", 0, "", "");
    let checked = run(program("e2fsck").args(["-f", "-n"]).arg(disk.folder().join("inner.img")));
    assert!(checked.is_ok(), "{checked:?}");
    assert_eq!(disk.read("ls inner.img:/"), "before\nlost+found\n");
}

#[test]
fn other_formats_stay_whole_on_a_full_disk_of_the_host_too() {
    let mend = ["check", "-y", "inner.img"].as_slice();
    for (format, mend) in [("vfat", mend), ("exfat", mend), ("xv6", &["sync", "inner.img:/"])] {
        if !oracles() {
            return;
        }
        let made = filled(|disk, inner| {
            let words = ["mkfs", "-t", format, "-q", &inner.display().to_string(), "64M"];
            let output = disk.obento(&words);
            assert!(output.status.success(), "{format}: {}", text(&output.stderr));
        });
        let Some(disk) = made else { return };
        // On a disk with room what was begun is mended, and what was there before is there.
        let mended = disk.obento(mend);
        assert!(matches!(mended.status.code(), Some(0 | 1)), "{format}: {mended:?}");
        let checked = disk.obento(&["check", "inner.img"]);
        assert_eq!(checked.status.code(), Some(0), "{format}: {checked:?}");
        let listed = disk.read("ls inner.img:/");
        assert!(listed.lines().any(|name| name == "before"), "{format}: {listed}");
    }
}
