//! Disks with partitions of types that other programs create and Linux fills.

use std::fs;

use obento_testkit::oracle::{Oracle, call, require};

use crate::support::{ALL, Bench};

const LAYOUT: &str = r#"
[[partition]]
type = "linux-generic"
label = "native"
content = "ext4"
from = "tree"
owner = "keep"

[[partition]]
type = "swap"
size = "2M"
content = "swap"

[[partition]]
type = "linux-generic"
label = "filled"
content = "xfs"
from = "tree"
owner = "keep"
fs-label = "data"

[[partition]]
type = "home"
size = "24M"
content = "minix"
from = ["tree"]
owner = "keep"
"#;

/// Returns the partitions of `disk.img` from the JSON output of a build: first byte and length.
fn places(said: &str) -> Vec<(u64, u64)> {
    let number = |line: &str, key: &str| -> u64 {
        let rest = line.split(&format!("\"{key}\":")).nth(1).unwrap();
        rest.split([',', '}']).next().unwrap().parse().unwrap()
    };
    let lines = said.lines().filter(|line| line.contains("built_partition"));
    lines.map(|line| (number(line, "start"), number(line, "size"))).collect()
}

#[test]
fn a_disk_with_partitions_that_linux_fills_is_right_to_their_checks() {
    let programs = ["linux.uml", "mkfs.xfs", "xfs_repair", "mkfs.minix", "fsck.minix"].map(Oracle::Program);
    if !require(&programs) || !require(&[Oracle::Root]) {
        return;
    }
    let bench = Bench::new();
    fs::write(bench.path("layout.toml"), LAYOUT).unwrap();
    let said = bench.done("--json build disk.img --disk layout.toml");
    let places = places(&said);
    assert!(said.contains("\"file_system\":\"xfs\"") && places.len() == 4, "{said}");
    // Without a given size, the partition has the least size that the program creates, or more.
    assert!(places[2].1 >= 300 << 20 && places[3].1 == 24 << 20, "{places:?}");
    for (number, out) in [(1, "native"), (3, "filled"), (4, "small")] {
        fs::create_dir(bench.path(out)).unwrap();
        bench.done(&format!("cp -a disk.img@{number}:/. {out}/"));
        bench.shell(&format!("rm -rf {out}/lost+found"));
        bench.expect_equal(out, ALL);
    }
    let info = bench.done("info disk.img");
    assert!(info.contains("Linux swap space") && info.contains("data"), "{info}");
    let cut = |(start, len): (u64, u64), name: &str| {
        let from = format!("if={} iflag=skip_bytes,count_bytes", bench.path("disk.img").display());
        bench.shell(&format!("dd {from} of={name} skip={start} count={len} bs=1M conv=sparse status=none"));
        bench.path(name)
    };
    let xfs = cut(places[2], "cut.xfs");
    call("xfs_repair", ["-n".as_ref(), xfs.as_os_str()]).unwrap();
    let minix = cut(places[3], "cut.minix");
    call("fsck.minix", ["-f".as_ref(), minix.as_os_str()]).unwrap();
    bench.done("check disk.img@3");
    // Zeros take no space: little of the empty volume is written besides its log.
    let used: u64 = bench.shell("du --block-size=1M disk.img | cut -f 1").trim().parse().unwrap();
    assert!(used < 200, "{used} MiB");
    if require(&[Oracle::Program("sfdisk")]) {
        call("sfdisk", ["--verify".as_ref(), bench.path("disk.img").as_os_str()]).unwrap();
    }
}

#[test]
fn the_rest_of_a_disk_is_filled_and_its_identity_follows_from_the_trees() {
    if !require(&["linux.uml", "mkfs.minix"].map(Oracle::Program)) {
        return;
    }
    let bench = Bench::new();
    let layout = "[disk]\nsize = \"40M\"\n[[partition]]\ntype = \"linux-generic\"\nsize = \"rest\"\ncontent = \"minix\"\n\
                  from = \"tree.tar\"\n";
    bench.shell("tar cf tree.tar -C tree .");
    fs::write(bench.path("layout.toml"), layout).unwrap();
    let uuids = |image: &str| {
        let said = bench.done(&format!("--json build {image} --disk layout.toml"));
        let keys = ["\"uuid\":\"", "\"partition_uuid\":\""];
        keys.map(|key| said.split(key).nth(1).unwrap().split('"').next().unwrap().to_owned())
    };
    assert_eq!(uuids("one.img"), uuids("two.img"));
    assert_eq!(fs::metadata(bench.path("one.img")).unwrap().len(), 40 << 20);
    assert_eq!(bench.done("cat one.img@1:/many/f399"), "399");
    let used = bench.done("df -B1 one.img@1");
    let size: u64 = used.lines().nth(1).unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(size > 36 << 20, "{used}");
}

#[test]
fn an_impossible_partition_is_reported_with_its_line_and_leaves_nothing() {
    if !require(&["linux.uml", "mkfs.xfs", "mkfs.minix"].map(Oracle::Program)) {
        return;
    }
    let bench = Bench::new();
    let refused = |more: &str, option: &str, why: &str| {
        let layout = format!("[[partition]]\ntype = \"linux-generic\"\nfrom = \"tree\"\n{more}\n");
        fs::write(bench.path("layout.toml"), layout).unwrap();
        let output = bench.obento(format!("build disk.img --disk layout.toml {option}").trim_end());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(why), "{more}: {said}");
        assert!(!bench.path("disk.img").exists(), "{more}");
    };
    let uuid = "00000000-0000-0000-0000-000000000001";
    refused(
        &format!("content = \"xfs\"\nfs-uuid = \"{uuid}\""),
        "",
        "'layout.toml:5': fs-uuid: not available for this type, which mkfs.xfs creates",
    );
    refused(
        "content = \"minix\"\nfs-label = \"name\"",
        "",
        "'layout.toml:5': fs-label: not available for this type, which mkfs.minix creates",
    );
    refused(
        "content = \"erofs\"",
        "",
        "'layout.toml:4': content: obento supports no program that creates erofs volumes",
    );
    refused("content = \"xfs\"", "--verify", "--verify is not supported");
    refused("content = \"xfs\"\nsize = \"2M\"", "", "partition 1: mkfs.xfs ended with exit status");
    refused("content = \"minix\"\nsize = \"1M\"", "", "the files do not fit in ");
    let left = fs::read_dir(bench.path(".")).unwrap().count();
    assert_eq!(left, 2, "the tree and the layout");
}
