//! exFAT in the commands and behind a mount point: created, used by programs, filled and checked, with
//! `fsck.exfat` as the last check.

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
fn a_mount_shows_owners_masks_and_dots_as_its_options_say() {
    if !require(&[Oracle::Fuse, Oracle::Program("fsck.exfat")]) {
        return;
    }
    let folder = tempfile::Builder::new().prefix("obento-exfat-").tempdir().unwrap();
    let (folder, at) = (folder.path(), folder.path().join("mnt"));
    fs::create_dir(&at).unwrap();
    obento(folder, &["mkfs.exfat", "-c", "4K", "disk.img", "64M"]);
    let words = "uid=1000,gid=100,dmask=027,fmask=137,iocharset=utf8,errors=remount-ro,time_offset=60,keep_last_dots,discard";
    obento(folder, &["mount", "-o", words, "disk.img", "mnt"]);
    fs::write(at.join("file"), vec![1; 8 << 20]).unwrap();
    fs::write(at.join("ends with dots..."), "dots").unwrap();
    fs::create_dir(at.join("dir")).unwrap();
    for (name, mode) in [("file", 0o640), ("dir", 0o750)] {
        let meta = fs::metadata(at.join(name)).unwrap();
        assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7777), (1000, 100, mode), "{name}");
    }
    obento(folder, &["umount", "mnt"]);
    let blocks = fs::metadata(folder.join("disk.img")).unwrap().blocks();
    obento(folder, &["mount", "-o", "discard", "disk.img", "mnt"]);
    assert_eq!(fs::read(at.join("ends with dots...")).unwrap(), b"dots");
    assert!(fs::write(at.join("more."), "").is_err(), "without keep_last_dots");
    fs::remove_file(at.join("file")).unwrap();
    obento(folder, &["umount", "mnt"]);
    let left = fs::metadata(folder.join("disk.img")).unwrap().blocks();
    assert!(left + (8 << 11) <= blocks + 512, "what is freed is discarded: {blocks}, and {left} are left");
    judge(folder);
}

#[test]
fn mkfs_exfat_creates_the_same_volume_as_that_program_for_the_same_options() {
    if !require(&[Oracle::Program("mkfs.exfat"), Oracle::Program("fsck.exfat")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for letters in [
        &["-L", "A card"][..],
        &["-c", "8K", "-b", "64K"],
        &["--cluster-size", "4096", "--boundary-align", "1M", "--pack-bitmap", "--volume-label", "\u{e4}"],
        &["-f", "-c", "128k"],
    ] {
        for name in ["theirs.img", "disk.img"] {
            // The earlier contents no longer exist.
            fs::write(folder.join(name), vec![if letters[0] == "-f" { 0xee } else { 0 }; 40 << 20]).unwrap();
        }
        let theirs = folder.join("theirs.img");
        let args = letters.iter().map(|letter| letter.as_ref()).chain([theirs.as_os_str()]);
        call("mkfs.exfat", args).unwrap();
        let bytes = fs::read(&theirs).unwrap();
        let id = format!("{:08x}", u32::from_le_bytes(bytes[100..104].try_into().unwrap()));
        let mut words = vec!["mkfs.exfat", "--force", "--volume-id", &id];
        words.extend(letters);
        words.push("disk.img");
        obento(folder, &words);
        assert!(fs::read(folder.join("disk.img")).unwrap() == bytes, "{letters:?}");
        judge(folder);
    }
    obento(
        folder,
        &["mkfs.exfat", "-U", "01234567-89ab-cdef-0123-456789abcdef", "-s", "4096", "new.img", "64M"],
    );
    let said = obento(folder, &["info", "new.img"]);
    assert!(said.contains("01234567-89ab-cdef-0123-456789abcdef"), "{said}");
}

#[test]
fn the_structures_of_exfat_are_shown_with_their_places() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    obento(folder, &["mkfs.exfat", "-L", "CARD", "-c", "4K", "disk.img", "8M"]);
    fs::write(folder.join("a file"), "hello").unwrap();
    obento(folder, &["cp", "a file", "disk.img:/"]);
    let of = |words: &[&str]| obento(folder, words);
    let said = of(&["inspect", "super", "disk.img"]);
    assert!(
        said.contains("\"EXFAT   \"") && said.contains("VolumeLength") && said.contains("correct"),
        "{said}"
    );
    assert!(of(&["inspect", "super", "--copy", "1", "disk.img"]).contains("6144      3  JumpBoot"));
    let said = of(&["inspect", "dir", "disk.img:/"]);
    let kinds: Vec<&str> = said
        .lines()
        .filter(|line| !line.contains("  ") || line.starts_with("  file") || line.starts_with("  stream"))
        .collect();
    let expected = [
        "volume label",
        "allocation bitmap",
        "up-case table",
        "file entry",
        "  stream extension",
        "  file name",
        "end of the directory",
    ];
    assert_eq!(kinds, expected, "{said}");
    let said = of(&["inspect", "inode", "disk.img:/a file"]);
    assert!(
        said.contains("DataLength                5") && said.contains("FileName                  a file"),
        "{said}"
    );
    let first = said.lines().find_map(|line| line.trim().strip_suffix("count                     1"));
    assert!(first.is_some(), "{said}");
    let said = of(&["inspect", "block", "disk.img", "2"]);
    assert!(
        said.contains("by the bitmap               in use")
            && said.contains("FAT entry                   last cluster of a chain"),
        "{said}"
    );
}

#[test]
fn the_commands_recognise_exfat_without_an_option() {
    if !require(&[Oracle::Program("fsck.exfat")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir_all(folder.join("in/sub")).unwrap();
    fs::write(folder.join("in/sub/a.txt"), "hello").unwrap();
    fs::write(folder.join("in/b"), vec![5; 100_000]).unwrap();
    let made = obento(folder, &["mkfs", "-t", "exfat", "-L", "CARD", "-U", "1234-ABCD", "disk.img", "64M"]);
    // The format has no features.
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
