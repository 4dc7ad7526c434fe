//! Commands on the files of a FUSE server, without a mount.

use std::fs;
use std::process::Command;

use obento_testkit::oracle::{Oracle, program, run};
use obento_testkit::require;
use tempfile::TempDir;

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
    assert!(text.contains("the FUSE server ended") && text.contains("docs/fuse-servers.md"), "{text}");
    for refused in [
        &["info", "fuse:squashfuse 'a b.sqfs'"][..],
        &["df", "fuse:squashfuse 'a b.sqfs'"],
        &["mount", "fuse:squashfuse 'a b.sqfs'", "tree"],
    ] {
        let (code, _, text) = served.run(refused);
        assert!(code != Some(0), "{refused:?}: {text}");
        assert!(text.contains("it is a file server, and this command needs an image"), "{refused:?}: {text}");
    }
    let (code, _, text) = served.run(&["mkdir", "fuse:squashfuse 'a b.sqfs':/new"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("can only be read"), "{text}");
}
