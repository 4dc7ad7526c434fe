//! A mount that this version and an earlier one pass to each other. `cargo xtask upgrade-from` builds the earlier program
//! from the history of the repository.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{Disk, obento, text, umount};
use crate::upgrade::{End, formatted, load, serving};

/// The program of the earlier version.
fn earlier() -> PathBuf {
    std::env::var_os("OBENTO_EARLIER").expect("cargo xtask upgrade-from sets OBENTO_EARLIER").into()
}

/// Replaces the server of `disk` by `program`.
#[track_caller]
fn upgrade(disk: &Disk, program: &PathBuf) {
    let before = serving(disk.folder());
    let mut command = Command::new(program);
    command.current_dir(disk.folder()).args(["mount", "--upgrade", "mnt"]).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let after = serving(disk.folder());
    assert_ne!(before, after, "another process serves");
    let serves = fs::metadata(format!("/proc/{after}/exe")).unwrap();
    let expected = fs::metadata(program).unwrap();
    assert_eq!((serves.dev(), serves.ino()), (expected.dev(), expected.ino()), "the new program serves");
}

#[test]
#[ignore = "requires an earlier program: cargo xtask upgrade-from"]
fn a_mount_in_use_is_passed_to_the_earlier_version_and_back() {
    let Some(disk) = Disk::mounted("io_uring=off") else { return };
    let versions = [earlier(), env!("CARGO_BIN_EXE_obento").into()];
    let mut nameless =
        File::options().read(true).write(true).create_new(true).open(disk.path("gone")).unwrap();
    fs::remove_file(disk.path("gone")).unwrap();
    let is_over = AtomicBool::new(false);
    let (folder, rounds) = (disk.path("load"), 5);
    let contents = std::thread::scope(|scope| {
        let loaded = scope.spawn(|| load(&folder, &is_over));
        let end = End(&is_over);
        for _ in 0..rounds {
            for program in &versions {
                upgrade(&disk, program);
                nameless.write_all(b"x").unwrap();
            }
        }
        drop(end);
        loaded.join().unwrap()
    });
    assert!(is_over.load(Ordering::Relaxed));
    let mut found = vec![0; 2 * rounds];
    nameless.read_exact_at(&mut found, 0).unwrap();
    assert!(found.iter().all(|byte| *byte == b'x') && nameless.metadata().unwrap().nlink() == 0);
    drop(nameless);
    let (one, other) = (folder.join("one"), folder.join("other"));
    assert!(fs::read(if one.exists() { one } else { other }).unwrap() == contents);
    disk.umount();
    disk.fsck();
}

#[test]
#[ignore = "requires an earlier program: cargo xtask upgrade-from"]
fn a_mount_of_the_earlier_version_is_passed_to_this_one() {
    let Some(disk) = Disk::new(&[]) else { return };
    let mut command = Command::new(earlier());
    command.current_dir(disk.folder()).args(["mount", "-o", "io_uring=off,noatime", "disk.img", "mnt"]);
    assert!(command.stdin(Stdio::null()).status().unwrap().success());
    fs::write(disk.path("f"), "x").unwrap();
    upgrade(&disk, &env!("CARGO_BIN_EXE_obento").into());
    assert_eq!(fs::read(disk.path("f")).unwrap(), b"x");
    let status = text(&disk.obento(&["mount", "--status", "mnt", "--json"]).stdout);
    assert!(status.contains("\"upgrades\":1"), "{status}");
    disk.umount();
    disk.fsck();
}

#[test]
#[ignore = "requires an earlier program: cargo xtask upgrade-from"]
fn a_volume_without_numbers_is_refused_or_continued_by_the_earlier_version() {
    for fs_type in ["vfat", "exfat"] {
        let Some((folder, at)) = formatted(fs_type, "disk.img") else { return };
        let open = |name: &str| File::options().read(true).write(true).create_new(true).open(at.join(name));
        let mut moved = open("moved").unwrap();
        fs::create_dir(at.join("dir")).unwrap();
        fs::rename(at.join("moved"), at.join("dir/moved")).unwrap();
        let number = moved.metadata().unwrap().ino();
        let server = serving(folder.path());
        for words in [&["--upgrade", "mnt", "--dry-run"][..], &["--upgrade", "mnt"]] {
            let mut command = Command::new(earlier());
            let output = command.current_dir(folder.path()).arg("mount").args(words).output().unwrap();
            let said = text(&output.stderr);
            println!("{fs_type}: {said}");
            match output.status.code() {
                Some(1) => assert!(said.contains("is not supported by this version"), "{said}"),
                code => assert_eq!(code, Some(0), "{said}"),
            }
            let stays = !output.status.success() || words.contains(&"--dry-run");
            assert_eq!(serving(folder.path()) == server, stays, "{said}");
        }
        moved.write_all(b"it works").unwrap();
        assert_eq!(fs::read(at.join("dir/moved")).unwrap(), b"it works");
        assert_eq!(fs::metadata(at.join("dir/moved")).unwrap().ino(), number);
        drop(moved);
        umount(folder.path());
        obento(folder.path(), &["check", "disk.img"]);
    }
}

#[test]
#[ignore = "requires an earlier program: cargo xtask upgrade-from"]
fn a_volume_that_the_earlier_version_cannot_pass_on_stays_with_it() {
    let Some((folder, at)) = formatted("vfat", "disk.img") else { return };
    umount(folder.path());
    let mut command = Command::new(earlier());
    command.current_dir(folder.path()).args(["mount", "-o", "io_uring=off", "disk.img", "mnt"]);
    assert!(command.stdin(Stdio::null()).status().unwrap().success());
    fs::write(at.join("f"), "x").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    let output = command.current_dir(folder.path()).args(["mount", "--upgrade", "mnt"]).output().unwrap();
    println!("{}", text(&output.stderr));
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    assert_eq!(fs::read(at.join("f")).unwrap(), b"x");
    fs::write(at.join("g"), "y").unwrap();
    umount(folder.path());
    obento(folder.path(), &["check", "disk.img"]);
}
