//! Signals that end a command: no incomplete file remains under its final name without a report, and an image that is
//! changed is closed.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use obento_testkit::oracle::{Oracle, program};
use obento_testkit::require;
use tempfile::TempDir;

use super::support::text;

/// The length of the file that a signal interrupts.
const LEN: usize = 6 << 20;
const SIGTERM: i32 = 15;

/// A folder with a FAT image, whose file `big` is long and has no holes. `None` if strace is missing.
fn folder() -> Option<TempDir> {
    if !require(&[Oracle::Program("strace")]) {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..LEN).map(|at| (at / 512 % 251 + 1) as u8).collect();
    fs::write(folder.path().join("input"), bytes).unwrap();
    for line in ["mkfs -q -t vfat disk.img 32M", "cp input disk.img:/big"] {
        let output = obento(folder.path(), line);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()), "{line}");
    }
    Some(folder)
}

fn obento(folder: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    command.current_dir(folder).args(line.split(' ')).stdin(Stdio::null()).output().unwrap()
}

/// Runs `line`, and sends `SIGTERM` at the `when`th of the `calls` that write.
fn interrupted(folder: &Path, line: &str, calls: &str, when: u32) -> Output {
    interrupted_in(&["-f"], folder, line, calls, when)
}

/// Does the same in the threads that these options of strace select. Each thread counts its own calls.
fn interrupted_in(threads: &[&str], folder: &Path, line: &str, calls: &str, when: u32) -> Output {
    let mut command = program("strace");
    command.current_dir(folder).args(threads).args(["-o", "trace"]);
    command.arg(format!("-etrace={calls}")).arg(format!("-einject={calls}:signal=SIGTERM:when={when}"));
    command.arg(env!("CARGO_BIN_EXE_obento")).args(line.split(' ')).stdin(Stdio::null());
    command.output().unwrap()
}

/// The calls that write a file of the host with the bytes of an image.
const COPY: &str = "copy_file_range,sendfile,pwrite64";
const INTERRUPTED: &str =
    "obento: interrupted: the command did not finish; files that it completed before remain\n";

#[track_caller]
fn expect_end(output: &Output, reported: &str) {
    assert_eq!(text(&output.stderr), reported);
    assert_eq!(output.status.signal(), Some(SIGTERM), "{:?}", output.status);
}

#[test]
fn a_signal_during_a_copy_to_the_host_removes_the_incomplete_file() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    expect_end(&interrupted(folder, "cp disk.img:/big copy", COPY, 1), INTERRUPTED);
    assert!(!folder.join("copy").exists());
    fs::create_dir(folder.join("tree")).unwrap();
    expect_end(&interrupted(folder, "cp -r disk.img:/ tree", COPY, 1), INTERRUPTED);
    assert!(!folder.join("tree/big").exists());
}

#[test]
fn a_signal_during_a_move_to_the_host_leaves_the_source_and_no_copy() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    expect_end(&interrupted(folder, "mv disk.img:/big moved", COPY, 1), INTERRUPTED);
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["disk.img", "input", "trace"]);
    assert_eq!(text(&obento(folder, "ls disk.img:/").stdout), "big\n");
}

#[test]
fn a_signal_during_a_move_of_several_files_asks_no_more_questions() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    assert_eq!(obento(folder, "cp input disk.img:/second").status.code(), Some(0));
    fs::create_dir(folder.join("to")).unwrap();
    fs::write(folder.join("to/second"), "old").unwrap();
    let output = interrupted(folder, "mv -i disk.img:/big disk.img:/second to", COPY, 1);
    expect_end(&output, INTERRUPTED);
    assert_eq!(fs::read(folder.join("to/second")).unwrap(), b"old");
}

#[test]
fn a_failure_to_write_the_image_is_reported_after_a_signal() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    let mut command = program("strace");
    command.current_dir(folder).args(["-f", "-o", "trace", "-etrace=syncfs,fdatasync"]);
    // The copy is complete when the signal arrives, and its source is removed. The image cannot be written then.
    command.args(["-einject=syncfs:signal=SIGTERM:when=1", "-einject=fdatasync:error=EIO"]);
    command.arg(env!("CARGO_BIN_EXE_obento")).args(["mv", "disk.img:/big", "moved"]).stdin(Stdio::null());
    let output = command.output().unwrap();
    let errors = text(&output.stderr);
    assert!(errors.contains("cannot write the changes to stable storage in 'disk.img'"), "{errors}");
    assert!(errors.ends_with(INTERRUPTED), "{errors}");
    assert_eq!(output.status.signal(), Some(SIGTERM), "{:?}", output.status);
}

#[test]
fn the_first_process_of_a_container_reports_the_signal_in_its_exit_code() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    if !require(&[Oracle::Program("unshare")]) {
        return;
    }
    let mut command = program("strace");
    command.current_dir(folder).args(["-f", "-o", "trace"]);
    command.arg(format!("-etrace={COPY}")).arg(format!("-einject={COPY}:signal=SIGTERM:when=1"));
    command.args(["unshare", "--user", "--map-root-user", "--pid", "--fork", env!("CARGO_BIN_EXE_obento")]);
    let output = command.args(["recover", "disk.img", "saved"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(text(&output.stderr), INTERRUPTED);
    assert_eq!(output.status.code(), Some(128 + SIGTERM), "{:?}", output.status);
}

#[test]
fn a_signal_during_a_copy_in_a_shell_ends_the_shell_too() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    let mut command = program("strace");
    command.current_dir(folder).args(["-f", "-o", "trace"]);
    command.arg(format!("-etrace={COPY}")).arg(format!("-einject={COPY}:signal=SIGTERM:when=1"));
    command.arg(env!("CARGO_BIN_EXE_obento")).args(["shell", "-r", "disk.img", "-c"]);
    let output = command.arg("cp big host:copy; ls").stdin(Stdio::null()).output().unwrap();
    assert_eq!((output.status.signal(), text(&output.stdout)), (Some(SIGTERM), String::new()));
    assert!(!folder.join("copy").exists());
}

#[test]
fn a_signal_during_a_recovery_removes_the_incomplete_file() {
    let Some(folder) = folder() else { return };
    expect_end(&interrupted(folder.path(), "recover disk.img saved", COPY, 1), INTERRUPTED);
    assert!(!folder.path().join("saved/big").exists());
}

#[test]
fn a_signal_during_the_extraction_of_a_deleted_file_removes_the_incomplete_file() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    assert_eq!(obento(folder, "rm disk.img:/big").status.code(), Some(0));
    let output = interrupted(folder, "undelete disk.img --to saved", "write", 1);
    assert_eq!(output.status.signal(), Some(SIGTERM), "{:?} {}", output.status, text(&output.stderr));
    assert_eq!(fs::read_dir(folder.join("saved")).unwrap().count(), 0);
}

#[test]
fn a_signal_during_an_export_removes_a_new_archive_and_names_an_existing_one() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    expect_end(&interrupted(folder, "export disk.img new.tar", "write", 3), INTERRUPTED);
    assert!(!folder.join("new.tar").exists());
    fs::write(folder.join("old.tar"), "old").unwrap();
    let reported = format!("obento: old.tar: note: the archive is incomplete\n{INTERRUPTED}");
    expect_end(&interrupted(folder, "export disk.img old.tar", "write", 3), &reported);
    assert!(folder.join("old.tar").exists());
}

/// Tests that `check` finds nothing, and that each of these files exists with all of its bytes or not at all.
fn expect_consistent(folder: &Path, files: &[&str], what: &str) {
    let checked = obento(folder, "check disk.img");
    let found = format!("{what}: {}{}", text(&checked.stdout), text(&checked.stderr));
    assert_eq!(checked.status.code(), Some(0), "{found}");
    let expected = fs::read(folder.join("input")).unwrap();
    for file in files {
        let read = obento(folder, &format!("cat disk.img:/{file}"));
        assert!(
            read.stdout == expected || read.status.code() == Some(1),
            "{what}, {file}: {}",
            text(&read.stderr)
        );
    }
}

/// Calls of the first thread while it reads files and writes to the cache of the volume.
const IN_MAIN: &str = "pread64,pwrite64,futex,read";

/// Types without a journal, whose volumes a process that is killed leaves with errors, and one with a journal.
const TYPES: [&str; 4] = ["vfat", "exfat", "ext2", "ext4"];

#[test]
fn a_signal_during_a_copy_into_an_image_leaves_a_consistent_volume_with_complete_files() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    fs::create_dir(folder.join("tree")).unwrap();
    let files = ["tree/a", "tree/b", "tree/c", "old"];
    for file in &files[..3] {
        fs::copy(folder.join("input"), folder.join(file)).unwrap();
    }
    let mut tar = Command::new("tar");
    assert!(tar.current_dir(folder).args(["-cf", "tree.tar", "tree"]).status().unwrap().success());
    for kind in TYPES {
        for line in ["cp -r tree disk.img:/", "import disk.img:/ tree.tar", "cp tree/a disk.img:/old"] {
            let mut ends = 0;
            for when in [1, 4, 9, 14] {
                for setup in
                    [format!("mkfs -q -t {kind} --force disk.img 64M"), "cp input disk.img:/old".into()]
                {
                    assert_eq!(obento(folder, &setup).status.code(), Some(0), "{setup}");
                }
                // In the first thread alone: a second signal would kill the command.
                let output = interrupted_in(&[], folder, line, IN_MAIN, when);
                let what = format!("{kind}, {line}, {when}: {}", text(&output.stderr));
                match output.status.signal() {
                    Some(SIGTERM) => ends += 1,
                    // A command that calls less often is not interrupted.
                    _ => assert_eq!(output.status.code(), Some(0), "{what}"),
                }
                assert!(["", INTERRUPTED].contains(&&*text(&output.stderr)), "{what}");
                expect_consistent(folder, &files, &what);
                assert_eq!(obento(folder, "cat disk.img:/old").status.code(), Some(0), "{what}");
            }
            assert!(ends > 0, "{kind}, {line}");
        }
    }
}

/// Starts obento with pipes for input and output.
fn started(folder: &Path, arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    command.current_dir(folder).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(Stdio::piped()).spawn().unwrap()
}

/// Ends `child`, whose standard input stays open. It must not wait for it.
fn terminate(child: &mut Child) {
    let input = child.stdin.take();
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(SIGTERM));
    drop(input);
}

#[test]
fn a_signal_ends_a_command_that_waits_for_its_input_and_closes_the_image() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    assert!(
        Command::new("tar").current_dir(folder).args(["-cf", "a.tar", "input"]).status().unwrap().success()
    );
    let archive = fs::read(folder.join("a.tar")).unwrap();
    for arguments in
        [&["import", "disk.img:/"][..], &["cp", "-", "disk.img:/new"], &["write", "disk.img:/new"]]
    {
        let mut child = started(folder, arguments);
        // More than a pipe contains: the command reads, and then waits for more.
        child.stdin.as_mut().unwrap().write_all(&archive[..LEN / 2]).unwrap();
        terminate(&mut child);
        expect_consistent(folder, &["big", "input"], arguments[0]);
    }
}

#[test]
fn a_signal_during_a_question_removes_nothing_more() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    assert_eq!(obento(folder, "cp input disk.img:/second").status.code(), Some(0));
    let mut child = started(folder, &["rm", "-i", "disk.img:/big", "disk.img:/second"]);
    let mut asked = [0; 8];
    child.stderr.as_mut().unwrap().read_exact(&mut asked).unwrap();
    assert_eq!(&asked, b"obento: ");
    terminate(&mut child);
    expect_consistent(folder, &[], "");
    assert_eq!(text(&obento(folder, "ls disk.img:/").stdout), "big\nsecond\n");
}

#[test]
fn a_signal_between_two_commands_of_a_shell_closes_the_image() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    let mut child = started(folder, &["shell", "disk.img"]);
    child.stdin.as_mut().unwrap().write_all(b"mkdir /a\nrm /big\npwd\n").unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "/\n");
    terminate(&mut child);
    expect_consistent(folder, &[], "");
    assert_eq!(text(&obento(folder, "ls disk.img:/").stdout), "a\n");
}
