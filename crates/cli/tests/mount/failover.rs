//! A mount whose server is killed: another one continues, and programs see no error. A successful change is
//! kept, also if it was never synced.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use obento_testkit::{Oracle, require};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Disk, obento, text, umount, wait_until};
use crate::upgrade::{End, load, mapping, serving};

/// The number of failures; `cargo xtask failover` makes more.
pub fn failures() -> u64 {
    std::env::var("OBENTO_FAILOVERS").ok().and_then(|count| count.parse().ok()).unwrap_or(10)
}

/// Kills the server of `disk`, and returns its process.
pub fn kill_server(disk: &Disk) -> String {
    let server = serving(disk.folder());
    kill(&server);
    server
}

fn kill(pid: &str) {
    kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
}

/// Returns the parent of a process: the keeper of a server.
fn parent(pid: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap();
    line.trim().to_owned()
}

/// Creates, links, renames and removes names, and compares each result with a model, until `is_over`. Returns the names
/// that must exist, and the contents of their files.
pub fn names(folder: &Path, is_over: &AtomicBool) -> std::collections::BTreeMap<String, Vec<u8>> {
    fs::create_dir(folder).unwrap();
    let mut model = std::collections::BTreeMap::new();
    let mut round = 0_u64;
    while !is_over.load(Ordering::Relaxed) {
        round += 1;
        let (name, other) = (format!("f{}", round % 97), format!("f{}", round * 31 % 97));
        let (path, to) = (folder.join(&name), folder.join(&other));
        match round % 5 {
            0 | 1 => {
                let created = OpenOptions::new().write(true).create_new(true).open(&path);
                assert_eq!(created.is_err(), model.contains_key(&name), "{name}: {created:?}");
                if let Ok(mut file) = created {
                    let bytes = round.to_le_bytes().repeat(1 + round as usize % 900);
                    file.write_all(&bytes).unwrap();
                    model.insert(name, bytes);
                }
            }
            2 => {
                let removed = fs::remove_file(&path);
                assert_eq!(removed.is_ok(), model.remove(&name).is_some(), "{name}: {removed:?}");
            }
            3 if name != other => {
                let renamed = fs::rename(&path, &to);
                let bytes = model.remove(&name);
                assert_eq!(renamed.is_ok(), bytes.is_some(), "{name} to {other}: {renamed:?}");
                model.extend(bytes.map(|bytes| (other, bytes)));
            }
            _ => {
                let dir = folder.join("dir");
                fs::create_dir(&dir).unwrap();
                std::os::unix::fs::symlink("target", dir.join("link")).unwrap();
                assert_eq!(fs::read_link(dir.join("link")).unwrap(), Path::new("target"));
                fs::remove_file(dir.join("link")).unwrap();
                fs::remove_dir(&dir).unwrap();
            }
        }
    }
    model
}

/// Checks that `folder` has the names and the contents of `model`.
#[track_caller]
pub fn compare(folder: &Path, model: &std::collections::BTreeMap<String, Vec<u8>>) {
    let mut found: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    found.sort_unstable();
    assert!(found.iter().eq(model.keys().map(|name| name.as_str())), "{found:?} {:?}", model.keys());
    for (name, bytes) in model {
        assert!(fs::read(folder.join(name)).unwrap() == *bytes, "{name}");
    }
}

#[test]
fn a_server_is_restarted_after_a_directory_above_the_mount_was_renamed() {
    let Some(disk) = Disk::new(&[]) else { return };
    let at = |name: &str| disk.folder().join(name);
    fs::create_dir_all(at("old/mnt")).unwrap();
    disk.quietly(&["mount", "-o", "failover", "disk.img", "old/mnt"]);
    fs::rename(at("old"), at("new")).unwrap();
    kill(&serving(&at("new")));
    fs::write(at("new/mnt/f"), "written").unwrap();
    disk.quietly(&["umount", "new/mnt"]);
    let output = disk.obento(&["cat", "disk.img:/f"]);
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("written", ""));
}

#[test]
fn programs_see_no_error_and_no_change_is_lost_when_the_server_is_killed() {
    let needed = [Oracle::Program("python3")];
    let Some(disk) = Some(()).filter(|()| require(&needed)).and_then(|()| Disk::mounted("failover=1000"))
    else {
        return;
    };
    let mut mapped = mapping(&disk);
    let is_over = AtomicBool::new(false);
    let (models, contents) = std::thread::scope(|threads| {
        let folder = |name: &str| disk.path(name);
        let start = |number: usize| {
            let (folder, is_over) = (folder(&format!("names{number}")), &is_over);
            threads.spawn(move || names(&folder, is_over))
        };
        let models: Vec<_> = (0..2).map(start).collect();
        let (at, over) = (folder("load"), &is_over);
        let written = threads.spawn(move || load(&at, over));
        let end = End(&is_over);
        for round in 0..failures() {
            // Longer than a commit interval in some rounds, shorter in most.
            std::thread::sleep(Duration::from_millis(50 + round * 7919 % 400));
            kill_server(&disk);
        }
        serving(disk.folder());
        drop(end);
        let models: Vec<_> = models.into_iter().map(|names| names.join().unwrap()).collect();
        (models, written.join().unwrap())
    });
    fs::write(disk.folder().join("end"), "").unwrap();
    assert!(mapped.wait().unwrap().success());
    let status = text(&disk.obento(&["mount", "--status", "mnt", "--json"]).stdout);
    assert!(status.contains(&format!("\"failovers\":{}", failures())), "{status}");
    let check = |disk: &Disk| {
        models
            .iter()
            .enumerate()
            .for_each(|(number, model)| compare(&disk.path(&format!("names{number}")), model));
        let (one, other) = (disk.path("load/one"), disk.path("load/other"));
        assert!(fs::read(if one.exists() { one } else { other }).unwrap() == contents);
        assert!(fs::read(disk.path("mapped")).unwrap() == fs::read(disk.path("mapped.seen")).unwrap());
    };
    check(&disk);
    disk.umount();
    disk.fsck();
    disk.mount("ro");
    check(&disk);
    disk.umount();
}

#[test]
fn changes_that_were_never_synced_and_a_nameless_file_survive_the_server() {
    let Some(disk) = Disk::mounted("failover,commit=600") else { return };
    let nameless = File::options().read(true).write(true).create_new(true).open(disk.path("gone")).unwrap();
    nameless.write_all_at(b"begin", 0).unwrap();
    fs::remove_file(disk.path("gone")).unwrap();
    fs::create_dir(disk.path("dir")).unwrap();
    fs::write(disk.path("dir/old"), vec![7; 300_000]).unwrap();
    fs::rename(disk.path("dir/old"), disk.path("dir/new")).unwrap();
    fs::hard_link(disk.path("dir/new"), disk.path("second")).unwrap();
    rustix::fs::setxattr(disk.path("second"), "user.name", b"value", rustix::fs::XattrFlags::CREATE).unwrap();
    fs::File::options().write(true).open(disk.path("second")).unwrap().set_len(200_000).unwrap();
    let before = fs::metadata(disk.path("second")).unwrap();
    let server = kill_server(&disk);
    wait_until("another server", || serving(disk.folder()) != server);
    let after = fs::metadata(disk.path("second")).unwrap();
    assert_eq!((after.ino(), after.nlink(), after.len()), (before.ino(), 2, 200_000));
    assert_eq!((after.mtime_nsec(), after.blocks()), (before.mtime_nsec(), before.blocks()));
    assert!(fs::read(disk.path("dir/new")).unwrap() == vec![7; 200_000]);
    assert!(!disk.path("dir/old").exists() && !disk.path("gone").exists());
    nameless.write_all_at(b" end", 5).unwrap();
    let mut contents = [0; 9];
    nameless.read_exact_at(&mut contents, 0).unwrap();
    assert_eq!((&contents, nameless.metadata().unwrap().nlink()), (b"begin end", 0));
    drop(nameless);
    disk.umount();
    disk.fsck();
}

#[test]
fn after_three_failures_within_ten_seconds_requests_fail_and_the_log_says_so() {
    let Some(disk) = Disk::new(&[]) else { return };
    disk.quietly(&["mount", "-o", "failover", "--log", "log", "disk.img", "mnt"]);
    fs::write(disk.path("synced"), "yes").unwrap();
    File::open(disk.path("synced")).unwrap().sync_all().unwrap();
    let begin = Instant::now();
    let first = serving(disk.folder());
    let keeper = parent(&first);
    kill(&first);
    wait_until("the second server", || serving(disk.folder()) != first);
    kill_server(&disk);
    wait_until("the third server", || fs::read(disk.path("synced")).is_ok());
    kill_server(&disk);
    assert!(begin.elapsed() < Duration::from_secs(10), "the machine is too slow for this test");
    let failed = fs::File::create(disk.path("new")).unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(Errno::IO.raw_os_error()), "{failed}");
    wait_until("the message", || {
        fs::read_to_string(disk.folder().join("log"))
            .is_ok_and(|log| log.contains("it failed 3 times within 10 seconds"))
    });
    wait_until("the unmount", || {
        disk.obento(&["umount", "--lazy", "mnt"]);
        !disk.is_mounted()
    });
    wait_until("the end of the keeper", || !Path::new(&format!("/proc/{keeper}")).exists());
    disk.mount_after_kill();
    assert_eq!(fs::read_to_string(disk.path("synced")).unwrap(), "yes");
    disk.umount();
}

#[test]
fn an_ordinary_unmount_ends_the_keeper_and_leaves_a_clean_volume() {
    let Some(disk) = Disk::mounted("failover") else { return };
    let server = serving(disk.folder());
    let keeper = parent(&server);
    fs::write(disk.path("f"), "x").unwrap();
    disk.umount();
    wait_until("the end of the keeper", || !Path::new(&format!("/proc/{keeper}")).exists());
    disk.fsck();
    disk.mount("ro");
    assert_eq!(fs::read_to_string(disk.path("f")).unwrap(), "x");
    disk.umount();
}

#[test]
fn a_signal_to_the_keeper_unmounts() {
    let Some(disk) = Disk::mounted("failover") else { return };
    let keeper = parent(&serving(disk.folder()));
    kill_process(Pid::from_raw(keeper.parse().unwrap()).unwrap(), Signal::TERM).unwrap();
    wait_until("the unmount", || !disk.is_mounted());
    wait_until("the end of the keeper", || !Path::new(&format!("/proc/{keeper}")).exists());
}

#[test]
fn a_signal_to_a_keeper_that_gave_up_unmounts() {
    let Some(disk) = Disk::mounted("failover=2") else { return };
    let first = serving(disk.folder());
    let keeper = parent(&first);
    kill(&first);
    wait_until("the second server", || serving(disk.folder()) != first);
    kill_server(&disk);
    // The keeper answers.
    let failed = File::create(disk.path("new")).unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(Errno::IO.raw_os_error()), "{failed}");
    kill_process(Pid::from_raw(keeper.parse().unwrap()).unwrap(), Signal::TERM).unwrap();
    wait_until("the unmount", || !disk.is_mounted());
    wait_until("the end of the keeper", || !Path::new(&format!("/proc/{keeper}")).exists());
    disk.mount_after_kill();
    disk.umount();
}

#[test]
fn the_keeper_has_no_capabilities_and_still_starts_servers_that_unmount() {
    if !require(&[Oracle::Root]) {
        return;
    }
    let Some(disk) = Disk::mounted("failover=1000") else { return };
    let keeper = parent(&serving(disk.folder()));
    let has_none = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).unwrap();
        let sets = ["CapInh", "CapPrm", "CapEff", "CapAmb"];
        sets.iter().all(|set| status.contains(&format!("{set}:\t0000000000000000")))
    };
    // The keeper continues while the mount command ends.
    wait_until("two threads without capabilities", || {
        let tasks = fs::read_dir(format!("/proc/{keeper}/task")).unwrap();
        let tasks: Vec<_> = tasks.map(|task| has_none(task.unwrap())).collect();
        tasks == [true, true]
    });
    let killed = kill_server(&disk);
    fs::write(disk.path("after"), "text").unwrap();
    assert_ne!(serving(disk.folder()), killed);
    disk.umount();
}

#[test]
fn without_its_keeper_a_server_goes_on_as_without_failover() {
    let Some(disk) = Disk::mounted("failover") else { return };
    let server = serving(disk.folder());
    kill(&parent(&server));
    fs::write(disk.path("f"), "x").unwrap();
    assert_eq!(serving(disk.folder()), server);
    disk.umount();
    disk.fsck();
}

#[test]
fn a_volume_or_an_option_that_does_not_support_failover_is_refused() {
    if !require(&[Oracle::Fuse]) {
        return;
    }
    let folder = tempfile::Builder::new().prefix("obento-failover-").tempdir().unwrap();
    fs::create_dir(folder.path().join("mnt")).unwrap();
    obento(folder.path(), &["mkfs", "-t", "vfat", "fat.img", "64M"]);
    obento(folder.path(), &["mkfs", "-t", "ext2", "ext2.img", "64M"]);
    obento(folder.path(), &["mkfs", "-t", "ext4", "ext4.img", "64M"]);
    let refused = |image: &str, options: &str, code: i32| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        let output = command.current_dir(folder.path()).args(["mount", "-o", options, image, "mnt"]).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        text(&output.stderr)
    };
    for image in ["fat.img", "ext2.img"] {
        let said = refused(image, "failover", 1);
        assert!(said.contains("only ext4 with a journal supports failover"), "{said}");
        assert!(said.contains("help: omit the option failover"), "{said}");
    }
    for options in
        ["sync,failover", "ro,failover", "failover,io_uring=on", "provenance,failover", "failover=1"]
    {
        let said = refused("ext4.img", options, 2);
        assert!(said.contains("failover"), "{said}");
    }
    obento(folder.path(), &["mount", "-o", "failover", "ext4.img", "mnt"]);
    let said = text(&upgrade(folder.path()).stderr);
    assert!(said.contains("the volume was mounted with -o failover"), "{said}");
    umount(folder.path());
}

fn upgrade(folder: &Path) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    command.current_dir(folder).args(["mount", "--upgrade", "mnt"]).output().unwrap()
}
