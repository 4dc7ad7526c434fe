//! An image on a disk of the host that fills up while the image is changed.

use std::fs::{self, File};

use obento_testkit::oracle::{LoopMount, program, run};
use obento_testkit::{Oracle, require};

use crate::support::{Disk, text};

#[test]
fn a_full_disk_of_the_host_is_told_in_words_with_what_to_do_and_the_volume_stays_whole() {
    if !require(&[Oracle::LoopMount, Oracle::Root]) {
        return;
    }
    let Some(disk) = Disk::new("4M", &[]) else { return };
    let mount = LoopMount::new(&disk.image(), "").unwrap();
    let inner = mount.path().join("inner.img");
    File::create(&inner).unwrap().set_len(64 << 20).unwrap();
    run(program("mke2fs").args(["-q", "-F", "-t", "ext4", "-J", "size=1"]).arg(&inner)).unwrap();
    let at = |path: &str| format!("{}:{path}", inner.display());
    fs::write(disk.folder().join("big"), vec![7; 8 << 20]).unwrap();
    assert!(disk.obento(&["mkdir", &at("/before")]).status.success());
    let output = disk.obento(&["cp", "big", &at("/big")]);
    let errors = text(&output.stderr);
    assert!(matches!(output.status.code(), Some(1 | 2)), "{errors}");
    assert!(errors.contains("failed: no space left on the disk that the image lies on"), "{errors}");
    assert!(errors.contains("help: make room on the disk that the image lies on"), "{errors}");
    // On a disk with room the journal brings back what was there.
    fs::copy(&inner, disk.folder().join("inner.img")).unwrap();
    mount.unmount().unwrap();
    disk.check("sync inner.img:/", 0, "", "");
    let checked = run(program("e2fsck").args(["-f", "-n"]).arg(disk.folder().join("inner.img")));
    assert!(checked.is_ok(), "{checked:?}");
    assert_eq!(disk.read("ls inner.img:/"), "before\nlost+found\n");
}
