//! Every kind of source produces the same tree, as the kernel reads it. Compared are names, types, owners, modes,
//! times, attributes, links, contents and, if the source has them, holes.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;

use obento_testkit::entries::{Entries, Entry};
use obento_testkit::oracle::{Oracle, call, program, require, run};

use super::{Bench, JUDGES, entries_of, text};

/// Metadata that a kind of source cannot express.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lacks {
    Nothing,
    /// Positions of holes.
    Holes,
    /// Positions of holes, and names of the same file.
    HolesAndLinks,
}

/// Returns the tree without the metadata that a source cannot express.
fn without(entries: &Entries, lacks: Lacks) -> Entries {
    let mut all = entries.clone();
    if lacks != Lacks::Nothing {
        all.values_mut().for_each(|entry| entry.map = None);
    }
    if lacks == Lacks::HolesAndLinks {
        let links = all.values_mut().filter(|entry| entry.kind == "hardlink");
        links.for_each(|link| *link = Entry { map: None, ..original(entries, link).clone() });
    }
    all
}

fn original<'e>(entries: &'e Entries, link: &Entry) -> &'e Entry {
    &entries[link.target.as_slice()]
}

/// Compares two trees. All tests of this file use it.
#[track_caller]
fn expect(bench: &Bench, expected: &Entries, lacks: Lacks, name: &str) {
    bench.fsck(name);
    let (expected, found) = (without(expected, lacks), without(&bench.kernel(name), lacks));
    let differences = super::Differences::between(&expected, &found);
    assert!(differences.is_empty(), "{name}: {differences}");
}

fn octal(bytes: &[u8]) -> String {
    let plain = |byte: u8| byte.is_ascii_graphic() && !b"\\#*?[=".contains(&byte);
    bytes.iter().fold(String::new(), |mut text, &byte| {
        let _ = if plain(byte) { write!(text, "{}", byte as char) } else { write!(text, "\\{byte:03o}") };
        text
    })
}

fn hexadecimal(bytes: &[u8]) -> String {
    let plain = |byte: u8| byte.is_ascii_graphic() && !b"\\=".contains(&byte);
    bytes.iter().fold(String::new(), |mut text, &byte| {
        let _ = if plain(byte) { write!(text, "{}", byte as char) } else { write!(text, "\\x{byte:02x}") };
        text
    })
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |bits: u32| DIGITS[bits as usize & 63] as char;
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = (0..3).fold(0, |bits, at| bits << 8 | u32::from(chunk.get(at).copied().unwrap_or(0)));
        let digits = [digit(bits >> 18), digit(bits >> 12), digit(bits >> 6), digit(bits)];
        text.extend(&digits[..=chunk.len()]);
        text.push_str(&"=="[..3 - chunk.len()]);
    }
    text
}

/// Returns the type of an entry, and the numbers of a device.
fn kind(entry: &Entry) -> (&str, (u64, u64)) {
    let (kind, numbers) = entry.kind.split_once(' ').unwrap_or((&entry.kind, "0:0"));
    let (major, minor) = numbers.split_once(':').unwrap();
    (kind, (major.parse().unwrap(), minor.parse().unwrap()))
}

/// Returns the tree as mtree(5) describes it; contents are those of the folder `tree`.
fn mtree(entries: &Entries) -> String {
    let mut all = String::from("#mtree\n");
    for (path, entry) in entries {
        let held = if entry.kind == "hardlink" { original(entries, entry) } else { entry };
        let (kind, (major, minor)) = kind(held);
        let kind = if kind == "symlink" { "link" } else { kind };
        let _ = write!(all, "./{} type={kind} mode={:o}", octal(path), held.mode);
        let _ = write!(
            all,
            " uid={} gid={} time={}.{:09}",
            held.owner.0, held.owner.1, held.mtime.0, held.mtime.1
        );
        let _ = match kind {
            "file" => write!(all, " size={} contents=tree/{}", held.size, octal(path)),
            "link" => write!(all, " link={}", octal(&held.target)),
            "char" | "block" => write!(all, " device=native,{major},{minor}"),
            _ => Ok(()),
        };
        for (name, value) in &held.xattrs {
            let _ = write!(all, " xattr.{}={}", octal(name.as_bytes()), base64(value));
        }
        all.push('\n');
    }
    all
}

/// Returns the tree as composefs-dump(5) describes it.
fn dump(entries: &Entries) -> String {
    let mut all = String::new();
    for (path, entry) in entries {
        let path = hexadecimal(path);
        if entry.kind == "hardlink" {
            let original = hexadecimal(&entry.target);
            let _ = writeln!(all, "/{path} 0 @100644 - - - - - /{original} - -");
            continue;
        }
        let (kind, (major, minor)) = kind(entry);
        let bits = match kind {
            "file" => 0o100_000,
            "dir" => 0o040_000,
            "symlink" => 0o120_000,
            "char" => 0o020_000,
            "block" => 0o060_000,
            _ => 0o010_000,
        };
        // `gnu_dev_makedev` of glibc's sys/sysmacros.h.
        let rdev = (major & 0xfff) << 8 | (major & !0xfff) << 32 | minor & 0xff | (minor & !0xff) << 12;
        let payload = match kind {
            "file" if entry.size > 0 => format!("tree/{path}"),
            "symlink" => hexadecimal(&entry.target),
            _ => "-".into(),
        };
        let (mode, (uid, gid), (secs, nanos)) = (bits | entry.mode, entry.owner, entry.mtime);
        let _ = write!(
            all,
            "/{path} {} {mode:o} 1 {uid} {gid} {rdev} {secs}.{nanos:09} {payload} - -",
            entry.size
        );
        for (name, value) in &entry.xattrs {
            let _ = write!(all, " {}={}", hexadecimal(name.as_bytes()), hexadecimal(value));
        }
        all.push('\n');
    }
    all
}

/// Creates an OCI layout whose index names two images by tag and platform, the second made of the layer
/// `tar`.
fn oci(bench: &Bench, tar: &Path) {
    let blobs = bench.path("image/blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let blob = |bytes: &[u8], more: &str| {
        let path = bench.path("blob");
        fs::write(&path, bytes).unwrap();
        let sum = text(&call("sha256sum", [&path]).unwrap().stdout);
        let digest = sum.split(' ').next().unwrap();
        fs::rename(&path, blobs.join(digest)).unwrap();
        format!("{{\"digest\":\"sha256:{digest}\",\"size\":{}{more}}}", bytes.len())
    };
    let empty = tar::Builder::new(Vec::new()).into_inner().unwrap();
    let mut manifests = Vec::new();
    for (bytes, name, machine) in [(empty, "old", "amd64"), (fs::read(tar).unwrap(), "new", "arm64")] {
        let layer = blob(&bytes, "");
        let more = format!(
            ",\"annotations\":{{\"org.opencontainers.image.ref.name\":\"{name}\"}},\
             \"platform\":{{\"os\":\"linux\",\"architecture\":\"{machine}\"}}"
        );
        manifests.push(blob(format!("{{\"layers\":[{layer}]}}").as_bytes(), &more));
    }
    fs::write(bench.path("image/index.json"), format!("{{\"manifests\":[{}]}}", manifests.join(",")))
        .unwrap();
    fs::write(bench.path("image/oci-layout"), "{\"imageLayoutVersion\":\"1.0.0\"}").unwrap();
}

/// The sources, and the metadata that each cannot express.
const KINDS: &[(&str, &str, Lacks)] = &[
    ("folder", "--from tree --owner keep --xattrs", Lacks::Nothing),
    ("plain", "--from expected.tar", Lacks::Nothing),
    ("gzip", "--from expected.tar.gz", Lacks::Nothing),
    ("xz", "--from expected.tar.xz", Lacks::Nothing),
    ("zstd", "--from expected.tar.zst", Lacks::Nothing),
    ("layer", "--from layer:expected.tar.gz", Lacks::Nothing),
    ("tagged", "--from image --image new", Lacks::Nothing),
    ("platform", "--from oci:image --image linux/arm64", Lacks::Nothing),
    ("mtree", "--from tree.mtree", Lacks::HolesAndLinks),
    ("dump", "--from dump:tree.dump", Lacks::Holes),
    ("added", "--add tree:/ --owner keep --xattrs", Lacks::Nothing),
];

/// The sources of [`KINDS`] except the folder itself.
fn sources(bench: &Bench, expected: &Entries) {
    for packer in ["gzip", "xz", "zstd"] {
        let file = bench.path("expected.tar");
        let packed = run(program(packer).arg("-kfq").arg("-1").arg(&file));
        packed.unwrap();
    }
    fs::write(bench.path("tree.mtree"), mtree(expected)).unwrap();
    fs::write(bench.path("tree.dump"), dump(expected)).unwrap();
    oci(bench, &bench.path("expected.tar"));
}

#[test]
fn every_kind_of_source_makes_the_tree_that_it_describes() {
    let packers = [Oracle::Program("gzip"), Oracle::Program("xz"), Oracle::Program("zstd")];
    if !require(JUDGES) || !require(&packers) {
        return;
    }
    let bench = Bench::new();
    let expected = entries_of(&bench, &bench.tree());
    sources(&bench, &expected);
    for (name, sources, lacks) in KINDS {
        let image = format!("{name}.img");
        bench.quietly(&format!("build {image} {sources} -q"));
        expect(&bench, &expected, *lacks, &image);
        fs::remove_file(bench.path(&image)).unwrap();
    }
    let mut piped = bench.command("build pipe.img --from - -q");
    let output = piped.stdin(File::open(bench.path("expected.tar.zst")).unwrap()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    expect(&bench, &expected, Lacks::Nothing, "pipe.img");
    // If there are several images, one must be named, and must exist.
    for (line, words) in [
        (
            "build x.img --from image",
            "the index lists 2 images\n  help: select an image with --image NAME; the names are old, linux/amd64, sha256:",
        ),
        (
            "build x.img --from image --image linux/s390x",
            "the index lists 2 images\n  help: select an image with --image NAME; the names are ",
        ),
    ] {
        let (_, said) = bench.run(line, 2);
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn an_image_reveals_neither_the_order_of_its_sources_nor_the_machine() {
    let packers = [Oracle::Program("gzip"), Oracle::Program("xz"), Oracle::Program("zstd")];
    if !require(JUDGES) || !require(&packers) {
        return;
    }
    let (one, two) = (Bench::new(), Bench::new());
    let expected = entries_of(&one, &one.tree());
    // The other copy has other inode numbers, and its archive has another order of members.
    let copied = run(program("cp").arg("-a").arg(one.path("tree")).arg(two.path("tree")));
    copied.unwrap();
    let mut command = program("tar");
    command.args(["--format=pax", "--sparse", "--xattrs", "--xattrs-include=*", "--sort=inode"]);
    command.args(["--numeric-owner", "--exclude=./lost+found", "-cf"]);
    run(command.arg(two.path("expected.tar")).arg("-C").arg(two.path("tree")).arg(".")).unwrap();
    sources(&one, &expected);
    sources(&two, &expected);
    for (name, sources, _) in KINDS {
        one.run(&format!("build out.img --threads 1 {sources} -q"), 0);
        let mut other = two.command(&format!("build out.img --threads 4 {sources} -q"));
        other.env("TZ", "Asia/Tokyo").env("LC_ALL", "tr_TR.UTF-8");
        let output = other.output().unwrap();
        assert!(output.status.success(), "{name}: {}", text(&output.stderr));
        let (a, b) = (one.path("out.img"), two.path("out.img"));
        let said =
            Command::new(env!("CARGO_BIN_EXE_obento")).arg("diff").arg("--bytes").args([&a, &b]).output();
        let said = said.unwrap();
        assert!(said.status.success(), "{name}: {}", text(&said.stdout));
        [a, b].iter().for_each(|path| fs::remove_file(path).unwrap());
    }
}

/// Large trees, each in a folder: see `cargo xtask build-campaign`.
#[test]
#[ignore = "takes trees that `cargo xtask build-campaign` fetches"]
fn trees_of_the_world_equal_what_the_kernel_reads_in_their_images() {
    let trees = std::env::var_os("OBENTO_BUILD_TREES").expect("OBENTO_BUILD_TREES names folders");
    assert!(require(JUDGES));
    for tree in std::env::split_paths(&trees) {
        let bench = Bench::new();
        let expected = entries_of(&bench, &tree);
        let image = |name: &str, line: &str| {
            let mut command = bench.command(&format!("build {name} -q {line}"));
            let output = command.arg("--from").arg(&tree).output().unwrap();
            assert!(output.status.success(), "{name}: {}", text(&output.stderr));
        };
        image("folder.img", "--owner keep --xattrs --verify");
        expect(&bench, &expected, Lacks::Nothing, "folder.img");
        fs::remove_file(bench.path("folder.img")).unwrap();
        bench.run("build archive.img --from expected.tar -q --minimize", 0);
        expect(&bench, &expected, Lacks::Nothing, "archive.img");
        let mut out = std::io::stdout();
        let bytes: u64 = expected.values().map(|entry| entry.size).sum();
        let name = tree.as_os_str().as_bytes().escape_ascii();
        writeln!(out, "{name}: {} entries with {bytes} bytes, both ways", expected.len()).unwrap();
    }
}

#[test]
fn text_of_another_format_is_not_a_manifest() {
    let bench = Bench::new();
    for line in ["root:x:0:0:root:/root:/bin/sh", "mail:x:8:8:Mail Agent:/var/mail:/bin/sh", "two words"] {
        fs::write(bench.path("passwd"), format!("{line}\n")).unwrap();
        let (_, said) = bench.run("build disk.img --from mtree:passwd", 2);
        assert!(said.contains("passwd:1'") && !bench.path("disk.img").exists(), "{line}: {said}");
    }
    fs::write(bench.path("list"), "#mtree\n/set type=dir\n./d\n./e sha256=00 nlink=2 optional\n").unwrap();
    bench.run("build disk.img --from mtree:list", 0);
}
