//! A driver in a repository of its own. `cargo xtask new-driver` creates it, its tests pass, every command supports its
//! format, it can be mounted and measured, and its fuzz target compiles.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use obento_testkit::conformance::{reading_cases, writing_cases};
use obento_testkit::{Oracle, require};

/// The number of tests of `xtask/skeleton/tests` besides the cases of the contract.
const OTHERS: usize = 13;

fn said(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}\n{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_driver_outside_of_the_tree_passes_its_tests_and_has_every_command() {
    let room = tempfile::tempdir().unwrap();
    let repository = room.path().join("floppyfs");
    said(
        Command::new(env!("CARGO_BIN_EXE_xtask")).args(["new-driver", "floppyfs", "--path"]).arg(&repository),
    );
    // Crates of others are built once for both workspaces, which requires the same profiles.
    let workspace = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml")).unwrap();
    let profiles = &workspace[workspace.find("[profile.dev]").unwrap()..];
    let manifest = repository.join("Cargo.toml");
    // The crates of obento are dependencies there, and compiling them quickly matters more than their speed.
    let ours = workspace.lines().filter_map(|line| line.split_once(" = { path =")).map(|(name, _)| name);
    let quick = |name| format!("[profile.dev.package.{name}]\nopt-level = 0\n");
    let quick: String = ours.chain(["obento-cli"]).map(quick).collect();
    let text = [fs::read_to_string(&manifest).unwrap().as_str(), profiles, &quick].join("\n");
    fs::write(&manifest, text).unwrap();
    let target = Path::new(env!("CARGO_BIN_EXE_xtask")).ancestors().nth(2).unwrap();
    let cargo = |arguments: &[&str]| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .current_dir(&repository)
            .env("CARGO_TARGET_DIR", target)
            .env("CARGO_INCREMENTAL", "0")
            .args(arguments);
        // The flags of the test of this workspace do not apply to the other workspace.
        cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
        cargo
    };
    // If the workspace was built here, all crates are present; otherwise the missing ones are downloaded.
    if !cargo(&["tree", "--offline"]).output().unwrap().status.success() {
        said(&mut cargo(&["tree"]));
    }
    let tested = said(&mut cargo(&["test", "--offline", "--quiet"]));
    let count = OTHERS + reading_cases().len() + writing_cases().len();
    assert!(tested.contains(&format!("running {count} tests")), "{tested}");
    said(&mut cargo(&["build", "--offline", "--quiet"]));
    let command = |arguments: &[&str]| {
        let program = target.join("debug/floppyfs");
        said(Command::new(program).current_dir(&repository).args(arguments))
    };
    fs::write(repository.join("hello"), "Hello, world.\n").unwrap();
    command(&["mkfs", "-t", "floppyfs", "-q", "disk.img", "4M"]);
    command(&["cp", "hello", "disk.img:/"]);
    command(&["mkdir", "disk.img:/empty"]);
    assert_eq!(command(&["ls", "disk.img"]), "empty\nhello\n");
    assert_eq!(command(&["cat", "disk.img:/hello"]), "Hello, world.\n");
    assert!(command(&["info", "disk.img"]).contains("floppyfs"));
    command(&["check", "disk.img"]);
    command(&["rm", "disk.img:/hello"]);
    assert_eq!(command(&["ls", "disk.img"]), "empty\n");
    // The formats of obento are supported, too.
    command(&["mkfs", "-t", "xv6", "-q", "other.img", "4M"]);
    assert_eq!(command(&["ls", "other.img"]), "");
    if require(&[Oracle::Fuse]) {
        let folder = repository.join("mnt");
        fs::create_dir(&folder).unwrap();
        command(&["mount", "disk.img", "mnt"]);
        let written = fs::write(folder.join("by-a-program"), "through FUSE\n");
        command(&["umount", "mnt"]);
        written.unwrap();
        assert_eq!(command(&["cat", "disk.img:/by-a-program"]), "through FUSE\n");
        command(&["check", "disk.img"]);
    }
    let small =
        ["--scale", "4000", "--size", "64M", "--file-size", "64K", "--repeat", "1", "--repeat-most", "1"];
    let reported = command(&[&["bench", "createfiles,T=1", "-T", "image:floppyfs"], &small[..]].concat());
    assert!(reported.contains("image:floppyfs"), "{reported}");
    let fuzz = repository.join("fuzz/Cargo.toml");
    let fuzz = fuzz.to_str().unwrap();
    // The crates that only the fuzz target requires are downloaded if they are missing.
    if !cargo(&["tree", "--offline", "--manifest-path", fuzz]).output().unwrap().status.success() {
        said(&mut cargo(&["tree", "--manifest-path", fuzz]));
    }
    said(&mut cargo(&["check", "--offline", "--quiet", "--manifest-path", fuzz]));
}
