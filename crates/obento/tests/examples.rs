//! Runs the programs in `examples/` on images that `mke2fs` created, and checks the images with `e2fsck`
//! afterwards.

use std::fs::{self, File};
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

fn image(folder: &Path, name: &str) {
    let path = folder.join(name);
    File::create(&path).unwrap().set_len(16 << 20).unwrap();
    call("mke2fs", ["-q".as_ref(), "-t".as_ref(), "ext4".as_ref(), path.as_os_str()]).unwrap();
}

#[test]
fn the_five_programs_do_as_documented_and_e2fsck_finds_no_error() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("e2fsck")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    image(folder, "one.img");
    image(folder, "two.img");
    run(folder, "build", &["one.img"]);
    run(folder, "edit", &["one.img", "/etc/passwd", "alice", "bob"]);
    run(folder, "copy_between", &["one.img", "/", "two.img", "/copy"]);
    for name in ["one.img", "two.img"] {
        call("e2fsck", ["-fn".as_ref(), folder.join(name).as_os_str()]).unwrap();
    }
    let listing = run(folder, "list", &["two.img", "/copy"]);
    let names: Vec<_> = listing.lines().filter_map(|line| line.split_whitespace().last()).collect();
    assert!(["bin/sh", "dev/null", "home/alice"].iter().all(|name| names.contains(name)), "{listing}");
    run(folder, "extract", &["two.img", "/copy/etc", "out"]);
    let passwd = fs::read_to_string(folder.join("out/passwd")).unwrap();
    assert!(passwd.contains("bob") && !passwd.contains("alice"), "{passwd}");
}
