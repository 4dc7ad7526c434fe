//! Values of attributes that need inodes of their own.

use std::fs;

use super::{Bench, JUDGES, text};
use obento_testkit::oracle::{Oracle, call, require};

/// Returns a value of `len` bytes in base64.
fn value(len: usize) -> String {
    "QUJD".repeat(len / 3)
}

/// Creates two files and a directory with one long value, with several, and with a short one.
fn manifest(len: usize) -> String {
    let (long, other) = (value(len), value(len + 300));
    format!(
        "#mtree\n/set type=file uid=5 gid=6 time=9.0\n./a xattr.user.long={long}\n./b xattr.user.long={long}\n\
         ./d type=dir xattr.user.long={long} xattr.user.short=QUJD\n\
         ./d/e uid=7 xattr.user.long={long} xattr.user.other={other} xattr.trusted.twice={long}\n\
         ./link type=link link=a xattr.trusted.short=QUJD\n"
    )
}

#[test]
fn values_longer_than_a_block_have_inodes_of_their_own_that_equal_ones_share() {
    let bench = Bench::new();
    for (name, options, len) in [
        ("plain.img", "-O ea_inode", 30_000),
        ("small.img", "-O ea_inode,^extent,^64bit -b 1024", 60_000),
        ("clusters.img", "-O ea_inode,bigalloc,quota -b 4096", 12_000),
        ("old.img", "-O ea_inode,quota,^metadata_csum,^flex_bg -b 1024 -I 128", 3000),
        ("fixed.img", "-O ea_inode --size 20M -N 32", 30_000),
    ] {
        fs::write(bench.path("tree.mtree"), manifest(len)).unwrap();
        bench.run(&format!("build {options} {name} --from tree.mtree -q --verify"), 0);
        let (_, found) = bench.run(&format!("check -n {name}"), 0);
        assert_eq!(found, "", "{name}");
        let get = |path: &str, attribute: &str| {
            let reported = bench.run(&format!("getfattr -n {attribute} -e text {name}:{path}"), 0).0;
            reported.split('"').nth(1).unwrap_or_default().to_owned()
        };
        assert_eq!(get("/d/e", "user.other").len(), len + 300, "{name}");
        assert!(get("/b", "user.long") == "ABC".repeat(len / 3));
        if require(&[Oracle::Program("e2fsck")]) {
            bench.fsck(name);
        }
        if require(&[Oracle::Program("debugfs")]) {
            let image = bench.path(name);
            let output =
                call("debugfs", ["-R".as_ref(), "ea_get /d/e trusted.twice".as_ref(), image.as_os_str()]);
            assert!(text(&output.unwrap().stdout).contains("ABCABC"), "{name}");
        }
        if require(JUDGES) {
            let kernel = bench.kernel(name);
            let held = |path: &[u8], attribute: &str| kernel[path].xattrs[attribute].len();
            assert_eq!((held(b"d", "user.long"), held(b"d", "user.short")), (len, 3), "{name}");
            assert_eq!((held(b"d/e", "user.other"), held(b"link", "trusted.short")), (len + 300, 3));
        }
    }
}

#[test]
fn without_the_feature_or_beyond_what_linux_reads_a_long_value_names_its_file() {
    let bench = Bench::new();
    fs::write(bench.path("tree.mtree"), manifest(30_000)).unwrap();
    let (_, err) = bench.run("build x.img --from tree.mtree", 2);
    assert!(err.contains("ea_inode"), "{err}");
    fs::write(bench.path("tree.mtree"), manifest(65_535)).unwrap();
    let (_, err) = bench.run("build -O ea_inode x.img --from tree.mtree", 2);
    assert!(err.contains("'/d/e': the extended attributes are too large"), "{err}");
    let link = format!("#mtree\n./link type=link link=a xattr.trusted.long={}\n", value(30_000));
    fs::write(bench.path("tree.mtree"), link).unwrap();
    let (_, err) = bench.run("build -O ea_inode x.img --from tree.mtree", 2);
    assert!(err.contains("'/link': the extended attributes are too large"), "{err}");
    assert!(!bench.path("x.img").exists());
}
