//! The output, messages and exit codes that a user sees, on the sample image of the repository.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use obento_testkit::oracle::program;
use obento_testkit::{Oracle, mutants, require};

/// A folder with the sample image as `disk.img.zst`.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/disk.img.zst");
    std::fs::copy(sample, folder.path().join("disk.img.zst")).unwrap();
    folder
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    command.current_dir(folder).args(args).env_clear().env("TZ", "UTC0");
    command
}

fn obento(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().unwrap()
}

#[track_caller]
fn check(args: &[&str], status: i32, stdout: &str, stderr: &str) {
    check_in(folder().path(), args, status, stdout, stderr);
}

#[track_caller]
fn check_in(folder: &Path, args: &[&str], status: i32, stdout: &str, stderr: &str) {
    let output = obento(folder, args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&output.stderr), stderr, "{args:?}");
    assert_eq!(text(&output.stdout), stdout, "{args:?}");
    assert_eq!(output.status.code(), Some(status), "{args:?}");
}

#[test]
fn a_bare_image_is_its_root() {
    check(&["ls", "disk.img.zst"], 0, "etc\nhome\nlost+found\nusr\nvar\n", "");
    check(&["ls", "disk.img.zst:/etc"], 0, "group\nos-release\npasswd\n", "");
}

#[test]
fn owners_are_called_as_the_image_calls_them() {
    check(
        &["ls", "-l", "--time-style=+%Y", "disk.img.zst:/home/bento/hello.txt"],
        0,
        "-rw-r--r-- 2 bento bento 66 2026 disk.img.zst:/home/bento/hello.txt\n",
        "",
    );
    check(&["stat", "-c", "%U %G %u", "disk.img.zst:/home/bento"], 0, "bento bento 1000\n", "");
}

#[test]
fn patterns_are_matched_inside_the_image() {
    check(
        &["ls", "-d", "disk.img.zst:/etc/*s*"],
        0,
        "disk.img.zst:/etc/os-release\ndisk.img.zst:/etc/passwd\n",
        "",
    );
    check(
        &["cat", "disk.img.zst:/etc/*.conf"],
        1,
        "",
        "obento: cannot read 'disk.img.zst:/etc/*.conf': no file has this name or matches it as a pattern\n",
    );
}

#[test]
fn missing_files_are_reported_and_the_rest_is_done() {
    check(
        &["ls", "disk.img.zst:/nope", "disk.img.zst:/etc"],
        2,
        "disk.img.zst:/etc:\ngroup\nos-release\npasswd\n",
        "obento: cannot access 'disk.img.zst:/nope': no such file or directory\n",
    );
    check(
        &["cat", "disk.img.zst:/nope", "disk.img.zst:/etc/os-release"],
        1,
        "NAME=\"obento sample\"\nID=obento\n",
        "obento: cannot read 'disk.img.zst:/nope': no such file or directory\n",
    );
}

#[test]
fn df_reports_a_missing_file_and_shows_the_rest() {
    let missing = "obento: cannot access 'disk.img.zst:/none': no such file or directory\n";
    check(&["df", "disk.img.zst:/none"], 1, "", missing);
    let folder = folder();
    let both = obento(folder.path(), &["df", "disk.img.zst:/none", "disk.img.zst:/etc/passwd"]);
    assert_eq!((both.status.code(), String::from_utf8_lossy(&both.stderr).as_ref()), (Some(1), missing));
    let alone = obento(folder.path(), &["df", "disk.img.zst@1"]);
    let numbers = |output: &Output| -> Vec<String> {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().last().unwrap_or_default().split_whitespace().skip(1).map(str::to_owned).collect()
    };
    assert_eq!((numbers(&both), alone.status.code()), (numbers(&alone), Some(0)));
}

#[test]
fn a_directory_cannot_be_read_as_a_file() {
    check(
        &["cat", "disk.img.zst:/etc"],
        1,
        "",
        "obento: cannot read 'disk.img.zst:/etc': is a directory\n  \
         help: to list its contents: obento ls 'disk.img.zst:/etc'\n",
    );
    check(
        &["cat", "disk.img.zst"],
        1,
        "",
        "obento: cannot open 'disk.img.zst': not a path inside an image\n  \
         help: add the path after the image: 'disk.img.zst:/PATH'\n",
    );
}

#[test]
fn a_file_that_is_not_an_image_is_refused_with_a_hint() {
    let folder = folder();
    std::fs::write(folder.path().join("notes.txt"), "Just some text.\n".repeat(400)).unwrap();
    std::fs::write(folder.path().join("empty.img"), "").unwrap();
    for (args, words) in [
        (["ls", "nope.img:/"], "no such file"),
        (["ls", "notes.txt"], "no supported file system"),
        (["ls", "empty.img"], "the file is empty"),
        (["ls", "disk.img.zst@7"], "no such partition"),
        (["ls", "."], "is a directory of the host"),
    ] {
        let output = obento(folder.path(), &args);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(errors.starts_with("obento: ") && errors.contains(words), "{args:?}: {errors}");
        assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
    }
}

#[test]
fn wrong_usage_has_its_own_exit_code() {
    for args in
        [&["frobnicate"][..], &["ls"], &["ls", "--nope", "disk.img.zst"], &["du", "-a", "-s", "disk.img.zst"]]
    {
        assert_eq!(obento(folder().path(), args).status.code(), Some(2), "{args:?}");
    }
    for args in [&["--help"][..], &["ls", "--help"], &["-h"], &["--version"]] {
        assert_eq!(obento(folder().path(), args).status.code(), Some(0), "{args:?}");
    }
}

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
    for args in
        [&["cat", "disk.img.zst:/etc/passwd"][..], &["export", "disk.img.zst"], &["ls", "-m", "disk.img.zst"]]
    {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command(folder.path(), args).stdout(full).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let reported = "obento: cannot write to standard output: no space left on device\n";
        assert_eq!(errors, reported, "{args:?}");
        assert_eq!(output.status.code(), Some(1), "{args:?}");
    }
}

#[test]
fn the_image_stays_as_it_was() {
    let folder = folder();
    let image = folder.path().join("disk.img.zst");
    let before = std::fs::read(&image).unwrap();
    for args in [&["ls", "-lR", "disk.img.zst"][..], &["du", "disk.img.zst"], &["df", "disk.img.zst"]] {
        assert!(obento(folder.path(), args).status.success());
    }
    assert_eq!(std::fs::read(&image).unwrap(), before);
}

#[test]
fn a_truncated_image_shows_its_existing_files_and_is_reported_once() {
    let folder = folder();
    let raw = mutants::unpack(&folder.path().join("disk.img.zst"), folder.path()).unwrap();
    std::fs::OpenOptions::new().write(true).open(&raw).unwrap().set_len(6 << 20).unwrap();
    let raw = raw.to_str().unwrap();
    let output = obento(folder.path(), &["ls", raw, &format!("{raw}:/etc")]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        errors.matches("the image is truncated: the volume has 14680064 bytes").count(),
        1,
        "{errors}"
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("os-release"));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_damaged_directory_costs_itself_and_the_rest_is_listed() {
    let folder = folder();
    let raw = mutants::unpack(&folder.path().join("disk.img.zst"), folder.path()).unwrap();
    let mut bytes = std::fs::read(&raw).unwrap();
    // A directory entry: length of the name, type, name.
    let at = bytes.windows(12).position(|w| w == b"\x0a\x01os-release").unwrap();
    bytes[at + 2] = b'x';
    std::fs::write(&raw, bytes).unwrap();
    let output = obento(folder.path(), &["ls", "-R", raw.to_str().unwrap()]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains(":/etc': directory 12: checksum is"), "{errors}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("compartment-300"));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn directories_that_run_in_a_circle_are_listed_once() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("debugfs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("circle.img");
    assert!(program("mke2fs").args(["-q", "-t", "ext4"]).arg(&image).arg("8M").status().unwrap().success());
    for request in ["mkdir a", "mkdir a/b", "link a a/b/up", "link a/b a/twin", "link a again"] {
        assert!(
            program("debugfs").args(["-w", "-R", request]).arg(&image).output().unwrap().status.success()
        );
    }
    for command in [&["ls", "-R"][..], &["tree"], &["du", "-a"], &["find"], &["getfattr", "-R"]] {
        let output = obento(folder.path(), &[command, &["circle.img"]].concat());
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        // `up` closes the cycle. The first name of its directories depends on the order of the walk, and
        // without sorting on the volume's random hash seed.
        let sorted = matches!(command[0], "ls" | "tree" | "du");
        let ways = ["/a/b/up", "/a/twin/up", "/again/b/up", "/again/twin/up"];
        let ways = if sorted { &ways[..1] } else { &ways[..] };
        assert!(
            ways.iter().any(|way| errors.contains(&format!("circle.img:{way}"))),
            "{command:?}: {errors}"
        );
        assert!(matches!(output.status.code(), Some(1 | 2)), "{command:?}: {errors}");
        assert!(output.stdout.len() < 2000, "{command:?}");
    }
}

#[test]
fn standard_input_is_one_of_the_files() {
    let folder = folder();
    let mut child = command(folder.path(), &["cat", "-", "disk.img.zst:/etc/os-release"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"first\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"first\nNAME=\"obento sample\"\nID=obento\n");
}

#[test]
fn json_has_an_object_a_line() {
    let folder = folder();
    for args in [
        &["ls", "--json", "-R", "disk.img.zst"][..],
        &["stat", "--json", "disk.img.zst:/etc", "disk.img.zst:/usr/bin"],
        &["df", "--json", "disk.img.zst"],
        &["du", "--json", "-ac", "disk.img.zst:/home"],
        &["tree", "--json", "disk.img.zst"],
        &["stat", "-f", "--json", "disk.img.zst"],
        &["find", "--json", "disk.img.zst"],
        &["info", "--json", "disk.img.zst"],
        &["inspect", "super", "--json", "disk.img.zst"],
    ] {
        let output = obento(folder.path(), args);
        assert!(output.status.success() && !output.stdout.is_empty(), "{args:?}");
        for line in output.stdout.split(|&b| b == b'\n').filter(|line| !line.is_empty()) {
            let value: serde_json::Value = serde_json::from_slice(line).unwrap();
            assert_eq!(value["schema"], "obento/1", "{args:?}");
            assert!(value["kind"].is_string(), "{args:?}");
        }
    }
}

#[test]
fn an_inode_has_an_address() {
    check(
        &["stat", "-c", "%F %i", "disk.img.zst:<2>", "disk.img.zst:2"],
        0,
        "directory 2\ndirectory 2\n",
        "",
    );
    check(&["cat", "disk.img.zst:<14>"], 0, "NAME=\"obento sample\"\nID=obento\n", "");
    let none = "obento: cannot read 'disk.img.zst:<999999>': no file has this inode number\n";
    check(&["cat", "disk.img.zst:<999999>"], 1, "", none);
}

#[test]
fn an_inode_that_has_no_name_can_be_inspected() {
    let folder = folder();
    let journal = obento(folder.path(), &["inspect", "inode", "disk.img.zst:<8>"]);
    assert!(journal.status.success() && journal.stdout.starts_with(b"       offset"), "{journal:?}");
    let none = obento(folder.path(), &["inspect", "inode", "disk.img.zst:<999999>"]);
    let reported = "obento: cannot inspect 'disk.img.zst:<999999>': no such inode: 999999\n";
    assert_eq!((String::from_utf8(none.stderr).unwrap().as_str(), none.status.code()), (reported, Some(1)));
}

#[test]
fn a_place_past_the_end_of_the_image_is_reported_as_such() {
    let size = obento(folder().path(), &["info", "--json", "disk.img.zst"]).stdout;
    let size = String::from_utf8(size).unwrap();
    let size = size.split("\"size\":").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
    let reported = format!(
        "obento: cannot open 'disk.img.zst@+99999999999': the offset is past the end of the image, which has {size} bytes\n"
    );
    check(&["ls", "disk.img.zst@+99999999999:/"], 2, "", &reported);
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = command(folder().path(), &["--help"]).stdout(full).status().unwrap();
    assert_eq!(status.code(), Some(1));
}

#[test]
fn completions_and_manual_pages_name_every_subcommand() {
    let folder = folder();
    let help = String::from_utf8(obento(folder.path(), &["--help"]).stdout).unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = String::from_utf8(obento(folder.path(), &["completions", shell]).stdout).unwrap();
        assert!(script.contains("obento complete"), "{shell}");
    }
    assert!(obento(folder.path(), &["man", "."]).status.success());
    for name in ["obento.1", "obento-ls.1", "obento-readlink.1"] {
        assert!(folder.path().join(name).is_file(), "{name}");
    }
    assert!(help.contains("disk.img@2:/etc/fstab"));
    assert_eq!(obento(folder.path(), &["man", "no/such/folder"]).status.code(), Some(2));
}

/// Returns the output of a command whose standard output is a terminal of 100 columns.
fn on_terminal(folder: &Path, line: &str) -> String {
    let shell = format!("stty cols 100 -opost; {line}");
    let mut script = program("script");
    script
        .args(["-qec", &shell, "/dev/null"])
        .current_dir(folder)
        .env("TERM", "xterm")
        .env_remove("LS_COLORS");
    script.env_remove("COLUMNS").stdin(Stdio::null());
    String::from_utf8_lossy(&script.output().unwrap().stdout).into_owned()
}

#[test]
fn a_terminal_gets_columns_quotes_and_colours_as_from_ls() {
    if !require(&[Oracle::Program("script"), Oracle::Program("ls"), Oracle::Program("mke2fs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    let tree = source.join("d");
    std::fs::create_dir_all(tree.join("a directory")).unwrap();
    for name in ["plain", "with space", "it's", "new\nline", "\u{1b}[31mred", "grüße", "日本語"] {
        std::fs::write(tree.join(name), name).unwrap();
    }
    for number in 0..60 {
        std::fs::write(tree.join(format!("file{number}")), "").unwrap();
    }
    std::os::unix::fs::symlink("nowhere", tree.join("broken")).unwrap();
    let image = folder.path().join("t.img");
    let make = program("mke2fs")
        .args(["-q", "-t", "ext4", "-d"])
        .args([&source, &image])
        .arg("8M")
        .output()
        .unwrap();
    assert!(make.status.success(), "{}", String::from_utf8_lossy(&make.stderr));
    let binary = env!("CARGO_BIN_EXE_obento");
    for flags in ["", "-x", "-F", "-N", "-b", "-Q", "-1", "-q", "--color=never", "-r", "-w 60"] {
        let expected = on_terminal(folder.path(), &format!("ls --color=auto {flags} source/d"));
        let found = on_terminal(folder.path(), &format!("{binary} ls {flags} t.img:/d"));
        assert!(expected.contains("plain"), "{expected}");
        // The last of two --color options counts, in both programs.
        assert_eq!(found, expected, "ls {flags}");
    }
    let long = on_terminal(folder.path(), &format!("{binary} ls -l t.img:/d"));
    assert!(long.contains("''$'\\033''[31mred'"), "{long}");
    // No escape reaches the terminal except the colours of obento.
    assert!(!long.contains("\u{1b}[31m"), "{long}");
}

#[test]
fn a_missing_super_block_is_reported_with_the_option_that_opens_the_volume() {
    let folder = folder();
    let by = |block: &str| {
        let output = obento(folder.path(), &["ls", "--superblock", block, "disk.img.zst"]);
        assert_eq!(output.status.code(), Some(2), "{block}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let past = "the block is past the end of the volume, which has 14 MiB (14680064 bytes)\n  help: omit --superblock: the volume opens without it\n";
    for block in ["999999", "18446744073709551615"] {
        let reported = by(block);
        assert!(reported.ends_with(past) && reported.contains(&format!("at block {block}: ")), "{reported}");
    }
    let reported = by("5");
    assert!(
        reported.contains("magic number")
            && reported.ends_with("\n  help: omit --superblock: the volume opens without it\n"),
        "{reported}"
    );
}

#[test]
fn a_qcow2_image_with_a_backing_file_is_reported_with_the_option_that_opens_it() {
    if !require(&[Oracle::Program("qemu-img")]) {
        return;
    }
    let folder = folder();
    let raw = mutants::unpack(&folder.path().join("disk.img.zst"), folder.path()).unwrap();
    let create = program("qemu-img")
        .current_dir(folder.path())
        .args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b"])
        .args([raw.file_name().unwrap(), "over.qcow2".as_ref()])
        .status();
    assert!(create.unwrap().success());
    for args in [&["cp", "over.qcow2", "."][..], &["info", "over.qcow2"], &["ls", "over.qcow2"]] {
        let output = obento(folder.path(), args);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(errors.contains("\n  help: use --allow-backing"), "{args:?}: {errors}");
    }
    let output = obento(folder.path(), &["cp", "--allow-backing", "over.qcow2", "."]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("help: use over.qcow2:/ for the root"));
}

#[test]
fn an_unreadable_qcow2_image_is_reported_with_the_command_that_converts_it() {
    if !require(&[Oracle::Program("qemu-img")]) {
        return;
    }
    let folder = folder();
    let raw = mutants::unpack(&folder.path().join("disk.img.zst"), folder.path()).unwrap();
    let convert = |options: &str, name: &str| {
        let mut command = program("qemu-img");
        command.current_dir(folder.path()).args(["convert", "-c", "-O", "qcow2", "-o", options]);
        assert!(command.args([raw.file_name().unwrap(), name.as_ref()]).status().unwrap().success());
    };
    convert("compression_type=zstd", "zstd.qcow2");
    check_in(folder.path(), &["ls", "zstd.qcow2:/etc"], 0, "group\nos-release\npasswd\n", "");
    convert("extended_l2=on,cluster_size=64k", "sub.qcow2");
    for args in [&["ls", "sub.qcow2:/"][..], &["info", "sub.qcow2"], &["cp", "sub.qcow2", "."]] {
        let output = obento(folder.path(), args);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            errors.contains("subclusters (extended L2 entries) is not supported\n"),
            "{args:?}: {errors}"
        );
        assert!(
            errors.contains("help: convert the image: qemu-img convert -O qcow2 'sub.qcow2'"),
            "{errors}"
        );
    }
    let args = ["convert", "-f", "raw", "-O", "vmdk", "-o", "subformat=monolithicFlat", "raw", "flat.vmdk"];
    std::fs::write(folder.path().join("raw"), [0; 4096]).unwrap();
    assert!(Command::new("qemu-img").current_dir(folder.path()).args(args).status().unwrap().success());
    let errors = String::from_utf8(obento(folder.path(), &["ls", "flat.vmdk"]).stderr).unwrap();
    assert!(errors.contains("help: convert the image: qemu-img convert -O qcow2 'flat.vmdk'"), "{errors}");
}

#[test]
fn a_project_is_refused_by_name_where_the_volume_keeps_none() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("f"), "").unwrap();
    for fs_type in ["vfat", "xv6", "ext4"] {
        assert!(
            obento(folder.path(), &["mkfs", "-t", fs_type, "-q", "disk.img", "16M", "-F"]).status.success()
        );
        assert!(obento(folder.path(), &["cp", "f", "disk.img:/"]).status.success());
        let reported =
            "obento: cannot set the project of 'disk.img:/f': the volume does not support projects\n";
        check_in(folder.path(), &["chattr", "-p", "5", "disk.img:/f"], 1, "", reported);
    }
}
