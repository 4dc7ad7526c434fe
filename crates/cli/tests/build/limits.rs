//! Manifests that are packed, that never end, and that name files of others. Sources whose files need more space or memory
//! than their length lets expect.

use std::fs::{self, File};
use std::os::unix::fs::symlink;

use obento_testkit::oracle::{Oracle, call, require};

use super::{Bench, text};

#[test]
fn a_packed_manifest_is_read() {
    if !require(&[Oracle::Program("gzip")]) {
        return;
    }
    let bench = Bench::new();
    fs::write(bench.path("file"), "bytes").unwrap();
    fs::write(bench.path("a.mtree"), "#mtree\n./named type=file contents=file mode=0644\n").unwrap();
    fs::write(bench.path("a.dump"), "/named 5 100644 1 0 0 0 0.0 file - -\n").unwrap();
    call("gzip", ["-k".as_ref(), bench.path("a.mtree").as_os_str(), bench.path("a.dump").as_os_str()])
        .unwrap();
    fs::copy(bench.path("a.mtree.gz"), bench.path("other")).unwrap();
    for source in ["a.mtree.gz", "mtree:other", "dump:a.dump.gz"] {
        bench.run(&format!("build -F -q -t ext2 disk.img --from {source}"), 0);
        assert_eq!(bench.run("cat disk.img:/named", 0).0, "bytes", "{source}");
    }
}

#[test]
fn a_line_without_end_is_refused_before_it_fills_memory() {
    if !require(&[Oracle::Program("gzip")]) {
        return;
    }
    let bench = Bench::new();
    for kind in ["mtree", "dump"] {
        fs::write(bench.path("long"), vec![b'x'; 2 << 20]).unwrap();
        let (_, said) = bench.run(&format!("build disk.img --from {kind}:long"), 2);
        assert!(said.contains("line 1 has more than 1048576 bytes"), "{kind}: {said}");
        fs::remove_file(bench.path("long")).unwrap();
    }
    fs::write(
        bench.path("set"),
        "/set a=1\n".repeat(10) + &(0..300).map(|n| format!("/set k{n}=1\n")).collect::<String>(),
    )
    .unwrap();
    let (_, said) = bench.run("build disk.img --from mtree:set", 2);
    assert!(
        said.contains("line 266 exceeds the maximum of nested directories or of keywords in /set"),
        "{said}"
    );
    // Not a search for each of very many keywords, and not a copy of a long one for each entry.
    let many: String = (0..100_000).map(|n| format!(" k{n}=")).collect();
    for line in [many, format!(" link={}", "x".repeat(20_000))] {
        fs::write(bench.path("set"), format!("/set{line}\n./a type=dir\n")).unwrap();
        assert!(bench.run("build disk.img --from mtree:set", 2).1.contains("line 1 exceeds the maximum"));
    }
    let entries: String = (0..1000).map(|n| format!("./{n} type=dir\n")).collect();
    fs::write(bench.path("set"), format!("/set uid=0 {}\n{entries}", "x".repeat(900_000))).unwrap();
    let (_, said) = bench.run("build disk.img --from mtree:set", 2);
    assert!(said.contains("invalid keyword 'xxx") && said.len() < 10_000, "{} bytes", said.len());
    fs::write(bench.path("deep"), "d type=dir\n".repeat(3000)).unwrap();
    assert!(bench.run("build disk.img --from mtree:deep", 2).1.contains("line 2049 exceeds"));
}

#[test]
fn a_manifest_names_contents_in_its_own_directory_and_in_those_that_are_allowed() {
    let bench = Bench::new();
    for folder in ["manifests/sub", "elsewhere"] {
        fs::create_dir_all(bench.path(folder)).unwrap();
        fs::write(bench.path(folder).join("file"), folder).unwrap();
    }
    symlink(bench.path("elsewhere"), bench.path("manifests/out")).unwrap();
    let folder = bench.path("manifests");
    let elsewhere = bench.path("elsewhere/file");
    let elsewhere = elsewhere.to_str().unwrap();
    let (sub, far) = ("manifests/sub".len(), "elsewhere".len());
    let write = |size: usize, contents: &str| {
        fs::write(folder.join("m.mtree"), format!("#mtree\n./f type=file contents={contents}\n")).unwrap();
        fs::write(folder.join("m.dump"), format!("/f {size} 100644 1 0 0 0 0.0 {contents} - -\n")).unwrap();
    };
    for (size, contents) in
        [(far, elsewhere), (far, "../elsewhere/file"), (far, "out/file"), (1, "/etc/shadow")]
    {
        write(size, contents);
        for source in ["manifests/m.mtree", "dump:manifests/m.dump"] {
            let (_, said) = bench.run(&format!("build disk.img --from {source}"), 2);
            let reported = "are outside of the directory of the manifest\n  help: use --contents DIR to allow another directory";
            assert!(said.contains(reported), "{contents}, {source}: {said}");
        }
    }
    for (size, contents, words) in [(sub, "sub/file", "manifests/sub"), (far, elsewhere, "elsewhere")] {
        write(size, contents);
        for source in ["manifests/m.mtree", "dump:manifests/m.dump"] {
            bench.run(&format!("build -F -q -t ext2 disk.img --from {source} --contents elsewhere"), 0);
            assert_eq!(bench.run("cat disk.img:/f", 0).0, words);
        }
    }
    // The layout file of a disk names manifests relative to its directory.
    let layout = "[[partition]]\ntype = \"linux-generic\"\ncontent = \"ext2\"\nfrom = \"m.mtree\"\ncontents = \"../elsewhere\"\n";
    fs::write(folder.join("disk.toml"), layout).unwrap();
    bench.run("build -q whole.img --disk manifests/disk.toml", 0);
    assert_eq!(text(&bench.command("cat whole.img:/f").output().unwrap().stdout), "elsewhere");
}

/// Creates a file `tree/hole` that ends with a word after a hole of `hole` bytes.
fn with_hole(bench: &Bench, hole: u64) {
    use std::os::unix::fs::FileExt;
    fs::create_dir_all(bench.path("tree")).unwrap();
    File::create(bench.path("tree/hole")).unwrap().write_all_at(b"word", hole).unwrap();
    let tree = bench.path("tree");
    let tar = bench.path("hole.tar");
    call(
        "tar",
        ["-S".as_ref(), "-C".as_ref(), tree.as_os_str(), "-cf".as_ref(), tar.as_os_str(), "hole".as_ref()],
    )
    .unwrap();
}

#[test]
fn a_format_without_holes_gets_the_size_that_their_zeros_take() {
    if !require(&[Oracle::Program("tar"), Oracle::Program("fsck.fat"), Oracle::Program("fsck.exfat")]) {
        return;
    }
    let bench = Bench::new();
    with_hole(&bench, 3 << 30);
    for (kind, fsck) in [("vfat", "fsck.fat"), ("exfat", "fsck.exfat")] {
        for source in ["--from tree", "--from hole.tar", "--from layer:hole.tar", "--from -"] {
            let mut command = bench.command(&format!("build -F -q -t {kind} disk.img {source}"));
            let output = command.stdin(File::open(bench.path("hole.tar")).unwrap()).output().unwrap();
            assert!(output.status.success(), "{kind} {source}: {}", text(&output.stderr));
            let image = bench.path("disk.img");
            call(fsck, ["-n".as_ref(), image.as_os_str()]).unwrap();
            let size = bench.run("stat -c %s disk.img:/hole", 0).0;
            assert_eq!(size.trim(), ((3_u64 << 30) + 4).to_string(), "{kind} {source}");
        }
        let (_, said) = bench.run(&format!("build -F -q -t {kind} disk.img --size 64M --from tree"), 2);
        assert!(said.contains("a size of 67108864 bytes is too small; 3"), "{kind}: {said}");
    }
}

#[test]
fn a_file_that_is_too_large_for_fat_is_named() {
    if !require(&[Oracle::Program("tar")]) {
        return;
    }
    let bench = Bench::new();
    with_hole(&bench, 4 << 30);
    for source in ["tree", "hole.tar"] {
        for size in ["", " --size 64M"] {
            let (_, said) = bench.run(&format!("build -q -t vfat disk.img{size} --from {source}"), 2);
            assert!(said.contains("/hole'") && said.contains("4294967295"), "{source}{size}: {said}");
        }
    }
    bench.run("build -q -t exfat disk.img --from hole.tar", 0);
    // In a format without holes the bytes of such a file are zeros.
    with_hole(&bench, 100 << 20);
    bench.run("build -F -q -t vfat disk.img --from hole.tar", 0);
    bench.run("cp disk.img:/hole back", 0);
    call("cmp", [bench.path("back"), bench.path("tree/hole")]).unwrap();
}

/// Returns a file of an archive with the records of an extended header.
fn member(name: &str, records: &[(String, Vec<u8>)], bytes: &[u8]) -> Vec<u8> {
    let mut pax = Vec::new();
    for (key, value) in records {
        // The length of a record includes the digits of the length.
        let rest = key.len() + value.len() + 3;
        let len =
            (1..9).map(|digits| rest + digits).find(|len| len.to_string().len() + rest == *len).unwrap();
        pax.extend([format!("{len} {key}=").as_bytes(), value, b"\n"].concat());
    }
    let mut tar = tar::Builder::new(Vec::new());
    for (kind, bytes) in [(tar::EntryType::XHeader, &*pax), (tar::EntryType::Regular, bytes)] {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_size(bytes.len() as u64);
        tar.append_data(&mut header, name, bytes).unwrap();
    }
    tar.into_inner().unwrap().strip_suffix(&[0; 1024]).unwrap().to_vec()
}

/// Returns a sparse file with `runs` runs of one byte, each in a block of its own.
fn sparse(name: &str, runs: u64) -> Vec<u8> {
    let mut bytes = format!("{runs}\n");
    (0..runs).for_each(|run| bytes += &format!("{}\n1\n", run * 4096));
    let mut bytes = bytes.into_bytes();
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes.resize(bytes.len() + usize::try_from(runs).unwrap(), b'x');
    let size = (runs * 4096).to_string();
    let records = [("major", "1"), ("minor", "0"), ("name", name), ("realsize", &size)];
    let records = records.map(|(key, value)| (format!("GNU.sparse.{key}"), value.into()));
    member(name, &records, &bytes)
}

#[test]
fn the_blocks_of_sparse_files_count_for_the_limit_of_an_archive() {
    if !require(&[Oracle::Program("gzip")]) {
        return;
    }
    let bench = Bench::new();
    let archive = [sparse("a", 100), sparse("b", 100), vec![0; 1024]].concat();
    fs::write(bench.path("sparse.tar"), archive).unwrap();
    call("gzip", ["-k".as_ref(), bench.path("sparse.tar").as_os_str()]).unwrap();
    bench.run("mkfs -q -t ext4 into.img 16M", 0);
    for source in ["sparse.tar", "sparse.tar.gz", "layer:sparse.tar"] {
        let (_, said) = bench.run(&format!("build -F disk.img --from {source} --max-unpacked 600k"), 2);
        assert!(said.contains("exceed the limit of 614400 bytes\n  help: use --max-unpacked SIZE"), "{said}");
        bench.run(&format!("build -F -q disk.img --from {source} --max-unpacked 1M"), 0);
        let Some(archive) = source.strip_prefix("sparse").map(|_| source) else { continue };
        let (_, said) = bench.run(&format!("import into.img:/ {archive} --max-unpacked 600k"), 2);
        assert!(said.contains("exceed the limit of 614400 bytes"), "{said}");
        bench.run(&format!("import into.img:/ {archive} --max-unpacked 1M"), 0);
    }
}

#[test]
fn directories_that_paths_imply_count_for_the_limit_of_unpacked_bytes() {
    let bench = Bench::new();
    let path = format!("{}f", "d/".repeat(600));
    let archive = [member(&path, &[("path".to_owned(), path.clone().into())], b""), vec![0; 1024]].concat();
    fs::write(bench.path("deep.tar"), archive).unwrap();
    fs::write(bench.path("deep.mtree"), format!("#mtree\n./{path} type=file\n")).unwrap();
    for source in ["deep.tar", "deep.mtree"] {
        let (_, said) = bench.run(&format!("build -F -q disk.img --from {source} --max-unpacked 2M"), 2);
        let words = "and 512 such directories exist already\n  help: use --max-unpacked SIZE to allow more";
        assert!(said.contains(words), "{source}: {said}");
        bench.run(&format!("build -F -q disk.img --from {source} --max-unpacked 3M"), 0);
    }
    bench.run("mkfs -F -q disk.img 16M", 0);
    let (_, said) = bench.run("import disk.img:/ deep.tar --max-unpacked 2M", 2);
    assert!(said.contains("exceed the limit of 2 MiB\n  help: use --max-unpacked SIZE"), "{said}");
}

#[test]
fn a_volume_of_many_directories_needs_few_tries_and_is_small() {
    let bench = Bench::new();
    let list: String = (0..10_000).map(|n| format!("./{}/{n} type=dir\n", n / 100)).collect();
    fs::write(bench.path("list"), format!("#mtree\n{list}")).unwrap();
    for (format, most) in [("vfat", 22 << 20), ("exfat", 44 << 20), ("xv6", 164 << 20)] {
        bench.run(&format!("build -F -q -t {format} disk.img --from mtree:list --free 0%"), 0);
        let len = fs::metadata(bench.path("disk.img")).unwrap().len();
        assert!(len <= most, "{format}: {len} bytes");
        let less = len * 15 / 16 / 4096 * 4096;
        bench.run(&format!("build -F -q -t {format} disk.img --size {less} --from mtree:list"), 2);
    }
}

#[test]
fn the_attributes_link_targets_and_holes_of_sources_have_a_limit() {
    let bench = Bench::new();
    let attribute = |value: u8| [("SCHILY.xattr.user.a".to_owned(), vec![value; 600])];
    let same = [member("a", &attribute(b'1'), b""), member("b", &attribute(b'1'), b"")].concat();
    let link = [("linkpath".to_owned(), vec![b'x'; 600])];
    let mut link = member("link", &link, b"");
    // The header of the member itself is the last block.
    let at = link.len() - 512;
    let mut header = tar::Header::from_byte_slice(&link[at..]).clone();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_cksum();
    link[at..].copy_from_slice(header.as_bytes());
    let end = vec![0; 1024];
    for (name, more, code) in [
        ("same", Vec::new(), 0),
        ("other", member("c", &attribute(b'2'), b""), 2),
        ("link", link, 2),
        ("holes", sparse("d", 50), 2),
    ] {
        fs::write(bench.path("a.tar"), [&*same, &more, &end].concat()).unwrap();
        let (_, said) = bench.run("build -F -q -t ext4 disk.img --from a.tar --unpack-memory 1000", code);
        let words = "the extended attributes, link targets and holes of the sources exceed the limit of 1000 bytes of memory\n  help: use --unpack-memory SIZE";
        assert_eq!(said.contains(words), code == 2, "{name}: {said}");
        bench.run("build -F -q -t ext4 disk.img --from a.tar", 0);
    }
}

#[test]
fn a_file_that_a_manifest_names_many_times_counts_for_the_limit() {
    let bench = Bench::new();
    fs::write(bench.path("file"), vec![1; 1 << 20]).unwrap();
    for (names, code) in [(2, 0), (3, 2)] {
        let lines = |line: fn(u32) -> String| (0..names).map(line).collect::<String>();
        let mtree = lines(|name| format!("./{name} type=file contents=file\n"));
        let dump = lines(|name| format!("/{name} 1048576 100644 1 0 0 0 0.0 file - -\n"));
        fs::write(bench.path("m.mtree"), format!("#mtree\n{mtree}")).unwrap();
        fs::write(bench.path("m.dump"), dump).unwrap();
        for source in ["m.mtree", "dump:m.dump"] {
            let line = format!("build -F -q disk.img --from {source} --max-unpacked 1M");
            let (_, said) = bench.run(&line, code);
            let words = "exceed the limit of 1 MiB\n  help: use --max-unpacked SIZE";
            assert_eq!(said.contains(words), code == 2, "{source}: {said}");
        }
    }
}
