//! A tree is copied into an image of each type that can be changed. It is read back unchanged, and the check of the
//! type agrees.

use std::fs;

use obento_testkit::oracle::{Oracle, require};
use obento_testkit::passed;
use obento_testkit::recipes::{EMPTY, Recipe};

use crate::support::{ALL, Bench};

fn writes(kind: &str) {
    let recipe = Recipe::of(EMPTY, kind);
    let Some(bench) = Bench::of(recipe).filter(|_| require(&[Oracle::Root])) else { return };
    recipe.make(&bench.path("."));
    // Metadata that the type cannot store is not requested.
    let copy = if recipe.kept == ALL { "cp -a" } else { "cp -r --preserve=timestamps" };
    // A folder, if the type has folders.
    let to = if bench.path("tree/dir").exists() { "/copy" } else { "/" };
    let from = if to == "/copy" { "tree" } else { "tree/." };
    bench.done(&format!("{copy} {from} image:{to}"));
    if to == "/copy" {
        // Changes of every kind, after the copy.
        bench.done("mkdir -p image:/new/folder");
        bench.done("mv image:/copy/small image:/new/folder/moved");
        bench.done("cp image:/copy/five image:/new/again");
        bench.done("truncate -s 3000 image:/new/again");
        bench.done("mv image:/new/folder/moved image:/copy/small");
        bench.done("rm -r image:/new");
    }
    fs::create_dir(bench.path("out")).unwrap();
    bench.done(&format!("cp -a image:{to}/. out"));
    bench.expect_equal("out", recipe.kept);
    recipe.check(&bench.path("."));
    passed::report(kind, "written");
}

#[test]
fn a_file_that_was_imported_and_changed_through_a_mount_reads_as_changed() {
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
    // Through a mount of the host's kernel, GNU tools compare the trees.
    bench.expect_equal("at", ALL);
    bench.shell("cp at/dir/big at/new && mv at/new at/dir/moved && rm at/link && cmp at/dir/moved tree/dir/big && sync");
    bench.done("umount at");
    bench.shell("xfs_repair -n image");
    bench.shell("cp tree/dir/big tree/dir/moved && rm tree/link");
    assert_eq!(bench.done("diff -r tree image:/"), "");
}

#[test]
fn an_xfs() {
    writes("xfs");
}

#[test]
fn a_btrfs() {
    writes("btrfs");
}

#[test]
fn an_f2fs() {
    writes("f2fs");
}

#[test]
fn a_jfs() {
    writes("jfs");
}

#[test]
fn a_reiserfs() {
    writes("reiserfs");
}

#[test]
fn a_gfs2() {
    writes("gfs2");
}

#[test]
fn a_gfs2_of_a_cluster_is_read_and_not_changed() {
    let recipe = Recipe::of(EMPTY, "gfs2");
    let Some(bench) = Bench::of(recipe) else { return };
    recipe.make(&bench.path("."));
    bench.done("mkdir image:/folder");
    bench.shell("tunegfs2 -o lockproto=lock_dlm image");
    let output = bench.obento("mkdir image:/other");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("tunegfs2 -o lockproto=lock_nolock"), "{said}");
    assert_eq!(bench.done("ls image:/"), "folder\n");
    bench.shell("tunegfs2 -o lockproto=lock_nolock image");
    bench.done("mkdir image:/other");
}

#[test]
fn a_nilfs2() {
    writes("nilfs2");
}

#[test]
fn a_minix_of_each_version() {
    ["minix", "minix2", "minix1"].into_iter().for_each(writes);
}

#[test]
fn a_udf() {
    writes("udf");
}

#[test]
fn an_hfs() {
    writes("hfs");
}

#[test]
fn a_bfs() {
    writes("bfs");
}

#[test]
fn an_hfs_plus() {
    writes("hfsplus");
}

#[test]
fn an_affs() {
    writes("affs");
}

/// Both drivers reserve space for each file that is open for writing.
#[test]
fn many_small_files_find_room_where_open_ones_have_much_of_it() {
    for kind in ["affs", "gfs2"] {
        let recipe = Recipe::of(EMPTY, kind);
        let Some(bench) = Bench::of(recipe) else { continue };
        recipe.make(&bench.path("."));
        bench.shell("mkdir all && cd all && seq 1500 | split -l 1 -a 4");
        bench.done("cp -r all image:/");
        assert_eq!(bench.done("diff -r all image:/all"), "", "{kind}");
    }
}

#[test]
fn an_hpfs() {
    writes("hpfs");
}

#[test]
fn a_sysv() {
    writes("sysv");
}

#[test]
fn an_access_list_of_an_xfs_is_shown_once() {
    if !require(&[Oracle::Program("linux.uml"), Oracle::Program("mkfs.xfs")]) {
        return;
    }
    let bench = Bench::new();
    bench.blank("image", 320);
    bench.shell("mkfs.xfs -q -f image");
    bench.done("cp tree/small image:/");
    bench.done("setfacl -m u:7:r image:/small");
    let listed = bench.done("getfattr -m - image:/small");
    assert!(listed.contains("system.posix_acl_access"), "{listed}");
    assert!(!listed.contains("SGI"), "{listed}");
}
