//! exFAT by the commands and behind a mount point: made, used by programs, filled, checked; `fsck.exfat` has the last word.

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use obento_testkit::oracle::call;
use obento_testkit::{Oracle, require};

use super::support::obento;

fn judge(folder: &Path) {
    call("fsck.exfat", ["-n".as_ref(), folder.join("disk.img").as_os_str()]).unwrap();
}

#[test]
fn an_exfat_volume_is_made_mounted_used_and_checked() {
    if !require(&[Oracle::Fuse, Oracle::Program("fsck.exfat")]) {
        return;
    }
    let folder = tempfile::Builder::new().prefix("obento-exfat-").tempdir().unwrap();
    let (folder, at) = (folder.path(), folder.path().join("mnt"));
    fs::create_dir(&at).unwrap();
    obento(folder, &["mkfs", "-t", "exfat", "-L", "CARD", "-C", "4k", "-U", "1234-ABCD", "disk.img", "64M"]);
    obento(folder, &["mount", "disk.img", "mnt"]);
    let path = |name: &str| at.join(name);
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n / 7) as u8).collect();
    fs::create_dir(path("dir")).unwrap();
    fs::write(path("dir/file"), &bytes).unwrap();
    fs::rename(path("dir"), path("moved")).unwrap();
    assert!(fs::read(path("MOVED/FILE")).unwrap() == bytes, "case does not count");
    let sparse = fs::File::create(path("sparse")).unwrap();
    sparse.set_len(9_000_000).unwrap();
    sparse.write_all_at(b"far", 5_000_000).unwrap();
    let gone = fs::OpenOptions::new().read(true).write(true).create_new(true).open(path("gone")).unwrap();
    fs::remove_file(path("gone")).unwrap();
    gone.write_all_at(b"still here", 0).unwrap();
    let mut back = [0; 10];
    gone.read_exact_at(&mut back, 0).unwrap();
    assert_eq!(&back, b"still here");
    drop((gone, sparse));
    (0..300).for_each(|n| fs::write(path(&format!("moved/{n}")), format!("{n}")).unwrap());
    (0..300).filter(|n| n % 2 == 0).for_each(|n| fs::remove_file(path(&format!("moved/{n}"))).unwrap());
    assert!(std::os::unix::fs::symlink("moved", path("link")).is_err());
    obento(folder, &["umount", "mnt"]);
    judge(folder);
    obento(folder, &["check", "disk.img"]);
    obento(folder, &["mount", "-o", "ro", "disk.img", "mnt"]);
    let mut expected = vec![0; 9_000_000];
    expected[5_000_000..5_000_003].copy_from_slice(b"far");
    assert!(fs::read(path("sparse")).unwrap() == expected);
    assert_eq!(fs::read_dir(path("moved")).unwrap().count(), 151);
    assert_eq!(fs::metadata(path("moved")).unwrap().nlink(), 1);
    obento(folder, &["umount", "mnt"]);
}

#[test]
fn the_commands_know_exfat_without_being_told() {
    if !require(&[Oracle::Program("fsck.exfat")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir_all(folder.join("in/sub")).unwrap();
    fs::write(folder.join("in/sub/a.txt"), "hello").unwrap();
    fs::write(folder.join("in/b"), vec![5; 100_000]).unwrap();
    let made = obento(folder, &["mkfs", "-t", "exfat", "-L", "CARD", "-U", "1234-ABCD", "disk.img", "64M"]);
    // The format has no features to be named.
    assert!(made.contains("1234-ABCD") && !made.contains("features"), "{made}");
    assert!(obento(folder, &["info", "disk.img"]).contains("1234-ABCD"));
    obento(folder, &["cp", "-r", "in", "disk.img:/"]);
    assert_eq!(obento(folder, &["ls", "disk.img:/in"]), "b\nsub\n");
    assert_eq!(obento(folder, &["cat", "disk.img:/IN/SUB/A.TXT"]), "hello");
    assert!(obento(folder, &["find", "disk.img:/", "-name", "a.txt"]).contains("/in/sub/a.txt"));
    obento(folder, &["mv", "disk.img:/in/sub/a.txt", "disk.img:/in/sub/c.txt"]);
    obento(folder, &["rm", "disk.img:/in/b"]);
    let tar = obento(folder, &["export", "disk.img:/in", "out.tar"]);
    assert!(tar.is_empty(), "{tar}");
    obento(folder, &["import", "disk.img:/", "out.tar"]);
    assert_eq!(obento(folder, &["cat", "disk.img:/sub/c.txt"]), "hello");
    judge(folder);
    assert!(obento(folder, &["check", "disk.img"]).contains("disk.img"));
}
