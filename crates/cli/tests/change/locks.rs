//! Several commands on one image at the same time.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Stdio};

use obento_testkit::oracle::LoopMount;
use obento_testkit::{Oracle, require};

use super::support::{Disk, text};

/// A command that has the image open, and continues at the end of its standard input.
fn hold(disk: &Disk, line: &str) -> Child {
    let mut command = disk.command(&line.split(' ').collect::<Vec<_>>());
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let process = Path::new("/proc").join(child.id().to_string());
    let is_locked = || {
        let descriptors = std::fs::read_dir(process.join("fdinfo")).into_iter().flatten().flatten();
        let infos = descriptors.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
        infos.into_iter().any(|info| info.contains("lock:"))
    };
    while !is_locked() {
        assert!(child.try_wait().unwrap().is_none(), "{line} ended");
        std::thread::yield_now();
    }
    child
}

fn release(mut child: Child) {
    drop(child.stdin.take());
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(child.wait().unwrap().success(), "{errors}");
}

#[test]
fn an_image_that_is_being_changed_is_refused_with_the_user_and_a_hint() {
    let Some(disk) = Disk::new("8M", &[]) else { return };
    disk.quietly(&["touch disk.img:/there"]);
    let holder = hold(&disk, "write disk.img:/slow");
    let who = format!("pid {} (obento write)", holder.id());
    disk.check(
        "ls disk.img:/there",
        2,
        "",
        &format!(
            "obento: cannot read 'disk.img': it is being changed by {who}\n  help: try again after that process ends; \
             or use --no-lock to read a mixture of old and new contents\n"
        ),
    );
    disk.check(
        "touch disk.img:/new",
        1,
        "",
        &format!("obento: cannot change 'disk.img': it is in use by {who}\n  help: try again after that process ends\n"),
    );
    let forced = disk.obento(&["ls", "--no-lock", "disk.img:/there"]);
    assert_eq!(text(&forced.stdout), "disk.img:/there\n", "{}", text(&forced.stderr));
    release(holder);
    disk.check("ls disk.img:/", 0, "lost+found\nslow\nthere\n", "");
}

#[test]
fn several_read_at_once_and_keep_changes_out() {
    let Some(disk) = Disk::new("8M", &[]) else { return };
    disk.quietly(&["touch disk.img:/there"]);
    let reader = hold(&disk, "cat disk.img:/there -");
    disk.check("ls disk.img:/there", 0, "disk.img:/there\n", "");
    let who = format!("pid {} (obento cat)", reader.id());
    disk.check(
        "rm disk.img:/there",
        1,
        "",
        &format!("obento: cannot change 'disk.img': it is in use by {who}\n  help: try again after that process ends\n"),
    );
    release(reader);
    disk.quietly(&["rm disk.img:/there"]);
}

#[test]
fn a_lock_ends_with_a_command_that_is_killed() {
    let Some(disk) = Disk::new("8M", &[]) else { return };
    let mut holder = hold(&disk, "write disk.img:/slow");
    holder.kill().unwrap();
    holder.wait().unwrap();
    let output = disk.obento(&["touch", "disk.img:/after"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn changes_are_refused_where_reading_was_asked_for() {
    let Some(disk) = Disk::new("8M", &[]) else { return };
    for (option, reason) in [
        ("--no-lock", "--no-lock is for reading only"),
        ("--no-replay", "--no-replay shows a past state, which cannot be changed"),
    ] {
        let errors = format!("obento: cannot change 'disk.img': {reason}\n  help: omit this option\n");
        disk.check(&format!("touch {option} disk.img:/new"), 1, "", &errors);
    }
}

#[test]
fn a_mounted_image_is_not_changed_and_its_readers_get_a_notice() {
    if !require(&[Oracle::LoopMount]) {
        return;
    }
    let Some(disk) = Disk::new("8M", &[]) else { return };
    let mount = LoopMount::new(&disk.image(), "").unwrap();
    let output = disk.obento(&["touch", "disk.img:/new"]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        errors.starts_with("obento: cannot change 'disk.img': it is in use by the loop device /dev/loop")
    );
    assert!(errors.contains(&format!("unmount it: umount {}", mount.path().display())), "{errors}");
    let output = disk.obento(&["ls", "disk.img"]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "lost+found\n".to_owned()));
    let errors = text(&output.stderr);
    assert!(errors.contains("the data that is read may be old, new or a mixture of both"), "{errors}");
    mount.unmount().unwrap();
}

#[test]
fn every_back_end_changes_an_image_as_the_others_do() {
    let Some(disk) = Disk::new("8M", &[]) else { return };
    for io in ["auto", "buffered", "direct", "mmap", "uring"] {
        let line = format!("write --io {io} disk.img:/{io}");
        let output = disk.obento_with(&line.split(' ').collect::<Vec<_>>(), &[7; 70_000]);
        let errors = text(&output.stderr);
        if errors.contains("works everywhere") {
            eprintln!("skipped: {errors}");
            continue;
        }
        assert_eq!((output.status.code(), errors.as_str()), (Some(0), ""), "{io}");
        disk.fsck();
        let read = disk.obento(&["cat", "--io", io, &format!("disk.img:/{io}")]);
        assert!(read.status.success() && read.stdout == [7; 70_000], "{io}: {}", text(&read.stderr));
    }
}
