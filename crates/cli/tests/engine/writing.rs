//! A tree that was put into an image of each type that can be changed comes out the same, and the type's own check agrees.

use std::fs;

use obento_testkit::oracle::{Oracle, require};

use crate::support::{ALL, Bench};

/// `make` and `check` run where the image is `image`; no check where there is no program for it.
fn writes(megabytes: u64, maker: &'static str, make: &str, check: Option<&str>, fields: &str) {
    if !require(&[Oracle::Program("linux.uml"), Oracle::Program(maker), Oracle::Root]) {
        return;
    }
    let bench = Bench::new();
    bench.blank("image", megabytes);
    bench.shell(make);
    bench.done("cp -a tree image:/copy");
    // Changes of every kind, on top of what the copy did.
    bench.done("mkdir -p image:/new/folder");
    bench.done("mv image:/copy/small image:/new/folder/moved");
    bench.done("cp image:/copy/five image:/new/again");
    bench.done("truncate -s 3000 image:/new/again");
    bench.done("mv image:/new/folder/moved image:/copy/small");
    bench.done("rm -r image:/new");
    fs::create_dir(bench.path("out")).unwrap();
    bench.done("cp -a image:/copy/ out/");
    bench.expect_equal("out/copy", fields);
    if let Some(check) = check {
        bench.shell(check);
    }
}

#[test]
fn what_is_imported_and_changed_through_a_mount_is_what_is_read() {
    let oracles = [Oracle::Program("linux.uml"), Oracle::Program("mkfs.xfs"), Oracle::Root, Oracle::Fuse];
    if !require(&oracles) {
        return;
    }
    let bench = Bench::new();
    bench.blank("image", 310);
    bench.shell("mkfs.xfs -q image && tar cf tree.tar -C tree .");
    let import =
        bench.command("import image:/").stdin(fs::File::open(bench.path("tree.tar")).unwrap()).output();
    assert!(import.unwrap().status.success());
    assert_eq!(bench.done("diff -r tree image:/"), "");
    fs::create_dir(bench.path("at")).unwrap();
    bench.done("mount image at");
    // By the kernel of the host: what a mount shows is what GNU tools compare.
    bench.expect_equal("at", ALL);
    bench.shell("cp at/dir/big at/new && mv at/new at/dir/moved && rm at/link && cmp at/dir/moved tree/dir/big && sync");
    bench.done("umount at");
    bench.shell("xfs_repair -n image");
    bench.shell("cp tree/dir/big tree/dir/moved && rm tree/link");
    assert_eq!(bench.done("diff -r tree image:/"), "");
}

#[test]
fn an_xfs() {
    writes(310, "mkfs.xfs", "mkfs.xfs -q image", Some("xfs_repair -n image"), ALL);
}

#[test]
fn a_btrfs() {
    writes(130, "mkfs.btrfs", "mkfs.btrfs -q image", Some("btrfs check image"), ALL);
}

#[test]
fn an_f2fs() {
    writes(64, "mkfs.f2fs", "mkfs.f2fs -q image", Some("fsck.f2fs image"), ALL);
}

#[test]
fn a_jfs() {
    writes(64, "mkfs.jfs", "mkfs.jfs -q image", Some("fsck.jfs -n image"), ALL);
}

#[test]
fn a_reiserfs() {
    let check = "reiserfsck -q -y --check image";
    writes(64, "mkfs.reiserfs", "mkfs.reiserfs -qff image", Some(check), ALL);
}

#[test]
fn a_nilfs2() {
    writes(140, "mkfs.nilfs2", "mkfs.nilfs2 -q image", None, ALL);
}

#[test]
fn a_minix_of_the_third_version() {
    writes(16, "mkfs.minix", "mkfs.minix -3 image", Some("fsck.minix -f image"), ALL);
}

#[test]
fn a_udf() {
    writes(32, "mkudffs", "mkudffs image", None, ALL);
}
