//! What `mount --status` prints about the caches of a mount.

use std::fs::{self, File};

use rustix::fs::FallocateFlags;

use crate::support::{Disk, text};

const MIB: u64 = 1 << 20;

/// Returns the status of the mount as text, and as JSON.
fn status(disk: &Disk) -> (String, serde_json::Value) {
    let json = text(&disk.obento(&["mount", "--status", "mnt", "--json"]).stdout);
    let shown = text(&disk.obento(&["mount", "--status", "mnt"]).stdout);
    (shown, serde_json::from_str(&json).expect("a line of JSON"))
}

#[test]
fn the_status_shows_the_metadata_cache_and_whether_the_kernel_gathers_writes() {
    let Some(disk) = Disk::sized("2G", &[]) else { return };
    // No commit writes the changes before the status is read.
    disk.mount("rw,io_uring=off,commit=600");
    for number in 0..100 {
        fs::create_dir(disk.path(&format!("dir{number}"))).unwrap();
    }
    let (shown, json) = status(&disk);
    let number = |name: &str| json[name].as_u64().expect("a number");
    let [limit, unchanged, changed] = ["cache_limit", "cache_bytes", "changed_bytes"].map(number);
    assert!(unchanged > 0 && unchanged <= limit && changed >= 100 * 4096, "{json}");
    assert_eq!(json["write_cache"], "on");
    let line = shown.lines().find_map(|line| line.strip_prefix("  metadata cache: ")).expect("a line");
    assert!(line.contains(&format!(" of {limit} bytes; changes not yet written: ")), "{line}");
    assert!(line.ends_with(" bytes; write-back cache: on"), "{line}");
    disk.quietly(&["mount", "--upgrade", "mnt"]);
    assert_eq!(status(&disk).1["write_cache"], "on", "the next server continues with the cache");
    disk.umount();
    disk.mount("rw,io_uring=off,no_writeback_cache");
    assert_eq!(status(&disk).1["write_cache"], "off");
    disk.umount();
}

#[test]
fn the_status_of_a_mount_that_is_nearly_full_shows_that_the_kernel_asks_for_space() {
    let Some(disk) = Disk::sized("2G", &[]) else { return };
    disk.mount("rw");
    assert_eq!(status(&disk).1["write_cache"], "on");
    let big = File::create(disk.path("big")).unwrap();
    let free = rustix::fs::statvfs(disk.at()).unwrap();
    let free = free.f_bavail * free.f_frsize;
    rustix::fs::fallocate(&big, FallocateFlags::empty(), 0, free - 48 * MIB).unwrap();
    fs::write(disk.path("f"), "x").unwrap();
    assert_eq!(status(&disk).1["write_cache"], "asking for space");
    drop(big);
    disk.umount();
}
