//! `import` as a person uses it, judged by GNU tar and the kernel's reading of the image.

mod dialects;
mod types;

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use obento_testkit::entries::{self, Differences, Entries};
use obento_testkit::image::tar_of;
use obento_testkit::oracle::{LoopMount, call, program};
use obento_testkit::tree::{self, TreeSpec};
use obento_testkit::{Oracle, require};

const TOOLS: &[Oracle] = &[Oracle::Program("mke2fs"), Oracle::Program("e2fsck"), Oracle::Program("tar")];

fn image(folder: &Path, name: &str, arguments: &[&str]) {
    let image = folder.join(name);
    File::create(&image).unwrap().set_len(128 << 20).unwrap();
    call("mke2fs", [&["-q", "-F"], arguments, &[image.to_str().unwrap()]].concat()).unwrap();
}

fn obento(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    command.current_dir(folder).args(args).output().unwrap()
}

#[track_caller]
fn check(folder: &Path, args: &[&str], status: i32, stderr: &str) {
    let output = obento(folder, args);
    assert_eq!(String::from_utf8_lossy(&output.stderr), stderr, "{args:?}");
    assert_eq!(output.status.code(), Some(status), "{args:?}");
}

#[track_caller]
fn e2fsck(folder: &Path, image: &str) {
    call("e2fsck", ["-fn".as_ref(), folder.join(image).as_os_str()]).unwrap();
}

fn listing(tar: &Path) -> Entries {
    let mut entries = entries::from_tar(File::open(tar).unwrap()).unwrap();
    entries.values_mut().for_each(|entry| entry.map = None);
    entries
}

/// An archive of `members`: path, flag, link, data.
fn archive(members: &[(&str, u8, &str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, flag, link, data) in members {
        let mut header = tar::Header::new_gnu();
        header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
        header.as_gnu_mut().unwrap().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(tar::EntryType::new(*flag));
        header.set_mode(0o640);
        header.set_uid(7);
        header.set_gid(8);
        header.set_mtime(1_234_567_890);
        if *flag == b'3' {
            header.set_device_major(1).unwrap();
            header.set_device_minor(3).unwrap();
        }
        header.set_size(data.len() as u64);
        header.set_cksum();
        builder.append(&header, *data).unwrap();
    }
    builder.into_inner().unwrap()
}

#[test]
fn a_tree_with_everything_is_unpacked_as_the_kernel_and_tar_would() {
    if !require(&[TOOLS, &[Oracle::LoopMount, Oracle::Root, Oracle::Program("zstd")]].concat()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::create_dir(at.join("tree")).unwrap();
    tree::write(&at.join("tree"), &TreeSpec::SMALL).unwrap();
    // tar leaves sockets out.
    for socket in obento_testkit::image::sockets(&at.join("tree")) {
        fs::remove_file(at.join("tree").join(socket)).unwrap();
    }
    tar_of(&at.join("tree"), &at.join("tree.tar")).unwrap();
    let expected = listing(&at.join("tree.tar"));
    for program in ["gzip", "zstd", "xz"] {
        let packed = File::create(at.join(format!("tree.{program}"))).unwrap();
        let mut command = obento_testkit::oracle::program(program);
        assert!(command.arg("-c").arg(at.join("tree.tar")).stdout(packed).status().unwrap().success());
    }
    let volumes: [(&str, &[&str], &str); 4] = [
        ("plain.img", &["-t", "ext4"], "tree.tar"),
        ("gzip.img", &["-t", "ext4", "-b", "1024"], "tree.gzip"),
        ("zstd.img", &["-t", "ext3", "-I", "256"], "tree.zstd"),
        ("xz.img", &["-t", "ext4", "-O", "inline_data,ea_inode"], "tree.xz"),
    ];
    for (name, arguments, archive) in volumes {
        image(at, name, arguments);
        check(at, &["mkdir", &format!("{name}:/srv")], 0, "");
        check(at, &["import", &format!("{name}:/srv"), archive], 0, "");
        e2fsck(at, name);
        let mount = LoopMount::new(&at.join(name), "ro").unwrap();
        tar_of(&mount.path().join("srv"), &at.join("found.tar")).unwrap();
        mount.unmount().unwrap();
        let differences = Differences::between(&expected, &listing(&at.join("found.tar")));
        assert!(differences.is_empty(), "{name}: {differences}");
    }
}

#[test]
fn members_from_a_pipe_are_stripped_and_omitted_as_requested() {
    if !require(TOOLS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    image(at, "disk.img", &["-t", "ext4"]);
    fs::create_dir_all(at.join("top/a/.git")).unwrap();
    for name in ["top/a/file", "top/a/file.o", "top/a/.git/config"] {
        fs::write(at.join(name), name).unwrap();
    }
    let mut tar = program("tar").current_dir(at).args(["-c", "top"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    command.current_dir(at).args(["import", "disk.img:/", "--strip-components=1", "--exclude=*.o"]);
    command.args(["--exclude=.git", "-v", "--no-same-owner"]).stdin(tar.stdout.take().unwrap());
    let output = command.output().unwrap();
    assert!(tar.wait().unwrap().success() && output.status.success());
    let named = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(named.contains("top/a/file\n"), "{named}");
    let found = obento(at, &["find", "disk.img:/a", "-printf", "%P %U\n"]);
    assert_eq!(String::from_utf8_lossy(&found.stdout), " 0\nfile 0\n");
    e2fsck(at, "disk.img");
}

#[test]
fn a_hostile_archive_stays_below_the_target_and_its_good_members_are_there() {
    if !require(TOOLS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    image(at, "disk.img", &["-t", "ext4"]);
    check(at, &["mkdir", "disk.img:/in", "disk.img:/etc"], 0, "");
    let members: &[(&str, u8, &str, &[u8])] = &[
        ("../up", b'0', "", b"out"),
        ("/abs/file", b'0', "", b"abs"),
        ("root", b'2', "/", b""),
        ("root/etc/passwd", b'0', "", b"hostile"),
        ("dots", b'2', "../../../etc", b""),
        ("dots/shadow", b'0', "", b"hostile"),
        ("self", b'2', "self", b""),
        ("self/x", b'0', "", b"lost"),
        ("hard", b'1', "gone", b""),
        ("hard2", b'1', "../../etc/hosts", b""),
        ("odd", b'Z', "", b"???"),
        ("abs/file", b'0', "", b"again"),
        ("good", b'0', "", b"good"),
    ];
    fs::write(at.join("hostile.tar"), archive(members)).unwrap();
    check(
        at,
        &["import", "disk.img:/in", "hostile.tar"],
        1,
        "obento: cannot import '../up': skipped: the path contains '..', which could lead out of the target\n\
         obento: cannot import 'self/x': too many levels of symbolic links or directories\n\
         obento: cannot import 'hard': skipped: the target 'gone' of the hard link does not exist\n\
         obento: cannot import 'hard2': skipped: the path contains '..', which could lead out of the target\n\
         obento: hostile.tar: note: members with absolute paths were extracted below the target\n\
         obento: hostile.tar: note: 1 member of an unknown type was extracted as a regular file\n",
    );
    let found = obento(at, &["find", "disk.img:/", "-type", "f", "-printf", "%p\n"]);
    let mut files: Vec<_> = std::str::from_utf8(&found.stdout).unwrap().lines().collect();
    files.sort_unstable();
    let expected = ["abs/file", "etc/passwd", "etc/shadow", "good", "odd"];
    let expected = expected.map(|path| format!("disk.img:/in/{path}"));
    assert_eq!(files, expected);
    assert_eq!(obento(at, &["cat", "disk.img:/in/abs/file"]).stdout, b"again");
    e2fsck(at, "disk.img");
}

#[test]
fn the_readable_part_of_a_damaged_or_truncated_archive_is_kept_and_the_damage_reported() {
    if !require(TOOLS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    image(at, "disk.img", &["-t", "ext4"]);
    let mut bytes = archive(&[
        ("first", b'0', "", b"first"),
        ("broken", b'0', "", b"broken"),
        ("last", b'0', "", &[7; 3000]),
    ]);
    bytes[1024 + 3] ^= 0xff;
    fs::write(at.join("damaged.tar"), &bytes).unwrap();
    check(
        at,
        &["import", "disk.img:/", "damaged.tar"],
        1,
        "obento: cannot import all of 'damaged.tar': the archive is damaged at byte 1024: the checksum of a header is wrong\n\
         obento: disk.img:/: note: extracted 2 entries\n",
    );
    fs::write(at.join("cut.tar"), &bytes[2048..4000]).unwrap();
    check(
        at,
        &["import", "disk.img:/cut", "cut.tar"],
        2,
        "obento: cannot import into 'disk.img:/cut': no such directory\n  \
         help: create the directory first: obento mkdir -p disk.img:/cut\n",
    );
    check(
        at,
        &["import", "disk.img:/", "cut.tar"],
        2,
        "obento: cannot import all of 'cut.tar': the archive ends too early, after 1952 bytes of tar data\n\
         obento: disk.img:/: note: extracted 0 entries\n",
    );
    fs::write(at.join("none.tar"), "no archive, but some text").unwrap();
    check(
        at,
        &["import", "disk.img:/", "none.tar"],
        2,
        "obento: cannot import 'none.tar': not a tar archive: the file does not begin with a tar header\n",
    );
    let mut child = Command::new(env!("CARGO_BIN_EXE_obento"));
    child.current_dir(at).args(["import", "disk.img:/", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"").unwrap();
    let output = child.wait_with_output().unwrap();
    let reported = "obento: cannot import standard input: not a tar archive: the file is empty\n";
    assert_eq!((String::from_utf8_lossy(&output.stderr).as_ref(), output.status.code()), (reported, Some(2)));
    e2fsck(at, "disk.img");
}

#[test]
fn a_signal_ends_the_reading_of_zeros_without_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    File::create(&path).unwrap().set_len(8 << 20).unwrap();
    assert!(obento(folder.path(), &["mkfs", "-q", "disk.img"]).status.success());
    let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
    command.current_dir(folder.path()).args(["import", "disk.img:/", "-"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let zeros = vec![0; 1 << 20];
    let mut is_ended = false;
    for round in 0..10_000 {
        if round == 64 {
            call("kill", ["-TERM", &child.id().to_string()]).unwrap();
        }
        is_ended = input.write_all(&zeros).is_err();
        if is_ended {
            break;
        }
    }
    if !is_ended {
        child.kill().unwrap();
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(is_ended && said.contains("interrupted"), "{said}");
}
