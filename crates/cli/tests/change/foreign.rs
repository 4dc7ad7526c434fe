//! Directories of the host that another user can change.

use std::fs;
use std::os::unix::fs::{lchown, symlink};
use std::path::PathBuf;

use obento_testkit::{Oracle, require};

use crate::support::{Disk, text};

/// A user ID that no user of this system has.
const OTHER: u32 = 12345;

/// An image with a file, and a directory `victim` with a file of the same name. Links of another user refer to them:
/// `dir` to the directory and `file` to the file.
/// that file.
fn attacked() -> Option<(Disk, PathBuf)> {
    if !require(&[Oracle::Root]) {
        return None;
    }
    let disk = Disk::new("8M", &[])?;
    disk.obento_with(&["write", "disk.img:/f"], b"of the image");
    let victim = disk.folder().join("victim");
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("f"), "precious").unwrap();
    for (link, target) in [("dir", "victim"), ("file", "victim/f")] {
        symlink(target, disk.folder().join(link)).unwrap();
        lchown(disk.folder().join(link), Some(OTHER), Some(OTHER)).unwrap();
    }
    Some((disk, victim))
}

#[test]
fn nothing_is_written_through_a_link_of_another_user() {
    let Some((disk, victim)) = attacked() else { return };
    let refused = [
        "cp disk.img:/f dir",
        "cp disk.img:/f file",
        "cp disk.img:/f dir/f",
        "cp -t dir disk.img:/f",
        "cp -a disk.img:/ dir",
        "mv disk.img:/f dir",
        "mv disk.img:/f dir/f",
        "mv dir/f disk.img:/g",
        "export disk.img -o dir/f",
        "export disk.img -o file",
        "find disk.img -fprint file",
        "build dir/new.img --from victim",
        "mkfs dir/new.img 8M",
    ];
    for line in refused {
        let words: Vec<_> = line.split(' ').collect();
        let output = disk.obento(&words);
        assert!(!output.status.success(), "{line}");
        let said = text(&output.stderr);
        assert!(said.contains("symbolic link of another user"), "{line}: {said}");
        assert_eq!(fs::read(victim.join("f")).unwrap(), b"precious", "{line}");
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 1, "{line}");
    }
}

#[test]
fn links_of_ones_own_are_followed_as_ever() {
    let Some(disk) = Disk::new("8M", &[]) else { return };
    disk.obento_with(&["write", "disk.img:/f"], b"of the image");
    let at = disk.folder();
    fs::create_dir(at.join("real")).unwrap();
    symlink("real", at.join("link")).unwrap();
    disk.quietly(&["cp disk.img:/f link", "cp disk.img:/f link/g", "export disk.img -o link/tar"]);
    disk.quietly(&["mv disk.img:/f link/h", "mv link/g disk.img:/"]);
    assert!(disk.obento(&["build", "-q", "link/new.img", "--from", "real"]).status.success());
    let mut names: Vec<_> =
        fs::read_dir(at.join("real")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["f", "h", "new.img", "tar"]);
    assert_eq!(disk.read("cat disk.img:/g"), "of the image");
}
