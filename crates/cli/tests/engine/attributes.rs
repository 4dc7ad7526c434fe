//! Extended attributes that a volume stores and its kernel driver cannot read.

use std::process::Output;

use obento_testkit::oracle::{Oracle, require};

use crate::support::Bench;

/// Creates a tree with attributes, packed by `maker`; `None` if the programs are missing.
fn packed(maker: &'static str, line: &str) -> Option<Bench> {
    let oracles = ["linux.uml", "setfattr", maker].map(Oracle::Program);
    let bench = require(&oracles).then(Bench::new)?;
    bench.shell("setfattr -n user.origin -v here tree/small");
    bench.shell("setfattr -n security.selinux -v system_u:object_r:bin_t:s0 tree/five");
    bench.shell(line);
    Some(bench)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const LOST: &str = "cannot read the extended attributes (including capabilities and security labels) of 'image': \
    the kernel of the kernel engine was built without CONFIG_SQUASHFS_XATTR";

#[test]
fn attributes_of_a_squashfs_that_the_kernel_hides_are_reported_as_lost_once_a_command() {
    let Some(bench) = packed("mksquashfs", "mksquashfs tree image -noappend -quiet") else { return };
    for (line, code) in [
        ("cp -a image:/ out", 1),
        ("export -o out.tar image", 1),
        ("getfattr -d image:/small", 1),
        ("diff -r --metadata image:/ tree", 2),
    ] {
        let output = bench.obento(line);
        let said = said(&output);
        assert_eq!(said.matches(LOST).count(), 1, "{line}: {said}");
        assert_eq!(output.status.code(), Some(code), "{line}: {said}");
    }
    // Everything else is present.
    bench.expect_equal("out", "%P %m %U %G %s %l %T@");
    // A command that needs no attributes loses none.
    for line in ["ls -l image:/", "cat image:/five", "cp -r image:/ plain", "find image:/ -name five"] {
        let output = bench.obento(line);
        assert!(output.status.success() && said(&output).is_empty(), "{line}: {}", said(&output));
    }
    let info = bench.done("info image").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        info.contains("security labels) cannot be read") && info.contains("CONFIG_SQUASHFS_XATTR"),
        "{info}"
    );
    let types = bench.done("types");
    let missing = "missing CONFIG_SQUASHFS_XATTR to show the extended attributes";
    assert!(
        types.lines().any(|line| line.starts_with(missing) && line.contains(" of squashfs: ")),
        "{types}"
    );
}

#[test]
fn a_squashfs_without_attributes_is_copied_without_a_warning() {
    let Some(bench) = packed("mksquashfs", "mksquashfs tree image -noappend -quiet -no-xattrs") else {
        return;
    };
    let output = bench.obento("cp -a image:/ out");
    assert!(output.status.success() && output.stderr.is_empty(), "{}", said(&output));
}

#[test]
fn attributes_of_an_erofs_are_copied() {
    let Some(bench) = packed("mkfs.erofs", "mkfs.erofs image tree") else { return };
    bench.done("cp -a image:/ out");
    for (file, name) in [("small", "user.origin"), ("five", "security.selinux")] {
        let value = |tree: &str| bench.shell(&format!("getfattr --only-values -n {name} {tree}/{file}"));
        assert!(!value("tree").is_empty());
        assert_eq!(value("out"), value("tree"), "{name}");
    }
}
