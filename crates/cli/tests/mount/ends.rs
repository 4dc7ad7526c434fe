//! The start and the end of a mount.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use obento_testkit::oracle::{program, run};
use obento_testkit::{Oracle, require};

use crate::support::{Disk, server_without_a_caller, text, wait_until};

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

/// Waits until the process sleeps, as `umount` does after it has found the mount in use. Returns whether it did so before
/// it ended.
fn sleeps(process: &mut Child) -> bool {
    let state = format!("/proc/{}/wchan", process.id());
    let mut is_asleep = false;
    wait_until("a sleep or the end", || {
        is_asleep = fs::read_to_string(&state).is_ok_and(|function| function.contains("nanosleep"));
        is_asleep || process.try_wait().unwrap().is_some()
    });
    is_asleep
}

#[test]
fn umount_succeeds_if_the_last_user_ends_while_the_command_runs() {
    let mut decided = 0;
    for _ in 0..40 {
        let Some(disk) = Disk::mounted("rw") else { return };
        let open = File::create(disk.path("f")).unwrap();
        let mut user = Command::new("sleep").arg("1000").current_dir(disk.at()).spawn().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        command
            .current_dir(disk.folder())
            .args(["umount", "mnt"])
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        let begin = Instant::now();
        let mut command = command.spawn().unwrap();
        let was_busy = sleeps(&mut command);
        drop(open);
        user.kill().unwrap();
        user.wait().unwrap();
        // The command waits 400 ms. A test that was stopped for longer shows nothing.
        let is_in_time = was_busy && begin.elapsed() < Duration::from_millis(300);
        let output = command.wait_with_output().unwrap();
        if is_in_time {
            assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
            assert!(!disk.is_mounted());
            decided += 1;
        } else if disk.is_mounted() {
            disk.umount();
        }
        if decided == 5 {
            return;
        }
    }
    panic!("only {decided} of 40 attempts were in time");
}

/// A process with a copy of each mount in its own mount namespace, which has written a file `pinned` and has it open.
struct Pin(Child);

impl Pin {
    fn new(disk: &Disk) -> Self {
        let mut unshare = program("unshare");
        let script = "exec 3>mnt/pinned; echo data >&3; echo; read end";
        unshare.args(["--mount", "--propagation", "private", "sh", "-c", script]).current_dir(disk.folder());
        let mut pin = unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        pin.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Self(pin)
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

#[test]
fn a_copy_of_a_mount_in_another_mount_namespace_does_not_delay_umount() {
    if !require(&[Oracle::Root, Oracle::Program("unshare")]) {
        return;
    }
    for (options, force) in [("rw", false), ("rw", true), ("failover", false)] {
        let Some(disk) = Disk::mounted(options) else { return };
        let pin = Pin::new(&disk);
        let begin = Instant::now();
        disk.quietly(if force { &["umount", "--force", "mnt"] } else { &["umount", "mnt"] });
        assert!(begin.elapsed() < Duration::from_secs(50), "{options}");
        disk.fsck();
        let cat = disk.obento(&["cat", "disk.img:/pinned"]);
        assert_eq!(text(&cat.stdout), "data\n", "{options}: data of the other namespace is on the disk");
        disk.quietly(&["touch", "disk.img:/new"]);
        pin.end();
    }
}

#[test]
fn a_signal_ends_a_server_whose_mount_has_a_copy_in_another_mount_namespace() {
    if !require(&[Oracle::Root, Oracle::Program("unshare")]) {
        return;
    }
    let Some(disk) = Disk::mounted("rw") else { return };
    let pin = Pin::new(&disk);
    rustix::process::kill_process(disk.server(), rustix::process::Signal::TERM).unwrap();
    wait_until("the unmount", || !disk.is_mounted());
    // Waits for the end of the server for ten seconds, and fails if it goes on.
    wait_until("the end of the server", || disk.obento(&["touch", "disk.img:/new"]).status.success());
    pin.end();
}

#[test]
fn a_server_in_the_background_keeps_no_file_of_its_caller_open() {
    for options in ["rw", "failover"] {
        let Some(disk) = Disk::new(&[]) else { return };
        let (mut reader, writer) = std::io::pipe().unwrap();
        // As in `{ obento mount ...; } 9>&1 | reader`: the mount inherits the pipe as descriptor 9.
        let binary = env!("CARGO_BIN_EXE_obento");
        let line = format!("exec 9>&1; exec {binary} mount -o {options} disk.img mnt >/dev/null");
        let mut shell = Command::new("sh");
        let status = shell.args(["-c", &line]).current_dir(disk.folder()).stdout(writer).status().unwrap();
        drop(shell);
        assert!(status.success() && disk.is_mounted(), "{options}");
        let (sender, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(reader.read_to_end(&mut Vec::new()).is_ok()));
        let is_closed = ended.recv_timeout(Duration::from_secs(60));
        disk.umount();
        assert_eq!(is_closed, Ok(true), "{options}: the server has the pipe open");
    }
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
fn a_volume_whose_root_is_not_a_directory_is_refused_and_every_command_reports_it() {
    if !require(&[Oracle::Program("debugfs")]) {
        return;
    }
    let Some(disk) = Disk::new(&[]) else { return };
    let bad = disk.folder().join("bad.img");
    run(program("mke2fs").args(["-q", "-F", "-t", "ext4"]).arg(&bad).arg("16M")).unwrap();
    run(program("debugfs").args(["-w", "-R", "set_inode_field <2> mode 0100755"]).arg(&bad)).unwrap();
    let before = fs::read(&bad).unwrap();
    let reported = "the root (inode 2) is not a directory";
    for options in [&["-o", "rw"][..], &["-o", "ro"], &[], &["-o", "ro,noload"]] {
        let output = disk.obento(&[&["mount"], options, &["bad.img", "mnt"]].concat());
        let said = text(&output.stderr);
        assert_ne!(output.status.code(), Some(0), "{options:?}");
        assert!(said.contains(reported) && said.contains("help: run 'obento check"), "{options:?}: {said}");
        assert!(!disk.is_mounted(), "{options:?}");
    }
    for words in [
        &["ls", "bad.img"][..],
        &["ls", "bad.img:/name"],
        &["find", "bad.img"],
        &["cat", "bad.img:/name"],
        &["cp", "-r", "bad.img:/", "copy"],
        &["export", "bad.img"],
        &["mkdir", "bad.img:/name"],
        &["sync", "bad.img"],
        &["trim", "bad.img"],
        &["shell", "bad.img"],
    ] {
        let output = disk.obento(words);
        let said = text(&output.stderr);
        assert!(output.status.code() != Some(0) && said.contains(reported), "{words:?}: {said}");
    }
    assert!(fs::read(&bad).unwrap() == before, "a volume that cannot be used was changed");
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

#[test]
fn a_server_logs_each_damage_that_it_meets_once() {
    if !require(&[Oracle::Program("debugfs")]) {
        return;
    }
    let Some(disk) = Disk::sized("8M", &["-b", "4096", "-O", "metadata_csum,^has_journal"]) else { return };
    let names = ["one", "other"].map(|dir| {
        disk.quietly(&["mkdir", &format!("disk.img:/{dir}")]);
        disk.quietly(&["touch", &format!("disk.img:/{dir}/file")]);
        let blocks =
            run(program("debugfs").args(["-R", &format!("blocks /{dir}")]).arg(disk.image())).unwrap();
        let block: u64 = text(&blocks.stdout).trim().parse().unwrap();
        let image = fs::File::options().write(true).open(disk.image()).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&image, &[0xa5; 4], block * 4096 + 4092).unwrap();
        (dir, format!("block {block})"))
    });
    disk.quietly(&["mount", "-o", "ro", "--log", "log", "disk.img", "mnt"]);
    // The first is found by name, and the second is listed and found again and again.
    fs::metadata(disk.path("one/file")).unwrap();
    for _ in 0..3 {
        assert!(fs::read_dir(disk.path("other")).unwrap().all(|entry| entry.unwrap().metadata().is_ok()));
    }
    disk.umount();
    let log = fs::read_to_string(disk.folder().join("log")).unwrap();
    for (dir, block) in names {
        assert_eq!(
            log.lines().filter(|line| line.contains("ERROR") && line.contains(&block)).count(),
            1,
            "{dir}, {block}: {log}"
        );
    }
    assert_eq!(disk.obento(&["check", "-y", "disk.img"]).status.code(), Some(1));
}

/// Returns whether a file system is mounted at this path.
fn is_mounted_at(path: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(4) == path.to_str())
}

#[test]
fn only_the_mount_of_the_server_is_ended_after_a_directory_above_it_was_renamed() {
    if !require(&[Oracle::Root, Oracle::Fuse]) {
        return;
    }
    let Some(disk) = Disk::new(&[]) else { return };
    let folder = disk.folder().canonicalize().unwrap();
    let at = |name: &str| folder.join(name);
    for name in ["own/mnt", "other/mnt"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    run(program("mount").args(["-t", "tmpfs", "tmpfs"]).arg(at("other/mnt"))).unwrap();
    disk.quietly(&["mount", "disk.img", "own/mnt"]);
    let server = disk.server();
    fs::rename(at("own"), at("moved")).unwrap();
    symlink("other", at("own")).unwrap();
    for words in [&["umount", "own/mnt"][..], &["mount", "-o", "remount,ro", "own/mnt"]] {
        assert_ne!(disk.obento(words).status.code(), Some(0), "{words:?}");
    }
    rustix::process::kill_process(server, rustix::process::Signal::TERM).unwrap();
    wait_until("the unmount", || !is_mounted_at(&at("moved/mnt")));
    assert!(is_mounted_at(&at("other/mnt")));
    run(program("umount").arg(at("other/mnt"))).unwrap();
}

#[test]
fn the_server_of_a_mount_is_found_after_a_directory_above_it_was_renamed() {
    let Some(disk) = Disk::new(&[]) else { return };
    let at = |name: &str| disk.folder().join(name);
    fs::create_dir_all(at("old/mnt")).unwrap();
    disk.quietly(&["mount", "-o", "io_uring=off", "disk.img", "old/mnt"]);
    fs::rename(at("old"), at("new")).unwrap();
    for words in
        [&["mount", "--status", "new/mnt", "--json"][..], &["mount", "--status", "--json", "new/mnt"]]
    {
        let output = disk.obento(words);
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{words:?}");
        assert!(text(&output.stdout).contains("new/mnt\""), "{}", text(&output.stdout));
    }
    disk.quietly(&["mount", "--upgrade", "new/mnt"]);
    fs::write(at("new/mnt/f"), "written").unwrap();
    disk.quietly(&["umount", "new/mnt"]);
    let output = disk.obento(&["cat", "disk.img:/f"]);
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("written", ""));
}

#[test]
fn two_directories_after_status_are_wrong_usage() {
    let Some(disk) = Disk::new(&[]) else { return };
    let output = disk.obento(&["mount", "--status", "one", "two"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

#[test]
fn a_signal_unmounts_after_a_directory_above_the_mount_was_renamed() {
    let Some(disk) = Disk::new(&[]) else { return };
    let at = |name: &str| disk.folder().canonicalize().unwrap().join(name);
    fs::create_dir_all(at("old/mnt")).unwrap();
    disk.quietly(&["mount", "disk.img", "old/mnt"]);
    fs::rename(at("old"), at("new")).unwrap();
    rustix::process::kill_process(disk.server(), rustix::process::Signal::TERM).unwrap();
    wait_until("the unmount", || !is_mounted_at(&at("new/mnt")));
    // The next process that opens the image waits for the server.
    disk.quietly(&["sync", "disk.img"]);
}

#[test]
fn one_of_two_places_of_a_mount_is_unmounted_without_its_end() {
    if !require(&[Oracle::Root, Oracle::Fuse]) {
        return;
    }
    let Some(disk) = Disk::mounted("rw") else { return };
    let other = disk.folder().join("other");
    fs::create_dir(&other).unwrap();
    run(program("mount").arg("--bind").arg(disk.at()).arg(&other)).unwrap();
    fs::write(other.join("f"), "written").unwrap();
    wait_until("the unmount", || {
        let output = disk.obento(&["umount", "other"]);
        let said = text(&output.stderr);
        assert!(said.contains("still mounted at '") || said.contains("a process uses the mount"), "{said}");
        output.status.code() == Some(0)
    });
    assert_eq!(fs::read(disk.path("f")).unwrap(), b"written");
    disk.umount();
}

#[test]
fn a_mount_on_a_regular_file_and_a_path_that_ends_with_a_dot_are_unmounted() {
    if !require(&[Oracle::Root, Oracle::Fuse]) {
        return;
    }
    let Some(disk) = Disk::mounted("rw") else { return };
    let place = disk.folder().join("place");
    fs::write(disk.path("f"), "x").unwrap();
    fs::write(&place, "").unwrap();
    run(program("mount").arg("--bind").arg(disk.path("f")).arg(&place)).unwrap();
    wait_until("the unmount", || disk.obento(&["umount", "place"]).status.code() == Some(0));
    assert_eq!(fs::read(&place).unwrap(), b"");
    // Even if no server looks the dot up.
    disk.kill();
    let output = disk.obento(&["umount", "mnt/."]);
    assert!(!disk.is_mounted(), "{output:?}");
}

#[test]
fn a_forced_unmount_of_a_mount_in_use_succeeds_and_loses_no_written_data() {
    let Some(disk) = Disk::mounted("rw") else { return };
    let mut open = File::create(disk.path("f")).unwrap();
    open.write_all(b"written").unwrap();
    disk.quietly(&["umount", "--force", "mnt"]);
    assert!(!disk.is_mounted());
    assert!(open.write_all(b"late").and_then(|()| open.sync_all()).is_err(), "the file is still served");
    drop(open);
    let output = disk.obento(&["cat", "disk.img:/f"]);
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("written", ""));
}

#[test]
fn nothing_is_mounted_behind_the_link_of_another_user() {
    if !require(&[Oracle::Root, Oracle::Fuse]) {
        return;
    }
    let Some(disk) = Disk::new(&[]) else { return };
    fs::create_dir(disk.folder().join("target")).unwrap();
    symlink("target", disk.folder().join("link")).unwrap();
    run(program("chown").args(["-h", "1007"]).arg(disk.folder().join("link"))).unwrap();
    let output = disk.obento(&["mount", "disk.img", "link"]);
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("a symbolic link of another user"), "{said}");
    assert_eq!(fs::read_dir(disk.folder().join("target")).unwrap().count(), 0);
    disk.quietly(&["mount", "disk.img", "target"]);
    // Nor is a mount found by the link.
    for words in [
        &["umount", "link"][..],
        &["mount", "-o", "remount,ro", "disk.img", "link"],
        &["mount", "--upgrade", "link"],
        &["mount", "--status", "link"],
    ] {
        let output = disk.obento(words);
        let said = text(&output.stderr);
        assert!(
            !output.status.success() && said.contains("a symbolic link of another user"),
            "{words:?}: {said}"
        );
    }
    symlink("target", disk.folder().join("own")).unwrap();
    disk.quietly(&["umount", "own"]);
}

#[test]
fn a_server_whose_caller_has_ended_leaves_no_mount() {
    for options in [&[][..], &["-o", "failover"]] {
        let Some(disk) = Disk::new(&[]) else { return };
        let args = [options, &["disk.img", "mnt"]].concat();
        let ended = server_without_a_caller(disk.folder(), &args).status().unwrap();
        assert_eq!(ended.code(), Some(1), "{options:?}");
        assert!(!disk.is_mounted(), "{options:?}");
        fs::metadata(disk.at()).unwrap();
        disk.fsck();
        disk.mount("rw");
        disk.umount();
    }
}

#[test]
fn a_forced_unmount_ends_although_the_server_is_stopped() {
    let Some(disk) = Disk::mounted("rw") else { return };
    fs::write(disk.path("f"), "not synced").unwrap();
    let server = disk.server();
    rustix::process::kill_process(server, rustix::process::Signal::STOP).unwrap();
    let begin = Instant::now();
    let output = disk.obento(&["umount", "--force", "mnt"]);
    let elapsed = begin.elapsed();
    rustix::process::kill_process(server, rustix::process::Signal::CONT).unwrap();
    assert!(elapsed < Duration::from_secs(25), "{elapsed:?}: {output:?}");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let message = text(&output.stderr);
    assert!(
        message.contains("has not responded for 10 seconds") && message.contains("kill -CONT"),
        "{message}"
    );
    assert!(!disk.is_mounted());
    // The image is locked until the server has written its changes.
    wait_until("the end of the server", || disk.obento(&["touch", "disk.img:/new"]).status.success());
}

#[test]
fn an_unmount_that_waits_names_the_server_and_the_way_out() {
    let Some(disk) = Disk::mounted("rw") else { return };
    let server = disk.server();
    rustix::process::kill_process(server, rustix::process::Signal::STOP).unwrap();
    let mut waiting = Command::new(env!("CARGO_BIN_EXE_obento"))
        .args(["umount", "mnt"])
        .current_dir(disk.folder())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut byte = [0];
    let mut stderr = waiting.stderr.take().unwrap();
    stderr.read_exact(&mut byte).unwrap();
    rustix::process::kill_process(server, rustix::process::Signal::CONT).unwrap();
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert!(waiting.wait().unwrap().success(), "{rest}");
    let server = server.as_raw_nonzero();
    let note = format!(
        "waiting for the server of the mount (process {server}) to write the changes; if the server is stopped, 'kill \
         -CONT {server}' continues it\n"
    );
    assert!(rest.ends_with(&note), "{rest}");
}
