//! `mount --all`: every partition of a disk at once.

use std::fs::{self, File};
use std::path::Path;

use obento_testkit::oracle::{program, run};
use obento_testkit::{Oracle, require};
use tempfile::TempDir;

use crate::support::{obento, server_of, server_without_a_caller, text, umount, wait_until};

/// Creates a disk with a FAT and an ext4 volume and an empty partition, and a folder to mount it in.
fn disk() -> Option<TempDir> {
    let programs = ["sgdisk", "qemu-img", "e2fsck", "fsck.fat"].map(Oracle::Program);
    if !require(&programs) || !require(&[Oracle::Fuse]) {
        return None;
    }
    let folder = tempfile::Builder::new().prefix("obento-mount-").tempdir().unwrap();
    fs::create_dir(folder.path().join("mnt")).unwrap();
    let path = folder.path().join("disk.img");
    File::create(&path).unwrap().set_len(96 << 20).unwrap();
    let parts = ["--new=1:0:+16M", "--new=2:0:+8M", "--new=3:0:+64M"];
    run(program("sgdisk").args(parts).arg(&path)).unwrap();
    obento(folder.path(), &["mkfs", "-q", "-t", "vfat", "disk.img@1"]);
    obento(folder.path(), &["mkfs", "-q", "disk.img@3"]);
    Some(folder)
}

fn command(folder: &Path, args: &[&str]) -> (Option<i32>, String) {
    let output = run(program(env!("CARGO_BIN_EXE_obento")).current_dir(folder).args(args));
    match output {
        Ok(output) => (output.status.code(), text(&output.stderr)),
        Err(error) => (None, format!("{error:?}")),
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Checks both volumes of a raw disk.
fn check(folder: &Path, image: &str) {
    for (part, checker) in [(1, ["fsck.fat", "-n"]), (3, ["e2fsck", "-fn"])] {
        obento(folder, &["convert", "-q", "-f", &format!("{image}@{part}"), "part.img"]);
        run(program(checker[0]).arg(checker[1]).arg(folder.join("part.img"))).unwrap();
    }
}

#[test]
fn a_link_in_place_of_the_directory_of_a_partition_is_refused() {
    let Some(disk) = disk() else { return };
    let folder = disk.path();
    fs::create_dir(folder.join("precious")).unwrap();
    std::os::unix::fs::symlink("../precious", folder.join("mnt/1")).unwrap();
    let (code, said) = command(folder, &["mount", "--all", "disk.img", "mnt"]);
    assert!(code != Some(0) && said.contains("not a directory"), "{said}");
    let state = obento(folder, &["info", "disk.img@3"]);
    assert!(state.contains("clean") && !state.contains("recovery"), "{state}");
    fs::write(folder.join("precious/file"), "visible").unwrap();
    fs::remove_file(folder.join("mnt/1")).unwrap();
    assert_eq!(names(&folder.join("mnt")), [""; 0]);
    if require(&[Oracle::Root]) {
        std::os::unix::fs::symlink("mnt", folder.join("link")).unwrap();
        run(program("chown").args(["-h", "1007"]).arg(folder.join("link"))).unwrap();
        let (code, said) = command(folder, &["mount", "--all", "disk.img", "link"]);
        assert!(code != Some(0) && said.contains("a symbolic link of another user"), "{said}");
        assert_eq!(names(&folder.join("mnt")), [""; 0]);
    }
}

#[test]
fn a_volume_whose_root_is_not_a_directory_is_left_out() {
    if !require(&[Oracle::Program("debugfs"), Oracle::Program("mke2fs")]) {
        return;
    }
    let Some(disk) = disk() else { return };
    let folder = disk.path();
    let bad = folder.join("bad.img");
    run(program("mke2fs").args(["-q", "-F"]).arg(&bad).arg("8M")).unwrap();
    run(program("debugfs").args(["-w", "-R", "set_inode_field <2> mode 0100755"]).arg(&bad)).unwrap();
    let whole = File::options().write(true).open(folder.join("disk.img")).unwrap();
    // The second partition begins after that of 16 MiB, which begins at 1 MiB.
    std::os::unix::fs::FileExt::write_all_at(&whole, &fs::read(&bad).unwrap(), 17 << 20).unwrap();
    drop(whole);
    for options in [&["--all"][..], &["--all", "-r"]] {
        let (code, said) = command(folder, &[&["mount"], options, &["disk.img", "mnt"]].concat());
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("disk.img@2: note: not mounted: "), "{said}");
        assert!(said.contains("the root (inode 2) is not a directory"), "{said}");
        assert_eq!(names(&folder.join("mnt")), ["1", "3"]);
        umount(folder);
    }
    check(folder, "disk.img");
}

#[test]
fn all_file_systems_of_a_disk_are_changed_at_once_and_end_with_one_umount() {
    let Some(disk) = disk() else { return };
    let folder = disk.path();
    obento(folder, &["convert", "-q", "disk.img", "disk.qcow2"]);
    for image in ["disk.img", "disk.qcow2"] {
        obento(folder, &["mount", "--all", image, "mnt"]);
        let mnt = folder.join("mnt");
        assert_eq!(names(&mnt), ["1", "3"]);
        for part in ["1", "3"] {
            fs::write(mnt.join(part).join("file"), image.repeat(100_000)).unwrap();
        }
        let status = obento(folder, &["mount", "--status", "mnt"]);
        assert_eq!(status.matches("read-write").count(), 2, "{status}");
        assert!(status.contains(&format!("{image}@1, vfat")) && status.contains("@3, ext4"), "{status}");
        let (_, refused) = command(folder, &["mount", "--upgrade", "mnt/3"]);
        assert!(refused.contains("cannot replace the server"), "{refused}");
        umount(folder);
        wait_until("the unmount", || names(&mnt.join("1")).is_empty() && names(&mnt.join("3")).is_empty());
        for part in ["1", "3"] {
            assert_eq!(obento(folder, &["cat", &format!("{image}@{part}:/file")]), image.repeat(100_000));
        }
        check(folder, image);
    }
    run(program("qemu-img").args(["check", "-q"]).arg(folder.join("disk.qcow2"))).unwrap();
}

#[test]
fn one_mount_of_a_disk_ends_alone_and_a_signal_ends_the_others() {
    let Some(disk) = disk() else { return };
    let folder = disk.path();
    obento(folder, &["mount", "--all", "-o", "noatime", "disk.img", "mnt"]);
    let server = server_of(&folder.join("disk.img"));
    fs::write(folder.join("mnt/3/file"), "kept").unwrap();
    wait_until("the unmount", || command(folder, &["umount", "mnt/1"]).0 == Some(0));
    assert_eq!(names(&folder.join("mnt/1")), [""; 0]);
    assert_eq!(fs::read_to_string(folder.join("mnt/3/file")).unwrap(), "kept");
    rustix::process::kill_process(server, rustix::process::Signal::TERM).unwrap();
    wait_until("the unmount", || {
        fs::read_dir(folder.join("mnt/3")).is_ok_and(|mut names| names.next().is_none())
    });
    assert_eq!(obento(folder, &["cat", "disk.img@3:/file"]), "kept");
    check(folder, "disk.img");
}

#[test]
fn what_cannot_be_mounted_together_is_refused_before_anything_is_mounted() {
    let Some(disk) = disk() else { return };
    let folder = disk.path();
    obento(folder, &["convert", "-q", "disk.img@3", "volume.img"]);
    for (args, why) in [
        (&["volume.img", "mnt"][..], "no partition has a file system"),
        (&["disk.img@3", "mnt"], "--all mounts all partitions"),
        (&["-o", "fsname=x", "disk.img", "mnt"], "the option fsname is for a single volume"),
        (&["disk.img", "missing"], "missing': no such file or directory"),
    ] {
        let before = fs::read(folder.join("disk.img")).unwrap();
        let (_, said) = command(folder, &[&["mount", "--all"], args].concat());
        assert!(said.contains(why), "{args:?}: {said}");
        assert!(fs::read(folder.join("disk.img")).unwrap() == before, "{args:?}");
    }
    assert_eq!(names(&folder.join("mnt")), [""; 0]);
    obento(folder, &["mount", "--all", "-r", "disk.img", "mnt"]);
    fs::write(folder.join("mnt/3/file"), "").unwrap_err();
    umount(folder);
}

#[test]
fn no_volume_stays_mounted_if_the_caller_of_the_server_has_ended() {
    let Some(disk) = disk() else { return };
    let folder = disk.path();
    let mut server = server_without_a_caller(folder, &["--all", "disk.img", "mnt"]);
    assert_eq!(server.status().unwrap().code(), Some(1));
    for part in ["1", "3"] {
        assert_eq!(names(&folder.join("mnt").join(part)), [""; 0], "the directory below the mount");
    }
    check(folder, "disk.img");
}
