//! The start and the end of a mount.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};

use crate::support::{Disk, text, wait_until};

#[test]
fn a_mount_in_use_stays_and_the_message_has_a_hint() {
    let Some(disk) = Disk::mounted("rw") else { return };
    let open = File::create(disk.path("f")).unwrap();
    let output = disk.obento(&["umount", "mnt"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("a process uses the mount"), "{}", text(&output.stderr));
    drop(open);
    disk.umount();
}

#[test]
fn a_wrong_option_and_a_wrong_image_are_named_and_nothing_is_mounted() {
    let Some(disk) = Disk::new(&[]) else { return };
    let said = |args: &[&str]| {
        let output = disk.obento(args);
        assert_ne!(output.status.code(), Some(0));
        text(&output.stderr)
    };
    assert_eq!(
        said(&["mount", "-o", "noatme", "disk.img", "mnt"]),
        "obento: cannot mount 'disk.img': unknown mount option 'noatme'\n  help: did you mean 'noatime'?\n"
    );
    assert!(said(&["mount", "none.img", "mnt"]).contains("none.img"));
    assert!(said(&["mount", "disk.img", "nowhere"]).contains("nowhere"));
    assert!(said(&["umount", "mnt"]).contains("not mounted"));
    assert!(!disk.is_mounted());
}

#[test]
fn no_other_process_changes_a_mounted_image() {
    let Some(disk) = Disk::mounted("rw") else { return };
    let output = disk.obento(&["mkdir", "disk.img:/d"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("(obento mount)"), "{}", text(&output.stderr));
    disk.umount();
    disk.quietly(&["mkdir", "disk.img:/d"]);
}

#[test]
fn a_signal_unmounts_and_leaves_the_volume_clean() {
    let Some(disk) = Disk::mounted("rw") else { return };
    fs::write(disk.path("f"), "written").unwrap();
    rustix::process::kill_process(disk.server(), rustix::process::Signal::TERM).unwrap();
    wait_until("the unmount", || !disk.is_mounted());
    // The next process that opens a file waits for the server.
    let output = disk.obento(&["cat", "disk.img:/f"]);
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("written", ""));
}

#[test]
fn a_server_that_is_killed_loses_nothing_that_was_synced() {
    let Some(disk) = Disk::mounted("rw") else { return };
    let mut file = File::create(disk.path("f")).unwrap();
    file.write_all(b"synced").unwrap();
    file.sync_all().unwrap();
    rustix::process::kill_process(disk.server(), rustix::process::Signal::KILL).unwrap();
    wait_until("the end of the server", || fs::metadata(disk.path("f")).is_err());
    drop(file);
    // A process that is killed on a busy machine uses the mount until its last thread is gone.
    wait_until("the unmount", || {
        disk.obento(&["umount", "mnt"]);
        !disk.is_mounted()
    });
    disk.mount_after_kill();
    let mut found = String::new();
    File::open(disk.path("f")).unwrap().read_to_string(&mut found).unwrap();
    assert_eq!(found, "synced");
    disk.umount();
}
