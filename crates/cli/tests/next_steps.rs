//! Messages that name the true cause, the given option and a next step that works.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// A folder with an ext4 volume that contains the file `/a`, the directory `/d` and the FIFO `/p`.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), "hello\n").unwrap();
    for line in ["mkfs -q disk.img 4M", "cp a disk.img:/", "mkdir disk.img:/d", "mkfifo disk.img:/p"] {
        let output = obento(folder.path(), &line.split(' ').collect::<Vec<_>>());
        assert!(output.status.success(), "{line}: {output:?}");
    }
    folder
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    command.current_dir(folder).args(args).env_clear().env("TZ", "UTC0").env("PATH", "/usr/bin:/bin");
    command
}

fn obento(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().unwrap()
}

/// Runs the command, which prints `stderr` after `obento: `, and nothing else.
#[track_caller]
fn fails(folder: &Path, args: &[&str], status: i32, stderr: &str) {
    let output = obento(folder, args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&output.stderr), format!("obento: {stderr}\n"), "{args:?}");
    assert_eq!((text(&output.stdout), output.status.code()), (String::new(), Some(status)), "{args:?}");
}

#[test]
fn a_file_that_cannot_be_read_or_written_is_described_by_its_type() {
    let folder = folder();
    let fails = |args: &[&str], status, why| fails(folder.path(), args, status, why);
    fails(&["cat", "disk.img:/p"], 1, "cannot read 'disk.img:/p': is a FIFO, not a regular file");
    fails(&["wc", "disk.img:/p"], 1, "cannot read 'disk.img:/p': is a FIFO, not a regular file");
    fails(&["cmp", "a", "disk.img:/p"], 2, "cannot compare 'disk.img:/p': is a FIFO, not a regular file");
    fails(&["write", "disk.img:/p"], 1, "cannot write to 'disk.img:/p': is a FIFO, not a regular file");
    fails(&["write", "disk.img:/d"], 1, "cannot write to 'disk.img:/d': is a directory");
    fails(
        &["exec", "disk.img:/p", "true"],
        2,
        "cannot create a copy of 'disk.img:/p': is a FIFO, not a regular file",
    );
}

#[test]
fn a_missing_directory_is_reported_with_the_command_that_creates_the_directory() {
    let folder = folder();
    fs::write(folder.path().join("a.tar"), [0; 1024]).unwrap();
    let image =
        "no such file or directory\n  help: create the directory first: obento mkdir -p disk.img:/x/y";
    for (args, status, why) in [
        (&["touch", "disk.img:/x/y/z"][..], 1, "cannot touch 'disk.img:/x/y/z'"),
        (&["write", "disk.img:/x/y/z"], 1, "cannot write to 'disk.img:/x/y/z'"),
        (&["mkfifo", "disk.img:/x/y/z"], 1, "cannot create 'disk.img:/x/y/z'"),
        (&["mv", "disk.img:/a", "disk.img:/x/y/z"], 1, "cannot move 'disk.img:/a' to 'disk.img:/x/y/z'"),
        (&["cp", "a", "disk.img:/x/y/z"], 2, "cannot write 'disk.img:/x/y/z'"),
    ] {
        fails(folder.path(), args, status, &format!("{why}: {image}"));
    }
    let host = "no such file or directory\n  help: create the directory first: mkdir -p x";
    for (args, why) in [
        (&["mkfs", "x/new.img", "4M"][..], "cannot create 'x/new.img'"),
        (&["build", "x/new.img", "--from", "a.tar"], "cannot build 'x/new.img'"),
        (&["export", "disk.img", "x/new.tar"], "cannot write to 'x/new.tar'"),
        (&["convert", "disk.img", "x/new.qcow2"], "cannot create 'x/new.qcow2'"),
        (&["part", "x/new.img", "create", "gpt", "--size", "8M"], "cannot create 'x/new.img'"),
    ] {
        fails(folder.path(), args, 2, &format!("{why}: {host}"));
    }
}

#[test]
fn an_unknown_command_is_reported_with_the_list_of_commands() {
    let folder = folder();
    let fails = |args: &[&str], why| fails(folder.path(), args, 2, why);
    fails(&["foo"], "unknown command 'foo'\n  help: 'obento help' lists the commands");
    fails(&["lss"], "unknown command 'lss'\n  help: did you mean 'ls'? 'obento help' lists the commands");
    fails(
        &["inspect", "disk.img"],
        "unknown command 'disk.img'\n  help: 'obento help inspect' lists the commands",
    );
}

#[test]
fn a_rejected_pattern_is_shown_as_the_user_wrote_it() {
    let folder = folder();
    let fails = |args: &[&str], why| fails(folder.path(), args, 2, why);
    fails(
        &["grep", "-E", "-e", "x", "-e", "a{2,1}", "disk.img:/a"],
        "cannot use the pattern 'a{2,1}': invalid repetition count range, the start must be <= the end",
    );
    fails(
        &["grep", "[z-a]", "disk.img:/a"],
        "cannot use the pattern '[z-a]': invalid character class range, the start must be <= the end",
    );
}

#[test]
fn a_rejected_value_is_reported_with_the_option_of_the_program_that_the_user_knows() {
    let folder = folder();
    let of = "cannot create a file system on 'disk.img': invalid value";
    for (args, why) in [
        (&["mkfs.fat", "-I", "-f", "9", "disk.img"][..], "'9' for -f\n  help: use a number from 1 to 4"),
        (&["mkfs.fat", "-I", "-F", "33", "disk.img"], "'33' for -F\n  help: use 12, 16 or 32"),
        (
            &["mkfs.exfat", "--force", "-c", "3", "disk.img"],
            "'3' for -c\n  help: use a power of two from 512 to 33554432",
        ),
        (
            &["mkfs", "-F", "-E", "stride=x", "disk.img"],
            "'x' for stride\n  help: use a number from 0 to 65535",
        ),
    ] {
        fails(folder.path(), args, 2, &format!("{of} {why}"));
    }
    fails(
        folder.path(),
        &["build", "new.img", "--from", ".", "-b", "4K", "-I", "3"],
        2,
        "cannot build 'new.img': invalid value '3' for -I\n  help: use a power of two from 128 to 65536",
    );
    fails(
        folder.path(),
        &["tune", "disk.img", "-O", "foo"],
        2,
        "cannot change the settings of 'disk.img': unknown feature 'foo'\n  \
         help: 'obento help tune' lists the features",
    );
    fails(
        folder.path(),
        &["tune", "disk.img", "-O", "^dir_index"],
        2,
        "cannot change the settings of 'disk.img': invalid value '^dir_index' for -O: obento cannot disable \
         'dir_index'\n  help: try 'tune2fs -O ^dir_index'",
    );
}

#[test]
fn a_partition_that_cannot_grow_is_reported_with_its_size() {
    let folder = folder();
    let run = |line: &str| obento(folder.path(), &line.split(' ').collect::<Vec<_>>());
    for line in ["part disk create gpt --size 16M", "part disk add --size 4M", "part disk add --size 4M"] {
        assert!(run(line).status.success(), "{line}");
    }
    let said = String::from_utf8(run("part disk grow 1").stdout).unwrap();
    assert_eq!(said, "disk: partition 1 already has 4 MiB (4194304 bytes); partition 2 follows it\n");
    let said = String::from_utf8(run("part disk grow 2").stdout).unwrap();
    assert!(said.starts_with("disk: partition 2: Linux filesystem, 11 MiB ("), "{said}");
}

#[test]
fn a_device_that_is_full_is_reported_by_its_name() {
    let folder = folder();
    fails(
        folder.path(),
        &["cp", "disk.img:/a", "/dev/full"],
        1,
        "cannot write to '/dev/full': no space left on device\n  \
         help: free space on the disk of the file, or choose another disk",
    );
}

#[test]
fn the_root_directory_is_reported_as_the_reason_why_it_is_not_moved() {
    let folder = folder();
    fails(
        folder.path(),
        &["mv", "disk.img:/", "."],
        1,
        "cannot move 'disk.img:/' to '.': the root directory of the volume cannot be moved\n  \
         help: use 'obento cp -a' to copy the files of the volume",
    );
}

#[test]
fn an_editor_that_sh_cannot_parse_is_reported() {
    let folder = folder();
    let output = command(folder.path(), &["edit", "disk.img:/a"]).env("EDITOR", "vi \"x").output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "obento: cannot start 'vi \"x': not a command of sh\n  \
         help: set VISUAL or EDITOR to the name of an editor\n"
    );
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_folder_for_temporary_files_that_does_not_exist_is_named_once() {
    let folder = folder();
    let help = "cannot create a file in '/nowhere': no such file or directory\n  \
                help: set TMPDIR to another directory\n";
    for (args, what) in [
        (&["exec", "disk.img:/a", "true"][..], "cannot create a copy of 'disk.img:/a'"),
        (
            &["find", "disk.img", "-name", "a", "-exec", "true", "{}", ";"],
            "cannot run a command on 'disk.img:/a'",
        ),
    ] {
        let output = command(folder.path(), args).env("TMPDIR", "/nowhere").output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), format!("obento: {what}: {help}"));
    }
}

#[test]
fn an_immutable_file_is_reported_with_the_command_that_shows_its_flags() {
    let folder = folder();
    assert!(obento(folder.path(), &["chattr", "+i", "disk.img:/a"]).status.success());
    for (args, what) in [
        (&["write", "disk.img:/a"][..], "cannot write to 'disk.img:/a'"),
        (&["chmod", "600", "disk.img:/a"], "cannot change the mode of 'disk.img:/a'"),
        (&["mv", "disk.img:/a", "disk.img:/b"], "cannot move 'disk.img:/a' to 'disk.img:/b'"),
    ] {
        let said = String::from_utf8(obento(folder.path(), args).stderr).unwrap();
        let start =
            format!("obento: {what}: operation not permitted\n  help: the file or its directory may be ");
        assert!(said.starts_with(&start), "{said}");
    }
}

#[test]
fn a_target_that_cannot_be_created_ends_a_recovery_before_it_begins() {
    let folder = folder();
    let args = ["recover", "disk.img", "x/y/out", "--report", "list"];
    fails(
        folder.path(),
        &args,
        2,
        "cannot recover to 'x/y/out': no such file or directory\n  \
         help: create the directory first: mkdir -p x/y",
    );
    assert!(!folder.path().join("list").exists(), "the recovery began");
}

#[test]
fn a_map_that_is_too_large_is_reported_with_the_file_to_name() {
    let folder = folder();
    fs::File::create(folder.path().join("map")).unwrap().set_len((64 << 20) + 1).unwrap();
    fails(
        folder.path(),
        &["recover", "--map", "map", "disk.img", "out"],
        2,
        "cannot use the map 'map': the map file is larger than 64 MiB\n  \
         help: name the map file that ddrescue wrote: ddrescue DISK IMAGE MAPFILE",
    );
}

#[test]
fn a_semicolon_in_a_value_does_not_end_the_message() {
    let folder = folder();
    let of = "cannot change the settings of 'disk.img'";
    for (args, why) in [
        (["-O", "foo; bar"], "unknown feature 'foo; bar'\n  help: 'obento help tune' lists the features"),
        (
            ["-Q", "foo; bar"],
            "invalid value 'foo; bar' for -Q: unknown quota file 'foo; bar' (must be usrquota, grpquota or prjquota)",
        ),
    ] {
        fails(folder.path(), &["tune", "disk.img", args[0], args[1]], 2, &format!("{of}: {why}"));
    }
}

#[test]
fn a_command_in_a_hint_quotes_the_names_that_a_shell_would_change() {
    let folder = folder();
    assert!(obento(folder.path(), &["mkfs", "-q", "my disk.img", "4M"]).status.success());
    let missing = "no such file or directory\n  help: create the directory first";
    fails(
        folder.path(),
        &["touch", "my disk.img:/x/y"],
        1,
        &format!("cannot touch 'my disk.img:/x/y': {missing}: obento mkdir -p 'my disk.img:/x'"),
    );
    fails(
        folder.path(),
        &["cp", "a", "disk.img:/x y/z"],
        2,
        &format!("cannot write 'disk.img:/x y/z': {missing}: obento mkdir -p 'disk.img:/x y'"),
    );
    fails(
        folder.path(),
        &["export", "disk.img", "$x/new.tar"],
        2,
        &format!("cannot write to '$x/new.tar': {missing}: mkdir -p '$x'"),
    );
    // The hint works as printed.
    let line = "obento=$1; shift; \"$obento\" mkdir -p 'my disk.img:/x'";
    let mut sh = Command::new("sh");
    sh.current_dir(folder.path()).args(["-c", line, "sh", env!("CARGO_BIN_EXE_obento")]);
    assert!(sh.status().unwrap().success());
    assert!(obento(folder.path(), &["touch", "my disk.img:/x/y"]).status.success());
}

#[test]
fn an_option_that_the_type_refuses_is_named_as_it_was_given() {
    let folder = folder();
    let at = folder.path();
    fs::create_dir(at.join("tree")).unwrap();
    let long = "label=A-LABEL-OF-MORE-THAN-16-BYTES";
    for (command, cannot) in [
        (&["build", "new.img", "--from", "tree"][..], "cannot build 'new.img'"),
        (&["mkfs", "-n", "new.img", "10M"], "cannot create a file system on 'new.img'"),
    ] {
        for (args, why) in [
            (
                &["-O", "64bit,^extent"][..],
                "64bit requires extent\n  help: add -O extent, or remove 64bit: -O ^64bit",
            ),
            (&["-t", "vfat", "-I", "256"], "-I is not available for vfat\n  help: omit -I"),
            (&["-t", "exfat", "-N", "5"], "-N is not available for exfat\n  help: omit -N"),
            (&["-t", "vfat", "-O", "x"], "-O is not available for vfat\n  help: omit -O"),
            (&["-O", "x"], "unknown feature 'x'\n  help: ext4(5) lists the features"),
            (&["-E", long], "-E label= is not available\n  help: use -L to set the label"),
            (&["-I", "3"], "invalid value '3' for -I\n  help: use a power of two from 128 to 65536"),
            (
                &["-E", "inode_size=3"],
                "invalid value '3' for inode_size\n  help: use a power of two from 128 to 65536",
            ),
        ] {
            fails(at, &[command, args].concat(), 2, &format!("{cannot}: {why}"));
        }
    }
}
