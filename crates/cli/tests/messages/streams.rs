//! Standard output and standard error that end, are full or cannot be written.

use std::io::Read as _;
use std::process::{Command, Stdio};

use obento_testkit::mutants;

use super::{command, folder, obento};

#[test]
fn a_closed_pipe_ends_the_command_quietly() {
    let folder = folder();
    let mut child = command(folder.path(), &["ls", "-laR", "disk.img.zst"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!((child.wait().unwrap().code(), errors.as_str()), (Some(0), ""));
}

#[test]
fn a_full_disk_is_reported() {
    let folder = folder();
    for args in [&["cat", "disk.img.zst:/etc/passwd"][..], &["export", "disk.img.zst"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command(folder.path(), args).stdout(full).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let reported = "obento: cannot write to standard output: no space left on device\n";
        assert_eq!(errors, reported, "{args:?}");
        assert_eq!(output.status.code(), Some(1), "{args:?}");
    }
}

#[test]
fn output_that_cannot_be_written_has_an_exit_code_without_another_meaning() {
    let folder = folder();
    std::fs::write(folder.path().join("one"), "1\n").unwrap();
    std::fs::write(folder.path().join("two"), "2\n").unwrap();
    mutants::unpack(&folder.path().join("disk.img.zst"), folder.path()).unwrap();
    for (args, code) in [
        (&["check", "disk.img.zst"][..], 8),
        (&["check", "--json", "disk.img.zst"], 8),
        (&["diff", "one", "two"], 2),
        (&["cmp", "one", "two"], 2),
        (&["cmp", "-l", "one", "two"], 2),
        (&["grep", "root", "disk.img.zst:/etc/passwd"], 2),
        (&["ls", "-m", "disk.img.zst"], 2),
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command(folder.path(), args).stdout(full).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            errors.ends_with("cannot write to standard output: no space left on device\n"),
            "{args:?}: {errors}"
        );
        assert_eq!(output.status.code(), Some(code), "{args:?}");
    }
}

#[test]
fn a_closed_pipe_does_not_hide_a_result() {
    let folder = folder();
    std::fs::write(folder.path().join("one"), "1\n").unwrap();
    std::fs::write(folder.path().join("two"), "2\n").unwrap();
    let raw = mutants::unpack(&folder.path().join("disk.img.zst"), folder.path()).unwrap();
    std::fs::OpenOptions::new().write(true).open(&raw).unwrap().set_len(6 << 20).unwrap();
    let raw = raw.to_str().unwrap();
    for (args, code) in [
        (&["check", raw][..], 4),
        (&["check", "--json", raw], 4),
        (&["diff", "one", "two"], 1),
        (&["cmp", "one", "two"], 1),
        (&["cmp", "-l", "one", "two"], 1),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let status = command(folder.path(), args).stdout(writer).stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.code(), Some(code), "{args:?}");
    }
}

#[test]
fn a_closed_standard_error_ends_no_command() {
    let folder = folder();
    let image = folder.path().join("plain.img");
    assert!(obento(folder.path(), &["mkfs", "-q", "plain.img", "8M"]).status.success());
    let status = |command: &mut Command| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(writer).status().unwrap().code()
    };
    let bench = ["bench", "createfiles,T=1", "-T", "image:ext4", "--size", "256M", "--scale", "4000"];
    let bench = bench.into_iter().chain(["--run-time", "0.05", "--repeat", "1", "--repeat-most", "1"]);
    let bench: Vec<_> = bench.chain(["--file-size", "1M", "--output", "r.json"]).collect();
    for (args, code) in [
        (&["find", "disk.img.zst:/etc", "-type", "f", "-ok", "true", ";"][..], 0),
        (&bench, 0),
        (&["ls", "none.img"], 2),
        (&["ls", "--unknown"], 2),
        (&["rm", "-i", "plain.img:/lost+found"], 1),
    ] {
        assert_eq!(status(&mut command(folder.path(), args)), Some(code), "{args:?}");
    }
    // The names by which mount(8) and FUSE servers start the program.
    for (name, code) in [("mount.fuse.obento", 1), ("fusermount3", 1)] {
        let helper = folder.path().join(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_obento"), &helper).unwrap();
        assert_eq!(status(&mut Command::new(&helper)), Some(code), "{name}");
    }
    assert!(image.exists());
}

#[test]
fn help_that_cannot_be_written_is_a_failure_with_the_exit_code_for_output() {
    for (line, code) in [
        ("--help", 1),
        ("cat --help", 1),
        ("check --help", 8),
        ("diff --help", 2),
        ("cmp --help", 2),
        ("grep --help", 2),
        ("--no-progress ls --help", 2),
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let args: Vec<_> = line.split(' ').collect();
        let status = command(folder().path(), &args).stdout(full).status().unwrap();
        assert_eq!(status.code(), Some(code), "{line}");
    }
}
