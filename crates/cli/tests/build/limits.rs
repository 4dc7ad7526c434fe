//! Manifests that are packed, that never end, and that name what is not theirs.

use std::fs;
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
        let (_, said) = bench.run(&format!("build disk.img --from {kind}:long"), 1);
        assert!(said.contains("line 1 has more than 1048576 bytes"), "{kind}: {said}");
        fs::remove_file(bench.path("long")).unwrap();
    }
    fs::write(
        bench.path("set"),
        "/set a=1\n".repeat(10) + &(0..300).map(|n| format!("/set k{n}=1\n")).collect::<String>(),
    )
    .unwrap();
    let (_, said) = bench.run("build disk.img --from mtree:set", 1);
    assert!(said.contains("line 266 nests or sets more than any manifest needs"), "{said}");
    fs::write(bench.path("deep"), "d type=dir\n".repeat(3000)).unwrap();
    assert!(bench.run("build disk.img --from mtree:deep", 1).1.contains("line 2049 nests"));
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
            let (_, said) = bench.run(&format!("build disk.img --from {source}"), 1);
            let told = "is outside of the directory of the manifest; --contents DIR allows another";
            assert!(said.contains(told), "{contents}, {source}: {said}");
        }
    }
    for (size, contents, words) in [(sub, "sub/file", "manifests/sub"), (far, elsewhere, "elsewhere")] {
        write(size, contents);
        for source in ["manifests/m.mtree", "dump:manifests/m.dump"] {
            bench.run(&format!("build -F -q -t ext2 disk.img --from {source} --contents elsewhere"), 0);
            assert_eq!(bench.run("cat disk.img:/f", 0).0, words);
        }
    }
    // A disk names them in its file, from its own directory.
    let layout = "[[partition]]\ntype = \"linux-generic\"\ncontent = \"ext2\"\nfrom = \"m.mtree\"\ncontents = \"../elsewhere\"\n";
    fs::write(folder.join("disk.toml"), layout).unwrap();
    bench.run("build -q whole.img --disk manifests/disk.toml", 0);
    assert_eq!(text(&bench.command("cat whole.img:/f").output().unwrap().stdout), "elsewhere");
}
