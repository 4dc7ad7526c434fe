//! Runs the programs in `examples/` on images that they create, and checks the images with `debugfs` and `e2fsck`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

use obento_testkit::oracle::call;
use obento_testkit::{Oracle, require};

/// Returns the path of an example. Cargo puts the examples beside the folder of the tests. `cargo test --test
/// NAME` does not build them, so this function does, unless `OBENTO_EXAMPLES` says that they exist.
fn example(name: &str) -> PathBuf {
    static BUILT: Once = Once::new();
    let tests = std::env::current_exe().unwrap();
    let profile = tests.parent().unwrap().parent().unwrap();
    BUILT.call_once(|| {
        if std::env::var_os("OBENTO_EXAMPLES").is_some() {
            return;
        }
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--examples", "--manifest-path"]);
        cargo.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        if !profile.ends_with("debug") {
            cargo.arg("--release");
        }
        assert!(cargo.arg("--target-dir").arg(profile.parent().unwrap()).status().unwrap().success());
    });
    profile.join("examples").join(name)
}

fn run(folder: &Path, name: &str, arguments: &[&str]) -> String {
    let output = Command::new(example(name)).args(arguments).current_dir(folder).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{name} {arguments:?}: {}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "{name} {arguments:?}");
    text(&output.stdout)
}

#[test]
fn the_programs_do_as_documented_and_e2fsck_finds_no_error() {
    if !require(&[Oracle::Program("debugfs"), Oracle::Program("e2fsck")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run(folder, "build", &["one.img"]);
    run(folder, "build", &["two.img"]);
    run(folder, "edit", &["one.img", "/etc/passwd", "alice", "bob"]);
    run(folder, "copy_between", &["one.img", "/", "two.img", "/copy"]);
    run(folder, "extract", &["two.img", "/copy/etc", "out"]);
    assert_eq!(fs::read_dir(folder.join("out")).unwrap().count(), 1);
    fs::write(folder.join("out/hosts"), "127.0.0.1 localhost\n").unwrap();
    run(folder, "insert", &["one.img", "out", "/etc"]);
    let path = |image: &str| folder.join(image).into_os_string();
    for image in ["one.img", "two.img"] {
        call("e2fsck", ["-fn".into(), path(image)]).unwrap();
    }
    let contents = |image: &str, file: &str| {
        let output = call("debugfs", ["-R".into(), format!("cat {file}").into(), path(image)]).unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(contents("one.img", "/etc/hosts"), "127.0.0.1 localhost\n");
    let passwd = contents("two.img", "/copy/etc/passwd");
    assert!(passwd.contains("bob") && !passwd.contains("alice"), "{passwd}");
    let listing = run(folder, "list", &["two.img"]);
    let names: Vec<_> = listing.lines().filter_map(|line| line.split_whitespace().last()).collect();
    let expected = ["/copy/bin/sh", "/copy/dev/null", "/copy/home/alice"];
    assert!(expected.iter().all(|name| names.contains(name)), "{listing}");
    assert!(run(folder, "reads", &["one.img", "/etc/passwd", "10"]).contains("for one read"));
}

#[test]
fn each_program_has_fewer_than_40_lines() {
    for entry in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/examples")).unwrap() {
        let path = entry.unwrap().path();
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines < 40, "{} has {lines} lines", path.display());
    }
}
