//! A driver in a repository of its own. `cargo xtask new-driver` creates it, its tests pass, every command supports its
//! format, it can be mounted and measured, and its fuzz target compiles.
//!
//! The program of that repository is built with a copy of `crates/cli` that has one more subcommand, so that one build
//! tests both extensions.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use obento_testkit::conformance::{reading_cases, writing_cases};
use obento_testkit::{Oracle, require};

/// The number of tests of `xtask/skeleton/tests` besides the conformance cases.
const OTHERS: usize = 13;

fn said(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}\n{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout).unwrap()
}

/// A subcommand of its own file.
const GREET: &str = r#"//! `obento greet NAME`: greets.

use std::io::Write;

use crate::context::Context;
use crate::help::page::Page;
use crate::output::{Outcome, Output};

/// The page of `greet`.
pub const PAGE: Page = Page::new(&[("obento greet Ann", "Greet Ann")]);

/// Print a greeting
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The name
    name: String,
}

pub fn run(args: &Args, _: &Context) -> Outcome {
    let mut output = Output::stdout();
    writeln!(output, "Hello, {}.", args.name)?;
    output.finish()
}
"#;

/// Adds the subcommand `greet` to the copy of `crates/cli` in `folder`, by three edits: its file, its module and its
/// line in the table.
fn add_subcommand(folder: &Path) {
    let commands = folder.join("src/commands");
    fs::write(commands.join("greet.rs"), GREET).unwrap();
    let table = commands.join("mod.rs");
    let mut text = fs::read_to_string(&table).unwrap();
    for (line, before) in [
        ("mod greet;\n", "mod grep;\n"),
        ("\"greet\" Greet(greet::Args) => greet::run, greet::PAGE;\n", "\"grep\" Grep("),
    ] {
        let at = text.find(before).unwrap();
        text.insert_str(at, line);
    }
    fs::write(table, text).unwrap();
}

/// Copies `crates/cli` into `repository`, whose workspace it joins, and adds a subcommand to it. `workspace` is the
/// manifest of this workspace. Returns the tables that the copy inherits.
fn copy_command(repository: &Path, workspace: &str) -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    said(Command::new("cp").arg("-a").arg(format!("{root}/crates/cli")).arg(repository));
    add_subcommand(&repository.join("cli"));
    let inherited = &workspace[workspace.find("[workspace.package]").unwrap()..];
    let inherited = &inherited[..inherited.find("[profile.dev]").unwrap()];
    inherited.replace("path = \"crates/", &format!("path = \"{root}/crates/"))
}

#[test]
fn a_driver_outside_of_the_tree_and_a_subcommand_are_added_by_three_edits_each() {
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
    let quick = ours.map(quick).filter(|table| !profiles.contains(table));
    let quick: String = quick.collect();
    let inherited = copy_command(&repository, &workspace);
    let own = fs::read_to_string(&manifest).unwrap();
    let (before, after) = own.split_once("obento-cli = { path = \"").unwrap();
    let own = format!("{before}obento-cli = {{ path = \"cli\" }}{}", &after[after.find('\n').unwrap()..]);
    let text = [&own, &inherited, profiles, &quick].join("\n");
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
    // The tests of the driver require its program, so `cargo test` built it.
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
    assert_eq!(command(&["greet", "Ann"]), "Hello, Ann.\n");
    assert!(command(&["--help"]).contains("\n  greet        Print a greeting\n"));
    assert!(command(&["help", "greet"]).contains("obento greet Ann"));
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
