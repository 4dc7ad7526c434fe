//! Commands on an export of nfs-ganesha, without a mount.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::{Duration, Instant};

use obento_testkit::ganesha::Ganesha;
use obento_testkit::oracle::{program, run};
use tempfile::TempDir;

struct Served {
    folder: TempDir,
    _server: Ganesha,
    /// The address of the export, without a path.
    address: String,
}

impl Served {
    /// Exports a tree, and waits until the server responds.
    fn new() -> Option<Self> {
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
        let server = Ganesha::start(folder.path(), &tree)?;
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
    let Some(served) = Served::new() else { return };
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
    for refused in [&["info", "@"][..], &["df", "@"], &["check", "@"], &["mount", "@", "tree"]] {
        let (code, _, said) = served.run(refused);
        assert!(code != Some(0), "{refused:?}: {said}");
        assert!(said.contains("it is a file server, and this command needs an image"), "{refused:?}: {said}");
    }
    for refused in [&["mkdir", "@:/new"][..], &["cp", "tree/dir/file", "@:/new"], &["rm", "@:/link"]] {
        let (code, _, said) = served.run(refused);
        assert!(code != Some(0) && said.contains("can only be read"), "{refused:?}: {said}");
    }
    let (code, _, said) = served.run(&["cat", "@:/missing"]);
    assert!(code != Some(0) && said.contains("no such file or directory"), "{said}");
}
