//! Commands on the files of a FUSE server, without a mount.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use obento_testkit::oracle::{Oracle, program, run};
use obento_testkit::require;
use tempfile::TempDir;

use crate::changes::{Ended, changes_are_those_of_the_host};

struct Served(TempDir);

impl Served {
    /// Creates an image for squashfuse from a tree.
    fn new() -> Option<Self> {
        if !require(&[Oracle::Program("squashfuse"), Oracle::Program("mksquashfs")]) {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("tree/dir/deep")).unwrap();
        fs::write(folder.path().join("tree/dir/file"), "contents\n").unwrap();
        fs::write(folder.path().join("tree/dir/deep/large"), vec![7; 1 << 20]).unwrap();
        let mut make = program("mksquashfs");
        run(make.args(["tree", "a b.sqfs", "-quiet", "-no-progress"]).current_dir(folder.path())).unwrap();
        Some(Self(folder))
    }

    /// Runs a command, and returns its code, output and messages.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        command.env_clear().env("PATH", "/usr/bin:/bin").current_dir(self.0.path()).args(arguments);
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }
}

#[test]
fn commands_read_the_files_of_a_server() {
    let Some(served) = Served::new() else { return };
    let ls = served.run(&["ls", "fuse:squashfuse 'a b.sqfs':/dir"]);
    assert_eq!(ls, (Some(0), "deep\nfile\n".into(), String::new()));
    let cat = served.run(&["cat", "fuse:squashfuse 'a b.sqfs':/dir/file"]);
    assert_eq!(cat, (Some(0), "contents\n".into(), String::new()));
    let find = served.run(&["find", "fuse:squashfuse 'a b.sqfs':/", "-size", "+100k"]);
    assert_eq!(find.0, Some(0), "{find:?}");
    assert!(find.1.trim_end().ends_with("/dir/deep/large"), "{find:?}");
    assert_eq!(
        served.run(&["cp", "-a", "fuse:squashfuse 'a b.sqfs':/dir", "out"]),
        (Some(0), String::new(), String::new())
    );
    assert_eq!(fs::read(served.0.path().join("out/deep/large")).unwrap(), vec![7; 1 << 20]);
    let diff = served.run(&["diff", "-r", "fuse:squashfuse 'a b.sqfs':/", "host:tree"]);
    assert_eq!(diff, (Some(0), String::new(), String::new()));
    let export = served.run(&["export", "fuse:squashfuse 'a b.sqfs':/dir", "-o", "out.tar"]);
    assert_eq!(export, (Some(0), String::new(), String::new()));
    let listed = run(program("tar").arg("tf").arg(served.0.path().join("out.tar"))).unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains("deep/large"), "{listed:?}");
}

#[test]
fn servers_that_do_not_serve_are_refused_with_the_reason() {
    let Some(served) = Served::new() else { return };
    let (code, _, text) = served.run(&["ls", "fuse:obento-no-such-program:/"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("cannot start 'obento-no-such-program'"), "{text}");
    let (code, _, text) = served.run(&["ls", "fuse:true:/"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("the FUSE server ended") && text.contains("must accept /dev/fd/N"), "{text}");
    for refused in [&["info", "fuse:squashfuse 'a b.sqfs':/"][..], &["df", "fuse:squashfuse 'a b.sqfs':/"]] {
        let (code, _, text) = served.run(refused);
        assert!(code != Some(0), "{refused:?}: {text}");
        assert!(text.contains("this command needs an image, not a file server"), "{refused:?}: {text}");
    }
    // squashfuse implements no request that changes files.
    let (code, _, text) = served.run(&["mkdir", "fuse:squashfuse 'a b.sqfs':/new"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("not supported"), "{text}");
}

/// Copies the files of a server, and compares them with the directory `tree`.
fn is_served(folder: &Path, command: &str) {
    println!("{command}");
    let mut copy = Command::new(env!("CARGO_BIN_EXE_obento"));
    copy.current_dir(folder).env("TMPDIR", folder.join("tmp"));
    let output = copy.args(["cp", "-r", &format!("fuse:{command}:/"), "out"]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let mut diff = program("diff");
    run(diff.args(["-r", "--no-dereference", "-x", "lost+found", "tree", "out"]).current_dir(folder))
        .unwrap();
    fs::remove_dir_all(folder.join("out")).unwrap();
    // The folder of the server is removed once the server has ended.
    let start = Instant::now();
    while fs::read_dir(folder.join("tmp")).unwrap().count() > 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "{command}");
    }
}

/// Creates a tree, and a folder for temporary files.
fn folder_with_tree() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::create_dir_all(path.join("tree/dir/deep")).unwrap();
    fs::create_dir(path.join("tmp")).unwrap();
    fs::write(path.join("tree/dir/file"), "contents\n").unwrap();
    let large: Vec<u8> = (0..600_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(path.join("tree/dir/deep/large"), large).unwrap();
    symlink("dir/file", path.join("tree/link")).unwrap();
    for number in 0..200 {
        fs::write(path.join(format!("tree/dir/deep/file {number}")), number.to_string()).unwrap();
    }
    folder
}

#[test]
fn servers_of_libfuse_2_get_their_connection_from_the_helper() {
    let programs = ["bindfs", "unionfs", "archivemount", "fuse2fs", "mke2fs", "unshare"];
    if !require(&programs.map(Oracle::Program)) || !require(&[Oracle::Root]) {
        return;
    }
    let folder = folder_with_tree();
    let path = folder.path();
    is_served(path, "bindfs tree");
    fs::create_dir(path.join("lower")).unwrap();
    is_served(path, "unionfs tree=RO:lower=RO");
    run(program("tar").args(["cf", "tree.tar", "-C", "tree", "."]).current_dir(path)).unwrap();
    is_served(path, "archivemount tree.tar");
    let image = ["-q", "-t", "ext4", "-d", "tree", "tree.ext4", "16M"];
    run(program("mke2fs").args(image).current_dir(path)).unwrap();
    is_served(path, "fuse2fs tree.ext4");
}

#[test]
fn servers_of_go_get_their_connection_from_the_helper() {
    if !require(&["rclone", "gocryptfs"].map(Oracle::Program)) {
        return;
    }
    let folder = folder_with_tree();
    let path = folder.path();
    fs::write(path.join("rclone.conf"), "").unwrap();
    // rclone follows links.
    fs::remove_file(path.join("tree/link")).unwrap();
    is_served(path, "rclone --config rclone.conf mount tree");
    is_served(path, "rclone --config rclone.conf mount2 tree");

    fs::write(path.join("password"), "secret\n").unwrap();
    run(program("cp").args(["-a", "tree", "plain"]).current_dir(path)).unwrap();
    let init = ["-q", "-init", "-reverse", "-scryptn", "10", "-passfile", "password", "plain"];
    run(program("gocryptfs").args(init).current_dir(path)).unwrap();
    // The files of the first server are the source of the second one.
    let mut copy = Command::new(env!("CARGO_BIN_EXE_obento"));
    copy.args(["cp", "-r", "fuse:gocryptfs -q -reverse -passfile password plain:/", "cipher"]);
    let output = copy.current_dir(path).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    is_served(path, "gocryptfs -q -passfile password cipher");
}

#[test]
fn no_server_is_started_with_a_folder_that_another_user_can_replace() {
    if !require(&[Oracle::Program("bindfs"), Oracle::Program("unshare")]) {
        return;
    }
    let folder = folder_with_tree();
    let shared = folder.path().join("tmp");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o775)).unwrap();
    let mut ls = Command::new(env!("CARGO_BIN_EXE_obento"));
    let output =
        ls.args(["ls", "fuse:bindfs tree:/"]).current_dir(folder.path()).env("TMPDIR", &shared).output();
    let said = String::from_utf8_lossy(&output.unwrap().stderr).into_owned();
    let why = format!("another user can replace files in '{}'", shared.display());
    assert!(said.contains(&why) && said.contains("help: set TMPDIR to another directory"), "{said}");
    assert_eq!(fs::read_dir(&shared).unwrap().count(), 0);
}

#[test]
fn no_server_is_started_in_a_directory_in_which_another_user_can_rename_files() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    fs::write(&program, "#!/bin/sh\n: >\"$0.started\"\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let has_started = |mode| {
        let current = folder.path().join(format!("{mode:o}"));
        fs::create_dir(&current).unwrap();
        fs::set_permissions(&current, fs::Permissions::from_mode(mode)).unwrap();
        let mut ls = Command::new(env!("CARGO_BIN_EXE_obento"));
        ls.current_dir(&current).args(["ls", &format!("fuse:{}:/", program.display())]);
        let output = ls.output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_refused = said.contains("another user can create files in the current directory");
        assert!(!is_refused || said.contains("help: run the command in a directory"), "{said}");
        (fs::remove_file(folder.path().join("program.started")).is_ok(), is_refused)
    };
    assert_eq!(has_started(0o777), (false, true));
    assert_eq!(has_started(0o1777), (false, true));
    assert_eq!(has_started(0o755), (true, false));
}

#[test]
fn a_server_that_ends_before_it_runs_the_helper_is_reported_and_leaves_no_folder() {
    if !require(&[Oracle::Program("bindfs"), Oracle::Program("unshare"), Oracle::Root]) {
        return;
    }
    let folder = folder_with_tree();
    let mut ls = Command::new(env!("CARGO_BIN_EXE_obento"));
    ls.current_dir(folder.path()).env("TMPDIR", folder.path().join("tmp"));
    let output = ls.args(["ls", "fuse:bindfs missing:/"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("the FUSE server ended") && said.contains("unshare(1)"), "{said}");
    let start = Instant::now();
    while fs::read_dir(folder.path().join("tmp")).unwrap().count() > 0 {
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}

/// Runs a command in `folder`, with `address` for `@`.
fn run_in(folder: &Path, address: &str, arguments: &[&str]) -> Ended {
    let arguments = arguments.iter().map(|argument| argument.replace('@', address));
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    let output = command.current_dir(folder).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Each command changes the files of the server as the program of the host of the same name changes a directory.
#[test]
fn commands_change_the_files_of_servers_as_the_programs_of_the_host_change_a_directory() {
    let programs = ["bindfs", "fuse-overlayfs", "unshare"];
    if !require(&programs.map(Oracle::Program)) || !require(&[Oracle::Root]) {
        return;
    }
    let folder = folder_with_tree();
    changes_are_those_of_the_host(folder.path(), |arguments| {
        run_in(folder.path(), "fuse:bindfs tree", arguments)
    });
}

#[test]
fn data_that_is_copied_to_a_server_is_stored_when_the_command_ends() {
    if !require(&["sshfs", "rclone"].map(Oracle::Program)) {
        return;
    }
    let folder = folder_with_tree();
    let path = folder.path();
    fs::create_dir(path.join("copy")).unwrap();
    fs::write(path.join("ssh"), "#!/bin/sh\nexec /usr/lib/openssh/sftp-server\n").unwrap();
    fs::set_permissions(path.join("ssh"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(path.join("rclone.conf"), "").unwrap();
    let copy = path.join("copy");
    let sshfs = format!("fuse:sshfs -o ssh_command={}/ssh host:{}", path.display(), copy.display());
    let copied = run_in(path, &sshfs, &["cp", "-r", "tree", "@:/sftp"]);
    assert_eq!(copied, (Some(0), String::new(), String::new()));
    run(program("diff").args(["-r", "--no-dereference", "tree", "copy/sftp"]).current_dir(path)).unwrap();
    // rclone stores no links, and writes files through a cache.
    fs::remove_file(path.join("tree/link")).unwrap();
    let rclone = "fuse:rclone --config rclone.conf --vfs-cache-mode writes --vfs-write-back 0 mount copy";
    let copied = run_in(path, rclone, &["cp", "-r", "tree", "@:/rclone"]);
    assert_eq!(copied, (Some(0), String::new(), String::new()));
    run(program("diff").args(["-r", "tree", "copy/rclone"]).current_dir(path)).unwrap();
}

#[test]
fn bench_measures_a_server_and_removes_its_files() {
    if !require(&["bindfs", "unshare"].map(Oracle::Program)) || !require(&[Oracle::Root]) {
        return;
    }
    let folder = folder_with_tree();
    let tree = folder.path().join("tree");
    let before = fs::read_dir(&tree).unwrap().count();
    let small = ["--file-size", "1M", "--size", "64M", "--run-time", "0.05", "--scale", "4000"];
    let workloads = ["seq_read_128k,T=1", "createfiles,T=N", "--repeat", "1", "--repeat-most", "1"];
    let target = format!("fuse:bindfs {}", tree.display());
    let arguments = [&["bench", "-T", &target][..], &workloads, &small].concat();
    let (code, out, said) = run_in(folder.path(), "", &arguments);
    assert_eq!(code, Some(0), "{out} {said}");
    for row in ["seq_read_128k,T=1", "createfiles,T=N"] {
        assert!(out.contains(row), "{out} {said}");
    }
    assert_eq!(fs::read_dir(&tree).unwrap().count(), before, "{said}");
}
