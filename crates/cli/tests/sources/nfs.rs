//! Commands on an export of nfs-ganesha, without a mount.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::{Duration, Instant};

use obento::driver::Access;
use obento_testkit::ganesha::Ganesha;
use obento_testkit::oracle::{program, run};
use tempfile::TempDir;

use crate::changes::changes_are_those_of_the_host;

struct Served {
    folder: TempDir,
    _server: Ganesha,
    /// The address of the export, without a path.
    address: String,
}

impl Served {
    /// Exports a tree, and waits until the server responds.
    fn new(access: Access) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        fs::create_dir_all(tree.join("dir/deep")).unwrap();
        fs::write(tree.join("dir/file"), "contents\n").unwrap();
        fs::write(
            tree.join("dir/deep/large"),
            (0..600_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>(),
        )
        .unwrap();
        symlink("dir/file", tree.join("link")).unwrap();
        let server = match access {
            Access::ReadOnly => Ganesha::start(folder.path(), &tree)?,
            Access::ReadWrite => Ganesha::start_writable(folder.path(), &tree)?,
        };
        let (port, mount_port) = (server.port, server.mount_port);
        let address = format!("nfs://127.0.0.1:{port}{}?mountport={mount_port}", tree.display());
        let served = Self { folder, _server: server, address };
        let start = Instant::now();
        while served.run(&["ls", "@:/"]).0 != Some(0) {
            assert!(start.elapsed() < Duration::from_secs(60), "{:?}", served.run(&["ls", "@:/"]));
        }
        Some(served)
    }

    /// Runs a command, with the address for `@`, and returns its code, output and messages.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let arguments = arguments.iter().map(|argument| argument.replace('@', &self.address));
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        let output = command.current_dir(self.folder.path()).args(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }

    #[track_caller]
    fn prints(&self, arguments: &[&str], expected: &str) {
        assert_eq!(self.run(arguments), (Some(0), expected.to_owned(), String::new()), "{arguments:?}");
    }
}

#[test]
fn commands_read_the_files_of_an_export_and_refuse_what_needs_an_image() {
    let Some(served) = Served::new(Access::ReadOnly) else { return };
    served.prints(&["ls", "@:/dir"], "deep\nfile\n");
    served.prints(&["cat", "@:/link"], "contents\n");
    served.prints(&["find", "@:/", "-size", "+1M", "-printf", "%P\\n"], "dir/deep/large\n");
    served.prints(&["grep", "-r", "-h", "content", "@:/dir/file"], "contents\n");
    served.prints(&["diff", "-r", "@:/", "host:tree"], "");
    served.prints(&["cp", "-a", "@:/", "out"], "");
    run(program("diff").args(["-r", "--no-dereference", "tree", "out"]).current_dir(served.folder.path()))
        .unwrap();
    served.prints(&["export", "@:/dir", "-o", "out.tar"], "");
    let listed = run(program("tar").arg("tf").arg(served.folder.path().join("out.tar"))).unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains("deep/large"), "{listed:?}");
    for refused in [&["info", "@"][..], &["df", "@"], &["check", "@"]] {
        let (code, _, said) = served.run(refused);
        assert!(code != Some(0), "{refused:?}: {said}");
        assert!(said.contains("this command needs an image, not a file server"), "{refused:?}: {said}");
    }
    for (refused, reason) in [
        (&["mount", "-o", "rw", "@", "tree"][..], "the files of a server are mounted read-only"),
        (&["mount", "--all", "@", "tree"], "the files of a server have no partitions"),
        (
            &["mount", "-o", "provenance,ro", "@", "tree"],
            "the history of a server is not recorded\n  help: omit the option provenance",
        ),
        (&["mount", "@:/dir", "tree"], "this is a path on a server"),
        // The server exports the folder read-only.
        (&["mkdir", "@:/new"], "read-only"),
        (&["cp", "tree/dir/file", "@:/new"], "read-only"),
        (&["rm", "@:/link"], "read-only"),
    ] {
        let (code, _, said) = served.run(refused);
        assert!(code != Some(0) && said.contains(reason), "{refused:?}: {said}");
    }
    let (code, _, said) = served.run(&["cat", "@:/missing"]);
    assert!(code != Some(0) && said.contains("no such file or directory"), "{said}");
}

/// Each command changes the export as the program of the host of the same name changes the tree beside it.
#[test]
fn commands_change_an_export_as_the_programs_of_the_host_change_a_directory() {
    let Some(served) = Served::new(Access::ReadWrite) else { return };
    changes_are_those_of_the_host(served.folder.path(), |arguments| served.run(arguments));
}

#[test]
fn bench_measures_an_export_and_removes_its_files() {
    let Some(served) = Served::new(Access::ReadWrite) else { return };
    let tree = served.folder.path().join("tree");
    let before = fs::read_dir(&tree).unwrap().count();
    let small = ["--file-size", "1M", "--size", "64M", "--run-time", "0.05", "--scale", "4000"];
    let workloads = ["seq_read_128k,T=1", "createfiles,T=N", "--repeat", "1", "--repeat-most", "1"];
    let (code, out, said) = served.run(&[&["bench", "-T", "@"][..], &workloads, &small].concat());
    assert_eq!(code, Some(0), "{out} {said}");
    for row in ["seq_read_128k,T=1", "createfiles,T=N"] {
        assert!(out.contains(row), "{out} {said}");
    }
    assert_eq!(fs::read_dir(&tree).unwrap().count(), before, "{said}");
    let (code, out, said) = served.run(&["bench", "-T", "nfs:server", "varmail"]);
    assert_eq!(code, Some(2), "{out} {said}");
    assert!(said.contains("invalid target 'nfs:server'"), "{said}");
}
