//! Archives that not every program writes, and those that take too much.

use std::fs::{self, File};
use std::io::Write as _;
use std::process::Stdio;

use obento_testkit::oracle::{Oracle, call, program, require};

use super::{archive, check, image, obento};

#[test]
fn an_incremental_archive_is_unpacked_as_it_says() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("tar")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    image(at, "disk.img", &["-t", "ext4"]);
    fs::create_dir_all(at.join("tree/dir")).unwrap();
    fs::write(at.join("tree/dir/file"), "bytes").unwrap();
    for format in ["gnu", "pax"] {
        let name = format!("{format}.tar");
        call(
            "tar",
            [
                "-c",
                "-G",
                "--format",
                format,
                "-f",
                at.join(&name).to_str().unwrap(),
                "-C",
                at.to_str().unwrap(),
                "tree",
            ],
        )
        .unwrap();
        check(at, &["mkdir", &format!("disk.img:/{format}")], 0, "");
        check(at, &["import", &format!("disk.img:/{format}"), &name], 0, "");
        let path = format!("disk.img:/{format}/tree/dir/file");
        assert_eq!(obento(at, &["cat", &path]).stdout, b"bytes");
        check(at, &["build", "-q", "-t", "ext2", &format!("{format}.img"), "--from", &name], 0, "");
    }
}

#[test]
fn a_member_that_cannot_be_is_left_out_and_the_others_are_there() {
    if !require(&[Oracle::Program("mke2fs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    image(at, "disk.img", &["-t", "ext4"]);
    let members: &[(&str, u8, &str, &[u8])] = &[
        ("x", b'x', "", b"18 uid=4294967296\n"),
        ("bad", b'0', "", b"bad"),
        ("rest", b'M', "", b"rest of a file"),
        ("good", b'0', "", b"good"),
    ];
    fs::write(at.join("all.tar"), archive(members)).unwrap();
    check(
        at,
        &["import", "disk.img:/", "all.tar"],
        1,
        "obento: cannot import 'bad': skipped: the owner is not a number of 32 bits\n\
         obento: cannot import 'rest': skipped: the member continues a file of another volume of the archive\n",
    );
    assert_eq!(obento(at, &["ls", "disk.img:/"]).stdout, b"good\nlost+found\n");
    // A build takes all or nothing, and says all that is wrong.
    let output = obento(at, &["build", "-q", "built.img", "--from", "all.tar"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("cannot use 'bad': the owner is not a number of 32 bits"), "{said}");
    assert!(said.contains("cannot use 'rest'") && said.contains("2 entries of the sources"), "{said}");
}

#[test]
fn a_member_of_an_unknown_type_is_a_regular_file_in_an_image_that_is_built() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("all.tar"), archive(&[("odd", b'Z', "", b"bytes")])).unwrap();
    let note = "obento: built.img: note: all.tar: 1 member of an unknown type became a regular file\n";
    check(at, &["build", "-q", "-t", "ext2", "built.img", "--from", "all.tar"], 0, note);
    assert_eq!(obento(at, &["cat", "built.img:/odd"]).stdout, b"bytes");
}

#[test]
fn bzip2_and_lzma_are_decoded_and_formats_to_unpack_first_are_named() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("bzip2"), Oracle::Program("lzma")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    image(at, "disk.img", &["-t", "ext4"]);
    fs::write(at.join("all.tar"), archive(&[("file", b'0', "", &[5; 100_000])])).unwrap();
    for packer in ["bzip2", "lzma"] {
        let packed = at.join(format!("all.{packer}"));
        let mut command = program(packer);
        command.arg("-c").arg(at.join("all.tar")).stdout(File::create(&packed).unwrap());
        assert!(command.status().unwrap().success());
        let name = format!("all.{packer}");
        check(at, &["import", "disk.img:/", &name], 0, "");
        assert_eq!(obento(at, &["cat", "disk.img:/file"]).stdout, [5; 100_000], "{packer}");
        check(at, &["build", "-q", "-F", "-t", "ext2", "built.img", "--from", &name], 0, "");
        check(at, &["rm", "disk.img:/file"], 0, "");
        // An image that is packed likewise is unpacked too.
        let mut command = program(packer);
        command.arg("-c").arg(at.join("built.img")).stdout(File::create(at.join("packed")).unwrap());
        assert!(command.status().unwrap().success());
        assert_eq!(obento(at, &["cat", "packed:/file"]).stdout, [5; 100_000], "{packer}");
    }
    for (start, like) in [
        (&b"\x1f\x9d\x90"[..], "data of compress(1)"),
        (b"\x04\x22\x4d\x18", "LZ4 compressed data"),
        (b"\x89LZO\0\r\n\x1a\n", "lzop compressed data"),
        (b"LZIP\x01", "lzip compressed data"),
        (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
        (b"PK\x03\x04", "a ZIP archive"),
    ] {
        fs::write(at.join("other"), [start, &[0x55; 2000]].concat()).unwrap();
        let reported =
            format!("not a tar archive: the data looks like {like}\n  help: unpack the file first\n");
        check(
            at,
            &["import", "disk.img:/", "other"],
            2,
            &format!("obento: cannot import 'other': {reported}"),
        );
        let output = obento(at, &["build", "no.img", "--from", "other"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.contains(&format!(
                "not a tar archive: the data looks like {like}\n  help: unpack the file first"
            )),
            "{said}"
        );
    }
}

#[test]
fn an_image_of_a_file_system_is_not_an_empty_archive() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("gzip")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    image(folder, "disk.img", &[]);
    image(folder, "source.img", &[]);
    call("gzip", ["-k", folder.join("source.img").to_str().unwrap()]).unwrap();
    for source in ["source.img", "source.img.gz"] {
        for words in [&["build", "out.img", "--from", source][..], &["import", "disk.img:/", source]] {
            let output = obento(folder, words);
            let said = String::from_utf8_lossy(&output.stderr);
            let why = "not a tar archive: the file does not begin with a tar header";
            assert!(!output.status.success() && said.contains(why), "{words:?}: {said}");
        }
    }
    assert!(!folder.join("out.img").exists());
    // An archive without members begins with the same zeros.
    std::fs::write(folder.join("empty.tar"), [0; 10_240]).unwrap();
    assert!(obento(folder, &["build", "-q", "out.img", "--from", "empty.tar"]).status.success());
    assert!(obento(folder, &["import", "disk.img:/", "empty.tar"]).status.success());
}

#[test]
fn an_archive_unpacks_to_no_more_than_is_allowed() {
    if !require(&[Oracle::Program("mke2fs"), Oracle::Program("gzip")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    image(at, "disk.img", &["-t", "ext4"]);
    fs::write(
        at.join("all.tar"),
        archive(&[("first", b'0', "", b"first"), ("bomb", b'0', "", &vec![0; 4 << 20])]),
    )
    .unwrap();
    call("gzip", [at.join("all.tar").as_os_str()]).unwrap();
    let limit = "its contents exceed the limit of 2 MiB\n  help: use --max-unpacked SIZE to allow more";
    check(
        at,
        &["import", "disk.img:/", "all.tar.gz", "--max-unpacked", "2M"],
        2,
        &format!(
            "obento: cannot import all of 'all.tar.gz': cannot read: {limit}\n\
             obento: disk.img:/: note: extracted 1 entry\n"
        ),
    );
    let refused = |arguments: &[&str]| {
        let output = obento(at, arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(limit), "{arguments:?}: {said}");
    };
    refused(&["build", "built.img", "--from", "all.tar.gz", "--max-unpacked", "2M"]);
    assert!(!at.join("built.img").exists());
    let mut pipe = std::process::Command::new(env!("CARGO_BIN_EXE_obento"));
    pipe.current_dir(at).args(["build", "built.img", "--from", "-", "--max-unpacked", "2M"]);
    let output = pipe.stdin(File::open(at.join("all.tar.gz")).unwrap()).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains(limit) && !at.join("built.img").exists());
    // An image too; its holes count when the limit is given.
    let mut gzip = program("gzip")
        .arg("-c")
        .stdin(Stdio::piped())
        .stdout(File::create(at.join("disk.gz")).unwrap())
        .spawn()
        .unwrap();
    gzip.stdin.take().unwrap().write_all(&fs::read(at.join("disk.img")).unwrap()[..16 << 20]).unwrap();
    assert!(gzip.wait().unwrap().success());
    refused(&["ls", "--max-unpacked", "2M", "disk.gz"]);
    check(at, &["import", "disk.img:/", "all.tar.gz", "--max-unpacked", "5M"], 0, "");
}

#[test]
fn a_decoder_that_wants_more_memory_says_which_option_allows_it() {
    if !require(&[Oracle::Program("mke2fs")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    image(at, "disk.img", &["-t", "ext4"]);
    let tar = archive(&[("file", b'0', "", b"bytes")]);
    // A frame of zstd with a window of 512 MiB, and a raw block. Source: RFC 8878, sections 3.1.1.1 and 3.1.1.2.
    let block = u32::try_from(tar.len() << 3 | 1).unwrap().to_le_bytes();
    let frame = [&[0x28, 0xb5, 0x2f, 0xfd, 0, (29 - 10) << 3], &block[..3], &tar].concat();
    fs::write(at.join("wide.tar.zst"), frame).unwrap();
    let reported = "decompression needs 512 MiB of memory, and the limit is 256 MiB\n  help: use --unpack-memory SIZE to allow more";
    let arguments = ["import", "disk.img:/", "wide.tar.zst"];
    check(at, &arguments, 2, &format!("obento: cannot read 'wide.tar.zst': {reported}\n"));
    check(at, &[&arguments[..], &["--unpack-memory", "512M"]].concat(), 0, "");
    assert_eq!(obento(at, &["cat", "disk.img:/file"]).stdout, b"bytes");
    let output = obento(at, &["build", "built.img", "--from", "wide.tar.zst"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains(reported));
    check(
        at,
        &["build", "-q", "-t", "ext2", "built.img", "--from", "wide.tar.zst", "--unpack-memory", "512M"],
        0,
        "",
    );
    let output = obento(at, &["ls", "wide.tar.zst"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains(reported));
}
