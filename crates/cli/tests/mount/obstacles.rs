//! Mounts whose server cannot be replaced: `--upgrade` and `--dry-run` print the reason, `--status` reports it, and the
//! server continues.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use obento_testkit::oracle::{program, run};
use obento_testkit::{Oracle, require};
use tempfile::TempDir;

use crate::refusals::damaged;
use crate::support::{Disk, obento, offers_rings, server_of, text, umount, wait_until};

/// Returns a folder with a directory `mnt`, or `None` if an oracle is missing.
fn folder() -> Option<TempDir> {
    if !require(&[Oracle::Fuse]) {
        return None;
    }
    let folder = tempfile::Builder::new().prefix("obento-obstacles-").tempdir().unwrap();
    fs::create_dir(folder.path().join("mnt")).unwrap();
    Some(folder)
}

/// Runs `obento mount` with `words` in `folder`. Returns whether it succeeded, and its messages.
fn mount(folder: &Path, words: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    command.current_dir(folder).arg("mount").args(words).stdin(Stdio::null());
    let output = command.output().unwrap();
    (output.status.success(), text(&output.stderr))
}

/// Expects that the server of the mount at `at` in `folder` cannot be replaced because of `why`.
fn expect_obstacle(folder: &Path, image: &str, at: &str, why: &str) {
    let server = server_of(&folder.join(image));
    for words in [&["--upgrade", at][..], &["--upgrade", at, "--dry-run"]] {
        let (done, said) = mount(folder, words);
        assert!(!done && said.contains(why), "{image}: {words:?}: {said}");
        assert!(said.contains("cannot replace the server of the mount"), "{image}: {words:?}: {said}");
    }
    let status = obento(folder, &["mount", "--status", at, "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["upgradable"], false, "{image}: {status}");
    assert!(status["obstacle"].as_str().is_some_and(|reason| reason.contains(why)), "{image}: {status}");
    assert_eq!(server_of(&folder.join(image)), server, "{image}: the same server continues");
}

/// Mounts `image` with `words`, expects the obstacle `why`, and uses the mount afterwards.
fn refuses(folder: &Path, image: &str, words: &[&str], why: &str) {
    obento(folder, &[&["mount"], words, &[image, "mnt"]].concat());
    fs::write(folder.join("mnt/before"), "before").unwrap();
    expect_obstacle(folder, image, "mnt", why);
    fs::write(folder.join("mnt/after"), "after").unwrap();
    assert_eq!(fs::read_to_string(folder.join("mnt/before")).unwrap(), "before", "{image}");
    umount(folder);
}

#[test]
fn a_mount_whose_journal_is_on_another_device_is_refused_by_name() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    obento(folder, &["mkfs", "-q", "-b", "4096", "-O", "journal_dev", "log.img", "16M"]);
    obento(folder, &["mkfs", "-q", "-b", "4096", "-J", "device=log.img", "disk.img", "64M"]);
    let why = "the journal of the volume is on another device";
    refuses(folder, "disk.img", &["--journal", "log.img", "-o", "io_uring=off"], why);
    let (done, said) = mount(folder, &["--journal", "log.img", "-o", "failover", "disk.img", "mnt"]);
    assert!(!done && said.contains(why) && said.contains("omit the option failover"), "{said}");
    obento(folder, &["check", "--journal", "log.img", "disk.img"]);
}

#[test]
fn a_mount_with_failover_is_refused_by_name() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    obento(folder, &["mkfs", "-q", "disk.img", "64M"]);
    refuses(folder, "disk.img", &["-o", "failover"], "the volume was mounted with -o failover");
    obento(folder, &["check", "disk.img"]);
}

#[test]
fn a_mount_of_an_image_in_a_container_is_refused_by_name() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    obento(folder, &["mkfs", "-q", "disk.img", "64M"]);
    obento(folder, &["convert", "-q", "disk.img", "disk.qcow2"]);
    refuses(
        folder,
        "disk.qcow2",
        &["-o", "io_uring=off"],
        "the image is compressed or in a container such as qcow2",
    );
    obento(folder, &["check", "disk.qcow2"]);
}

#[test]
fn a_mount_whose_requests_arrive_through_rings_is_refused_by_name() {
    if !offers_rings() {
        return println!("skipped: the kernel offers no rings");
    }
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    obento(folder, &["mkfs", "-q", "disk.img", "64M"]);
    refuses(folder, "disk.img", &["-o", "io_uring=on"], "requests arrive through io_uring");
}

#[test]
fn each_mount_of_all_partitions_of_a_disk_is_refused_by_name() {
    if !require(&[Oracle::Program("sgdisk")]) {
        return;
    }
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    File::create(folder.join("disk.img")).unwrap().set_len(96 << 20).unwrap();
    run(program("sgdisk").args(["--new=1:0:+16M", "--new=2:0:+64M"]).arg(folder.join("disk.img"))).unwrap();
    obento(folder, &["mkfs", "-q", "-t", "vfat", "disk.img@1"]);
    obento(folder, &["mkfs", "-q", "disk.img@2"]);
    obento(folder, &["mount", "--all", "-o", "io_uring=off", "disk.img", "mnt"]);
    for at in ["mnt/1", "mnt/2"] {
        expect_obstacle(folder, "disk.img", at, "its server serves other partitions of the disk, too");
        fs::write(folder.join(at).join("after"), "after").unwrap();
    }
    umount(folder);
    wait_until("the end", || fs::read_dir(folder.join("mnt/2")).unwrap().next().is_none());
    assert_eq!(obento(folder, &["cat", "disk.img@2:/after"]), "after");
}

#[test]
fn a_mount_that_is_read_only_after_an_error_is_refused_by_name() {
    if !require(&[Oracle::Program("debugfs")]) {
        return;
    }
    let made = ["-b", "4096", "-e", "remount-ro", "-O", "metadata_csum"];
    let Some(disk) = Disk::sized("400M", &made) else { return };
    damaged(&disk);
    disk.mount("rw,io_uring=off");
    disk.quietly(&["mount", "--upgrade", "mnt", "--dry-run"]);
    let file = File::options().write(true).open(disk.path("damaged")).unwrap();
    file.set_len(5000).unwrap_err();
    drop(file);
    wait_until("the state after the error", || fs::write(disk.path("new"), "x").is_err());
    expect_obstacle(disk.folder(), "disk.img", "mnt", "the volume is read-only after an error");
    disk.obento(&["umount", "mnt"]);
    wait_until("the unmount", || !disk.is_mounted());
    disk.obento(&["check", "-y", "disk.img"]);
}

#[test]
fn a_mount_by_another_program_is_refused_by_name() {
    let Some(folder) = folder() else { return };
    let folder: PathBuf = folder.path().into();
    for words in [&["--upgrade", "mnt"][..], &["--upgrade", "mnt", "--dry-run"], &["--status", "mnt"]] {
        let (done, said) = mount(&folder, words);
        assert!(!done && said.contains("it is not a mount of obento"), "{words:?}: {said}");
    }
}
