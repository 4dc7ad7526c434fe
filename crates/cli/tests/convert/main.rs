//! `obento convert` against qemu-img, simg2img and the programs that unpack: they accept the new images, and
//! find the bytes of the disk in them.

mod partition;
mod privacy;
mod refused;

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

/// Runs qemu-img in `folder`.
fn qemu_img(folder: &Path, args: &[&str]) {
    let output = Command::new("qemu-img").current_dir(folder).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}
