//! An image that another program filled, of each type that has such a program, is what it was filled from; and it is only read.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use obento_testkit::oracle::{Oracle, require};

use crate::support::{ALL, Bench, digest};

/// What a type does not keep is left out of `fields`.
fn reads(kind: &str, maker: &'static str, line: &str, megabytes: Option<u64>, fields: &str) {
    if !require(&[Oracle::Program("linux.uml"), Oracle::Program(maker), Oracle::Root]) {
        return;
    }
    let bench = Bench::new();
    if let Some(megabytes) = megabytes {
        bench.blank("image", megabytes);
    }
    if kind == "xfs" {
        fs::write(bench.path("proto"), prototype(&bench.path("tree"))).unwrap();
    }
    bench.shell(line);
    let before = digest(&bench.path("image"));
    fs::create_dir(bench.path("out")).unwrap();
    bench.done("cp -a image:/ out/");
    bench.expect_equal("out", fields);
    assert!(bench.done("info image").contains(&format!("file system             {kind}")));
    assert_eq!(bench.done("cat image:/many/f399"), "399");
    assert_eq!(digest(&bench.path("image")), before, "reading changed the image");
}

/// A tree as mkfs.xfs(8) takes it: `-p protofile`.
fn prototype(tree: &Path) -> String {
    fn folder(at: &Path, out: &mut String) {
        let mut entries: Vec<_> = fs::read_dir(at).unwrap().map(Result::unwrap).collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (path, meta) = (entry.path(), entry.metadata().unwrap());
            let name = entry.file_name().into_string().unwrap();
            let (mode, owner) = (meta.mode() & 0o777, format!("{} {}", meta.uid(), meta.gid()));
            if meta.is_dir() {
                out.push_str(&format!("{name} d--{mode:03o} {owner}\n"));
                folder(&path, out);
                out.push_str("$\n");
            } else if meta.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                out.push_str(&format!("{name} l--{mode:03o} {owner} {}\n", target.display()));
            } else {
                out.push_str(&format!("{name} ---{mode:03o} {owner} {}\n", path.display()));
            }
        }
    }
    let mut out = String::from("/dev/null\n0 0\nd--755 0 0\n");
    folder(tree, &mut out);
    out + "$\n"
}

/// Times are those of the making.
const NO_TIMES: &str = "%P %y %m %U %G %s %l";

#[test]
fn an_xfs_from_mkfs_with_a_prototype() {
    reads("xfs", "mkfs.xfs", "mkfs.xfs -q -p proto image", Some(310), NO_TIMES);
}

#[test]
fn a_btrfs_from_mkfs_with_a_folder() {
    reads("btrfs", "mkfs.btrfs", "mkfs.btrfs -q -r tree image", Some(130), ALL);
}

#[test]
fn an_f2fs_that_was_loaded() {
    reads("f2fs", "sload.f2fs", "mkfs.f2fs -q image && sload.f2fs -P -f tree image", Some(64), ALL);
}

#[test]
fn an_iso_9660_with_rock_ridge() {
    reads("iso9660", "genisoimage", "genisoimage -quiet -R -o image tree", None, ALL);
}

#[test]
fn a_squashfs() {
    reads("squashfs", "mksquashfs", "mksquashfs tree image -noappend -no-progress -quiet", None, ALL);
}

#[test]
fn an_erofs() {
    reads("erofs", "mkfs.erofs", "mkfs.erofs image tree", None, ALL);
}

#[test]
fn a_cramfs_which_keeps_no_times() {
    reads("cramfs", "mkfs.cramfs", "mkfs.cramfs tree image", None, NO_TIMES);
}

#[test]
fn a_romfs_which_keeps_no_owners_modes_and_times() {
    reads("romfs", "genromfs", "genromfs -f image -d tree", None, "%P %y %s %l");
}

#[test]
fn an_ffs_of_the_first_version() {
    reads("ufs1", "makefs", "makefs -t ffs -o version=1 image tree", None, ALL);
}
