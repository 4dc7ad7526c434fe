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
         help: if this is an image, add the path: 'disk.img.zst:/PATH'\n",
    );
    check(
        &["grep", "root", "disk.img.zst"],
        2,
        "",
        "obento: cannot open 'disk.img.zst': not a path inside an image\n  \
         help: if this is an image, add the path: 'disk.img.zst:/PATH'; or use -r to read all files of the image\n",
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
    for args in [
        &["frobnicate"][..],
        &["ls"],
        &["ls", "--nope", "disk.img.zst"],
        &["du", "-a", "-s", "disk.img.zst"],
        &["du", "-s", "-d", "1", "disk.img.zst"],
        &["prov", "disk.img.zst", "--of", "/x", "-n", "1"],
        &["mount", "--status", "--log", "x"],
    ] {
        assert_eq!(obento(folder().path(), args).status.code(), Some(2), "{args:?}");
    }
    let output = obento(folder().path(), &["check", "--rescue", "disk.img.zst"]);
    assert_eq!(output.status.code(), Some(16), "{output:?}");
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
    assert!(errors.contains(":/etc': directory 12: stored checksum is"), "{errors}");
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
fn each_command_with_json_output_prints_nothing_but_objects_one_per_line() {
    let folder = folder_of_images();
    let at = folder.path();
    std::fs::copy(self::folder().path().join("disk.img.zst"), at.join("disk.img.zst")).unwrap();
    std::fs::create_dir_all(at.join("tree/below/.hidden")).unwrap();
    std::fs::write(at.join("tree/below/file"), "line\nother\n").unwrap();
    std::fs::write(at.join("disk.toml"), "[[partition]]\ntype = \"esp\"\ncontent = \"vfat\"\n").unwrap();
    assert!(obento(at, &["build", "-q", "a.img", "--from", "tree", "--size", "8M"]).status.success());
    assert!(obento(at, &["setfattr", "-n", "user.x", "-v", "y", "a.img:/below"]).status.success());
    std::fs::write(at.join("sums"), obento(at, &["md5sum", "a.img:/below/file"]).stdout).unwrap();
    let lines = "b3sum a.img:/below/file gone.img:/x
build b.img --from tree
build d.img --disk disk.toml
check a.img
check -v -y a.img
check zeros.img
cmp -l a.img:/below/file disk.img.zst:/etc/passwd
convert -O qcow2 a.img a.qcow2
df a.img disk.img.zst
diff -r a.img:/ disk.img.zst:/
diff --bytes a.img fat.img
du -0ac a.img:/ disk.img.zst:/home
file -0 a.img:/below/file a.img:/below
find a.img disk.img.zst:/etc
getfattr -d -R a.img:/
grep -rn -C1 line a.img:/ disk.img.zst:/etc
grep -rcZ line a.img:/
grep -rL nothing a.img:/
info a.img d.img zeros.img
inspect block a.img 1
inspect dir a.img:/below
inspect group a.img 0
inspect inode a.img:/below/file
inspect journal a.img
inspect super a.img
ls -laR a.img:/ disk.img.zst:/home
ls -m --color=always a.img:/ a.img:/below
lsattr -R a.img:/ disk.img.zst:/
lsattr -aRlpv a.img:/ a.img:/below
lsattr -ad a.img:/
md5sum --check sums
md5sum --tag -z a.img:/below/file
mkfs -t ext2 c.img 4M
mkfs -n -t ext4 c.img 4M
mkfs.exfat fresh.img
mkfs.fat -v -C f.img 4096
mount --status
part mbr.img
part mbr.img add --type 0x83 --size 1M
prov a.img
recover a.img saved
resize a.img 12M
sha1sum a.img:/below/file
sha256sum a.img:/below/file
sha512sum a.img:/below/file
stat a.img:/below a.img:/gone
stat -f a.img
tree -a a.img disk.img.zst
types
undelete fat.img
wc a.img:/below/file disk.img.zst:/etc/passwd";
    std::fs::File::create(at.join("fresh.img")).unwrap().set_len(8 << 20).unwrap();
    let mut silent = Vec::new();
    for line in lines.lines() {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        let args: Vec<&str> = [name, "--json"].into_iter().chain(rest.split_whitespace()).collect();
        let output = obento(at, &args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!error.contains("Usage:"), "{line}: {error}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'), "{line}: {text}");
        if text.is_empty() {
            silent.push(line);
        }
        for object in text.lines() {
            let value: Option<serde_json::Value> = serde_json::from_str(object).ok();
            let is_object = value.is_some_and(|value| value["kind"].is_string());
            assert!(is_object, "{line}: not an object with a kind: {object:?}");
        }
    }
    // Another test may mount a volume meanwhile.
    silent.retain(|line| *line != "mount --status");
    assert_eq!(silent, ["check zeros.img", "prov a.img", "undelete fat.img"]);
    let listed = include_str!("../src/cli.rs").split_once("const JSON: &[&str] = &[").unwrap().1;
    let listed = listed.split_once("];").unwrap().0.split('"').skip(1).step_by(2);
    for name in listed {
        let is_tried = lines.lines().any(|line| line.split(' ').next() == Some(name));
        assert!(is_tried, "no case for '{name}'");
    }
}

#[test]
fn json_is_refused_by_each_command_that_has_no_json_output() {
    let folder = folder();
    let image = "disk.img.zst";
    for args in [
        &["cat", "disk.img.zst:/etc/passwd"][..],
        &["head", "disk.img.zst:/etc/passwd"],
        &["tail", "disk.img.zst:/etc/passwd"],
        &["hexdump", "disk.img.zst:/etc/passwd"],
        &["readlink", "-f", "disk.img.zst:/etc/passwd"],
        &["getfacl", "disk.img.zst:/etc/passwd"],
        &["cp", "disk.img.zst:/etc/passwd", "copy"],
        &["export", image, "copy"],
        &["chmod", "700", "disk.img.zst:/etc"],
        &["tune", image],
        &["shell", image],
        &["man", "ls"],
        &["completions", "bash"],
    ] {
        let output = obento(folder.path(), &[args, &["--json"]].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        let refused = format!("'--json' cannot be used with '{}', which has no JSON output", args[0]);
        assert!(error.contains(&refused), "{args:?}: {error}");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{args:?}");
    }
    for args in [
        &["mount", "--json", image, "."][..],
        &["build", "--json", "--print-layout", image],
        &["stat", "--json", "-c", "%n", image],
        &["stat", "--json", "--terse", image],
        &["prov", "--json", "--export", "dot", image],
    ] {
        let output = obento(folder.path(), args);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains("omit --json"), "{args:?}: {error}");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{args:?}");
    }
}

#[test]
fn a_comparison_of_trees_refuses_files_without_a_file_system() {
    let folder = folder();
    for (name, bytes) in [("one", "1"), ("other", "2")] {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let refused = "obento: cannot compare 'one': not a directory or an image with a file system\n  \
                   help: omit -r to compare the bytes of two files\n";
    for sides in [["one", "other"], ["disk.img.zst", "one"], ["one", "disk.img.zst"]] {
        check_in(folder.path(), &[&["diff", "-r"], &sides[..]].concat(), 2, "", refused);
    }
    check_in(folder.path(), &["diff", "one", "other"], 1, "Files one and other differ\n", "");
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
    let none = "obento: cannot read 'disk.img.zst:#999999': no file has this inode number\n";
    check(&["cat", "disk.img.zst:<999999>"], 1, "", none);
}

#[test]
fn an_inode_that_has_no_name_can_be_inspected() {
    let folder = folder();
    let journal = obento(folder.path(), &["inspect", "inode", "disk.img.zst:<8>"]);
    assert!(journal.status.success() && journal.stdout.starts_with(b"       offset"), "{journal:?}");
    let none = obento(folder.path(), &["inspect", "inode", "disk.img.zst:<999999>"]);
    let reported = "obento: cannot inspect 'disk.img.zst:#999999': the volume has no inode 999999\n";
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
fn names_that_find_writes_to_a_terminal_as_a_file_have_no_escapes_as_with_gnu_find() {
    if !require(&[Oracle::Program("script"), Oracle::Program("find"), Oracle::Program("mke2fs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    std::fs::create_dir_all(source.join("d")).unwrap();
    std::fs::write(source.join("d/\u{1b}[31mred"), "").unwrap();
    std::os::unix::fs::symlink("to\u{1b}[31mred", source.join("d/link-red")).unwrap();
    let image = folder.path().join("t.img");
    let mut make = program("mke2fs");
    make.args(["-q", "-t", "ext4", "-d"]).args([&source, &image]).arg("8M");
    assert!(make.output().unwrap().status.success());
    let binary = env!("CARGO_BIN_EXE_obento");
    for action in ["-fprint /dev/tty", "-fprintf /dev/tty '%p %f %l\\n'", "-fprint0 /dev/tty"] {
        let sorted = |text: String| {
            let mut lines: Vec<String> = text.split_inclusive(['\n', '\0']).map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let tests = format!("-name '*red' {action} > out");
        let expected = on_terminal(folder.path(), &format!("find source/d {tests}"));
        let found = on_terminal(folder.path(), &format!("{binary} find t.img:/d {tests}"));
        assert_eq!(found.contains('\u{1b}'), action.starts_with("-fprint0"), "{action}: {found:?}");
        assert_eq!(sorted(found), sorted(expected.replace("source/d", "t.img:/d")), "{action}");
        assert_eq!(std::fs::read(folder.path().join("out")).unwrap(), b"", "{action}");
    }
    // A file keeps the bytes of the names, also if standard output is a terminal.
    on_terminal(folder.path(), &format!("{binary} find t.img:/d -name '*red' -fprint names"));
    let names = std::fs::read_to_string(folder.path().join("names")).unwrap();
    assert!(names.contains("t.img:/d/\u{1b}[31mred\n"), "{names:?}");
}

#[test]
fn a_missing_source_is_named_once_and_as_the_user_wrote_it() {
    let folder = folder_of_images();
    for args in [&["cp", "nope", "plain.img:/"][..], &["cp", "-a", "nope", "plain.img:/"]] {
        check_in(folder.path(), args, 1, "", "obento: cannot copy 'nope': no such file or directory\n");
    }
    for (source, shown) in [("nope", "nope"), ("./nope", "./nope")] {
        let reported =
            format!("obento: cannot build 'o.img': cannot examine '{shown}': no such file or directory\n");
        check_in(folder.path(), &["build", "--add", &format!("{source}:/x"), "o.img"], 2, "", &reported);
    }
    assert!(!folder.path().join("o.img").exists());
}

#[test]
fn a_missing_super_block_is_reported_with_the_option_that_opens_the_volume() {
    let folder = folder();
    let by = |block: &str| {
        let output = obento(folder.path(), &["ls", "--superblock", block, "disk.img.zst"]);
        assert_eq!(output.status.code(), Some(2), "{block}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let past = "the block is past the end of the volume, which has 14 MiB (14680064 bytes)\n  help: omit the number of the super block: the volume opens without it\n";
    for block in ["999999", "18446744073709551615"] {
        let reported = by(block);
        assert!(reported.ends_with(past) && reported.contains(&format!("at block {block}: ")), "{reported}");
    }
    let reported = by("5");
    assert!(
        reported.contains("magic number")
            && reported
                .ends_with("\n  help: omit the number of the super block: the volume opens without it\n"),
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

/// A folder with a small ext4 volume as `disk.img`.
fn volume() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    check_in(folder.path(), &["mkfs", "-q", "disk.img", "8M"], 0, "", "");
    folder
}

#[test]
fn each_command_reports_wrong_usage_with_its_exit_code() {
    let folder = volume();
    let help = String::from_utf8(obento(folder.path(), &["help"]).stdout).unwrap();
    let group = help.lines().filter_map(|line| line.strip_prefix("  "));
    let names = group.filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    let names: Vec<&str> = names.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(["ls", "mkfs", "build", "check", "bench"].iter().all(|name| names.contains(name)), "{names:?}");
    for name in names {
        let expected = if name == "check" { 16 } else { 2 };
        let output = obento(folder.path(), &[name, "--no-such-option"]);
        assert_eq!(output.status.code(), Some(expected), "{name}: {output:?}");
    }
    for line in [
        "build x.img",
        "build --from gone",
        "build -t ntfs x.img --from .",
        "build x.img --from . --size ten",
        "mkfs x.img",
        "mkfs x.img ten",
        "mkfs x.img 0",
        "mkfs -t nosuch x.img 8M",
        "mkfs -b 1000 x.img 8M",
        "mkfs -O nosuch x.img 8M",
        "mkfs -J foo=1 x.img 8M",
        "mkfs --journal x x.img 8M",
        "build --journal x x.img --from .",
        "mkfs.fat -A x.img",
        "mkfs.exfat x.img",
        "convert disk.img",
        "touch -d foo disk.img:/x",
        "touch -t foo disk.img:/x",
        "chmod 999 disk.img:/",
        "truncate -s ten disk.img:/x",
        "find disk.img -size ten",
        "grep [ disk.img:/",
        "getfattr -m [ disk.img:/",
        "tree -L x disk.img",
        "resize disk.img ten",
        "bench --limit 0 quick",
        "recover disk.img:/nope out",
    ] {
        let output = obento(folder.path(), &line.split(' ').collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(2), "{line}: {output:?}");
        assert!(!folder.path().join("x.img").exists() && !output.stderr.is_empty(), "{line}");
    }
}

#[test]
fn recover_distinguishes_a_partial_success_from_a_failure() {
    let folder = volume();
    let output = obento(folder.path(), &["recover", "disk.img", "/proc/x"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn a_value_that_is_not_a_number_is_reported_in_one_line() {
    let folder = volume();
    let first = |args: &[&str]| {
        let output = obento(folder.path(), args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        let (first, rest) = text.split_once('\n').unwrap();
        assert!(
            ["", "  help: use - to show all attributes\n", "\nFor more information, try '--help'.\n"]
                .contains(&rest),
            "{args:?}: {text}"
        );
        first.to_owned()
    };
    for (args, line) in [
        (
            &["tree", "-L", "x", "disk.img"][..],
            "error: invalid value 'x' for '--level <N>': not a whole number",
        ),
        (
            &["tree", "-L", "99999999999999999999", "disk.img"],
            "error: invalid value '99999999999999999999' for '--level <N>': the number is too large",
        ),
        (
            &["bench", "compare", "--least", "x", "a", "b"],
            "error: invalid value 'x' for '--least <N>': not a number",
        ),
        (
            &["bench", "--limit", "0", "quick"],
            "error: invalid value '0' for '--limit <MINUTES>': not a time above 0, such as 10 or 0.5",
        ),
        (
            &["getfattr", "-m", "[", "disk.img:/"],
            "obento: cannot use the pattern '[': not a regular expression",
        ),
        (&["grep", "[", "disk.img:/"], "obento: cannot use the pattern '[': a bracket is not closed"),
        (
            &["find", "disk.img:/", "-regex", "["],
            "obento: cannot search: -regex '[': a bracket is not closed",
        ),
    ] {
        assert_eq!(first(args), line);
    }
}

#[test]
fn a_structure_that_cannot_be_shown_has_no_heading() {
    let folder = volume();
    for args in [
        &["group", "disk.img", "999"][..],
        &["block", "disk.img", "99999999"],
        &["dir", "disk.img:#11", "disk.img:#12"],
    ] {
        let output = obento(folder.path(), &[&["inspect"], args].concat());
        let headings = String::from_utf8(output.stdout).unwrap().matches("offset length").count();
        assert_eq!(
            (output.status.code(), headings),
            (Some(1), args.len() - 2 - usize::from(args[0] != "dir")),
            "{args:?}"
        );
    }
    let output = obento(folder.path(), &["inspect", "group", "disk.img", "999", "0"]);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.trim_start().starts_with("offset length") && shown.contains("bg_"), "{shown}");
}

#[test]
fn touch_leaves_no_file_behind_if_the_time_cannot_be_stored() {
    let folder = volume();
    let late = ["touch", "-d", "9999-01-01", "disk.img:/late"];
    check_in(
        folder.path(),
        &late,
        1,
        "",
        "obento: cannot touch 'disk.img:/late': the volume cannot store this time\n  \
         help: FAT and exFAT store the years 1980 to 2107, and ext4 the years 1901 to 2446, or to 2038 with inodes of 128 bytes\n",
    );
    check_in(folder.path(), &["ls", "disk.img"], 0, "lost+found\n", "");
}

#[test]
fn check_reports_that_the_volume_is_marked_with_errors() {
    if !require(&[Oracle::Program("debugfs")]) {
        return;
    }
    let folder = volume();
    let mark = ["-w", "-R", "ssv state 3", "disk.img"];
    assert!(program("debugfs").args(mark).current_dir(folder.path()).output().unwrap().status.success());
    let output = obento(folder.path(), &["check", "disk.img"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.lines().count() == 2 && said.contains("error"), "{said}");
}

/// A folder with `plain.img` (ext4), `fat.img`, `mbr.img` (an empty table), `zeros.img` and `empty.img`.
fn folder_of_images() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for (name, len) in [("mbr.img", 4 << 20), ("zeros.img", 1 << 20), ("empty.img", 0)] {
        std::fs::File::create(at.join(name)).unwrap().set_len(len).unwrap();
    }
    std::fs::write(at.join("notes.txt"), "text\n").unwrap();
    for args in [
        &["mkfs", "-q", "plain.img", "8M"][..],
        &["mkfs", "-q", "-t", "vfat", "fat.img", "8M"],
        &["part", "mbr.img", "create", "mbr"],
    ] {
        assert!(obento(at, args).status.success(), "{args:?}");
    }
    folder
}

#[test]
fn message_names_the_option_that_was_given_and_the_true_cause() {
    let folder = folder_of_images();
    for (args, status, stderr) in [
        (
            &["mkfs", "-n", "-b", "1024", "new.img", "4T"][..],
            2,
            "cannot create a file system on 'new.img': a size of 4398046511104 bytes is too large for blocks of \
             1024 bytes\n  help: use a smaller size, or larger blocks: -b 4096\n",
        ),
        (
            &["mkfs", "-n", "-t", "vfat", "-N", "5", "new.img", "10M"],
            2,
            "cannot create a file system on 'new.img': -N is not available for vfat\n  help: omit -N\n",
        ),
        (
            &["mkfs", "-n", "-t", "vfat", "-O", "x", "new.img", "10M"],
            2,
            "cannot create a file system on 'new.img': -O is not available for vfat\n  help: omit -O\n",
        ),
        (
            &["mkfs", "-n", "-C", "4k", "new.img", "10M"],
            2,
            "cannot create a file system on 'new.img': -C requires bigalloc\n  \
             help: add -O bigalloc, or omit -C\n",
        ),
        (
            &["mkfs.fat", "-I", "--variant", "atari", "fat.img"],
            2,
            "invalid value 'atari' for --variant\n  help: use 'standard', or omit --variant\n",
        ),
        (
            &["cmp", "-i", "100", "notes.txt", "mbr.img"],
            1,
            "the files differ: EOF on 'notes.txt', which has at most 100 bytes\n",
        ),
        (&["chattr", "+ai", "-a", "plain.img:/"], 2, "invalid flags: 'a' is both added and removed\n"),
        (
            &["stat", "--json", "-t", "plain.img:/"],
            2,
            "cannot combine --json and -t: each sets the output format\n  help: omit --json or -t\n",
        ),
        (
            &["part", "mbr.img", "add", "--number", "5"],
            2,
            "cannot change the partition table of 'mbr.img': the number 5 is not possible for a partition of this \
             MBR\n  help: use a number from 1 to 4, or add an extended partition first: --type extended\n",
        ),
        (
            &["part", "mbr.img", "add", "--start", "100G"],
            2,
            "cannot change the partition table of 'mbr.img': the partition would end at byte 107374182912, but the \
             usable space of the disk ends at byte 4194304\n  help: run 'obento part mbr.img' to list the free \
             space\n",
        ),
        (
            &["mkdir", "--fs-type", "squashfs", "plain.img:/x"],
            1,
            "cannot open 'plain.img': the volume has no signature of squashfs\n  \
             help: omit --fs-type: the volume is not of this type\n",
        ),
        (
            &["check", "--fs-type", "vfat", "plain.img"],
            8,
            "cannot check 'plain.img': boot sector: BPB_BytsPerSec is 0 (byte 11 of block 0)\n  \
             help: omit --fs-type if the type may be wrong\n",
        ),
        (
            &["cp", "notes.txt", "notes.txt", "plain.img:/none"],
            2,
            "cannot copy several files to 'plain.img:/none': no such directory\n",
        ),
        (
            &["import", "plain.img:/", "notes.txt"],
            2,
            "cannot import 'notes.txt': not a tar archive: the file does not begin with a tar header\n",
        ),
    ] {
        check_in(folder.path(), args, status, "", &format!("obento: {stderr}"));
    }
    let refused = obento(folder.path(), &["mount", "--all", "--superblock", "3", "mbr.img", "."]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("--superblock is for a single volume\n  help: mount the partitions one by one"),
        "{said}"
    );
}

#[test]
fn mount_point_that_does_not_exist_leaves_the_volume_clean() {
    let folder = tempfile::tempdir().unwrap();
    for kind in ["ext2", "ext4", "vfat"] {
        assert!(obento(folder.path(), &["mkfs", "-q", "-t", kind, "disk.img", "8M"]).status.success());
        let before = std::fs::read(folder.path().join("disk.img")).unwrap();
        let refused = obento(folder.path(), &["mount", "disk.img", "none"]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains("cannot mount at '"), "{kind}: {said}");
        assert!(std::fs::read(folder.path().join("disk.img")).unwrap() == before, "{kind}");
        std::fs::remove_file(folder.path().join("disk.img")).unwrap();
    }
}

#[test]
fn a_hint_names_the_next_step_and_only_options_that_were_given() {
    let folder = folder_of_images();
    for (args, status, stderr) in [
        (&["ls", "none.img"][..], 2, "cannot open 'none.img': no such file\n  help: check the name\n"),
        (
            &["ls", "none.img:/a"],
            2,
            "cannot open 'none.img': no such file\n  \
             help: check the name, or write 'host:' before a host path that contains ':/'\n",
        ),
        (
            &["ls", "--journal", "none.img", "plain.img"],
            2,
            "cannot open the journal 'none.img': no such file\n  help: check the name\n",
        ),
        (
            &["ls", "plain.img:#x"],
            2,
            "invalid address 'plain.img:#x': '#' must be followed by the number of an inode\n  \
             help: write an address such as 'plain.img:#12', or 'plain.img:/#x' for a file with this name\n",
        ),
        (
            &["ls", "empty.img"],
            2,
            "cannot open 'empty.img': the file is empty\n  help: create a file system with 'obento mkfs empty.img \
             SIZE', or set the size of the file with truncate(1)\n",
        ),
        (
            &["ls", "zeros.img"],
            2,
            "cannot open 'zeros.img': no supported file system; the data looks like zeros\n  \
             help: create a file system with 'obento mkfs IMAGE'\n",
        ),
        (
            &["ls", "mbr.img"],
            2,
            "cannot open 'mbr.img': the partition table has no partitions\n  \
             help: add a partition: obento part mbr.img add\n",
        ),
        (
            &["ls", "--fs-type", "xfs", "plain.img"],
            2,
            "cannot open 'plain.img': the volume has no signature of xfs\n  \
             help: omit --fs-type: the volume is not of this type\n",
        ),
        (
            &["ls", "--fs-type", "vfat", "plain.img"],
            2,
            "cannot open the vfat file system of 'plain.img': boot sector: BPB_BytsPerSec is 0 (byte 11 of block 0)\n  \
             help: omit --fs-type if the type may be wrong; otherwise copy the readable files with 'obento recover'\n",
        ),
        (
            &["grep", "x", "plain.img:/"],
            2,
            "cannot read 'plain.img:/': is a directory\n  help: use -r to read all files below it\n",
        ),
        (
            &["rmdir", "plain.img:/"],
            1,
            "cannot remove directory 'plain.img:/': the root directory of the volume cannot be removed\n",
        ),
        (
            &["mv", "plain.img:/", "plain.img:/a"],
            1,
            "cannot move 'plain.img:/' to 'plain.img:/a': the root directory cannot be moved\n",
        ),
        (
            &["ln", "notes.txt", "plain.img:/a"],
            1,
            "cannot link to 'notes.txt': the target of a hard link must be a file in the image\n  \
             help: write IMAGE:/PATH, or use -s to create a symbolic link with this text\n",
        ),
        (
            &["part", "plain.img"],
            2,
            "cannot use 'plain.img': no partition table was found: the image contains an ext4 file system of 8 MiB\n  \
             help: name a disk with partitions\n",
        ),
        (
            &["convert", "plain.img:/a", "out.qcow2"],
            2,
            "cannot convert 'plain.img:/a': this is a path inside an image\n  \
             help: name the image, or a partition: disk.img@2\n",
        ),
    ] {
        check_in(folder.path(), args, status, "", &format!("obento: {stderr}"));
    }
}

#[test]
fn a_rejected_setting_is_named_by_its_option_and_its_value() {
    let folder = folder_of_images();
    for (args, stderr) in [
        (
            &["tune", "plain.img", "-m", "99"][..],
            "cannot change the settings of 'plain.img': invalid value '99' for -m: must be a percentage from 0 to 50\n",
        ),
        (
            &["tune", "plain.img", "-L", "a label of more than 16 bytes"],
            "cannot change the settings of 'plain.img': invalid value 'a label of more than 16 bytes' for -L: \
             must have at most 16 bytes, and no NUL\n",
        ),
        (
            &["tune", "fat.img", "-m", "1"],
            "cannot change the settings of 'fat.img': -m is not available: FAT does not have this setting\n",
        ),
        (
            &["mkfs", "-F", "-U", "1234-ABCD", "plain.img"],
            "cannot create a file system on 'plain.img': ext4 has a UUID, and no volume ID\n  \
             help: write a UUID such as 01234567-89ab-cdef-0123-456789abcdef, or random\n",
        ),
        (
            &["mkfs", "-F", "-O", "^extent,64bit", "plain.img"],
            "cannot create a file system on 'plain.img': 64bit requires extent\n  \
             help: add -O extent, or remove 64bit: -O ^64bit\n",
        ),
        (
            &["cmp", "-i", "x", "notes.txt", "notes.txt"],
            "invalid value 'x' for -i: not a size such as 4096, 10M or 10MB\n",
        ),
    ] {
        check_in(folder.path(), args, 2, "", &format!("obento: {stderr}"));
    }
}

#[test]
fn a_directory_that_does_not_exist_is_not_reported_as_an_unmount_that_failed_to_open_it() {
    let folder = folder_of_images();
    let list = "not mounted\n  help: run 'obento mount --status' to list the mounts of obento";
    for (name, why) in
        [("nodir", "the directory does not exist"), ("notes.txt", "not a directory"), (".", list)]
    {
        check_in(
            folder.path(),
            &["umount", name],
            1,
            "",
            &format!("obento: cannot unmount '{name}': {why}\n"),
        );
    }
}

#[test]
fn a_limit_of_one_byte_is_in_the_singular() {
    check(
        &["--max-unpacked", "1", "ls", "disk.img.zst"],
        2,
        "",
        "obento: cannot decompress 'disk.img.zst': its contents exceed the limit of 1 byte\n  \
         help: use --max-unpacked SIZE to allow more\n",
    );
}
