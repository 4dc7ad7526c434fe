//! Programs of the host on files of an image.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use obento_testkit::oracle::{Oracle, call, require};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Disk, text};

#[test]
fn a_program_changes_a_file_which_keeps_all_but_its_contents() {
    let Some(disk) = Disk::new("8M", &[]) else { return };
    disk.obento_with(&["write", "disk.img:/conf"], b"colour=blue\n");
    disk.quietly(&[
        "chmod 4640 disk.img:/conf",
        "chown 7:8 disk.img:/conf",
        "chmod 4640 disk.img:/conf",
        "setfattr -n user.note -v x disk.img:/conf",
        "setfacl -m u:9:r disk.img:/conf",
        "chattr +d disk.img:/conf",
        "ln -s conf disk.img:/link",
    ]);
    let about = "stat -c %a.%u.%g.%h.%w disk.img:/conf";
    let before = [
        disk.read(about),
        disk.read("getfacl disk.img:/conf"),
        disk.read("getfattr -d disk.img:/conf"),
        disk.read("lsattr disk.img:/conf"),
    ];
    disk.quietly(&["exec disk.img:/link -- sed -i s/blue/red/"]);
    assert_eq!(disk.read("cat disk.img:/conf"), "colour=red\n");
    assert_eq!(disk.read("readlink disk.img:/link"), "conf\n");
    let after = [
        disk.read(about),
        disk.read("getfacl disk.img:/conf"),
        disk.read("getfattr -d disk.img:/conf"),
        disk.read("lsattr disk.img:/conf"),
    ];
    assert_eq!(before, after);
    assert_eq!(disk.read("find disk.img:/ -maxdepth 1 -name .*"), "", "nothing is left behind");
}

#[test]
fn an_unchanged_copy_is_not_written_back_and_the_exit_code_of_the_program_is_ours() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    disk.obento_with(&["write", "disk.img:/f"], b"same");
    let ino = disk.read("stat -c %i disk.img:/f");
    let output = disk.obento(&["exec", "disk.img:/f", "--", "sh", "-c", "cat {}; exit 5"]);
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("same", Some(5)));
    assert_eq!(disk.read("stat -c %i disk.img:/f"), ino);
    let output = disk.obento(&["exec", "disk.img:/f", "--", "sh", "-c", "echo more >> $0; kill -9 $$"]);
    assert_eq!(output.status.code(), Some(137));
    assert_eq!(disk.read("cat disk.img:/f"), "samemore\n");
    disk.check(
        "exec disk.img:/none -- true",
        2,
        "",
        "obento: cannot create a copy of 'disk.img:/none': no such file or directory\n",
    );
    disk.check(
        "exec disk.img:/ -- true",
        2,
        "",
        "obento: cannot create a copy of 'disk.img:/': is a directory\n",
    );
    let output = disk.obento(&["exec", "disk.img:/f", "--", "/no/such/program"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).starts_with("obento: cannot start '/no/such/program': "));
}

#[test]
fn a_copy_that_became_a_link_is_not_followed_to_the_host() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    disk.obento_with(&["write", "disk.img:/f"], b"mine");
    let output = disk.obento(&["exec", "disk.img:/f", "--", "sh", "-c", "ln -sf /etc/passwd {}"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no longer a regular file"), "{}", text(&output.stderr));
    assert_eq!(disk.read("cat disk.img:/f"), "mine");
}

#[test]
fn what_a_program_mounts_beside_its_copy_is_not_removed() {
    if !require(&[Oracle::Root]) {
        return;
    }
    let Some(disk) = Disk::new("4M", &[]) else { return };
    disk.obento_with(&["write", "disk.img:/f"], b"mine");
    let kept = tempfile::tempdir().unwrap();
    std::fs::write(kept.path().join("precious"), "bytes").unwrap();
    for end in ["exit 0", "kill -9 $PPID"] {
        let script = format!(
            "d=$(dirname $0); mkdir $d/m && mount --bind {} $d/m && echo $d; {end}",
            kept.path().display()
        );
        let output = disk.obento(&["exec", "disk.img:/f", "--", "sh", "-c", &script]);
        let folder = text(&output.stdout).trim().to_owned();
        assert!(folder.starts_with('/'), "{}", text(&output.stderr));
        // The keeper of a killed command removes the copy later.
        let began = Instant::now();
        let copy = std::path::Path::new(&folder).join("f");
        while copy.exists() && began.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
        assert!(!copy.exists(), "{end}: the copy is left");
        assert!(kept.path().join("precious").exists(), "{end}");
        call("umount", [format!("{folder}/m")]).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn a_copy_that_does_not_fit_names_the_remedy_and_is_removed() {
    let Some(disk) = Disk::new("8M", &[]) else { return };
    if !require(&[Oracle::Root]) {
        return;
    }
    disk.obento_with(&["write", "disk.img:/f"], &[7; 3_000_000]);
    let small = tempfile::tempdir().unwrap();
    call("mount", ["-t", "tmpfs", "-o", "size=1M,mode=700", "none", small.path().to_str().unwrap()]).unwrap();
    let mut command = disk.command(&["exec", "disk.img:/f", "--", "true"]);
    let output = command.env("TMPDIR", small.path()).output().unwrap();
    let left = std::fs::read_dir(small.path()).unwrap().count();
    call("umount", [small.path()]).unwrap();
    assert_eq!(
        text(&output.stderr),
        "obento: cannot create a copy of 'disk.img:/f': no space left on device\n  \
         help: set TMPDIR to a directory with more free space\n"
    );
    assert_eq!((output.status.code(), left), (Some(2), 0));
}

#[test]
fn holes_of_a_large_file_are_neither_read_nor_written() {
    let Some(disk) = Disk::new("8M", &["-b", "4096"]) else { return };
    disk.obento_with(&["write", "disk.img:/f"], b"start");
    disk.quietly(&["truncate -s 4T disk.img:/f"]);
    let ino = disk.read("stat -c %i disk.img:/f");
    disk.quietly(&["exec disk.img:/f -- true"]);
    assert_eq!(disk.read("stat -c %i disk.img:/f"), ino, "it is unchanged");
    let change = "printf middle | dd of=$0 conv=notrunc bs=1 seek=2T status=none";
    for names in [1, 2] {
        let output = disk.obento(&["exec", "disk.img:/f", "--", "sh", "-c", change]);
        assert_eq!((text(&output.stderr).as_str(), output.status.code()), ("", Some(0)), "{names}");
        let about = disk.read("stat -c %s.%b disk.img:/f");
        let (size, blocks) = about.trim().split_once('.').unwrap();
        assert_eq!(size.parse(), Ok(4_u64 << 40), "{names}");
        assert!(blocks.parse::<u64>().unwrap() <= 32, "{names}: {about}");
        let read = "dd if=$0 bs=1 skip=2T count=6 status=none";
        let output = disk.obento(&["exec", "disk.img:/f", "--", "sh", "-c", read]);
        assert_eq!(text(&output.stdout), "middle", "{names}");
        // The file is overwritten in place if it has a second name.
        disk.quietly(&["fallocate -p -o 1T -l 2T disk.img:/f"]);
        if names == 1 {
            disk.quietly(&["ln disk.img:/f disk.img:/g"]);
        }
    }
}

#[test]
fn other_names_of_a_file_get_the_new_contents_too() {
    let Some(disk) = Disk::new("4M", &["-O", "^has_journal"]) else { return };
    let old: Vec<u8> = (0..300_000_u32).map(|at| (at / 977) as u8 | 1).collect();
    disk.obento_with(&["write", "disk.img:/f"], &old);
    disk.quietly(&["ln disk.img:/f disk.img:/g"]);
    let about = "stat -c %i.%h.%a disk.img:/g";
    let before = disk.read(about);
    let exec = |script: &str| {
        let output = disk.obento(&["exec", "disk.img:/f", "--", "sh", "-c", script]);
        (text(&output.stderr), output.status.code())
    };
    assert_eq!(
        exec("printf X | dd of={} bs=1 seek=100000 conv=notrunc status=none"),
        (String::new(), Some(0))
    );
    let mut new = old;
    new[100_000] = b'X';
    assert_eq!(disk.obento(&["cat", "disk.img:/g"]).stdout, new);
    assert_eq!(
        exec("truncate -s 100000 {}; truncate -s 500000 {}; echo end >> {}"),
        (String::new(), Some(0))
    );
    new.truncate(100_000);
    new.resize(500_000, 0);
    new.extend_from_slice(b"end\n");
    assert_eq!(disk.obento(&["cat", "disk.img:/g"]).stdout, new);
    // If the new contents do not fit, the old contents remain.
    let kept = tempfile::tempdir().unwrap();
    let fill = "head -c 9000000 /dev/zero | tr '\\0' x > {}";
    let mut command = disk.command(&["exec", "disk.img:/f", "--", "sh", "-c", fill]);
    let output = command.env("TMPDIR", kept.path()).output().unwrap();
    assert!(text(&output.stderr).starts_with("obento: cannot write back 'disk.img:/f': no space left\n"));
    assert_eq!(disk.obento(&["cat", "disk.img:/g"]).stdout, new);
    assert_eq!(exec("echo short > {}"), (String::new(), Some(0)));
    assert_eq!((disk.read("cat disk.img:/g"), disk.read(about)), ("short\n".to_owned(), before));
}

#[test]
fn an_editor_edits_and_makes_files() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    let edit = |editor: &str, path: &str| {
        let output = disk
            .command(&["edit", path])
            .env("EDITOR", editor)
            .env("PATH", "/usr/bin:/bin")
            .output()
            .unwrap();
        (text(&output.stderr), output.status.code())
    };
    let silence = (String::new(), Some(0));
    assert_eq!(edit("true", "disk.img:/new"), silence);
    assert_eq!(disk.read("ls disk.img:/"), "lost+found\n", "nothing was written, and nothing is made");
    let folder = disk.folder().join("editor with spaces.sh");
    std::fs::write(&folder, "#!/bin/sh\necho \"$1\" >> \"$2\"\n").unwrap();
    let editor = format!("sh '{}' hello", folder.display());
    assert_eq!(edit(&editor, "disk.img:/new"), silence);
    assert_eq!(edit(&editor, "disk.img:/new"), silence);
    assert_eq!(disk.read("cat disk.img:/new"), "hello\nhello\n");
    assert_eq!(disk.read("stat -c %a disk.img:/new"), "644\n");
    let (said, code) = edit("nosuch -n", "disk.img:/new");
    assert!(said.contains("obento: cannot start 'nosuch -n': the program was not found\n"), "{said}");
    assert_eq!(code, Some(2));
    assert_eq!(disk.read("cat disk.img:/new"), "hello\nhello\n");
}

#[test]
fn a_file_that_does_not_fit_back_stays_as_it_was() {
    let Some(disk) = Disk::new("2M", &["-O", "^has_journal"]) else { return };
    disk.obento_with(&["write", "disk.img:/f"], b"small");
    let kept = tempfile::tempdir().unwrap();
    let fill = "head -c 4000000 /dev/zero | tr '\\0' x > {}";
    let mut command = disk.command(&["exec", "disk.img:/f", "--", "sh", "-c", fill]);
    let output = command.env("TMPDIR", kept.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let folder = std::fs::read_dir(kept.path()).unwrap().next().expect("the work is not lost").unwrap();
    let copy = folder.path().join("f");
    let help = format!("  help: the changed copy is '{}'\n", copy.display());
    let error = "obento: cannot write back 'disk.img:/f': no space left\n";
    assert_eq!(text(&output.stderr), format!("{error}{help}"));
    assert!(std::fs::read(copy).unwrap() == vec![b'x'; 4_000_000]);
    assert_eq!(disk.read("cat disk.img:/f"), "small");
    assert_eq!(disk.read("ls -A disk.img:/"), "f\nlost+found\n");
}

#[test]
fn other_users_cannot_read_what_a_program_works_on() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    disk.obento_with(&["write", "disk.img:/shadow"], b"root:secret");
    disk.quietly(&["chmod 666 disk.img:/shadow"]);
    let modes = "umask 0; stat -c %a \"$(dirname \"$(dirname \"$0\")\")\" \"$(dirname \"$0\")\" \"$0\"";
    let shell = ["sh", "-c", modes, "{}"];
    let exec = disk.obento(&[&["exec", "disk.img:/shadow", "--"], &shell[..]].concat());
    assert!(text(&exec.stdout).ends_with("\n700\n600\n"), "{}", text(&exec.stdout));
    let find = disk.obento(&[&["find", "disk.img:/shadow", "-exec"], &shell[..], &[";"]].concat());
    assert!(text(&find.stdout).starts_with("700\n") && text(&find.stdout).ends_with("\n600\n"));
    let find = disk.obento(&["find", "disk.img:/shadow", "-exec", "stat", "-c", "%a", "{}", "+"]);
    assert_eq!(text(&find.stdout), "600\n");
    let mut edit = disk.command(&["edit", "disk.img:/shadow"]);
    let edited = edit.env("EDITOR", "stat -c %a").output().unwrap();
    assert_eq!(text(&edited.stdout), "600\n");
}

#[test]
fn a_forged_copy_at_the_path_of_the_copy_never_reaches_the_image() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    disk.obento_with(&["write", "disk.img:/f"], b"mine");
    let copies = disk.folder().join("copies");
    std::fs::create_dir(&copies).unwrap();
    // As another user would do who can rename the folder.
    let forge = r#"d=$(dirname "$0"); mv "$d" "$d.moved"; mkdir "$d"; echo forged > "$0""#;
    let mut command = disk.command(&["exec", "disk.img:/f", "--", "sh", "-c", forge, "{}"]);
    let output = command.env("TMPDIR", &copies).output().unwrap();
    assert_eq!((text(&output.stderr), output.status.code()), (String::new(), Some(0)));
    assert_eq!(disk.read("cat disk.img:/f"), "mine");
}

#[test]
fn no_copy_is_created_in_a_directory_that_the_group_can_change() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    disk.obento_with(&["write", "disk.img:/f"], b"mine");
    let (above, copies) = (disk.folder().join("above"), disk.folder().join("above/copies"));
    std::fs::create_dir_all(&copies).unwrap();
    for shared in [&above, &copies] {
        std::fs::set_permissions(shared, Permissions::from_mode(0o775)).unwrap();
        for command in
            [&["exec", "disk.img:/f", "--", "true"][..], &["find", "disk.img:/f", "-exec", "true", "{}", ";"]]
        {
            let output = disk.command(command).env("TMPDIR", &copies).output().unwrap();
            let why = format!("another user can replace files in '{}'", shared.display());
            assert!(text(&output.stderr).contains(&why), "{}", text(&output.stderr));
        }
        std::fs::set_permissions(shared, Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn no_copy_for_a_program_outlives_the_command_whatever_ends_it() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    disk.obento_with(&["write", "disk.img:/shadow"], b"root:secret");
    let copies = disk.folder().join("copies");
    std::fs::create_dir(&copies).unwrap();
    let wait = ["sh", "-c", "trap '' INT; echo $0; read -r line", "{}"];
    let commands = [
        [&["exec", "disk.img:/shadow", "--"], &wait[..]].concat(),
        [&["find", "disk.img:/shadow", "-exec"], &wait[..], &[";"]].concat(),
        [&["find", "disk.img:/shadow", "-execdir"], &wait[..], &["+"]].concat(),
    ];
    for (command, signal) in commands
        .iter()
        .flat_map(|command| [Signal::TERM, Signal::HUP, Signal::KILL].map(|signal| (command, signal)))
    {
        let mut child = disk.command(command);
        let child = child.env("TMPDIR", &copies).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let mut path = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut path).unwrap();
        assert!(!path.is_empty() && std::fs::read_dir(&copies).unwrap().count() == 1, "{command:?}");
        kill_process(Pid::from_child(&child), signal).unwrap();
        child.wait().unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        while std::fs::read_dir(&copies).unwrap().count() > 0 {
            assert!(Instant::now() < end, "{command:?} and {signal:?} leave a copy");
            std::thread::yield_now();
        }
    }
}

#[test]
fn ctrl_c_is_left_to_the_program_that_runs() {
    let Some(disk) = Disk::new("4M", &[]) else { return };
    disk.obento_with(&["write", "disk.img:/f"], b"old");
    let script = "trap 'echo new > $0; exit 3' INT; kill -INT $PPID; kill -INT $$";
    let output = disk.obento(&["exec", "disk.img:/f", "--", "sh", "-c", script]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(3), ""));
    assert_eq!(disk.read("cat disk.img:/f"), "new\n");
}
