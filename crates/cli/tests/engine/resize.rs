//! Growing volumes that Linux grows while they are mounted.

use std::fs;

use obento_testkit::oracle::{Oracle, require};

use crate::support::{Bench, digest};

/// The value of a number in a line of JSON.
fn number(line: &str, key: &str) -> u64 {
    let rest = line.split_once(&format!("\"{key}\":")).unwrap().1;
    rest.split([',', '}']).next().unwrap().parse().unwrap()
}

/// Grows a volume several times. `make` creates it in `image`, and `check` is the program that checks it.
fn grows(kind: &str, mib: u64, (make, check): (&str, &str)) {
    let programs =
        [make, check].map(|line| line.split(' ').next().unwrap().to_owned().leak() as &'static str);
    if !require(&["linux.uml", programs[0], programs[1]].map(Oracle::Program)) {
        return;
    }
    let bench = Bench::new();
    bench.blank("image", mib);
    bench.shell(&format!("{make} image"));
    bench.done("cp -a tree image:/");
    if kind == "btrfs" {
        let before = digest(&bench.path("image"));
        let output = bench.obento("resize image +10M");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(
            "can only be resized to at least 268435456 bytes\n  help: use a size of at least 256 MiB"
        ));
        assert_eq!(digest(&bench.path("image")), before, "a refused change leaves the image as it was");
    }
    // The last length leaves less than an allocation group of XFS can have.
    for size in [format!("{}M", mib * 2), "+77777K".to_owned(), format!("{}K", mib * 4096 + 100)] {
        let planned = bench.done(&format!("--json resize --dry-run image {size}"));
        let resized = bench.done(&format!("--json resize image {size}"));
        assert_eq!(number(&planned, "size"), number(&resized, "size"), "{kind} {size}");
        assert!(number(&resized, "size") > number(&resized, "old_size"), "{resized}");
        bench.shell(&format!("{check} image"));
        assert_eq!(bench.done("diff -r tree image:/tree"), "", "{kind} {size}");
    }
    let grown = bench.done("--json df image");
    bench.done("cp tree/dir/big image:/more");
    assert!(grown.contains(kind), "{grown}");
    let before = digest(&bench.path("image"));
    for size in ["64M", "--minimum"] {
        let output = bench.obento(&format!("resize image {size}"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("volumes of this type can grow, but not shrink"), "{said}");
    }
    let output = bench.obento("--engine native resize image +64M");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(digest(&bench.path("image")), before, "a refused change leaves the image as it was");
}

#[test]
fn an_xfs_grows_and_keeps_its_files() {
    grows("xfs", 310, ("mkfs.xfs -q", "xfs_repair -n"));
}

#[test]
fn a_btrfs_grows_and_keeps_its_files() {
    grows("btrfs", 130, ("mkfs.btrfs -q", "btrfs check --readonly"));
}

#[test]
fn a_partition_grows_before_its_xfs() {
    if !require(&["linux.uml", "mkfs.xfs", "xfs_repair", "sgdisk"].map(Oracle::Program)) {
        return;
    }
    let bench = Bench::new();
    bench.blank("disk", 800);
    bench.done("part disk create gpt");
    bench.done("part disk add --size 310M");
    bench.done("mkfs -q -t xfs disk@1");
    bench.done("cp -a tree disk@1:/");
    let resized = bench.done("--json resize disk@1 --maximum");
    // The partition has the size of the volume already.
    assert_eq!(number(&resized, "size"), number(&resized, "old_size"), "{resized}");
    let resized = bench.done("--json resize disk@1 700M");
    assert_eq!((number(&resized, "size"), number(&resized, "partition_size")), (700 << 20, 700 << 20));
    bench.shell("sgdisk -v disk");
    bench.shell("dd if=disk of=volume bs=1M skip=1 count=700 status=none && xfs_repair -n volume");
    assert_eq!(bench.done("diff -r tree disk@1:/tree"), "");
    assert_eq!(fs::metadata(bench.path("disk")).unwrap().len(), 800 << 20);
}
