//! `obento convert` against qemu-img, simg2img and the programs that unpack: they accept the new images, and
//! find the bytes of the disk in them.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use obento_testkit::oracle::{Oracle, call, require};

const MIB: u64 = 1 << 20;
/// More than one L2 table of qcow2, and no multiple of a cluster.
const DISK: u64 = 700 * MIB + 5 * 512;

/// Creates a sparse disk with data of several kinds.
fn disk(path: &Path) {
    let file = File::create(path).unwrap();
    file.set_len(DISK).unwrap();
    let mut state = 7_u64;
    let mut random = |len: usize| -> Vec<u8> {
        let next = |state: &mut u64| {
            *state ^= *state << 13;
            *state ^= *state >> 7;
            *state ^= *state << 17;
            state.to_le_bytes()[3]
        };
        (0..len).map(|_| next(&mut state)).collect()
    };
    file.write_all_at(&random(300_000), 0).unwrap();
    file.write_all_at(&b"a line of text that can be compressed\n".repeat(60_000), 3 * MIB - 777).unwrap();
    file.write_all_at(&[1, 2, 3, 4].repeat(500_000), 40 * MIB).unwrap();
    file.write_all_at(&vec![0; 2_000_000], 60 * MIB).unwrap();
    file.write_all_at(&random(5_000_001), 514 * MIB + 4095).unwrap();
    file.write_all_at(&random(700), DISK - 700).unwrap();
}

fn obento(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_obento")).current_dir(folder).args(args).output().unwrap()
}

fn succeed(folder: &Path, args: &[&str]) -> String {
    let output = obento(folder, args);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{args:?}");
    text
}

struct Fixture(tempfile::TempDir);

impl Fixture {
    fn new() -> Self {
        let this = Self(tempfile::tempdir().unwrap());
        disk(&this.path("disk.img"));
        this
    }

    fn folder(&self) -> &Path {
        self.0.path()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// Compares an image with the disk; qemu-img accepts zeros at the end of the longer one.
    fn compare(&self, format: &str, name: &str) {
        let args = ["compare", "-f", "raw", "-F", format].map(Path::new);
        call("qemu-img", args.into_iter().chain([&*self.path("disk.img"), &*self.path(name)])).unwrap();
    }

    /// Compares two files byte by byte.
    fn is_disk(&self, name: &str) {
        call("cmp", [&self.path("disk.img"), &self.path(name)]).unwrap();
    }
}

#[test]
fn qemu_img_finds_the_disk_in_every_format_and_no_error_in_its_own() {
    if !require(&["qemu-img", "cmp"].map(Oracle::Program)) {
        return;
    }
    let fixture = Fixture::new();
    for (name, format, args) in [
        ("plain.qcow2", "qcow2", &["--verify"][..]),
        ("packed.qcow2", "qcow2", &["-c", "--verify"]),
        ("old.qcow2", "qcow2", &["--qcow2-version", "2"]),
        ("old-packed.qcow2", "qcow2", &["--qcow2-version=2", "-c"]),
        ("disk.vmdk", "vmdk", &["--verify"]),
        ("disk.vdi", "vdi", &["--verify"]),
        ("disk.vhd", "vpc", &["--verify"]),
    ] {
        let args = [&["convert", "-q", "disk.img", name], args].concat();
        assert_eq!(succeed(fixture.folder(), &args), "");
        fixture.compare(format, name);
        if !matches!(format, "vpc" | "vmdk") {
            let args = ["check", "-q", "-f", format].map(Path::new);
            call("qemu-img", args.into_iter().chain([&*fixture.path(name)])).unwrap();
        }
        // And back again, by obento and by qemu-img.
        succeed(fixture.folder(), &["convert", "-q", "-f", name, "back.img"]);
        if format != "vpc" {
            fixture.is_disk("back.img");
        }
    }
    let info = |name: &str| {
        let args = ["info"].map(Path::new);
        String::from_utf8(call("qemu-img", args.into_iter().chain([&*fixture.path(name)])).unwrap().stdout)
            .unwrap()
    };
    assert!(info("plain.qcow2").contains("compat: 1.1"));
    assert!(info("old.qcow2").contains("compat: 0.10"));
    assert!(info("disk.vmdk").contains("streamOptimized"));
    let vhd = fs::metadata(fixture.path("disk.vhd")).unwrap();
    assert_eq!((vhd.len() - 512) % MIB, 0, "Azure requires whole MiB");
    let blocks = |name: &str| fs::metadata(fixture.path(name)).unwrap().blocks() * 512;
    for name in ["disk.vhd", "back.img", "plain.qcow2"] {
        assert!(blocks(name) < 20 * MIB, "{name} takes {} bytes", blocks(name));
    }
    assert!(blocks("packed.qcow2") < blocks("plain.qcow2"));
}

#[test]
fn simg2img_and_unpackers_find_the_disk() {
    if !require(&["simg2img", "gzip", "xz", "zstd", "cmp"].map(Oracle::Program)) {
        return;
    }
    let fixture = Fixture::new();
    let folder = fixture.folder();
    succeed(folder, &["convert", "-q", "--verify", "disk.img", "disk.simg"]);
    assert!(fs::metadata(fixture.path("disk.simg")).unwrap().len() < 12 * MIB);
    call("simg2img", [fixture.path("disk.simg"), fixture.path("back.simg.img")]).unwrap();
    // Sparse images have whole blocks.
    let back = File::options().write(true).open(fixture.path("back.simg.img")).unwrap();
    assert_eq!(back.metadata().unwrap().len(), DISK.next_multiple_of(4096));
    back.set_len(DISK).unwrap();
    fixture.is_disk("back.simg.img");
    for (program, ending) in [("gzip", "gz"), ("xz", "xz"), ("zstd", "zst")] {
        let name = format!("again.img.{ending}");
        succeed(folder, &["convert", "-q", "--verify", "disk.img", &name]);
        call(program, [Path::new("-dkq"), &fixture.path(&name)]).unwrap();
        fixture.is_disk("again.img");
        fs::remove_file(fixture.path("again.img")).unwrap();
    }
}

#[test]
fn a_compressed_disk_is_unpacked_to_the_raw_image_itself() {
    if !require(&["zstd", "gzip", "xz", "qemu-img", "cmp"].map(Oracle::Program)) {
        return;
    }
    let fixture = Fixture::new();
    let folder = fixture.folder();
    let pack = |program: &str, name: &str, packed: &str| {
        let output = call(program, [Path::new("-c"), &fixture.path(name)]).unwrap();
        fs::write(fixture.path(packed), output.stdout).unwrap();
    };
    for (program, extension) in [("zstd", "zst"), ("gzip", "gz"), ("xz", "xz")] {
        pack(program, "disk.img", &format!("disk.{extension}"));
        succeed(folder, &["convert", "-q", "-f", &format!("disk.{extension}"), "out.img"]);
        fixture.is_disk("out.img");
        let stored = fs::metadata(fixture.path("out.img")).unwrap().blocks() * 512;
        assert!(stored < 12 * MIB, "{program}: {stored} bytes");
    }
    // The unpacked bytes are no disk, but an image.
    succeed(folder, &["convert", "-q", "disk.img", "disk.qcow2"]);
    pack("zstd", "disk.qcow2", "disk.qcow2.zst");
    succeed(folder, &["convert", "-q", "disk.qcow2.zst", "again.img"]);
    fixture.is_disk("again.img");
    // A compressed file in a compressed file.
    pack("gzip", "disk.zst", "disk.zst.gz");
    succeed(folder, &["convert", "-q", "--verify", "disk.zst.gz", "nested.img"]);
    succeed(folder, &["convert", "-q", "-f", "disk.zst.gz", "nested.img"]);
    fixture.is_disk("nested.img");
    let output = obento(folder, &["convert", "disk.zst", "out.img"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("file exists"));
    let packed = fs::read(fixture.path("disk.zst")).unwrap();
    fs::write(fixture.path("cut.zst"), &packed[..packed.len() / 2]).unwrap();
    let output = obento(folder, &["convert", "cut.zst", "cut.img"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("incomplete or damaged"));
    assert!(!fixture.path("cut.img").exists());
    let output = obento(folder, &["convert", "--max-unpacked", "1M", "disk.zst", "cut.img"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("--max-unpacked"));
    assert!(!fixture.path("cut.img").exists());
}

#[test]
fn the_checksum_is_that_of_the_disk_and_a_summary_is_printed() {
    if !require(&["sha256sum"].map(Oracle::Program)) {
        return;
    }
    let fixture = Fixture::new();
    let expected = call("sha256sum", [fixture.path("disk.img")]).unwrap().stdout;
    let expected = String::from_utf8(expected).unwrap()[..64].to_owned();
    let text = succeed(fixture.folder(), &["convert", "--checksum", "disk.img", "disk.qcow2"]);
    assert!(text.starts_with(&format!("{expected}  ")), "{text}");
    assert!(text.contains("disk.qcow2: 700M disk in a file of") || text.contains("700"), "{text}");
    let text = succeed(fixture.folder(), &["--json", "convert", "--checksum", "disk.qcow2", "disk.vmdk"]);
    let line: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((line["kind"].as_str(), line["sha256"].as_str()), (Some("converted"), Some(&*expected)));
    assert_eq!(line["disk_size"].as_u64(), Some(DISK));
}

#[test]
fn a_partition_becomes_an_image_of_its_own() {
    if !require(&["sgdisk", "cmp"].map(Oracle::Program)) {
        return;
    }
    let fixture = Fixture::new();
    let args = ["-o", "--new=1:2048:+8M", "--new=2:0:+4M"].map(Path::new);
    call("sgdisk", args.into_iter().chain([&*fixture.path("disk.img")])).unwrap();
    succeed(fixture.folder(), &["convert", "-q", "disk.img@1", "part.img"]);
    let mut expected = vec![0; 8 << 20];
    File::open(fixture.path("disk.img")).unwrap().read_exact_at(&mut expected, MIB).unwrap();
    assert!(fs::read(fixture.path("part.img")).unwrap() == expected);
}

#[test]
fn nothing_is_left_of_a_conversion_that_fails() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    File::create(path("disk.img")).unwrap().set_len(MIB).unwrap();
    let fails = |args: &[&str], status: i32, text: &str| {
        let output = obento(folder.path(), args);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{args:?}: {errors}");
        assert!(errors.contains(text), "{args:?}: {errors}");
    };
    fails(&["convert", "disk.img", "disk.what"], 2, "the name has no extension that selects a format");
    fails(&["convert", "disk.img", "disk.qcow2.gz"], 2, "the name has no extension that selects a format");
    fails(&["convert", "-c", "disk.img", "disk.vmdk"], 2, "--compress requires the format qcow2");
    fails(&["convert", "missing.img", "disk.vmdk"], 2, "missing.img");
    fs::write(path("there.qcow2"), "mine").unwrap();
    fails(&["convert", "disk.img", "there.qcow2"], 2, "file exists");
    assert_eq!(fs::read(path("there.qcow2")).unwrap(), b"mine");
    // A disk of 3 TiB is too large for a VMDK in one file.
    File::create(path("large.img")).unwrap().set_len(3 << 40).unwrap();
    fails(
        &["convert", "large.img", "large.vmdk"],
        2,
        "the disk is larger than 2199023255552 bytes, the maximum of this format",
    );
    // A stream-optimised image whose compressed data is damaged.
    succeed(folder.path(), &["convert", "-q", "disk.img", "zero.vmdk"]);
    File::options().write(true).open(path("disk.img")).unwrap().write_all_at(&[9; 100_000], 0).unwrap();
    succeed(folder.path(), &["convert", "-q", "disk.img", "bad.vmdk"]);
    File::options()
        .write(true)
        .open(path("bad.vmdk"))
        .unwrap()
        .write_all_at(&[0xff; 40], (64 << 10) + 14)
        .unwrap();
    fails(
        &["convert", "bad.vmdk", "bad.img"],
        2,
        "cannot read 'bad.vmdk': reading 65536 bytes at byte 0 failed: the data is damaged",
    );
    let mut names: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["bad.vmdk", "disk.img", "large.img", "there.qcow2", "zero.vmdk"]);
}

#[test]
fn bytes_that_are_not_the_whole_disk_are_not_converted() {
    if !require(&["qemu-img"].map(Oracle::Program)) {
        return;
    }
    let fixture = Fixture::new();
    let fails = |name: &str, text: &str| {
        let output = obento(fixture.folder(), &["convert", name, "out.img"]);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{name}: {errors}");
        assert!(errors.contains(text), "{name}: {errors}");
        let mut names = fs::read_dir(fixture.folder()).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(names.all(|name| !name.to_string_lossy().contains("out")), "{name}");
    };
    for name in ["disk.img.gz", "disk.img.xz", "disk.img.zst"] {
        succeed(fixture.folder(), &["convert", "-q", "disk.img", name]);
        let file = File::options().write(true).open(fixture.path(name)).unwrap();
        file.set_len(file.metadata().unwrap().len() * 2 / 3).unwrap();
        fails(name, "incomplete or damaged");
    }
    for (format, looks) in
        [("qed", "a QED disk image"), ("qcow", "a qcow disk image"), ("parallels", "a Parallels")]
    {
        let name = format!("disk.{format}");
        let args = ["create", "-q", "-f", format].map(Path::new);
        call("qemu-img", args.into_iter().chain([&*fixture.path(&name), Path::new("64M")])).unwrap();
        fails(&name, looks);
        fails(&name, "qemu-img convert -O raw");
    }
    fs::write(fixture.path("disk.zip"), b"PK\x03\x04 and the members").unwrap();
    fails("disk.zip", "a ZIP archive");
}

#[test]
fn a_huge_empty_disk_takes_no_time_and_no_space() {
    if !require(&["qemu-img"].map(Oracle::Program)) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    File::create(path("disk.img")).unwrap().set_len(1 << 40).unwrap();
    for name in ["disk.qcow2", "disk.vmdk", "disk.vdi", "disk.simg"] {
        succeed(folder.path(), &["convert", "-q", "disk.img", name]);
        assert!(fs::metadata(path(name)).unwrap().blocks() * 512 < 8 * MIB, "{name}");
        succeed(folder.path(), &["convert", "-q", "-f", name, "back.img"]);
        let back = fs::metadata(path("back.img")).unwrap();
        assert_eq!((back.len(), back.blocks()), (1 << 40, 0), "{name}");
    }
    call("qemu-img", ["check", "-q"].map(Path::new).into_iter().chain([&*path("disk.qcow2")])).unwrap();
}

#[test]
fn nothing_is_converted_while_the_environment_forbids_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    disk(&path("disk.img"));
    fs::write(path("old.img"), "old").unwrap();
    for args in [
        &["disk.img", "new.img"][..],
        &["--force", "disk.img", "old.img"],
        &["--backing", "disk.img", "x.qcow2"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        command.current_dir(folder.path()).arg("convert").args(args).env("OBENTO_READONLY", "1");
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains("OBENTO_READONLY is set"), "{args:?}: {errors}");
    }
    assert!(!path("new.img").exists() && !path("x.qcow2").exists());
    assert_eq!(fs::read(path("old.img")).unwrap(), b"old");
}

#[test]
fn no_raw_image_gets_the_extension_of_another_format() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("tree")).unwrap();
    for name in ["a.vhdx", "a.QCOW", "a.img.bz2"] {
        let output = obento(folder.path(), &["build", "-q", name, "--from", "tree"]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && errors.contains("no extension that selects a format"),
            "{name}: {errors}"
        );
        assert!(!folder.path().join(name).exists());
        let args = ["build", "-q", "--format", "raw", "--size", "16M", name, "--from", "tree"];
        succeed(folder.path(), &args);
    }
}

#[test]
fn a_disk_that_is_larger_than_its_tables_or_than_the_host_allows_is_an_error_at_once() {
    if !require(&["qemu-img"].map(Oracle::Program)) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let create = |name: &str| call("qemu-img", ["create", "-q", "-f", "qcow2", name, "1M"].map(Path::new));
    create(path("short.qcow2").to_str().unwrap()).unwrap();
    let file = File::options().read(true).write(true).open(path("short.qcow2")).unwrap();
    let fails = |image: &str, args: &[&str], cause: &str| {
        let output = obento(folder.path(), &[&["--engine", "native", "convert", "-q"], args].concat());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{image}: {error}");
        assert!(error.contains(cause), "{image}: {error}");
    };
    // The size of the disk is at byte 24. The L1 table has one entry, for 512 MiB.
    for size in [(512 << 20) + 1, 1 << 46, 1 << 56, i64::MAX as u64, u64::MAX] {
        file.write_all_at(&size.to_be_bytes(), 24).unwrap();
        for to in ["new.img", "new.qcow2", "new.gz"] {
            fails(to, &["short.qcow2", to], "the L1 table is too short for the disk");
            fails(to, &["--checksum", "short.qcow2", to], "the L1 table is too short for the disk");
        }
    }
    file.write_all_at(&(512_u64 << 20).to_be_bytes(), 24).unwrap();
    succeed(folder.path(), &["convert", "-q", "short.qcow2", "whole.img"]);
    // 2^55 bytes in clusters of 2 MiB, whose L1 table has an entry for each 512 GiB.
    let l1_at = 2 << 20;
    let mut header = vec![0; l1_at as usize + (8 << 16)];
    let words: [(usize, u32); 5] = [(0, 0x5146_49fb), (4, 2), (20, 21), (24, 1 << 23), (36, 1 << 16)];
    for (at, word) in words.into_iter().chain([(44, l1_at)]) {
        header[at..at + 4].copy_from_slice(&word.to_be_bytes());
    }
    fs::write(path("huge.qcow2"), header).unwrap();
    let too_large = File::create(path("probe")).unwrap().set_len(1 << 55).is_err();
    match too_large {
        true => fails("huge.qcow2", &["huge.qcow2", "new.img"], "file too large"),
        false => drop(succeed(folder.path(), &["convert", "-q", "huge.qcow2", "new.img"])),
    }
}

#[test]
fn a_qcow2_image_is_changed_in_place_like_a_raw_one() {
    if !require(&["qemu-img", "mke2fs", "e2fsck"].map(Oracle::Program)) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    File::create(path("disk.img")).unwrap().set_len(64 * MIB).unwrap();
    let args = ["-q", "-F", "-t", "ext4"].map(Path::new);
    call("mke2fs", args.into_iter().chain([&*path("disk.img")])).unwrap();
    succeed(folder.path(), &["convert", "-q", "-c", "disk.img", "disk.qcow2"]);
    let check = |name: &str| {
        call("qemu-img", ["check", "-q"].map(Path::new).into_iter().chain([&*path(name)])).unwrap();
        let raw = path("after.img");
        let args = ["convert", "-O", "raw"].map(Path::new);
        call("qemu-img", args.into_iter().chain([&*path(name), &*raw])).unwrap();
        call("e2fsck", ["-fn"].map(Path::new).into_iter().chain([&*raw])).unwrap();
    };
    fs::create_dir(path("tree")).unwrap();
    for number in 0..300_usize {
        fs::write(path(&format!("tree/{number}")), vec![7; number * 100]).unwrap();
    }
    for args in [
        &["cp", "-r", "tree", "disk.qcow2:/tree"][..],
        &["mkdir", "-p", "disk.qcow2:/a/b"],
        &["mv", "disk.qcow2:/tree/299", "disk.qcow2:/a/b/moved"],
        &["rm", "-r", "disk.qcow2:/tree"],
        &["trim", "disk.qcow2"],
    ] {
        succeed(folder.path(), args);
        check("disk.qcow2");
    }
    assert_eq!(succeed(folder.path(), &["ls", "disk.qcow2:/a/b"]), "moved\n");
    assert_eq!(succeed(folder.path(), &["cat", "disk.qcow2:/a/b/moved"]).len(), 29_900);
    // With a backing file, which is not changed, if opening it is allowed.
    let base = fs::read(path("disk.img")).unwrap();
    let args = ["create", "-q", "-f", "qcow2", "-F", "raw", "-b", "disk.img", "over.qcow2"];
    assert!(Command::new("qemu-img").current_dir(folder.path()).args(args).status().unwrap().success());
    let refused = obento(folder.path(), &["mkdir", "over.qcow2:/new"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--allow-backing"));
    succeed(folder.path(), &["--allow-backing", "mkdir", "over.qcow2:/new"]);
    check("over.qcow2");
    assert!(fs::read(path("disk.img")).unwrap() == base);
    assert_eq!(succeed(folder.path(), &["--allow-backing", "ls", "over.qcow2:/"]), "lost+found\nnew\n");
}

/// Returns an Android sparse image of 8 MiB whose only chunk fills it with a pattern. Source: AOSP
/// system/core/libsparse/sparse_format.h.
fn filled() -> Vec<u8> {
    let (block, blocks, chunk_header) = (4096_u32, 2048_u32, 12_u16);
    let mut bytes = 0xed26_ff3a_u32.to_le_bytes().to_vec();
    bytes.extend([1, 0, 28, chunk_header].map(u16::to_le_bytes).concat());
    bytes.extend([block, blocks, 1, 0].map(u32::to_le_bytes).concat());
    bytes.extend([0xcac2_u16, 0].map(u16::to_le_bytes).concat());
    bytes.extend([blocks, u32::from(chunk_header) + 4, 0xdead_beef].map(u32::to_le_bytes).concat());
    bytes
}

#[test]
fn a_small_image_that_expands_has_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("in.simg"), filled()).unwrap();
    let output = obento(folder.path(), &["convert", "--max-unpacked", "4M", "in.simg", "out.img"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("exceed the limit of 4"), "{said}");
    assert!(said.contains("--max-unpacked"), "{said}");
    assert!(!folder.path().join("out.img").exists());
    let output = obento(folder.path(), &["convert", "-q", "--max-unpacked", "8M", "in.simg", "out.img"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::metadata(folder.path().join("out.img")).unwrap().len(), 8 * MIB);
}

/// Creates a disk of 64 MiB with three partitions, of which the first and the last have no file system but data. The second
/// one has 32 MiB.
fn disk_with_neighbours(path: &Path) {
    let file = File::create(path).unwrap();
    file.set_len(64 * MIB).unwrap();
    let args = ["-o", "--new=1:1M:+8M", "--new=2:10M:+32M", "--new=3:42M:+8M"].map(Path::new);
    call("sgdisk", args.into_iter().chain([path])).unwrap();
    for (start, len) in [(MIB, 8 * MIB), (42 * MIB, 8 * MIB)] {
        let bytes: Vec<u8> = (0..len).map(|at| (at % 253) as u8).collect();
        file.write_all_at(&bytes, start).unwrap();
    }
}

#[test]
fn a_partition_of_a_disk_gets_an_image_as_qemu_img_writes_it_and_its_neighbours_stay() {
    if !require(&["qemu-img", "sgdisk", "mke2fs", "e2fsck", "zstd"].map(Oracle::Program)) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let path = |name: &str| folder.join(name);
    File::create(path("root.img")).unwrap().set_len(24 * MIB).unwrap();
    call("mke2fs", ["-q", "-t", "ext4"].map(Path::new).into_iter().chain([&*path("root.img")])).unwrap();
    fs::write(path("file"), "contents of a file\n".repeat(50_000)).unwrap();
    succeed(folder, &["cp", "file", "root.img:/"]);
    succeed(folder, &["convert", "-q", "-c", "root.img", "root.qcow2"]);
    call("zstd", ["-q".as_ref(), path("root.img").as_os_str()]).unwrap();
    disk_with_neighbours(&path("before.img"));
    fs::copy(path("before.img"), path("peer.img")).unwrap();
    let target = format!(
        "driver=raw,offset={},size={},file.driver=file,file.filename={}",
        10 * MIB,
        32 * MIB,
        path("peer.img").display()
    );
    let root = path("root.img");
    let args = ["convert", "-n", "-f", "raw", root.to_str().unwrap(), "--target-image-opts", &target];
    call("qemu-img", args).unwrap();
    let sha = call("sha256sum", [path("root.img")]).unwrap().stdout;
    let sha = String::from_utf8(sha).unwrap()[..64].to_owned();
    for source in ["root.img", "root.qcow2", "root.img.zst"] {
        fs::copy(path("before.img"), path("disk.img")).unwrap();
        let args = ["convert", "--verify", "--checksum", source, "disk.img@2"];
        let output = obento(folder, &args);
        let (text, said) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{source}: {said}");
        assert!(text.starts_with(&format!("{sha}  {source}\n")), "{text}");
        assert!(text.contains("disk.img@2: 24 MiB in a partition of 32 MiB"), "{text}");
        assert!(
            said.contains("8 MiB are unused; 'obento resize disk.img@2 --maximum' grows the volume"),
            "{said}"
        );
        assert!(fs::read(path("disk.img")).unwrap() == fs::read(path("peer.img")).unwrap(), "{source}");
    }
    assert!(!path("disk.img@2").exists());
    succeed(folder, &["resize", "-q", "disk.img@2", "--maximum"]);
    call("sgdisk", ["-v".as_ref(), path("disk.img").as_os_str()]).unwrap();
    succeed(folder, &["convert", "-q", "disk.img@2", "back.img"]);
    call("e2fsck", ["-fn".as_ref(), path("back.img").as_os_str()]).unwrap();
    assert_eq!(fs::metadata(path("back.img")).unwrap().len(), 32 * MIB);
    let output = obento(folder, &["cat", "disk.img@2:/file"]);
    assert!(output.stdout == fs::read(path("file")).unwrap());

    // A partition of a qcow2 disk.
    succeed(folder, &["convert", "-q", "before.img", "disk.qcow2"]);
    succeed(folder, &["convert", "-q", "root.img", "disk.qcow2@2"]);
    call("qemu-img", ["check".as_ref(), "-q".as_ref(), path("disk.qcow2").as_os_str()]).unwrap();
    let args = ["compare", "-q", "-f", "raw", "-F", "qcow2"].map(Path::new);
    call("qemu-img", args.into_iter().chain([&*path("peer.img"), &*path("disk.qcow2")])).unwrap();
}

#[test]
fn a_partition_that_is_too_small_or_in_use_or_not_named_exactly_is_not_overwritten() {
    if !require(&["sgdisk", "mke2fs"].map(Oracle::Program)) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let path = |name: &str| folder.join(name);
    disk_with_neighbours(&path("disk.img"));
    let args = ["-c", "1:data", "-c", "3:data"].map(Path::new);
    call("sgdisk", args.into_iter().chain([&*path("disk.img")])).unwrap();
    File::create(path("root.img")).unwrap().set_len(24 * MIB).unwrap();
    File::create(path("large.img")).unwrap().set_len(33 * MIB).unwrap();
    File::create(path("small.img")).unwrap().set_len(MIB / 2).unwrap();
    call("mke2fs", ["-q", "-t", "ext4"].map(Path::new).into_iter().chain([&*path("root.img")])).unwrap();
    let before = fs::read(path("disk.img")).unwrap();
    let refused = |args: &[&str], words: &[&str]| {
        let output = obento(folder, &[&["convert"], args].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        words.iter().for_each(|words| assert!(said.contains(words), "{args:?}: {said}"));
        assert!(!path("disk.img@2").exists() && !path("disk.img@9").exists());
    };
    let large = ["the source has 33 MiB (34603008 bytes), and the partition only 32 MiB", "disk.img grow 2"];
    refused(&["large.img", "disk.img@2"], &large);
    refused(&["-f", "large.img", "disk.img@2"], &large);
    refused(&["root.img", "disk.img@9"], &["no such partition", "disk.img@3"]);
    refused(&["small.img", "disk.img@name=data"], &["data", "1", "3"]);
    refused(&["disk.img@1", "disk.img@2"], &["the source is on the same disk"]);
    refused(&["-O", "qcow2", "root.img", "disk.img@2"], &["--format is not available"]);
    refused(&["-c", "root.img", "disk.img@2"], &["--compress is not available"]);
    refused(&["--backing", "root.img", "disk.img@2"], &["--backing is not available"]);
    refused(&["missing.img", "disk.img@2"], &["missing.img"]);
    assert!(fs::read(path("disk.img")).unwrap() == before, "nothing was written");

    succeed(folder, &["convert", "-q", "root.img", "disk.img@2"]);
    refused(&["small.img", "disk.img@2"], &["it contains an ext4 file system of 24 MiB", "--force"]);
    succeed(folder, &["convert", "-q", "-f", "small.img", "disk.img@2"]);
    // Nothing of the earlier file system is found.
    let output = obento(folder, &["ls", "disk.img@2"]);
    assert!(!output.status.success());
    // The name of a file, not of a partition.
    for name in ["other@1.img", "disk.img@monday.img"] {
        succeed(folder, &["convert", "root.img", name]);
    }
    if !require(&[Oracle::Root, Oracle::LoopMount, Oracle::Program("losetup")]) {
        return;
    }
    let attached = call("losetup", ["-f".as_ref(), "--show".as_ref(), path("disk.img").as_os_str()]).unwrap();
    let device = String::from_utf8(attached.stdout).unwrap();
    let output = obento(folder, &["convert", "-f", "root.img", "disk.img@2"]);
    call("losetup", ["-d", device.trim()]).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("in use by") && said.contains(device.trim()), "{said}");
}

#[test]
fn a_converted_image_gives_no_user_more_permissions_than_its_source_and_a_replaced_file() {
    let fixture = Fixture::new();
    let mode = |name: &str| fs::metadata(fixture.path(name)).unwrap().permissions().mode() & 0o7777;
    let set =
        |name: &str, mode| fs::set_permissions(fixture.path(name), fs::Permissions::from_mode(mode)).unwrap();
    fs::write(fixture.path("small.img"), vec![1; 65536]).unwrap();
    set("small.img", 0o600);
    for out in ["a.raw", "a.qcow2", "a.vhd", "a.vmdk", "a.vdi", "a.simg", "a.img.zst"] {
        succeed(fixture.folder(), &["convert", "-q", "small.img", out]);
        assert_eq!(mode(out), 0o600, "{out}");
    }
    // A file that is unpacked to its final place, a snapshot, and an image with a backing file.
    succeed(fixture.folder(), &["convert", "-q", "a.img.zst", "unpacked.raw"]);
    assert_eq!(mode("unpacked.raw"), 0o600);
    succeed(fixture.folder(), &["convert", "-q", "--backing", "small.img", "overlay.qcow2"]);
    assert_eq!(mode("overlay.qcow2"), 0o600);
    // The mode of an existing file is a limit too.
    set("small.img", 0o644);
    succeed(fixture.folder(), &["convert", "-q", "--force", "small.img", "a.qcow2"]);
    assert_eq!(mode("a.qcow2"), 0o600);
    // Without such a limit, the mode is that of the process.
    fs::write(fixture.path("new"), "").unwrap();
    succeed(fixture.folder(), &["convert", "-q", "small.img", "b.qcow2"]);
    assert_eq!(mode("b.qcow2"), mode("new") & 0o644);
}

#[test]
fn a_snapshot_is_no_more_readable_than_its_image() {
    if !require(&[Oracle::Program("qemu-img")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("a.qcow2");
    call("qemu-img", [Path::new("create"), Path::new("-q"), Path::new("-fqcow2"), &image, Path::new("1M")])
        .unwrap();
    call("qemu-img", [Path::new("snapshot"), Path::new("-c"), Path::new("before"), &image]).unwrap();
    fs::set_permissions(&image, fs::Permissions::from_mode(0o600)).unwrap();
    succeed(folder.path(), &["convert", "-q", "a.qcow2%before", "b.raw"]);
    assert_eq!(fs::metadata(folder.path().join("b.raw")).unwrap().permissions().mode() & 0o7777, 0o600);
}

/// Runs qemu-img in `folder`.
fn qemu_img(folder: &Path, args: &[&str]) {
    let output = Command::new("qemu-img").current_dir(folder).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn an_offset_is_not_a_partition_and_the_disk_stays_as_it_is() {
    if !require(&[Oracle::Program("sgdisk")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    disk_with_neighbours(&folder.join("disk.img"));
    fs::write(folder.join("small.img"), vec![7; 65536]).unwrap();
    File::create(folder.join("plain.img")).unwrap().set_len(MIB).unwrap();
    let before = fs::read(folder.join("disk.img")).unwrap();
    for (target, hint) in [
        ("disk.img@+10M", "name a partition by its number: disk.img@2"),
        ("disk.img@+11M", "name a partition by its number: disk.img@PART"),
        ("disk.img@+0", "disk.img@PART"),
        ("plain.img@+4096", "plain.img@PART"),
    ] {
        for force in [&[][..], &["--force"]] {
            let output = obento(folder, &[&["convert", "small.img", target], force].concat());
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{target} {force:?}: {said}");
            assert!(said.contains("not a partition") && said.contains(hint), "{target} {force:?}: {said}");
        }
    }
    assert!(fs::read(folder.join("disk.img")).unwrap() == before, "nothing was written");
    assert!(fs::read(folder.join("plain.img")).unwrap().iter().all(|&byte| byte == 0));
}

#[test]
fn an_overlay_is_not_written_to_a_disk_below_it() {
    if !require(&["qemu-img", "sgdisk"].map(Oracle::Program)) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    disk_with_neighbours(&folder.join("base.img"));
    let create = ["create", "-q", "-f", "qcow2", "-F"];
    qemu_img(folder, &[&create[..], &["raw", "-b", "base.img", "middle.qcow2"]].concat());
    qemu_img(folder, &[&create[..], &["qcow2", "-b", "middle.qcow2", "top.qcow2"]].concat());
    let before = fs::read(folder.join("base.img")).unwrap();
    let refused = |source: &str, target: &str| {
        let output = obento(folder, &["--allow-backing", "convert", "-f", source, target]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{source}: {said}");
        assert!(said.contains("the source reads this disk as a backing file"), "{source}: {said}");
    };
    refused("middle.qcow2@1", "base.img@1");
    refused("top.qcow2@1", "base.img@3");
    refused("top.qcow2@1", "middle.qcow2@3");
    assert!(fs::read(folder.join("base.img")).unwrap() == before, "nothing was written");
    // Another disk is written.
    fs::copy(folder.join("base.img"), folder.join("other.img")).unwrap();
    succeed(folder, &["--allow-backing", "convert", "-q", "-f", "top.qcow2@1", "other.img@3"]);
    if !require(&[Oracle::Root, Oracle::LoopMount, Oracle::Program("losetup")]) {
        return;
    }
    let attached = call("losetup", ["-f".as_ref(), "--show".as_ref(), folder.join("base.img").as_os_str()]);
    let device = String::from_utf8(attached.unwrap().stdout).unwrap();
    let device = device.trim();
    let output = obento(folder, &["--allow-backing", "convert", "-f", "top.qcow2@1", &format!("{device}@3")]);
    call("losetup", ["-d", device]).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("as a backing file"), "{said}");
    assert!(fs::read(folder.join("base.img")).unwrap() == before, "nothing was written");
}

#[test]
fn a_copy_of_an_overlay_is_as_private_as_each_file_below_it() {
    if !require(&[Oracle::Program("qemu-img")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("base.img"), vec![7; 1 << 20]).unwrap();
    let create = ["create", "-q", "-f", "qcow2", "-F"];
    qemu_img(folder, &[&create[..], &["raw", "-b", "base.img", "middle.qcow2"]].concat());
    qemu_img(folder, &[&create[..], &["qcow2", "-b", "middle.qcow2", "top.qcow2"]].concat());
    qemu_img(folder, &["snapshot", "-c", "before", "top.qcow2"]);
    for private in ["base.img", "middle.qcow2"] {
        for name in ["base.img", "middle.qcow2", "top.qcow2"] {
            let mode = if name == private { 0o600 } else { 0o644 };
            fs::set_permissions(folder.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        for (source, out) in [
            ("top.qcow2", "out.raw"),
            ("top.qcow2", "out.qcow2"),
            ("top.qcow2%before", "out.raw"),
            ("middle.qcow2", "out.vmdk"),
        ] {
            succeed(folder, &["--allow-backing", "convert", "-q", source, out]);
            let mode = fs::metadata(folder.join(out)).unwrap().permissions().mode() & 0o7777;
            assert_eq!(mode, 0o600, "{private}: {source}");
            fs::remove_file(folder.join(out)).unwrap();
        }
        succeed(folder, &["--allow-backing", "convert", "-q", "--backing", "top.qcow2", "over.qcow2"]);
        let mode = fs::metadata(folder.join("over.qcow2")).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode, 0o600, "{private}: --backing");
        fs::remove_file(folder.join("over.qcow2")).unwrap();
    }
}

#[test]
fn the_default_list_of_a_directory_gives_no_user_more_permissions_than_the_source() {
    if !require(&["setfacl", "getfacl"].map(Oracle::Program)) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("small.img"), vec![1; 65536]).unwrap();
    fs::create_dir(folder.join("shared")).unwrap();
    let shared = folder.join("shared");
    if call("setfacl", ["-d".as_ref(), "-m".as_ref(), "user:daemon:rw".as_ref(), shared.as_os_str()]).is_err()
    {
        return;
    }
    let list = |mode: u32, out: &str| {
        fs::set_permissions(folder.join("small.img"), fs::Permissions::from_mode(mode)).unwrap();
        succeed(folder, &["convert", "-q", "small.img", out]);
        let output = call("getfacl", ["-cp".as_ref(), folder.join(out).as_os_str()]).unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mode = fs::metadata(folder.join(out)).unwrap().permissions().mode() & 0o7777;
        (text.split_whitespace().collect::<Vec<_>>().join(" "), mode)
    };
    let (text, mode) = list(0o640, "shared/a.qcow2");
    assert_eq!((&*text, mode), ("user::rw- group::r-- other::---", 0o640));
    let (text, mode) = list(0o600, "shared/b.qcow2");
    assert!(text.contains("user:daemon:rw- #effective:---") && mode == 0o600, "{text} {mode:o}");
    // All users may read this source.
    let (text, mode) = list(0o644, "shared/c.qcow2");
    assert!(text.contains("user:daemon:rw- #effective:r--") && mode == 0o644, "{text} {mode:o}");
}

#[test]
fn a_failure_before_the_first_write_reports_that_the_partition_was_not_changed() {
    if !require(&["sgdisk"].map(Oracle::Program)) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    disk_with_neighbours(&folder.join("disk.img"));
    fs::write(folder.join("in.simg"), filled()).unwrap();
    let before = fs::read(folder.join("disk.img")).unwrap();
    let said = |limit: &str| {
        let output = obento(folder, &["convert", "--max-unpacked", limit, "in.simg", "disk.img@2"]);
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let text = said("64K");
    assert!(text.contains("the partition was not changed") && !text.contains("incomplete"), "{text}");
    assert!(fs::read(folder.join("disk.img")).unwrap() == before);
    let text = said("4M");
    assert!(text.contains("the partition is incomplete, and its first MiB is zeros"), "{text}");
}

#[test]
fn no_image_is_written_to_standard_output_or_to_a_file_named_by_a_hyphen() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("disk.img"), vec![1; 4096]).unwrap();
    fs::create_dir(folder.path().join("tree")).unwrap();
    for args in [
        &["convert", "-O", "raw", "disk.img", "-"][..],
        &["convert", "-f", "-O", "qcow2", "disk.img", "-"],
        &["convert", "disk.img", "-"],
        &["build", "-", "--from", "tree", "-t", "ext4"],
    ] {
        let output = obento(folder.path(), args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{args:?}: {said}");
        assert!(said.contains("standard output") && said.contains("'./-'"), "{said}");
        assert!(!folder.path().join("-").exists(), "{args:?}");
    }
    succeed(folder.path(), &["convert", "-q", "-O", "raw", "disk.img", "./-"]);
    assert_eq!(fs::read(folder.path().join("-")).unwrap(), vec![1; 4096]);
}
