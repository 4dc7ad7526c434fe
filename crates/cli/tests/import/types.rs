//! Each type of member in the place of each type of file, judged by GNU tar on a mount of the same image.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use obento_testkit::entries::{Differences, Entries};
use obento_testkit::image::tar_of;
use obento_testkit::oracle::{LoopMount, call, program};
use obento_testkit::{Oracle, require};

use super::{archive, check, listing, obento};

/// What has a name before the archive is unpacked.
const EXISTING: &[&str] =
    &["absent", "file", "linked", "empty", "full", "tofile", "todir", "dangling", "circle", "fifo", "char"];
/// What the archive has under that name.
const MEMBERS: &[&str] = &["file", "long", "dir", "symlink", "hard", "fifo", "char"];
/// Those that a FAT can hold.
const EXISTING_ON_FAT: &[&str] = &["absent", "file", "empty", "full"];
const MEMBERS_ON_FAT: &[&str] = &["file", "long", "dir"];
/// More bytes than are written at once.
const LONG: &[u8] = &[7; 300_000];

/// Puts what is called `existing` at `path`; links lead to what is in `t`.
fn lay(existing: &str, path: &Path) {
    match existing {
        "absent" => {}
        "file" => fs::write(path, "old").unwrap(),
        "linked" => {
            fs::write(path, "old").unwrap();
            fs::hard_link(path, path.with_extension("other")).unwrap();
        }
        "empty" => fs::create_dir(path).unwrap(),
        "full" => {
            fs::create_dir(path).unwrap();
            fs::write(path.join("inside"), "old").unwrap();
        }
        "tofile" => symlink("t/file", path).unwrap(),
        "todir" => symlink("t/dir", path).unwrap(),
        "dangling" => symlink(path.with_extension("gone").file_name().unwrap(), path).unwrap(),
        "circle" => symlink(path.file_name().unwrap(), path).unwrap(),
        "fifo" => drop(call("mkfifo", [path.as_os_str()]).unwrap()),
        _ => drop(call("mknod", [path.as_os_str(), "c".as_ref(), "1".as_ref(), "5".as_ref()]).unwrap()),
    }
}

fn pairs<'p>(
    existing: &'p [&'p str],
    members: &'p [&'p str],
) -> impl Iterator<Item = (String, &'p str, &'p str)> {
    let pair = |old: &'p str| members.iter().map(move |new| (format!("{old}-{new}"), old, *new));
    existing.iter().flat_map(move |old| pair(old))
}

fn members(existing: &[&str], members: &[&str]) -> Vec<u8> {
    let names: Vec<_> = pairs(existing, members).collect();
    let children: Vec<_> = names.iter().map(|(name, ..)| format!("{name}/child")).collect();
    let mut all: Vec<(&str, u8, &str, &[u8])> = Vec::new();
    for ((name, _, new), child) in names.iter().zip(&children) {
        all.push(match *new {
            "file" => (name, b'0', "", b"new"),
            "long" => (name, b'0', "", LONG),
            "dir" => (name, b'5', "", b""),
            "symlink" => (name, b'2', "t/file", b""),
            "hard" => (name, b'1', "t/file", b""),
            "fifo" => (name, b'6', "", b""),
            _ => (name, b'3', "", b""),
        });
        if *new == "dir" {
            all.push((child, b'0', "", b"child"));
        }
    }
    archive(&all)
}

/// What the kernel shows below `/srv` of an image; times that are now are left out.
fn found(image: &Path) -> Entries {
    let mount = LoopMount::new(image, "ro").unwrap();
    let tar = image.with_extension("tar");
    tar_of(&mount.path().join("srv"), &tar).unwrap();
    mount.unmount().unwrap();
    let mut entries = listing(&tar);
    for entry in entries.values_mut().filter(|entry| entry.mtime.0 > 1_300_000_000) {
        entry.mtime = (0, 0);
    }
    entries
}

/// Unpacks `all.tar` into copies of `start.img` by GNU tar and by obento, and compares.
fn compare(at: &Path, tar_option: Option<&str>, option: Option<&str>) {
    for name in ["theirs.img", "ours.img"] {
        fs::copy(at.join("start.img"), at.join(name)).unwrap();
    }
    let mount = LoopMount::new(&at.join("theirs.img"), "rw").unwrap();
    let mut tar = program("tar");
    tar.args(["-x", "-p", "--numeric-owner", "--keep-directory-symlink"]).args(tar_option);
    let theirs =
        tar.arg("-f").arg(at.join("all.tar")).arg("-C").arg(mount.path().join("srv")).output().unwrap();
    mount.unmount().unwrap();
    let arguments = [&["import", "ours.img:/srv", "all.tar"][..], option.as_slice()].concat();
    let ours = obento(at, &arguments);
    let (theirs_said, ours_said) =
        (String::from_utf8_lossy(&theirs.stderr), String::from_utf8_lossy(&ours.stderr));
    assert_eq!(theirs.status.success(), ours.status.success(), "{option:?}\n{theirs_said}\n{ours_said}");
    let differences = Differences::between(&found(&at.join("theirs.img")), &found(&at.join("ours.img")));
    assert!(differences.is_empty(), "{option:?}: {differences}\n{theirs_said}\n{ours_said}");
}

#[test]
fn each_type_replaces_each_other_as_gnu_tar_does_it() {
    let tools = [Oracle::Root, Oracle::LoopMount, Oracle::Program("tar"), Oracle::Program("mke2fs")];
    if !require(&tools) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let srv = at.join("base/srv");
    fs::create_dir_all(srv.join("t/dir")).unwrap();
    fs::write(srv.join("t/file"), "target").unwrap();
    for (name, old, _) in pairs(EXISTING, MEMBERS) {
        lay(old, &srv.join(name));
    }
    fs::write(at.join("all.tar"), members(EXISTING, MEMBERS)).unwrap();
    fs::File::create(at.join("start.img")).unwrap().set_len(24 << 20).unwrap();
    let base = at.join("base");
    let arguments = ["-q".as_ref(), "-t".as_ref(), "ext4".as_ref(), "-d".as_ref(), base.as_os_str()];
    let image = at.join("start.img");
    call("mke2fs", arguments.into_iter().chain([image.as_os_str()])).unwrap();
    compare(at, None, None);
    compare(at, Some("--skip-old-files"), Some("--keep-old-files"));
}

/// The files below a folder with their bytes; directories end in a slash.
fn tree(folder: &Path, below: &str, found: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{below}{}", entry.file_name().to_str().unwrap());
        if entry.path().is_dir() {
            let path = format!("{path}/");
            tree(&entry.path(), &path, found);
            found.insert(path, Vec::new());
        } else {
            found.insert(path, fs::read(entry.path()).unwrap());
        }
    }
}

fn tree_of(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    tree(folder, "", &mut found);
    found
}

/// GNU tar unpacks into a folder of the host, since not every kernel mounts a FAT; mtools reads what is in the image.
#[test]
fn files_and_directories_replace_each_other_on_a_fat_too() {
    if !require(&[Oracle::Program("tar"), Oracle::Program("mcopy")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("all.tar"), members(EXISTING_ON_FAT, MEMBERS_ON_FAT)).unwrap();
    for (tar_option, option) in [(None, None), (Some("--skip-old-files"), Some("-k"))] {
        let theirs = at.join("theirs");
        fs::create_dir(&theirs).unwrap();
        for (name, old, _) in pairs(EXISTING_ON_FAT, MEMBERS_ON_FAT) {
            lay(old, &theirs.join(name));
        }
        // It notes that a FAT has no modes.
        let built =
            obento(at, &["build", "-q", "-F", "-t", "vfat", "disk.img", "--size", "24M", "--from", "theirs"]);
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let mut tar = program("tar");
        tar.args(["-x", "--no-same-owner"]).args(tar_option).arg("-f").arg(at.join("all.tar"));
        let reported = tar.arg("-C").arg(&theirs).output().unwrap();
        let arguments =
            [&["import", "disk.img:/", "all.tar", "--no-same-owner"][..], option.as_slice()].concat();
        let ours = obento(at, &arguments);
        let said = String::from_utf8_lossy(&ours.stderr);
        assert_eq!(reported.status.success(), ours.status.success(), "{option:?}: {said}");
        let copied = at.join("ours");
        fs::create_dir(&copied).unwrap();
        let image = at.join("disk.img");
        call(
            "mcopy",
            [
                "-s".as_ref(),
                "-Q".as_ref(),
                "-i".as_ref(),
                image.as_os_str(),
                "::*".as_ref(),
                copied.as_os_str(),
            ],
        )
        .unwrap();
        let (expected, found) = (tree_of(&theirs), tree_of(&copied));
        let names = |tree: &BTreeMap<String, Vec<u8>>| tree.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&expected), names(&found), "{option:?}: {said}");
        assert!(expected == found, "{option:?}: {said}");
        [theirs, copied].iter().for_each(|folder| fs::remove_dir_all(folder).unwrap());
    }
}

#[test]
fn a_hard_link_to_a_directory_is_refused_and_an_existing_file_stays() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    super::image(at, "disk.img", &["-t", "ext4"]);
    let members: &[(&str, u8, &str, &[u8])] =
        &[("name", b'0', "", b"old"), ("dir", b'5', "", b""), ("name", b'1', "dir", b"")];
    fs::write(at.join("all.tar"), archive(members)).unwrap();
    let reported =
        "obento: cannot import 'name': skipped: a hard link to the directory 'dir' is not possible\n";
    check(at, &["import", "disk.img:/", "all.tar"], 1, reported);
    assert_eq!(obento(at, &["cat", "disk.img:/name"]).stdout, b"old");
    super::e2fsck(at, "disk.img");
}
