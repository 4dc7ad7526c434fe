//! The output, messages and exit codes that a user sees, on the sample image of the repository.

mod causes;
mod damage;
mod files;
mod hints;
mod json;
mod mistakes;
mod notes;
mod opening;
mod operands;
mod places;
mod streams;
mod terminal;
mod traps;
mod usage;

use std::path::Path;
use std::process::{Command, Output};

/// A folder with the sample image as `disk.img.zst`.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/disk.img.zst");
    std::fs::copy(sample, folder.path().join("disk.img.zst")).unwrap();
    folder
}

/// A folder with a small ext4 volume as `disk.img`.
fn volume() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    check_in(folder.path(), &["mkfs", "-q", "disk.img", "8M"], 0, "", "");
    folder
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    command.current_dir(folder).args(args).env_clear().env("TZ", "UTC0");
    command
}

fn obento(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().unwrap()
}

#[track_caller]
fn check(args: &[&str], status: i32, stdout: &str, stderr: &str) {
    check_in(folder().path(), args, status, stdout, stderr);
}

#[track_caller]
fn check_in(folder: &Path, args: &[&str], status: i32, stdout: &str, stderr: &str) {
    let output = obento(folder, args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&output.stderr), stderr, "{args:?}");
    assert_eq!(text(&output.stdout), stdout, "{args:?}");
    assert_eq!(output.status.code(), Some(status), "{args:?}");
}

/// A folder with `plain.img` (ext4), `fat.img`, `mbr.img` (an empty table), `zeros.img` and `empty.img`.
fn folder_of_images() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for (name, len) in [("mbr.img", 4 << 20), ("zeros.img", 1 << 20), ("empty.img", 0)] {
        std::fs::File::create(at.join(name)).unwrap().set_len(len).unwrap();
    }
    std::fs::write(at.join("notes.txt"), "text\n").unwrap();
    for args in [
        &["mkfs", "-q", "plain.img", "8M"][..],
        &["mkfs", "-q", "-t", "vfat", "fat.img", "8M"],
        &["part", "mbr.img", "create", "mbr"],
    ] {
        assert!(obento(at, args).status.success(), "{args:?}");
    }
    folder
}
