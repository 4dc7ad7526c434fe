//! `obento info`: the operating system of a volume.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// Runs a command that must succeed without messages.
#[track_caller]
fn run(folder: &Path, args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_obento")).current_dir(folder).args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let said = text(output.stderr);
    assert!(output.status.success() && said.is_empty(), "{args:?}: {said}");
    text(output.stdout)
}

/// Builds `disk.img` from a tree with these files.
fn disk(folder: &Path, files: &[(&str, &[u8])]) {
    let tree = folder.join("tree");
    let _ = fs::remove_dir_all(&tree);
    fs::create_dir(&tree).unwrap();
    for (name, bytes) in files {
        let path = tree.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match bytes.strip_prefix(b"-> ") {
            Some(target) => symlink(str::from_utf8(target).unwrap(), path).unwrap(),
            None => fs::write(path, bytes).unwrap(),
        }
    }
    run(folder, &["build", "-q", "-F", "-t", "ext2", "disk.img", "--from", "tree"]);
}

/// The start of an ELF file for AArch64.
fn elf() -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
    (bytes[16], bytes[18]) = (3, 183);
    bytes
}

#[test]
fn the_operating_system_is_read_from_the_files() {
    let folder = tempfile::tempdir().unwrap();
    disk(
        folder.path(),
        &[
            ("etc/os-release", b"-> ../usr/lib/os-release"),
            (
                "usr/lib/os-release",
                b"ID=debian\nVERSION_ID=\"12\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n",
            ),
            ("etc/hostname", b"# the name\nmail\n"),
            ("bin", b"-> usr/bin"),
            ("usr/bin/sh", b"-> dash"),
            ("usr/bin/dash", &elf()),
            ("lib", b"-> usr/lib"),
            ("usr/lib/systemd/systemd", b""),
            ("var/lib/dpkg/status", b""),
        ],
    );
    let text = run(folder.path(), &["info", "disk.img"]);
    for (name, value) in [
        ("operating system", "Debian GNU/Linux 12 (bookworm)"),
        ("OS ID", "debian"),
        ("OS version", "12"),
        ("host name", "mail"),
        ("architecture", "ARM aarch64"),
        ("init system", "systemd"),
        ("package manager", "dpkg"),
    ] {
        let line = text.lines().find(|line| line.trim_start().starts_with(name));
        assert!(line.is_some_and(|line| line.ends_with(value)), "{name}: {text}");
    }
    let json = run(folder.path(), &["--json", "info", "disk.img"]);
    assert!(
        json.contains("\"os\":{\"architecture\":\"ARM aarch64\",\"host_name\":\"mail\",\"id\":\"debian\""),
        "{json}"
    );
}

#[test]
fn hostile_files_are_not_followed_out_of_the_image_and_change_no_line() {
    let folder = tempfile::tempdir().unwrap();
    disk(
        folder.path(),
        &[
            (
                "etc/os-release",
                format!("ID=\"a\x1b[31m\u{7}\"\nPRETTY_NAME={}\n", "x".repeat(1 << 20)).as_bytes(),
            ),
            ("etc/hostname", b"-> hostname"),
            ("bin/sh", b"-> /../../../../bin/sh"),
            ("sbin", b"-> sbin"),
            ("var/lib/rpm", b"-> /"),
        ],
    );
    let text = run(folder.path(), &["info", "disk.img"]);
    assert!(
        !text.contains('\x1b') && !text.contains("architecture") && !text.contains("host name"),
        "{text}"
    );
    assert!(text.len() < 4000 && text.contains("package manager"), "{text}");
    // A volume of data has no operating system.
    disk(folder.path(), &[("photo.jpg", b"x")]);
    assert!(!run(folder.path(), &["info", "disk.img"]).contains("package manager"));
}
