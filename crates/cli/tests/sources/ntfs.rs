//! NTFS volumes: the options of `--mount-options` and of a mount, and alternate data streams.

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::process::Command;
use std::time::{Duration, Instant};

use obento_testkit::oracle::{Oracle, program, run};
use obento_testkit::require;
use tempfile::TempDir;

struct Disk(TempDir);

impl Disk {
    /// Creates a volume with a file in a directory and a stream of this file.
    fn new() -> Option<Self> {
        let needed = ["mkntfs", "ntfs-3g", "fusermount3", "setfattr"].map(Oracle::Program);
        if !require(&needed) || !require(&[Oracle::Fuse, Oracle::Root]) {
            return None;
        }
        let disk = Self(tempfile::tempdir().unwrap());
        fs::File::create(disk.0.path().join("disk.img")).unwrap().set_len(24 << 20).unwrap();
        fs::create_dir(disk.0.path().join("mnt")).unwrap();
        let host = |name: &str, arguments: &[&str]| {
            run(program(name).args(arguments).current_dir(disk.0.path())).unwrap();
        };
        host("mkntfs", &["-F", "-q", "-s", "512", "-p", "0", "-H", "16", "-S", "63", "disk.img"]);
        disk.fill("xattr", || {
            fs::create_dir(disk.0.path().join("mnt/dir")).unwrap();
            fs::write(disk.0.path().join("mnt/dir/file"), "contents\n").unwrap();
            host("setfattr", &["-n", "user.note", "-v", "a stream", "mnt/dir/file"]);
        });
        Some(disk)
    }

    /// Calls `change` while ntfs-3g has mounted the volume, with streams as attributes (`xattr`) or as files (`windows`).
    fn fill(&self, streams: &str, change: impl FnOnce()) {
        let host = |name: &str, arguments: &[&str]| {
            run(program(name).args(arguments).current_dir(self.0.path())).unwrap();
        };
        host("ntfs-3g", &["-o", &format!("streams_interface={streams}"), "disk.img", "mnt"]);
        change();
        host("umount", &["mnt"]);
        // ntfs-3g writes its last data after the unmount.
        let start = Instant::now();
        while self.run(&["ls", "disk.img"]).0 != Some(0) {
            assert!(start.elapsed() < Duration::from_secs(60));
        }
    }

    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        let output = command.current_dir(self.0.path()).args(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }

    #[track_caller]
    fn prints(&self, arguments: &[&str], expected: &str) {
        assert_eq!(self.run(arguments), (Some(0), expected.to_owned(), String::new()), "{arguments:?}");
    }
}

/// `stat -c` of the directory and of its file.
const STAT: [&str; 5] = ["stat", "-c", "%u %g %a", "disk.img:/dir", "disk.img:/dir/file"];

#[test]
fn mount_options_set_the_owner_and_the_permissions_of_all_files() {
    let Some(disk) = Disk::new() else { return };
    // ntfs-3g gives all permissions to everyone.
    disk.prints(&STAT, "0 0 777\n0 0 777\n");
    for (options, expected) in [
        ("uid=12", "12 0 777\n12 0 777\n"),
        ("uid=12,gid=34", "12 34 777\n12 34 777\n"),
        ("umask=027", "0 0 750\n0 0 750\n"),
        ("umask=0,fmask=137", "0 0 777\n0 0 640\n"),
        ("fmask=177,dmask=077,gid=5", "0 5 700\n0 5 600\n"),
    ] {
        disk.prints(&[&STAT[..], &["--mount-options", options]].concat(), expected);
    }
    for (options, reason) in [
        ("umask=9", "umask"),
        ("uid=some user", "uid"),
        ("streams=some", "streams"),
        ("unknown=1", "unknown"),
    ] {
        let (code, _, said) = disk.run(&[&STAT[..], &["--mount-options", options]].concat());
        assert!(code == Some(2) && said.contains(reason), "{options}: {said}");
    }
}

#[test]
fn a_mount_has_the_owner_and_the_permissions_of_its_options() {
    let Some(disk) = Disk::new() else { return };
    disk.prints(&["mount", "-o", "uid=12,gid=34,fmask=137,dmask=027", "disk.img", "mnt"], "");
    let stat = |name: &str| {
        let found = fs::metadata(disk.0.path().join(name)).unwrap();
        (found.uid(), found.gid(), found.mode() & 0o7777)
    };
    let seen = [stat("mnt/dir"), stat("mnt/dir/file")];
    disk.prints(&["umount", "mnt"], "");
    assert_eq!(seen, [(12, 34, 0o750), (12, 34, 0o640)]);
}

#[test]
fn streams_are_attributes_and_files_unless_an_option_hides_them() {
    let Some(disk) = Disk::new() else { return };
    disk.prints(&["cat", "disk.img:/dir/file:note"], "a stream");
    disk.prints(&["stat", "-c", "%s %F", "disk.img:/dir/file:note"], "8 regular file\n");
    disk.prints(&["cp", "disk.img:/dir/file:note", "copy"], "");
    assert_eq!(fs::read(disk.0.path().join("copy")).unwrap(), b"a stream");
    // The header of a dump is that of GNU getfattr, without the slash at the start.
    let dump = "# file: dir/file\nuser.note=\"a stream\"\n\n";
    disk.prints(&["getfattr", "-d", "disk.img:/dir/file"], dump);
    let hidden = ["--mount-options", "streams=none"];
    disk.prints(&[&["getfattr", "-d", "disk.img:/dir/file"][..], &hidden].concat(), "");
    let (code, _, said) = disk.run(&[&["cat", "disk.img:/dir/file:note"][..], &hidden].concat());
    assert!(code == Some(1) && said.contains("no such file or directory"), "{said}");
    disk.prints(&["ls", "disk.img:/dir"], "file\n");
}

#[test]
fn a_stream_that_is_too_long_for_an_attribute_costs_only_itself() {
    let Some(disk) = Disk::new() else { return };
    let long = vec![7; 100_000];
    disk.fill("windows", || fs::write(disk.0.path().join("mnt/dir/file:large"), &long).unwrap());
    disk.prints(&["getfattr", "disk.img:/dir/file"], "# file: dir/file\nuser.large\nuser.note\n\n");
    let dump = "# file: dir/file\nuser.note=\"a stream\"\n\n";
    let reason = "a stream of more than 64 KiB as an attribute is not supported\n";
    let said = format!("obento: cannot read attribute 'user.large' of 'disk.img:/dir/file': {reason}");
    let dumped = disk.run(&["getfattr", "-d", "disk.img:/dir/file"]);
    assert_eq!(dumped, (Some(1), dump.to_owned(), said));
    for (arguments, action) in [
        (["export", "disk.img", "-o", "out.tar"], "cannot export 'disk.img:/dir/file'"),
        (["cp", "-a", "disk.img:/dir", "out"], "cannot copy 'disk.img:/dir/file'"),
    ] {
        let (code, _, said) = disk.run(&arguments);
        let expected = format!(
            "obento: {action}: the extended attribute 'user.large' cannot be read and is not copied: {reason}"
        );
        assert_eq!((code, said), (Some(1), expected));
    }
    assert_eq!(fs::read(disk.0.path().join("out/file")).unwrap(), b"contents\n");
    let archive = fs::read(disk.0.path().join("out.tar")).unwrap();
    assert!(archive.windows(22).any(|window| window == b"SCHILY.xattr.user.note"));
    disk.prints(&["cp", "disk.img:/dir/file:large", "copy"], "");
    assert_eq!(fs::read(disk.0.path().join("copy")).unwrap(), long);
}

#[test]
fn no_message_recommends_a_repair_that_obento_cannot_do() {
    let Some(disk) = Disk::new() else { return };
    let image = disk.0.path().join("disk.img");
    let file = fs::OpenOptions::new().write(true).open(image).unwrap();
    file.write_all_at(&[0; 512], 0).unwrap();
    let (code, listed, said) = disk.run(&["ls", "disk.img:/dir"]);
    assert_eq!((code, listed.as_str()), (Some(0), "file\n"));
    assert!(said.contains("the boot sector is damaged; the copy in sector"), "{said}");
    assert!(!said.contains("check -y"), "{said}");
}
