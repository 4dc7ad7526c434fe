//! GNU tar and the crate `tar` read the archives that are written here.

use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::process::{Command, Output};

use obento_base::{Mode, Timestamp};
use obento_testkit::oracle::{Oracle, require};

use super::*;
use crate::{SinkError, Xattr};

fn meta(mode: u16) -> Metadata<'static> {
    Metadata {
        mode: Mode::new(mode),
        uid: 4321,
        gid: 3_000_000_000,
        atime: Timestamp::new(1_000_000_000, 1),
        mtime: Timestamp::new(-1_000, 999_999_999),
        ctime: Timestamp::new(1_100_000_000, 0),
        xattrs: &[],
    }
}

fn archive(write: impl FnOnce(&mut PaxWriter<Vec<u8>>) -> Result<(), HostError>) -> Vec<u8> {
    let mut tar = PaxWriter::new(Vec::new(), Path::new("test.tar"));
    write(&mut tar).unwrap();
    tar.finish().unwrap()
}

fn content(bytes: &[u8]) -> impl FnOnce(&mut dyn DataSink) -> Result<(), HostError> + '_ {
    move |sink| sink.bytes(bytes)
}

/// Runs GNU tar on `archive`. Returns `None` if the program does not exist.
fn gnu_tar(archive: &[u8], args: &[&str], folder: &Path) -> Option<Output> {
    let file = folder.join("test.tar");
    fs::write(&file, archive).unwrap();
    if !require(&[Oracle::Program("tar")]) {
        return None;
    }
    let output = Command::new("tar").arg("-C").arg(folder).args(args).arg("-f").arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(output)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn gnu_tar_extracts_every_kind_with_its_metadata() {
    let long = [b"deep/".repeat(60), vec![b'n'; 200]].concat();
    let umlaut = "grün".as_bytes();
    let null = DeviceNumber { major: 1, minor: 3 };
    let bytes = archive(|tar| {
        tar.directory(b"d", &meta(0o1750))?;
        tar.file(b"d/file", &meta(0o4755), 5, &[0..5], content(b"hello"))?;
        tar.file(b"d/empty", &meta(0o000), 0, &[], content(b""))?;
        tar.hard_link(b"d/again", &meta(0o4755), b"d/file")?;
        tar.symlink(b"d/link", &meta(0o777), &vec![b't'; 300])?;
        tar.file(&long, &meta(0o644), 1, &[0..1], content(b"x"))?;
        tar.file(umlaut, &meta(0o644), 1, &[0..1], content(b"y"))?;
        tar.file(b"bad\xff\n", &meta(0o644), 1, &[0..1], content(b"z"))?;
        assert!(tar.node(b"fifo", &meta(0o640), FileKind::Fifo, null)?);
        assert!(!tar.node(b"socket", &meta(0o640), FileKind::Socket, null)?);
        if is_root() {
            tar.node(b"null", &meta(0o666), FileKind::CharDevice, null)?;
        }
        Ok(())
    });
    assert_eq!(bytes.len() % 10_240, 0);
    let folder = tempfile::tempdir().unwrap();
    let args: &[&str] = if is_root() { &["-xp", "--same-owner"] } else { &["-xp"] };
    if gnu_tar(&bytes, args, folder.path()).is_none() {
        return;
    }
    let at = |path: &[u8]| folder.path().join(std::ffi::OsStr::from_bytes(path));
    for path in [&b"d"[..], b"d/file", b"d/link", &long, umlaut, b"bad\xff\n", b"fifo"] {
        let meta = fs::symlink_metadata(at(path)).unwrap();
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (-1000, 999_999_999), "{}", path.escape_ascii());
        assert!(!is_root() || (meta.uid(), meta.gid()) == (4321, 3_000_000_000), "{}", path.escape_ascii());
    }
    let mode = |path: &[u8]| fs::symlink_metadata(at(path)).unwrap().mode() & 0o7777;
    assert_eq!(mode(b"d"), 0o1750);
    assert!(!is_root() || mode(b"d/file") == 0o4755);
    assert_eq!(fs::read(at(b"d/again")).unwrap(), b"hello");
    assert_eq!(fs::metadata(at(b"d/file")).unwrap().nlink(), 2);
    assert_eq!(fs::read_link(at(b"d/link")).unwrap().as_os_str().len(), 300);
    assert!(fs::metadata(at(b"fifo")).unwrap().file_type().is_fifo());
    assert!(!at(b"socket").exists());
    assert!(!is_root() || fs::metadata(at(b"null")).unwrap().rdev() == 0x103);
}

#[test]
fn holes_and_a_terabyte_survive_gnu_tar() {
    let (tib, size) = (1_u64 << 40, (1 << 40) + 700);
    let data = [4096..8192, tib..size];
    let bytes = archive(|tar| {
        tar.file(b"sparse", &meta(0o644), size, &data, |sink| {
            sink.bytes(&[1; 4096])?;
            sink.bytes(&[2; 700])
        })?;
        tar.file(b"hole", &meta(0o644), 1 << 33, &[], content(b""))?;
        tar.file(b"tail", &meta(0o644), 1 << 20, &[0..512], content(&[3; 512]))
    });
    assert!(bytes.len() < 40_000);
    let folder = tempfile::tempdir().unwrap();
    let Some(listed) = gnu_tar(&bytes, &["-tv", "--numeric-owner"], folder.path()) else { return };
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains(&size.to_string()) && listed.contains("8589934592"), "{listed}");
    gnu_tar(&bytes, &["-x", "--no-same-owner"], folder.path());
    let file = fs::File::open(folder.path().join("sparse")).unwrap();
    let meta = file.metadata().unwrap();
    assert!(meta.len() == size && meta.blocks() < 100);
    let byte = |offset| {
        let mut byte = [9];
        file.read_exact_at(&mut byte, offset).unwrap();
        byte[0]
    };
    assert_eq!([0, 4095, 4096, 8191, 8192, tib - 1, tib, size - 1].map(byte), [0, 0, 1, 1, 0, 0, 2, 2]);
    let tail = fs::read(folder.path().join("tail")).unwrap();
    assert!(tail.len() == 1 << 20 && tail[511] == 3 && tail[512] == 0);
    assert_eq!(fs::metadata(folder.path().join("hole")).unwrap().len(), 1 << 33);
}

#[test]
fn attributes_and_acls_survive_gnu_tar() {
    if !require(&[Oracle::Root]) {
        return;
    }
    // user::rw- user:7:rwx group::r-- mask::rwx other::---
    let acl = [(1_u16, 6_u16, u32::MAX), (2, 7, 7), (4, 4, u32::MAX), (16, 7, u32::MAX), (32, 0, u32::MAX)];
    let acl = acl.iter().fold(vec![2, 0, 0, 0], |mut bytes, (tag, perm, id)| {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(perm.to_le_bytes());
        bytes.extend(id.to_le_bytes());
        bytes
    });
    let xattrs = [
        Xattr { name: b"user.a=b%c".to_vec(), value: b"1\n\0\xff".to_vec() },
        Xattr { name: b"system.posix_acl_access".to_vec(), value: acl },
        Xattr {
            name: b"security.capability".to_vec(),
            value: [&[1, 0, 0, 2, 0, 0x20][..], &[0; 14]].concat(),
        },
    ];
    let meta = Metadata { xattrs: &xattrs, ..meta(0o670) };
    let bytes = archive(|tar| tar.file(b"file", &meta, 1, &[0..1], content(b"x")));
    let folder = tempfile::tempdir().unwrap();
    let args = ["-xp", "--acls", "--xattrs", "--xattrs-include=*"];
    if gnu_tar(&bytes, &args, folder.path()).is_none() {
        return;
    }
    let path = folder.path().join("file");
    for xattr in &xattrs {
        let mut value = [0; 100];
        let len = rustix::fs::getxattr(&path, xattr.name.as_slice(), &mut value).unwrap();
        assert_eq!(value[..len], xattr.value, "{}", xattr.name.escape_ascii());
    }
}

#[test]
fn the_crate_tar_reads_the_same_entries() {
    let long = [b'l'; 254];
    let bytes = archive(|tar| {
        tar.directory(b"d/", &meta(0o755))?;
        tar.file(&long, &meta(0o640), 70_000, &[0..70_000], content(&[7; 70_000]))?;
        tar.symlink(b"s", &meta(0o777), b"target")
    });
    let mut reader = tar::Archive::new(bytes.as_slice());
    let mut seen = Vec::new();
    for entry in reader.entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        let header = entry.header();
        seen.push((entry.path_bytes().to_vec(), header.mode().unwrap(), content.len()));
        assert_eq!(header.uid().unwrap(), 4321);
    }
    let expected = [(b"d/".to_vec(), 0o755, 0), (long.to_vec(), 0o640, 70_000), (b"s".to_vec(), 0o777, 0)];
    assert_eq!(seen, expected);
}

#[test]
fn a_file_that_fails_half_way_costs_itself_and_not_the_archive() {
    let device = obento_block::MemDevice::read_only(vec![5; 600]);
    let mut tar = PaxWriter::new(Vec::new(), Path::new("test.tar"));
    let failed = tar.file(b"bad", &meta(0o644), 2000, &[0..2000], |sink| {
        sink.device(&device, 0, 600)?;
        sink.device(&device, 600, 1400)
    });
    assert!(matches!(failed, Err(SinkError::Source(_))));
    let too_much = tar.file(b"more", &meta(0o644), 3, &[0..3], content(b"1234"));
    assert!(matches!(too_much, Err(HostError::Stream { .. })));
    let unaligned = tar.file(b"odd", &meta(0o644), 9000, &[100..5000], content(b""));
    assert!(matches!(unaligned, Err(HostError::Stream { .. })));
    tar.file(b"good", &meta(0o644), 1, &[0..1], content(b"!")).unwrap();
    let bytes = tar.finish().unwrap();
    let mut reader = tar::Archive::new(bytes.as_slice());
    let sizes: Vec<u64> = reader.entries().unwrap().map(|entry| entry.unwrap().size()).collect();
    assert_eq!(sizes, [2000, 3, 1]);
}

#[test]
fn the_same_tree_gives_the_same_bytes_and_large_files_say_their_size() {
    let mut records = RecordsBuilder::default();
    let mut header = TarHeader::new(Kind::File, b"huge", &meta(0o644));
    header.size = 9 << 30;
    header.add_records(&mut records);
    let text = String::from_utf8(records.into_bytes()).unwrap();
    assert!(text.contains("size=9663676416\n") && text.contains("gid=3000000000\n"), "{text}");
    let small = || archive(|tar| tar.file(b"f", &meta(0o644), 1, &[0..1], content(b"x")));
    assert_eq!(small(), small());
}
