//! `obento find` finds the same as GNU find in the same tree, which the kernel has mounted.
//!
//! The orders differ, so lines are sorted before they are compared. The path of the mount is replaced by that
//! of the image: `/tmp/mount/etc` is read as `disk.img:/etc`.

use std::io::{BufRead as _, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use obento_testkit::image::small_ext4;
use obento_testkit::oracle::{LoopMount, program};
use obento_testkit::{Oracle, require};

/// Expressions, one per line, with words separated by blanks; `@/` is the root of the image or of the mount.
const EXPRESSIONS: &str = r"
-print
-name *.txt
-iname *A*
-name [a-d]*
-name [!a-d]*
-name ?????
-name .*
-path */wide/*1
-type f
-type d,l
-type p
-type b,c
-type s
-xtype l
-xtype f
-xtype d
-size +1k
-size -2
-size 0
-size 4096c
-size +1M
-size -1G
-empty
-empty -type d
-mtime 0
-mtime +2
-mtime -2
-mtime +10000
-mmin +1
-mmin -100000
-amin -600
-ctime 0
-daystart -mtime 0
-daystart -mtime +1
-newermt 2021-01-01
! -newermt 2021-01-01
-newermt @1577934245
-perm 644
-perm 0755
-perm -4000
-perm /6000
-perm /111
-perm -u=rwx,g=rx
-perm /u=s,g=s
-perm u=rw,g=r,o=r
-perm -o+t
-uid 0
-uid +0
-gid -1
-inum 12
-inum +20
-links 2
-links +1
-lname *a*
-ilname *A*
-maxdepth 0
-maxdepth 1
-mindepth 2
-mindepth 1 -maxdepth 2 -type d
-name wide -prune -o -print
-name wide -prune
-depth -type d
-depth -maxdepth 1
( -name a* -o -name b* ) -type f
! -type f ! -type d
-type f -a -not -name *1
-name wide , -type p
-type p -printf A\n , -type l -printf B\n
-type f -printf %P|%f|%s|%m|%M|%n|%U|%G|%i|%k|%b|%d|%y|%Y|%l\n
-printf %P|%d|%y|%Y|%l\n
-mindepth 1 -printf %h|%H|%p\n
-type l -printf %l|%Y|%y\n
-printf %T@|%TY-%Tm-%Td|%TH:%TM:%TS|%t\n
-printf %A@|%A+|%a|%AB|%Ab|%Aj|%Ap|%AI\n
-printf %C@|%C+|%c|%CD|%Cr|%Cx|%CX|%CZ|%Ck|%Cl\n
-type f -printf [%10f][%-10f][%.2f][%5m][%#m][%05d][%-5s][%+d]\n
-printf %S\n
-printf %F\n
-name wide -printf \101\060%%\t\a\b\f\r\v\\\n
-regex .*/[a-b][^/]*
-regex .*\(1\|2\)
-regextype posix-extended -regex .*/(a|b)[^/]+
-iregex .*/W.*
-type f -size -10k -exec cat {} ;
-type f -size -10k -exec grep -q a {} ; -print
-executable
-fstype ext4 -maxdepth 1
-readable -maxdepth 1
-true -false -o -type p
-type p -print -print
-type p -print0
-samefile @/no-such-file -o -true
-links -2 -type d
-newer @/ -type f
-name f*1.txt -size -10k -execdir cat {} ;
-name f*2.txt -size -10k -execdir printf %s\n {} ;
-name f*.txt -size -2k -execdir cat {} +
-type p -execdir echo here ; -print
-name f*3.txt -execdir grep -q a {} ; -print
-name f*4.txt -ok cat {} ; -print
-type p -ok echo asked ; -o -type l -print
-L . -print
-L . -type l
-L . -type f
-L . -type d
-L . -xtype l
-L . -xtype f
-L . -lname *
-L . -name absolute -o -printf %P|%y|%Y|%l|%s|%m|%n\n
-L . ! -name absolute -size +1k
-L . -name wide -prune -o -print
-L . ! -name absolute -samefile @/etc/passwd
-L . -depth -name [a-d]*
-L . -maxdepth 2 -empty
-L -P . -type l
-P -L . -type l
-follow -type l
-H . -type l
";

/// An image, and the kernel's mount of it.
struct Both {
    folder: tempfile::TempDir,
    mount: LoopMount,
}

impl Both {
    /// Returns `None`, with a message, if an oracle is missing.
    fn new() -> Option<Self> {
        let needed = [Oracle::Program("find"), Oracle::Program("mke2fs"), Oracle::LoopMount, Oracle::Root];
        require(&needed).then(|| {
            let folder = tempfile::tempdir().unwrap();
            let image = small_ext4(folder.path()).unwrap();
            std::fs::rename(image, folder.path().join("disk.img")).unwrap();
            let mount = LoopMount::new(&folder.path().join("disk.img"), "ro,noload").unwrap();
            Self { folder, mount }
        })
    }

    /// Returns the outputs of GNU find and obento. Both start at the root, with a trailing slash. A `.` among
    /// the words is the place of the start points; the words before it precede them.
    fn run(&self, words: &[&str]) -> (Output, Output) {
        let start = words.iter().position(|word| *word == ".");
        let (before, after) = start.map_or((&[][..], words), |at| (&words[..at], &words[at + 1..]));
        let mount = self.mount.path().to_str().unwrap();
        let run = |command: &mut Command, root: &str, slash: &str| {
            let after = after.iter().map(|word| word.replace("@/", &format!("{root}/")));
            let command = command.args(before).arg(format!("{root}{slash}")).args(after);
            environment(command).stdin(std::process::Stdio::null()).output().unwrap()
        };
        let expected = run(&mut program("find"), mount, "/");
        (expected, run(obento(self.folder.path()).arg("find"), "disk.img:", "/"))
    }

    fn lines(&self, output: &Output) -> Vec<Vec<u8>> {
        let text = replace(&output.stdout, self.mount.path().as_os_str().as_bytes(), b"disk.img:");
        let mut lines: Vec<_> = text.split(|&byte| byte == b'\n' || byte == 0).map(<[u8]>::to_vec).collect();
        lines.sort();
        lines
    }
}

fn environment(command: &mut Command) -> &mut Command {
    command.env("LC_ALL", "C.UTF-8").env("TZ", "UTC0")
}

fn obento(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    environment(command.current_dir(folder));
    command
}

fn replace(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(&first) = rest.first() {
        match rest.strip_prefix(from) {
            Some(after) => {
                out.extend_from_slice(to);
                rest = after;
            }
            None => {
                out.push(first);
                rest = &rest[1..];
            }
        }
    }
    out
}

#[test]
fn every_expression_finds_what_gnu_find_finds() {
    let Some(both) = Both::new() else { return };
    let mut wrong = Vec::new();
    for line in EXPRESSIONS.lines().filter(|line| !line.is_empty()) {
        let words: Vec<_> = line.split(' ').collect();
        let (expected, found) = both.run(&words);
        let (left, right) = (both.lines(&expected), both.lines(&found));
        let failed = |output: &Output| !output.status.success();
        if left != right || failed(&expected) != failed(&found) {
            let only = |a: &[Vec<u8>], b: &[Vec<u8>]| -> Vec<String> {
                let text = |line: &Vec<u8>| String::from_utf8_lossy(line).into_owned();
                a.iter().filter(|line| !b.contains(line)).take(3).map(text).collect()
            };
            let errors = String::from_utf8_lossy(&found.stderr).into_owned();
            wrong.push(format!(
                "{line}\n  GNU {:?}\n  obento {:?}\n  {errors}",
                only(&left, &right),
                only(&right, &left)
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn ls_lines_are_those_of_gnu_find_where_owners_have_no_names() {
    let Some(both) = Both::new() else { return };
    // GNU find prints bytes that are not ASCII in octal, obento prints control characters so.
    let words = "-maxdepth 2 -name names -prune -o -uid 0 -gid 0 -ls".split(' ').collect::<Vec<_>>();
    let (expected, found) = both.run(&words);
    // The image has its own passwd file, in which user 0 may have another name or none.
    let blank = |line: &[u8]| {
        let words: Vec<_> = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).collect();
        [&words[..words.len().min(4)], words.get(6..).unwrap_or_default()].concat().join(&b' ')
    };
    let text = |line: &Vec<u8>| String::from_utf8_lossy(&blank(line)).into_owned();
    let lines = |output: &Output| both.lines(output).iter().map(text).collect::<Vec<_>>();
    for (expected, found) in lines(&expected).into_iter().zip(lines(&found)) {
        assert_eq!(expected, found);
    }
}

/// A folder with the sample image of the repository.
fn sample() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/disk.img.zst");
    std::fs::copy(sample, folder.path().join("disk.img.zst")).unwrap();
    folder
}

#[track_caller]
fn check(args: &[&str], status: i32, stdout: &str, stderr: &str) {
    let output = obento(sample().path()).arg("find").args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&output.stderr), stderr, "{args:?}");
    assert_eq!(text(&output.stdout), stdout, "{args:?}");
    assert_eq!(output.status.code(), Some(status), "{args:?}");
}

#[test]
fn a_printed_address_parses() {
    check(&["disk.img.zst", "-name", "pass*"], 0, "disk.img.zst:/etc/passwd\n", "");
    check(&["disk.img.zst:/etc", "-name", "etc"], 0, "disk.img.zst:/etc\n", "");
    check(&["disk.img.zst@1:/etc/", "-name", "group"], 0, "disk.img.zst@1:/etc/group\n", "");
    check(&["disk.img.zst:/e*", "-name", "group"], 0, "disk.img.zst:/etc/group\n", "");
}

#[test]
fn owners_are_those_of_the_image() {
    check(&["disk.img.zst:/home", "-maxdepth", "1", "-user", "bento"], 0, "disk.img.zst:/home/bento\n", "");
    check(
        &["disk.img.zst:/home", "-user", "daemon"],
        1,
        "",
        "obento: cannot search 'disk.img.zst:/home': unknown user 'daemon': not in /etc/passwd of the image\n  \
         help: use -uid with a number\n",
    );
}

#[test]
fn a_command_gets_a_copy_and_the_address() {
    let echo = "echo \"$OBENTO_ADDRESS\"; cat \"$0\"";
    check(
        &["disk.img.zst", "-name", "obento-hello", "-exec", "sh", "-c", echo, "{}", ";"],
        0,
        "disk.img.zst:/usr/bin/obento-hello\n#!/bin/sh\necho obento\n",
        "",
    );
    check(&["disk.img.zst", "-name", "box", "-exec", "ls", "{}", ";"], 1, "", {
        "obento: cannot run a command on 'disk.img.zst:/home/bento/box': is a directory\n  \
         help: add -type f before -exec, which requires regular files\n"
    });
    check(&["disk.img.zst:/etc", "-type", "f", "-exec", "false", "{}", "+"], 1, "", "");
}

#[test]
fn a_link_of_the_image_never_leads_a_command_to_a_file_of_the_host() {
    let folder = tempfile::tempdir().unwrap();
    if !require(&[Oracle::Program("mke2fs")]) {
        return;
    }
    let source = folder.path().join("source");
    std::fs::create_dir(&source).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", source.join("link")).unwrap();
    let image = folder.path().join("disk.img");
    let mut make = program("mke2fs");
    make.args(["-q", "-t", "ext4", "-d"]).arg(&source).arg(&image).arg("4M");
    assert!(make.status().unwrap().success());
    let output =
        obento(folder.path()).args(["find", "disk.img", "-type", "l", "-exec", "cat", "{}", ";"]).output();
    let output = output.unwrap();
    assert_eq!(output.stdout, b"");
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.ends_with("the target of the symbolic link does not exist\n"), "{error}");
}

#[test]
fn messages_about_mistakes_end_with_the_right_spelling() {
    check(
        &["disk.img.zst", "-nmae", "x"],
        2,
        "",
        "obento: cannot search: find has no test or action '-nmae'\n  help: did you mean '-name'?\n",
    );
    check(
        &["-name", "x"],
        2,
        "",
        "obento: cannot search: missing operand\n  help: name an image before the expression: obento find disk.img -name \
         '*.conf'\n",
    );
    check(
        &["disk.img.zst:/gone"],
        1,
        "",
        "obento: cannot search 'disk.img.zst:/gone': no such file or directory\n",
    );
    check(
        &["disk.img.zst", "-name", "passwd", "-maxdepth", "0"],
        0,
        "",
        "obento: find: note: -maxdepth after -name also applies to the tests before it; write \
         -maxdepth before all tests\n",
    );
    check(
        &["--json", "disk.img.zst", "-ls"],
        2,
        "",
        "obento: cannot search: --json does not support -printf, -print0 or -ls\n  \
         help: omit --json, or the action that --json does not support\n",
    );
}

#[test]
fn json_is_one_object_a_match() {
    let args = ["find", "disk.img.zst:/home/bento", "-name", "release", "--json"];
    let output = obento(sample().path()).args(args).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1);
    for part in [
        "\"schema\":\"obento/1\",\"kind\":\"entry\"",
        "\"path\":\"disk.img.zst:/home/bento/release\",\"name\":\"release\"",
        "\"type\":\"symlink\"",
        "\"target\":\"../../etc/os-release\"",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_damaged_directory_costs_its_own_entries() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("debugfs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    for name in ["a/1", "b/2", "c/3"] {
        std::fs::create_dir_all(source.join(name)).unwrap();
    }
    let image = folder.path().join("disk.img");
    let mut make = program("mke2fs");
    make.args(["-q", "-t", "ext4", "-b", "1024", "-d"]).arg(&source).arg(&image).arg("4M");
    assert!(make.status().unwrap().success());
    let blocks = program("debugfs").args(["-R", "blocks /b"]).arg(&image).output().unwrap();
    let block: u64 = String::from_utf8(blocks.stdout).unwrap().trim().parse().unwrap();
    let mut bytes = std::fs::read(&image).unwrap();
    let start = usize::try_from(block * 1024).unwrap();
    bytes[start..start + 1024].fill(0xee);
    std::fs::write(&image, bytes).unwrap();
    let output = obento(folder.path()).args(["find", "disk.img", "-name", "?"]).output().unwrap();
    let mut names: Vec<_> = output.stdout.split(|&byte| byte == b'\n').collect();
    names.sort();
    let names: Vec<_> = names.into_iter().map(String::from_utf8_lossy).collect();
    assert_eq!(
        names.join(" "),
        " disk.img:/ disk.img:/a disk.img:/a/1 disk.img:/b disk.img:/c disk.img:/c/3"
    );
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.starts_with("obento: cannot read 'disk.img:/b': "), "{error}");
}

#[test]
fn a_closed_pipe_ends_the_search_quietly() {
    let script = format!("{} find disk.img.zst | head -n 1", env!("CARGO_BIN_EXE_obento"));
    let output = Command::new("sh").args(["-c", &script]).current_dir(sample().path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "disk.img.zst:/\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

/// Returns the output of `find` with `answers` on standard input.
fn answered(folder: &Path, args: &[&str], answers: &str) -> (String, String) {
    let mut child = obento(folder)
        .arg("find")
        .args(args)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), answers.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

#[test]
fn a_command_that_needs_consent_runs_after_a_yes_only() {
    let folder = sample();
    let args = ["disk.img.zst:/etc", "-type", "f", "-ok", "wc", "-c", "{}", ";", "-printf", "%f\\n"];
    let (found, asked) = answered(folder.path(), &args, "yes\nno\n");
    assert_eq!(found.lines().count(), 2, "{found}");
    assert!(asked.starts_with("< wc ... disk.img.zst:/etc/"), "{asked}");
    assert_eq!(asked.matches(" > ? ").count(), 3, "{asked}");
}

#[test]
fn a_command_in_a_directory_of_its_own_finds_the_files_of_one_directory_there() {
    let folder = sample();
    let script = "ls | tr '\\n' ' '; echo \"$@\"";
    let args = ["disk.img.zst:/etc", "-type", "f", "-execdir", "sh", "-c", script, "sh", "{}", "+"];
    let (found, errors) = answered(folder.path(), &args, "");
    let mut words: Vec<_> = found.split_whitespace().collect();
    words.sort();
    assert_eq!(words, ["./group", "./os-release", "./passwd", "group", "os-release", "passwd"], "{errors}");
    let unsafe_path = obento(folder.path())
        .args(["find", "disk.img.zst", "-execdir", "ls", ";"])
        .env("PATH", "/usr/bin:.:/bin")
        .output()
        .unwrap();
    assert_eq!((unsafe_path.status.code(), unsafe_path.stdout), (Some(2), Vec::new()));
    assert!(String::from_utf8_lossy(&unsafe_path.stderr).contains("PATH contains '.'"));
}

#[test]
fn links_that_lead_back_are_reported_and_the_rest_is_found_as_by_gnu_find() {
    let needed = [Oracle::Program("find"), Oracle::Program("mke2fs"), Oracle::LoopMount, Oracle::Root];
    if !require(&needed) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    std::fs::create_dir_all(source.join("a/b")).unwrap();
    std::fs::create_dir_all(source.join("c")).unwrap();
    std::fs::write(source.join("a/b/file"), "x").unwrap();
    for (link, target) in [
        ("a/b/up", ".."),
        ("self", "self"),
        ("start", "a"),
        ("c/to-b", "../a/b"),
        ("gone", "nowhere"),
        ("f", "a/b/file"),
    ] {
        std::os::unix::fs::symlink(target, source.join(link)).unwrap();
    }
    let image = folder.path().join("disk.img");
    let made = program("mke2fs").args(["-q", "-t", "ext4", "-d"]).args([&source, &image]).arg("4M").status();
    assert!(made.unwrap().success());
    let both = Both { mount: LoopMount::new(&image, "ro,noload").unwrap(), folder };
    for line in [
        "-L . -name * -printf %P|%y|%Y\\n",
        "-L . -type l",
        "-L . -xtype l",
        "-L . -type f",
        "-L . -printf %p|%s|%i\\n",
    ] {
        let (expected, found) = both.run(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(both.lines(&expected), both.lines(&found), "{line}");
        assert_eq!((expected.status.code(), found.status.code()), (Some(1), Some(1)), "{line}");
        let reported = String::from_utf8_lossy(&found.stderr).into_owned();
        for name in ["a/b/up", "self"] {
            assert!(reported.contains(&format!("cannot follow 'disk.img:/{name}'")), "{reported}");
        }
    }
    let mount = both.mount.path();
    for flags in [&["-H"][..], &["-P"], &["-L", "-P"], &["-H", "-P", "-H"]] {
        let of = |command: &mut Command, start: &str| {
            let output =
                environment(command).args(flags).arg(start).args(["-printf", "%P %y\\n"]).output().unwrap();
            both.lines(&output)
        };
        let expected = of(&mut program("find"), mount.join("start").to_str().unwrap());
        assert_eq!(expected, of(obento(both.folder.path()).arg("find"), "disk.img:/start"), "{flags:?}");
    }
}

#[test]
fn a_signal_lets_the_command_end_and_removes_the_copies() {
    let folder = tempfile::tempdir().unwrap();
    let copies = folder.path().join("tmp");
    std::fs::create_dir(&copies).unwrap();
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/disk.img.zst");
    std::fs::copy(sample, folder.path().join("disk.img.zst")).unwrap();
    let script = "echo \"$1\"; read end";
    let mut find = obento(folder.path());
    find.args(["find", "disk.img.zst:/etc", "-type", "f", "-exec", "sh", "-c", script, "sh", "{}", ";"]);
    find.env("TMPDIR", &copies).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut find = find.spawn().unwrap();
    let mut lines = BufReader::new(find.stdout.take().unwrap()).lines();
    let copy = lines.next().unwrap().unwrap();
    assert!(Path::new(&copy).starts_with(&copies) && Path::new(&copy).exists());
    let process = rustix::process::Pid::from_child(&find);
    rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    drop(find.stdin.take());
    assert_eq!(find.wait().unwrap().signal(), Some(15));
    assert_eq!(lines.count(), 0, "no further command runs");
    assert_eq!(std::fs::read_dir(&copies).unwrap().count(), 0);
}
